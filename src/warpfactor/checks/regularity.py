"""How regular a warp is, from the field itself: folding, volume change, displacement, and the error of its inverse.

result.json has such figures too, but a report describes the files as they are now: figures of result.json are used only
if they belong to this warp.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from warpfactor.checks.case import Case
from warpfactor.checks.coarse import ObjectMask
from warpfactor.geometry.grid import slabs
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Warp
from warpfactor.kernels.ops import Ops
from warpfactor.measure.displacement import ErrorFigures, displacement_figures, round_trip_map

SAME = 1e-3  # tolerance for the smallest determinant of the same warp in memory and in its file
LOG_LIMIT, SHOWN_LIMIT = 10, 4  # of the base-2 logarithm of the Jacobian: measured, shown
FINE, COARSE = 64, 16  # bins of its histogram per factor of two: measured, shown


@dataclass(frozen=True)
class Regularity:
    """Figures of a warp for the report.

    Attributes:
        folded, voxels: of the whole image; a voxel folds if its Jacobian determinant is not positive.
        folded_share: share of the voxels of the object that fold.
        sd_log: standard deviation of the natural logarithm of the determinant in the object.
        percentiles: 1st, 50th and 99th of the determinant there.
        displacement_mm: length of the displacement, whole image.
        inverse_vox: |x - inverse(forward(x))| in voxels, where x stays in the image; None without an inverse.
        counts: histogram of the base-2 logarithm in the object, COARSE bins per unit from -SHOWN_LIMIT to SHOWN_LIMIT;
            the first and last bin include what lies beyond them, and folded voxels are not counted.
    """

    folded: int
    voxels: int
    folded_share: float
    sd_log: float
    percentiles: tuple[float, float, float]
    displacement_mm: ErrorFigures
    inverse_vox: ErrorFigures | None
    counts: NDArray[np.int64]


def jacobian_of(warp: Warp | None, ops: Ops) -> Image | None:
    """Jacobian determinant of a warp on its own grid; None without a warp."""
    if warp is None:
        return None
    return Image(ops.jacobian_determinant(_single(warp))[None], warp.grid, "jacobian")


class InverseError(NamedTuple):
    """Error of an inverse, |x - inverse(forward(x))|: figures in voxels, and a map in mm.

    The map is NaN where the warp leaves the image.
    """

    figures_vox: ErrorFigures
    errors_mm: Image


def inverse_error_of(case: Case) -> InverseError | None:
    """The error of the inverse warp; None without one on the same grid."""
    warp, inverse = case.warp, case.inverse_warp
    if warp is None or inverse is None or inverse.displacement.shape != warp.displacement.shape:
        return None
    figures, errors = round_trip_map(_single(warp), _single(inverse), warp.grid, case.ops)
    return InverseError(figures, Image(errors[None], warp.grid, "error"))


def measure(case: Case, region: ObjectMask, jacobian: Image | None, inverse: InverseError | None) -> Regularity | None:
    """The figures of a warp; None without one.

    Args:
        region: the object of the fixed image.
        jacobian: determinant of the warp.
        inverse: the error of its inverse, if there is one.
    """
    if case.warp is None or jacobian is None:
        return None
    determinant = jacobian.data[0].numpy()
    counts, folded_inside, inside = _histogram(determinant, region)
    known = _known(case, determinant)
    sd_log, percentiles = known or (_spread(counts), _percentiles(counts))
    return Regularity(
        folded=determinant.size - int(np.count_nonzero(determinant > 0)),
        voxels=determinant.size,
        folded_share=folded_inside / max(inside, 1),
        sd_log=sd_log,
        percentiles=percentiles,
        displacement_mm=displacement_figures(_single(case.warp), case.warp.grid, case.ops),
        inverse_vox=None if inverse is None else inverse.figures_vox,
        counts=_shown(counts),
    )


def _single(warp: Warp) -> Tensor:
    return warp.displacement.to(torch.float32).contiguous()


def _known(case: Case, determinant: NDArray[np.float32]) -> tuple[float, tuple[float, float, float]] | None:
    """SD of the logarithm and percentiles in the object, from result.json if it describes this warp."""
    figures = case.entries["figures"]
    image, inside = (figures.get(f"warp_jacobian_determinant_in_{name}") for name in ("image", "fixed_foreground"))
    if not image or not inside:
        return None
    if not math.isclose(float(determinant.min()), image["minimum"], rel_tol=SAME, abs_tol=SAME):
        return None
    low, middle, high = (float(inside["percentiles"][name]) for name in ("p1", "p50", "p99"))
    return float(inside["sd_log"]), (low, middle, high)


def _histogram(determinant: NDArray[np.float32], region: ObjectMask) -> tuple[NDArray[np.int64], int, int]:
    """Counts in fine bins over the object, the number of its folded voxels, and the number of all its voxels."""
    bins = 2 * LOG_LIMIT * FINE
    counts, folded, inside = np.zeros(bins, dtype=np.int64), 0, 0
    for planes in slabs(region.shape):
        values = determinant[planes][region.planes(planes)]
        positive = values[values > 0]
        inside, folded = inside + values.size, folded + values.size - positive.size
        place = (np.log2(positive) + LOG_LIMIT) * FINE
        counts += np.bincount(np.clip(place, 0, bins - 1).astype(np.int64), minlength=bins)
    return counts, folded, inside


def _shown(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Fine bins summed to the bins that are shown."""
    first, last = (LOG_LIMIT - SHOWN_LIMIT) * FINE, (LOG_LIMIT + SHOWN_LIMIT) * FINE
    shown: NDArray[np.int64] = counts[first:last].reshape(-1, FINE // COARSE).sum(axis=1)
    shown[0] += counts[:first].sum()
    shown[-1] += counts[last:].sum()
    return shown


def _middles() -> NDArray[np.float64]:
    """Base-2 logarithm at the centre of each fine bin."""
    return np.linspace(-LOG_LIMIT, LOG_LIMIT, 2 * LOG_LIMIT * FINE, endpoint=False) + 0.5 / FINE


def _spread(counts: NDArray[np.int64]) -> float:
    logs, total = _middles() * math.log(2), max(int(counts.sum()), 1)
    mean = float(logs @ counts) / total
    return math.sqrt(float((logs - mean) ** 2 @ counts) / total)


def _percentiles(counts: NDArray[np.int64]) -> tuple[float, float, float]:
    share = np.cumsum(counts) / max(int(counts.sum()), 1)
    places = np.minimum(np.searchsorted(share, (0.01, 0.5, 0.99)), len(counts) - 1)
    low, middle, high = np.exp2(_middles()[places]).tolist()
    return low, middle, high

"""The pictures of a report: slices before and after registration, maps of the warp, and lines of a deformed grid."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from warpfactor.checks.case import Case
from warpfactor.checks.coarse import ObjectMask, first_channel
from warpfactor.checks.sampling import at, nearest, parts, sample
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.image import Image
from warpfactor.geometry.resample import VoxelMap
from warpfactor.geometry.transform import Affine, Transform, Warp
from warpfactor.kernels.ops import Ops
from warpfactor.measure.displacement import lengths_mm
from warpfactor.show.report.sheets import Bytes, Stack
from warpfactor.show.report.slices import SlicePlane, choose_planes

WINDOW = (0.005, 0.997)  # quantiles that become black and white
LINES = 40  # of the deformed grid, along the longer side of a picture
LOG_RANGE = 2.0  # of the base-2 logarithm of the Jacobian: from a quarter to four times the volume
TOP = 0.997  # quantile of a map that has the last colour
ENOUGH = 400_000  # values from which a quantile is computed
LEAST_ERROR_VOX = 0.25  # the colours of the inverse error cover at least this range


@dataclass(frozen=True)
class SliceMap:
    """A quantity on the slices, and the values of its first and last grey level."""

    stack: Stack
    low: float
    high: float


@dataclass(frozen=True)
class GridLines:
    """Displacements of the points of a regular grid on one plane: (slice, row, column, 2), in `unit` pixels."""

    pitch: int
    unit: float
    steps: NDArray[np.int8]

    def to_dict(self) -> dict[str, Any]:
        _, rows, columns, _ = self.steps.shape
        data = base64.b64encode(self.steps.tobytes()).decode("ascii")
        return {"pitch": self.pitch, "unit": self.unit, "rows": rows, "columns": columns, "data": data}


@dataclass(frozen=True)
class Views:
    """All pictures of a case.

    Attributes:
        planes: the slices that are shown.
        images: the stacks "fixed", "before", "affine" and "after", as far as they exist and differ.
        maps: "jacobian", "displacement", "error" by name; none without a warp.
        folds: 255 where the Jacobian determinant is not positive.
        lines: the deformed grid on each plane.
    """

    planes: Sequence[SlicePlane]
    images: Sequence[Stack]
    maps: dict[str, SliceMap]
    folds: Stack | None
    lines: Sequence[GridLines]


def make_views(case: Case, region: ObjectMask, jacobian: Image | None, errors_mm: Image | None) -> Views:
    """All pictures of a case.

    Args:
        region: the object of the fixed image.
        jacobian: determinant of the warp, if there is one.
        errors_mm: map of the error of the inverse, if there is one.
    """
    planes = choose_planes(case.fixed_grid, region.box())
    fields = [[_field(case.warp, part, case.ops) for part in parts(plane.grid)] for plane in planes]
    images = _image_stacks(case, fields)
    if case.warp is None or jacobian is None:
        return Views(planes, images, {}, None, ())
    made = [_on_plane(plane, jacobian, errors_mm, case.ops) for plane in fields]
    maps = {
        "jacobian": SliceMap(Stack("jacobian", [part.jacobian for part in made]), -LOG_RANGE, LOG_RANGE),
        "displacement": _length_map("displacement", [part.lengths_mm for part in made]),
    }
    if errors_mm is not None:
        least = LEAST_ERROR_VOX * min(case.fixed_grid.spacing_mm)
        maps["error"] = _length_map("error", [part.errors_mm for part in made], least)
    folds = Stack("folds", [part.folds for part in made], exact=True)
    return Views(planes, images, maps, folds, [part.lines for part in made])


def _field(warp: Warp | None, grid: Grid, ops: Ops) -> VoxelMap:
    """A warp on some slices; it is zero outside its own grid."""
    still = VoxelMap(grid, None, np.eye(4))
    if warp is None:
        return still
    steps = at(Image(warp.displacement, warp.grid), still, ops=ops, outside=0.0)
    turn = np.linalg.solve(grid.matrix[:3, :3], warp.grid.matrix[:3, :3])
    return still._replace(displacement=torch.einsum("ab,bzyx->azyx", torch.from_numpy(turn).float(), steps))


def _image_stacks(case: Case, planes: Sequence[Sequence[VoxelMap]]) -> list[Stack]:
    """The fixed image, and the moving image under each transform that differs from the others.

    Args:
        planes: the warp on the parts of each plane.
    """
    still = Affine(dimension=case.fixed_grid.ndim)
    stacks = [] if case.fixed is None else _grey([("fixed", case.fixed, still)], planes, case.ops)
    if case.after is None:
        return stacks
    image, transform = case.after
    shown: list[tuple[str, Image, Transform]] = [("after", image, transform)]
    if case.moving is not None:
        if case.warp is not None and not np.allclose(case.affine.matrix, np.eye(4)):
            shown.append(("affine", image, case.affine))
        shown.append(("before", image, still))
    return [*stacks, *_grey(shown, planes, case.ops)]


def _grey(shown: Sequence[tuple[str, Image, Transform]], planes: Sequence[Sequence[VoxelMap]], ops: Ops) -> list[Stack]:
    """Stacks of one image under several transforms, with the intensity window of the first plane of the first one."""
    low = high = math.nan
    stacks = []
    for name, image, transform in shown:
        slices = []
        for plane in planes:
            values = torch.cat([_sampled(image, transform, part, ops) for part in plane])
            if math.isnan(low):
                low, high = _quantiles([values.numpy()], WINDOW) or (0.0, 1.0)
            slices.append(_levels(values, low, high))
        stacks.append(Stack(name, slices))
    return stacks


def _quantiles(values: Sequence[NDArray[np.float32]], shares: Sequence[float]) -> list[float]:
    """Quantiles of a sample of the finite values; empty if there are none."""
    step = 1 + sum(part.size for part in values) // ENOUGH
    some = np.concatenate([part.ravel()[::step] for part in values])
    known = some[np.isfinite(some)]
    return np.quantile(known, shares).tolist() if known.size else []


def _sampled(image: Image, transform: Transform, part: VoxelMap, ops: Ops) -> Tensor:
    """(slice, row, column) of the first channel; `part` holds the warp for transforms that begin with it."""
    first, *rest = transform.parts
    place = reduce(lambda there, then: then.follow(there, ops), rest, part) if isinstance(first, Warp) else None
    return sample(first_channel(image), transform, part.grid, ops, slices=True, place=place)[0]


def _levels(values: Tensor, low: float, high: float) -> Bytes:
    """Values as grey levels; NaN is black."""
    scaled = torch.nan_to_num(values, nan=low).sub_(low).mul_(255 / max(high - low, 1e-12))
    return scaled.clamp_(0, 255).round_().to(torch.uint8).numpy()


@dataclass(frozen=True)
class _OnPlane:
    """The warp on one plane: (slice, row, column) grey levels of the Jacobian, folds and lengths; and grid lines."""

    jacobian: Bytes
    folds: Bytes
    lengths_mm: NDArray[np.float32]
    errors_mm: NDArray[np.float32]
    lines: GridLines


def _on_plane(plane: Sequence[VoxelMap], jacobian: Image, errors_mm: Image | None, ops: Ops) -> _OnPlane:
    """Computed part by part, because the vectors of a whole plane need much memory."""
    pitch = max(2, math.ceil(max(plane[0].grid.shape[1:]) / LINES))
    found = []
    for grid, field, _ in plane:
        assert field is not None
        # One voxel for each pixel: an average would hide a fold.
        determinant = nearest(jacobian, grid, ops=ops, outside=1.0)[0]
        error = torch.zeros(grid.shape) if errors_mm is None else nearest(errors_mm, grid, ops=ops)[0]
        logs = determinant.clamp(min=2.0**-LOG_RANGE).log2()
        found.append(
            (
                _levels(logs, -LOG_RANGE, LOG_RANGE),
                np.where(determinant.numpy() <= 0, 255, 0).astype(np.uint8),
                lengths_mm(field, grid).numpy(),
                error.numpy(),
                field[1:, :, pitch // 2 :: pitch, pitch // 2 :: pitch].permute(1, 2, 3, 0).numpy().copy(),
            )
        )
    levels, folds, lengths, errors, steps = (np.concatenate(column) for column in zip(*found, strict=True))
    return _OnPlane(levels, folds, lengths, errors, _lines(steps, pitch))


def _length_map(name: str, lengths: Sequence[NDArray[np.float32]], least: float = 0.0) -> SliceMap:
    """Lengths in mm as grey levels from zero to nearly the maximum, at least to `least`."""
    high = max(*_quantiles(lengths, (TOP,)), least, 1e-6)
    return SliceMap(Stack(name, [_levels(torch.from_numpy(part), 0.0, high) for part in lengths]), 0.0, high)


def _lines(steps: NDArray[np.float32], pitch: int) -> GridLines:
    """In-plane displacements of the points of a regular grid, as 8-bit numbers."""
    unit = max(float(np.abs(steps).max()) / 127, 1e-6)
    return GridLines(pitch, unit, np.round(steps / unit).astype(np.int8))

"""Figures that say how good a registration is: overlap, distances, folds, errors, similarity.

Every function takes tensors or numpy arrays. Distances come out in the unit that went in: mm for points and
surfaces, voxels for displacements.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import SimpleITK
import torch
from torch import Tensor

from warpfactor import kernels
from warpfactor.errors import InputError
from warpfactor.kernels.ops import Ops

Array: TypeAlias = npt.NDArray[Any]

sitk: Any = SimpleITK  # its functions carry no types

LOG_JACOBIAN_RANGE = (1e-3, 1e3)  # determinants are clipped to this before the logarithm: folds have none
RANKS = (1, 5, 50, 95, 99)  # percentiles of determinants
MOST_BINS = 1 << 20  # labels below this are counted in a histogram


@dataclass(frozen=True)
class DiceFigures:
    """Overlap of two label maps.

    Attributes:
        per_label: Dice of every label in either map; 0 for a label that only one of them has.
        mean: over all of per_label.
        mean_common: over the labels that both maps have. A mean over nothing is nan.
    """

    per_label: dict[int, float]
    mean: float
    mean_common: float


class ErrorFigures(NamedTuple):
    """Mean, 95th percentile and maximum of an error, in the unit of what was measured."""

    mean: float
    p95: float
    max: float


@dataclass(frozen=True)
class TargetErrors:
    """Distances between mapped and true landmarks: (N,) per point, and their summary, all in mm."""

    per_point: Array
    mean: float
    median: float
    p90: float
    max: float


@dataclass(frozen=True)
class JacobianFigures:
    """How regular a warp is, from its Jacobian determinants.

    Attributes:
        folded_count, folded_fraction: voxels whose determinant is zero or less.
        minimum: smallest determinant.
        percentiles: determinant at the 1st, 5th, 50th, 95th and 99th percentile, by percentile.
        sd_log: standard deviation of the natural logarithm, determinants clipped to LOG_JACOBIAN_RANGE.
    """

    folded_count: int
    folded_fraction: float
    minimum: float
    percentiles: dict[int, float]
    sd_log: float


def dice(labels_a: Array | Tensor, labels_b: Array | Tensor) -> dict[int, float]:
    """Dice 2 |A and B| / (|A| + |B|) of every label in either map; background (0) is left out.

    A label that only one map has gets 0. The maps share one shape; whole numbers in a float type are fine.
    """
    return dice_figures(labels_a, labels_b).per_label


def dice_figures(labels_a: Array | Tensor, labels_b: Array | Tensor) -> DiceFigures:
    """Dice of every label in either map (0 in only one; background left out), and its two means."""
    a, b = _label_pair(labels_a, labels_b)
    count_a, count_b, count_both = _counts(a), _counts(b), _counts(a[a == b])
    per_label = {
        label: 2 * count_both.get(label, 0) / (count_a.get(label, 0) + count_b.get(label, 0))
        for label in sorted(count_a.keys() | count_b.keys())
    }
    common = [per_label[label] for label in count_a.keys() & count_b.keys()]
    return DiceFigures(per_label, mean=_mean(list(per_label.values())), mean_common=_mean(sorted(common)))


def hausdorff95(labels_a: Array | Tensor, labels_b: Array | Tensor, *, spacing_mm: Sequence[float]) -> dict[int, float]:
    """95th percentile of the symmetric surface distance in mm, of every label that both maps have.

    It is the larger of the two directed percentiles. A label's surface is its voxels with a face neighbour
    (in the plane, for 2-D) outside the label or outside the image; distances are between voxel centres.

    Args:
        labels_a, labels_b: (D, H, W), one shape; 0 is background.
        spacing_mm: voxel size along array axes (z, y, x).
    """
    return {
        label: float(max(np.percentile(a_to_b, 95), np.percentile(b_to_a, 95)))
        for label, a_to_b, b_to_a in surface_distances(labels_a, labels_b, spacing_mm=spacing_mm)
    }


def surface_distances(
    labels_a: Array | Tensor, labels_b: Array | Tensor, *, spacing_mm: Sequence[float]
) -> Iterator[tuple[int, Array, Array]]:
    """For each label in both maps: label, distances (mm) from a's surface to b's, and from b's to a's.

    Args and surfaces are those of `hausdorff95`.
    """
    a, b = _label_pair(labels_a, labels_b)
    if a.ndim != 3 or len(spacing_mm) != 3 or not all(s > 0 for s in spacing_mm):
        raise InputError(
            f"Surface distances need maps (D, H, W) and three positive spacings in mm, got shape {a.shape} "
            f"and spacing {tuple(spacing_mm)}"
        )
    surfaces_a, surfaces_b = _surfaces(a), _surfaces(b)
    for label in sorted(surfaces_a.keys() & surfaces_b.keys()):
        points_a, points_b = surfaces_a[label], surfaces_b[label]
        low = np.minimum(points_a.min(axis=0), points_b.min(axis=0)) - 1
        size = np.maximum(points_a.max(axis=0), points_b.max(axis=0)) + 2 - low
        points_a, points_b = points_a - low, points_b - low
        yield (
            label,
            _distance_map(points_b, size, spacing_mm)[tuple(points_a.T)],
            _distance_map(points_a, size, spacing_mm)[tuple(points_b.T)],
        )


def target_registration_error(mapped_points: Array | Tensor, true_points: Array | Tensor) -> TargetErrors:
    """Distance from each mapped landmark to where it should be.

    Args:
        mapped_points, true_points: (N, 3) world mm, in the same order.
    """
    mapped, true = _array(mapped_points).astype(np.float64), _array(true_points).astype(np.float64)
    if mapped.shape != true.shape or mapped.ndim != 2 or mapped.shape[0] == 0:
        raise InputError(
            f"Landmarks of shapes {mapped.shape} and {true.shape} cannot be compared: "
            "give two lists (N, 3) of the same length, not empty"
        )
    error = np.linalg.norm(mapped - true, axis=1)
    return TargetErrors(
        per_point=error,
        mean=float(error.mean()),
        median=float(np.median(error)),
        p90=float(np.percentile(error, 90)),
        max=float(error.max()),
    )


def jacobian_figures(
    determinant: Array | Tensor, mask: Array | Tensor | None = None, *, ops: Ops | None = None
) -> JacobianFigures:
    """Folds, percentiles and spread of Jacobian determinants (D, H, W), where mask is true."""
    values, inside = _measurable(determinant, mask)
    ops = ops or kernels.select(values.device)
    found = _counted(ops.tally(values, mask=inside, log_range=LOG_JACOBIAN_RANGE))
    mean = found.total / found.count
    return JacobianFigures(
        folded_count=found.nonpositive,
        folded_fraction=found.nonpositive / found.count,
        minimum=found.minimum,
        percentiles=dict(zip(RANKS, ops.percentiles(values, RANKS, mask=inside), strict=True)),
        sd_log=math.sqrt(max(0.0, found.squares / found.count - mean * mean)),
    )


def inverse_consistency(
    residual: Array | Tensor, mask: Array | Tensor | None = None, *, ops: Ops | None = None
) -> ErrorFigures:
    """Figures of the distance |x - inverse(forward(x))| (D, H, W), in its own unit, where mask is true."""
    values, inside = _measurable(residual, mask)
    ops = ops or kernels.select(values.device)
    found = _counted(ops.tally(values, mask=inside))
    (p95,) = ops.percentiles(values, (95,), mask=inside)
    return ErrorFigures(found.total / found.count, p95, found.maximum)


def displacement_error(found: Array | Tensor, true: Array | Tensor, mask: Array | Tensor | None = None) -> ErrorFigures:
    """Figures of |found - true| between displacements (3, D, H, W), where mask (D, H, W) is true."""
    a, b = _same_shape(found, true)
    return inverse_consistency(np.linalg.norm(a.astype(np.float64) - b, axis=0), mask)


def mutual_information(
    a: Array | Tensor, b: Array | Tensor, *, bins: int = 32, mask: Array | Tensor | None = None
) -> float:
    """Mutual information of two images (natural logarithm), from a joint histogram over their full ranges."""
    values_a, values_b = _selected_pair(a, b, mask)
    joint = np.histogram2d(values_a, values_b, bins=bins)[0] / values_a.size
    independent = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    filled = joint > 0
    return float((joint[filled] * np.log(joint[filled] / independent[filled])).sum())


def ncc(a: Array | Tensor, b: Array | Tensor, *, mask: Array | Tensor | None = None) -> float:
    """Correlation coefficient of two images, -1 to 1; 0 if either is constant."""
    values_a, values_b = _selected_pair(a, b, mask)
    centred_a, centred_b = values_a - values_a.mean(), values_b - values_b.mean()
    norm = np.sqrt((centred_a @ centred_a) * (centred_b @ centred_b))
    return float(centred_a @ centred_b / norm) if norm > 0 else 0.0


def _array(data: Array | Tensor) -> Array:
    return data.detach().cpu().numpy() if isinstance(data, Tensor) else np.asarray(data)


def _same_shape(first: Array | Tensor, second: Array | Tensor) -> tuple[Array, Array]:
    a, b = _array(first), _array(second)
    if a.shape != b.shape:
        raise InputError(f"Arrays of shapes {a.shape} and {b.shape} cannot be compared: resample one to the other")
    return a, b


def _label_pair(labels_a: Array | Tensor, labels_b: Array | Tensor) -> tuple[Array, Array]:
    """Both maps as int64, one shape."""
    a, b = _same_shape(labels_a, labels_b)
    return _whole(a), _whole(b)


def _whole(labels: Array) -> Array:
    """Labels as int64, which counting takes without another copy."""
    if labels.dtype.kind not in "biu" and not np.all(np.isfinite(labels) & (labels == np.rint(labels))):
        raise InputError("A label map holds values that are not whole numbers: resample labels with nearest")
    return labels.astype(np.int64)


def _counts(labels: Array) -> dict[int, int]:
    """Voxels of each label; background left out. Small numbers are counted in one pass, others sorted."""
    if labels.size and labels.min() >= 0 and labels.max() < MOST_BINS:
        bins = np.bincount(labels.ravel())
        values = np.flatnonzero(bins)
        counts = bins[values]
    else:
        values, counts = np.unique(labels, return_counts=True)
    return {int(value): int(count) for value, count in zip(values, counts, strict=True) if value != 0}


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else float("nan")


def _surfaces(labels: Array) -> dict[int, Array]:
    """(n, 3) indices of the surface voxels of each label, all labels in one pass; background left out."""
    surface = np.zeros(labels.shape, dtype=bool)
    for axis in range(3):
        if labels.shape[axis] == 1:
            continue
        lines, marks = np.moveaxis(labels, axis, 0), np.moveaxis(surface, axis, 0)
        change = lines[1:] != lines[:-1]
        marks[1:] |= change
        marks[:-1] |= change
        marks[[0, -1]] = True
    points = np.argwhere(surface & (labels != 0))
    owner = labels[tuple(points.T)]
    order = np.argsort(owner, kind="stable")
    values, starts = np.unique(owner[order], return_index=True)
    groups = np.split(points[order], starts[1:])
    return {int(value): group for value, group in zip(values, groups, strict=False)}


def _distance_map(points: Array, size: Array, spacing_mm: Sequence[float]) -> Array:
    """Distance in mm of every voxel of a box to the nearest of the points (n, 3), none of them on its rim.

    ITK measures to the outermost voxels of an object. Surface voxels all have a neighbour outside their
    label, and the box has a free rim, so every one of them counts.
    """
    box = np.zeros(tuple(size), dtype=np.uint8)
    box[tuple(points.T)] = 1
    image = sitk.GetImageFromArray(box)
    image.SetSpacing([float(s) for s in reversed(spacing_mm)])
    signed = sitk.SignedMaurerDistanceMap(image, squaredDistance=False, useImageSpacing=True)
    distance: Array = np.abs(sitk.GetArrayViewFromImage(signed))
    return distance


def _measurable(values: Array | Tensor, mask: Array | Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Values in single precision on the CPU and a mask of the same shape; neither is copied if it is that already."""
    array = torch.from_numpy(np.ascontiguousarray(_array(values), dtype=np.float32))
    inside = None
    if mask is not None:
        _, chosen = _same_shape(array, mask)
        inside = torch.from_numpy(np.ascontiguousarray(chosen, dtype=bool))
    return array, inside


def _counted(tally: Any) -> Any:
    """A tally that has counted something."""
    if tally.count == 0:
        raise InputError("There is no voxel to measure: the mask is empty")
    return tally


def _selected(values: Array | Tensor, mask: Array | Tensor | None) -> Array:
    """(N,) float64 values where mask is true (everywhere without one)."""
    array = _array(values).astype(np.float64)
    if mask is not None:
        array, inside = _same_shape(array, _array(mask).astype(bool))
        array = array[inside]
    if array.size == 0:
        raise InputError("There is no voxel to measure: the mask is empty")
    return array.ravel()


def _selected_pair(a: Array | Tensor, b: Array | Tensor, mask: Array | Tensor | None) -> tuple[Array, Array]:
    first, second = _same_shape(a, b)
    return _selected(first, mask), _selected(second, mask)

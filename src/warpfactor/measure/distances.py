"""Distances in mm: between the surfaces of labels, and between landmarks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.measure.arrays import Array, to_array
from warpfactor.measure.overlap import label_pair


@dataclass(frozen=True)
class TargetErrors:
    """Distances between mapped and true landmarks: (N,) per point, and their summary, all in mm."""

    per_point: Array
    mean: float
    median: float
    p90: float
    max: float


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
    a, b = label_pair(labels_a, labels_b)
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
    mapped, true = to_array(mapped_points).astype(np.float64), to_array(true_points).astype(np.float64)
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
    import SimpleITK  # loaded when distances are asked for; it takes a fifth of a second

    sitk: Any = SimpleITK  # its functions carry no types
    box = np.zeros(tuple(size), dtype=np.uint8)
    box[tuple(points.T)] = 1
    image = sitk.GetImageFromArray(box)
    image.SetSpacing([float(s) for s in reversed(spacing_mm)])
    signed = sitk.SignedMaurerDistanceMap(image, squaredDistance=False, useImageSpacing=True)
    distance: Array = np.abs(sitk.GetArrayViewFromImage(signed))
    return distance

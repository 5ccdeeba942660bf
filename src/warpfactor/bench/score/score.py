"""Scores of a transform on a case: overlap, surface distance, landmark error, regularity; the same for every method.

Labels and points pass once through the whole transform, labels by nearest neighbour, from the native files. The
Jacobian is of the warp alone, in fixed space: the affine has one determinant everywhere and no part in its spread.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warpfactor.bench.data.dataset import Case
from warpfactor.bench.data.landmarks import read_pair
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Affine, Chain, Transform, Warp
from warpfactor.io import read_image, read_labels, read_mask
from warpfactor import measure as quality
from warpfactor.measure import TargetErrors

VERSION = 1  # of the definitions below; runs scored by another one are run again
BEFORE, AFFINE, AFTER = "before", "affine", "after"


@dataclass(frozen=True)
class Scores:
    """What a transform was worth on a case.

    Attributes:
        figures: single numbers by name; `metric` has the main ones. NaN where there was nothing to measure.
        per_label: by figure (dice, dice_before, hd95_mm), then by label.
        per_landmark_mm: distances after registration, in the order of the file.
    """

    figures: Mapping[str, float]
    per_label: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    per_landmark_mm: tuple[float, ...] = ()


def score(case: Case, transform: Transform) -> Scores:
    """Every figure that the files of a case allow.

    Args:
        transform: fixed to moving; a warp of fixed space and then an affine, or one of the two.
    """
    fixed = read_image(case.fixed)
    stages = {BEFORE: Affine(np.eye(4), dimension=fixed.grid.ndim), AFFINE: affine_of(transform), AFTER: transform}
    figures, per_label = _label_scores(case, stages)
    points, distances = _landmark_scores(case, stages, fixed.grid)
    likeness = {} if figures or points else _likeness_scores(case, stages, fixed)
    regularity = _warp_scores(case, transform, fixed)
    return Scores({**figures, **points, **likeness, **regularity}, per_label, distances)


def affine_of(transform: Transform) -> Transform:
    """The transform without its warps."""
    affines = tuple(part for part in transform.parts if isinstance(part, Affine))
    return Chain(affines) if affines else Affine(np.eye(4), dimension=transform.ndim)


def dice_over(labels: set[int], per_label: Mapping[int, float]) -> float:
    """Mean over labels; one that is lost counts 0. NaN over none."""
    return sum(per_label.get(label, 0.0) for label in labels) / len(labels) if labels else math.nan


def region(case: Case, fixed: Image) -> Tensor:
    """(D, H, W) bool: where regularity counts.

    The fixed mask if there is one; else, if all voxels on the border of the image have one value, as around brains that
    were extracted, the voxels with another value; else the whole image.
    """
    if case.fixed_mask is not None:
        return read_mask(case.fixed_mask).on_grid(fixed.grid).data[0] > 0
    image = fixed.data[0]
    inner = torch.zeros_like(image, dtype=torch.bool)
    inner[tuple(slice(1, -1) if n > 2 else slice(None) for n in image.shape)] = True
    rim = image[~inner]
    whole = torch.ones_like(inner)
    if rim.numel() == 0 or not bool((rim == rim[0]).all()):
        return whole
    inside = image != rim[0]
    return inside if bool(inside.any()) else whole


def _label_scores(case: Case, stages: Mapping[str, Transform]) -> tuple[dict[str, float], dict[str, dict[int, float]]]:
    """Dice over the labels that both native maps have, so that the set does not depend on the method; HD95."""
    if case.fixed_labels is None or case.moving_labels is None:
        return {}, {}
    fixed, moving = read_labels(case.fixed_labels), read_labels(case.moving_labels)
    truth = fixed.data[0]
    common = _labels(truth) & _labels(moving.data[0])
    figures: dict[str, float] = {"labels": float(len(common))}
    per_label: dict[str, dict[int, float]] = {}
    for stage, transform in stages.items():
        carried = transform.resample(moving, fixed.grid, mode="nearest").data[0]
        found = quality.dice(truth, carried)
        key = "dice" if stage == AFTER else f"dice_{stage}"
        figures[key] = dice_over(common, found)
        per_label[key] = {label: found.get(label, 0.0) for label in sorted(common)}
        if stage == AFTER:
            distances = quality.hausdorff95(truth, carried, spacing_mm=fixed.grid.spacing_mm)
            per_label["hd95_mm"] = {label: value for label, value in distances.items() if label in common}
            figures["hd95_mm"] = _mean(per_label["hd95_mm"])
            figures["labels_lost"] = float(len(common - _labels(carried)))
    return figures, per_label


def _landmark_scores(
    case: Case, stages: Mapping[str, Transform], grid: Grid
) -> tuple[dict[str, float], tuple[float, ...]]:
    """Distances in moving space, where the true points are."""
    if case.fixed_landmarks is None:
        return {}, ()
    points = read_pair(case, grid, read_image(case.moving).grid)
    if points is None:
        return {}, ()
    figures: dict[str, float] = {"landmarks": float(len(points.fixed))}
    distances: tuple[float, ...] = ()
    for stage, transform in stages.items():
        errors = quality.target_registration_error(transform.map_points(points.fixed), points.moving)
        figures |= _named(errors, "" if stage == AFTER else f"_{stage}")
        distances = tuple(errors.per_point.tolist())  # of the last stage, which is the result
    return figures, distances


def _named(errors: TargetErrors, ending: str) -> dict[str, float]:
    return {f"tre_{name}{ending}_mm": getattr(errors, name) for name in ("mean", "median", "p90", "max")}


def _likeness_scores(case: Case, stages: Mapping[str, Transform], fixed: Image) -> dict[str, float]:
    """Mutual information in nats, for cases without any truth: no proof of accuracy, but better than nothing."""
    moving = read_image(case.moving)
    return {
        "mi_nats" if stage == AFTER else f"mi_{stage}_nats": quality.mutual_information(
            fixed.data[0], transform.resample(moving, fixed.grid).data[0]
        )
        for stage, transform in stages.items()
    }


def _warp_scores(case: Case, transform: Transform, fixed: Image) -> dict[str, float]:
    """Spread of the log Jacobian and folds, in the region that counts and in the whole image; zero without a warp."""
    warps = [part for part in transform.parts if isinstance(part, Warp)]
    if not warps:
        names = ("sd_log_jacobian", "folded_fraction", "folded_voxels")
        return {f"{name}{ending}": 0.0 for ending in ("", "_image") for name in names}
    determinant = _determinant(transform, fixed.grid)
    figures: dict[str, float] = {}
    for ending, where in (("", region(case, fixed)), ("_image", None)):
        found = quality.jacobian_figures(determinant, where)
        figures |= {
            f"sd_log_jacobian{ending}": found.sd_log,
            f"folded_fraction{ending}": found.folded_fraction,
            f"folded_voxels{ending}": float(found.folded_count),
            f"jacobian_minimum{ending}": found.minimum,
        }
    return figures


def _determinant(transform: Transform, grid: Grid) -> Tensor:
    """(D, H, W) det(I + du/dx) of the warps of a transform, in fixed space; exact in any orientation of the grid."""
    warps = tuple(part for part in transform.parts if isinstance(part, Warp))
    if transform.parts[: len(warps)] != warps:  # an affine comes before a warp: the total without its linear factor
        linear = float(np.linalg.det(_matrix(affine_of(transform))[:3, :3]))
        return transform.to_warp(grid).jacobian().data[0] / linear
    return Chain(warps).to_warp(grid).jacobian().data[0]


def _matrix(affines: Transform) -> Any:
    matrix = np.eye(4)
    for part in affines.parts:
        if isinstance(part, Affine):
            matrix = part.matrix @ matrix
    return matrix


def _labels(data: Tensor) -> set[int]:
    return {int(label) for label in torch.unique(data)} - {0}


def _mean(values: Mapping[int, float]) -> float:
    return sum(values.values()) / len(values) if values else math.nan

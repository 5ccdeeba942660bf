"""Scores of a transform on a case: overlap, surface distance, landmark error and regularity, for every method alike.

Labels and points are read from the native files and mapped once by the whole transform, labels with nearest-neighbour
interpolation. The Jacobian is that of the warp alone, in fixed space; the affine has the same determinant everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warpfactor import measure as quality
from warpfactor.bench.data.dataset import BenchCase
from warpfactor.bench.data.landmarks import read_pair
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Affine, Chain, Transform, Warp
from warpfactor.io import read_image, read_labels, read_mask
from warpfactor.measure import TargetErrors
from warpfactor.measure.jacobian import distortion

VERSION = 1  # of the definitions below; runs that were scored by another version are repeated
BEFORE, AFFINE, AFTER = "before", "affine", "after"


@dataclass(frozen=True)
class Scores:
    """Scores of a transform on a case.

    Attributes:
        values: Scores by name; `measures` lists the most important ones. NaN where nothing could be measured.
        per_label: Scores by label, for dice, dice_before, dice_affine and hd95_mm.
        per_landmark_mm: Landmark errors after registration, in the order of the file.
    """

    values: Mapping[str, float]
    per_label: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    per_landmark_mm: tuple[float, ...] = ()


def score(case: BenchCase, transform: Transform) -> Scores:
    """Compute every score that the files of a case allow.

    Args:
        case: The case.
        transform: Transform from fixed to moving: a warp in fixed space followed by an affine, or one of the two.
    """
    fixed = read_image(case.fixed)
    stages = {BEFORE: Affine(np.eye(4), dimension=fixed.grid.ndim), AFFINE: affine_of(transform), AFTER: transform}
    values, per_label = _label_scores(case, stages)
    points, distances = _landmark_scores(case, stages, fixed.grid)
    information = {} if values or points else _information_scores(case, stages, fixed)
    regularity = _warp_scores(case, transform, fixed)
    return Scores({**values, **points, **information, **regularity}, per_label, distances)


def affine_of(transform: Transform) -> Transform:
    """The affine parts of a transform."""
    affines = tuple(part for part in transform.parts if isinstance(part, Affine))
    return Chain(affines) if affines else Affine(np.eye(4), dimension=transform.ndim)


def dice_over(labels: set[int], per_label: Mapping[int, float]) -> float:
    """Mean Dice over labels; a label that disappeared counts 0. NaN if there are no labels."""
    return sum(per_label.get(label, 0.0) for label in labels) / len(labels) if labels else math.nan


def region(case: BenchCase, fixed: Image) -> Tensor:
    """Boolean mask (D, H, W) of the voxels over which regularity is measured.

    This is the fixed mask if there is one. Otherwise, if all voxels on the border of the image have the same value, as
    in brain-extracted images, it is the set of voxels with another value. Otherwise it is the whole image.
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


def _label_scores(
    case: BenchCase, stages: Mapping[str, Transform]
) -> tuple[dict[str, float], dict[str, dict[int, float]]]:
    """Dice and HD95 over the labels that both native maps have, so that the set does not depend on the method."""
    if case.fixed_labels is None or case.moving_labels is None:
        return {}, {}
    fixed, moving = read_labels(case.fixed_labels), read_labels(case.moving_labels)
    truth = fixed.data[0]
    common = _labels(truth) & _labels(moving.data[0])
    values: dict[str, float] = {"labels": float(len(common))}
    per_label: dict[str, dict[int, float]] = {}
    for stage, transform in stages.items():
        carried = transform.resample(moving, fixed.grid, mode="nearest").data[0]
        found = quality.dice(truth, carried)
        key = "dice" if stage == AFTER else f"dice_{stage}"
        values[key] = dice_over(common, found)
        per_label[key] = {label: found.get(label, 0.0) for label in sorted(common)}
        if stage == AFTER:
            distances = quality.hausdorff95(truth, carried, spacing_mm=fixed.grid.spacing_mm)
            per_label["hd95_mm"] = {label: value for label, value in distances.items() if label in common}
            values["hd95_mm"] = _mean(per_label["hd95_mm"])
            values["labels_lost"] = float(len(common - _labels(carried)))
    return values, per_label


def _landmark_scores(
    case: BenchCase, stages: Mapping[str, Transform], grid: Grid
) -> tuple[dict[str, float], tuple[float, ...]]:
    """Landmark errors, measured in moving space."""
    if case.fixed_landmarks is None:
        return {}, ()
    points = read_pair(case, grid, read_image(case.moving).grid)
    if points is None:
        return {}, ()
    values: dict[str, float] = {"landmarks": float(len(points.fixed))}
    distances: tuple[float, ...] = ()
    for stage, transform in stages.items():
        errors = quality.target_registration_error(transform.map_points(points.fixed), points.moving)
        values |= _named(errors, "" if stage == AFTER else f"_{stage}")
        distances = tuple(errors.per_point.tolist())  # the last stage is the result
    return values, distances


def _named(errors: TargetErrors, ending: str) -> dict[str, float]:
    return {f"tre_{name}{ending}_mm": getattr(errors, name) for name in ("mean", "median", "p90", "max")}


def _information_scores(case: BenchCase, stages: Mapping[str, Transform], fixed: Image) -> dict[str, float]:
    """Mutual information in nats, for cases without labels and landmarks. It is not a proof of accuracy."""
    moving = read_image(case.moving)
    return {
        "mi_nats" if stage == AFTER else f"mi_{stage}_nats": quality.mutual_information(
            fixed.data[0], transform.resample(moving, fixed.grid).data[0]
        )
        for stage, transform in stages.items()
    }


def _warp_scores(case: BenchCase, transform: Transform, fixed: Image) -> dict[str, float]:
    """Spread of the log Jacobian and folds, in the region of interest and in the whole image; zero without a warp."""
    warps = [part for part in transform.parts if isinstance(part, Warp)]
    if not warps:
        names = ("sd_log_jacobian", "folded_fraction", "folded_voxels")
        return {"shear": 0.0, **{f"{name}{ending}": 0.0 for ending in ("", "_image") for name in names}}
    determinant, inside = _determinant(transform, fixed.grid), region(case, fixed)
    distorted = distortion(Chain(tuple(warps)).to_warp(fixed.grid).displacement, fixed.grid.spacing_mm, inside)
    values = {"shear": distorted.shear, "folded_one_sided_voxels": float(distorted.folded_one_sided)}
    for ending, where in (("", inside), ("_image", None)):
        found = quality.jacobian_figures(determinant, where)
        values |= {
            f"sd_log_jacobian{ending}": found.sd_log,
            f"folded_fraction{ending}": found.folded_fraction,
            f"folded_voxels{ending}": float(found.folded_count),
            f"jacobian_minimum{ending}": found.minimum,
        }
    return values


def _determinant(transform: Transform, grid: Grid) -> Tensor:
    """det(I + du/dx), (D, H, W), of the warps of a transform, in fixed space."""
    warps = tuple(part for part in transform.parts if isinstance(part, Warp))
    if transform.parts[: len(warps)] != warps:  # an affine comes before a warp: divide its determinant out
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

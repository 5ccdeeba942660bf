"""Results of a pair: its registration, and that result spoilt in ways that a verdict has to notice.

What is spoilt is made to fail, but only the truth of the pair says whether it does.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warpfactor.bench.verdicts.trial import TrialPair
from warpfactor.bench.verdicts.truth import LabelTruth, PointTruth, Truth
from warpfactor.checks.case import Case
from warpfactor.errors import WarpfactorError
from warpfactor.geometry.grid import Matrix
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Affine, Warp
from warpfactor.measure import target_registration_error
from warpfactor.registration.case import case_of_result
from warpfactor.registration.run import register
from warpfactor.stages.linear.motion import about, centre_of
from warpfactor.stages.linear.starts import rotation

REGISTERED, GIVEN_LANDMARKS = "registered", "landmarks given"
OFF_MM = 14.0  # by which one landmark is off
Draw = np.random.Generator


@dataclass(frozen=True)
class MadeResult:
    """A result and how it was made.

    Attributes:
        pair: name of the pair.
        kind: of the pair.
        how: "registered", or in which way it was spoilt.
        case: what the checks see.
        score: by the truth of the pair; NaN if the images have nothing in common.
        better: +1 if a high score is good, -1 if a low one is.
        meant: "failing" if it fails whatever the score, such as a landmark that is off; otherwise empty.
    """

    pair: str
    kind: str
    how: str
    case: Case
    score: float
    better: int
    meant: str = ""


def register_pair(pair: TrialPair, **options: Any) -> Case:
    """The case of the pair's registration, in one thread."""
    given: dict[str, Any] = {
        "fixed": pair.fixed,
        "moving": pair.moving,
        "fixed_mask": pair.fixed_mask,
        "moving_mask": pair.moving_mask,
        "recipe": pair.recipe,
        "threads": 1,
    }
    return case_of_result(register(**{**given, **options}))


def draw_of(name: str) -> Draw:
    """Random numbers that depend on a name only."""
    return np.random.default_rng(zlib.crc32(name.encode()))


# Ways that need no registration: (pair, case, draw, other pairs) -> case and truth, or None if it does not apply.
Made = tuple[Case, Truth] | None


def shifted(pair: TrialPair, case: Case, draw: Draw, others: Sequence[tuple[TrialPair, Case]]) -> Made:
    """The affine is shifted by 4 to 12 % of the image."""
    share = draw.uniform(0.04, 0.12) * draw.choice((-1, 1))
    grid = case.fixed_grid
    axis = int(draw.choice([k for k in range(3) if grid.shape[k] > 1]))
    move = np.eye(4)
    move[:3, 3] = grid.matrix[:3, axis] * grid.shape[axis] * share
    return with_affine(case, case.affine.matrix @ move), pair.truth


def turned(pair: TrialPair, case: Case, draw: Draw, others: Sequence[tuple[TrialPair, Case]]) -> Made:
    """The affine is turned by 15 to 60 degrees."""
    return with_affine(case, case.affine.matrix @ turn_of(case, draw, draw.uniform(15, 60))), pair.truth


def upside_down(pair: TrialPair, case: Case, draw: Draw, others: Sequence[tuple[TrialPair, Case]]) -> Made:
    """The affine is turned by 180 degrees."""
    return with_affine(case, case.affine.matrix @ turn_of(case, draw, 180)), pair.truth


def scaled(pair: TrialPair, case: Case, draw: Draw, others: Sequence[tuple[TrialPair, Case]]) -> Made:
    """The affine is scaled by 0.7 or 1.4."""
    middle = centre_of(case.fixed_grid)
    size = np.eye(3) * draw.choice((0.7, 1.4))
    if case.planar:
        size[2, 2] = 1.0
    return with_affine(case, case.affine.matrix @ about(middle, size, middle)), pair.truth


def no_warp(pair: TrialPair, case: Case, draw: Draw, others: Sequence[tuple[TrialPair, Case]]) -> Made:
    """The warp is multiplied by zero."""
    return None if case.warp is None else (with_warp(case, 0 * case.warp.displacement), pair.truth)


def amplified(pair: TrialPair, case: Case, draw: Draw, others: Sequence[tuple[TrialPair, Case]]) -> Made:
    """The warp is multiplied by minus one, or by three."""
    factor = float(draw.choice((-1, 3)))
    return None if case.warp is None else (with_warp(case, factor * case.warp.displacement), pair.truth)


def other_warp(pair: TrialPair, case: Case, draw: Draw, others: Sequence[tuple[TrialPair, Case]]) -> Made:
    """The warp is smooth and has nothing to do with the images."""
    field = smooth_field(case, draw, points=4, share=float(draw.uniform(0.02, 0.05)))
    return with_warp(case, field), pair.truth


def folded(pair: TrialPair, case: Case, draw: Draw, others: Sequence[tuple[TrialPair, Case]]) -> Made:
    """The warp folds."""
    field = smooth_field(case, draw, points=14, share=0.03)
    return with_warp(case, field if case.warp is None else case.warp.displacement + field), pair.truth


def other_fixed(pair: TrialPair, case: Case, draw: Draw, others: Sequence[tuple[TrialPair, Case]]) -> Made:
    """The fixed image is another one, on the same grid."""
    found = _another(pair, others, draw)
    if found is None or not isinstance(pair.truth, LabelTruth) or not isinstance(found[0].truth, LabelTruth):
        return None
    there, centre = found[0], Affine(_centre_map(pair.fixed, found[0].fixed), dimension=case.fixed_grid.ndim)
    image = centre.resample(there.fixed, case.fixed_grid)
    assert isinstance(there.truth, LabelTruth)
    labels = centre.resample(there.truth.fixed, case.fixed_grid, mode="nearest")
    return replace(case, fixed=image), LabelTruth(labels, pair.truth.moving)


def other_transform(pair: TrialPair, case: Case, draw: Draw, others: Sequence[tuple[TrialPair, Case]]) -> Made:
    """The transforms are those of another pair."""
    found = _another(pair, others, draw)
    if found is None or found[1].affine.ndim != case.affine.ndim:
        return None
    warp = found[1].warp
    moved = case if warp is None else with_warp(case, warp.to_warp(case.fixed_grid).displacement.float())
    return with_affine(moved, found[1].affine.matrix), pair.truth


SPOILT: tuple[Callable[..., Made], ...] = (
    shifted,
    no_warp,
    turned,
    other_fixed,
    folded,
    other_transform,
    upside_down,
    other_warp,
    amplified,
    scaled,
)


def some_ways(pair: TrialPair, count: int) -> list[Callable[..., Made]]:
    """Some of the ways to spoil a result, drawn by the name of the pair."""
    return [SPOILT[int(number)] for number in draw_of(pair.name).permutation(len(SPOILT))[:count]]


def results_of(
    pair: TrialPair, case: Case, others: Sequence[tuple[TrialPair, Case]], ways: Sequence[Callable[..., Made]]
) -> Iterator[MadeResult]:
    """The registration of a pair, and that spoilt in some of the ways."""

    def made(how: str, found: Case, truth: Truth, meant: str = "") -> MadeResult:
        return MadeResult(pair.name, pair.kind, how, found, truth.score(found.transform), truth.better, meant)

    yield made(REGISTERED, case, pair.truth)
    for way in ways:
        found = way(pair, case, draw_of(f"{way.__name__} {pair.name}"), others)
        if found is not None:
            yield made(way.__name__, *found)
    if isinstance(pair.truth, PointTruth) and pair.truth.chosen:
        yield from _landmark_results(pair, case, pair.truth)


def _landmark_results(pair: TrialPair, case: Case, truth: PointTruth) -> Iterator[MadeResult]:
    """Landmarks are given to the checks: as they are, and with one that is off."""
    before = target_registration_error(truth.points.fixed, truth.points.moving)
    after = target_registration_error(case.transform.map_points(truth.points.fixed), truth.points.moving)
    voxel = max(case.fixed_grid.spacing_mm[-case.fixed_grid.ndim :])
    unit = 1.0 if truth.side_mm < 400 else truth.side_mm / 200  # slices without a pixel size
    for how, extra in ((GIVEN_LANDMARKS, 0.0), ("one landmark off", OFF_MM * unit)):
        errors = after.per_point.copy()
        errors[0] += extra
        entry = {
            "count": len(errors),
            "before_mm": {"mean": before.mean, "median": before.median, "max": before.max},
            "after_mm": {"mean": float(errors.mean()), "median": float(np.median(errors)), "max": float(errors.max())},
            "further": int((errors > before.per_point + voxel).sum()),
        }
        given = replace(case, entries={**case.entries, "landmarks": entry})
        meant = "failing" if extra else ""
        yield MadeResult(pair.name, pair.kind, how, given, truth.score(case.transform), truth.better, meant)


# Parts


def with_affine(case: Case, matrix: Matrix) -> Case:
    """The case with another affine, as its files would have it; result.json still names the first one."""
    ratio = float(np.linalg.det(matrix[:3, :3]))
    figures = {**case.entries["figures"], "affine_volume_ratio_moving_to_fixed": ratio}
    return replace(
        case,
        affine=Affine(matrix, dimension=case.affine.ndim),
        entries={**case.entries, "figures": figures},
    )


def with_warp(case: Case, displacement: Tensor) -> Case:
    """The case with another warp and its inverse."""
    warp = Warp(displacement.float().contiguous(), case.fixed_grid)
    try:
        inverse: Warp | None = warp.inverse()
    except WarpfactorError:  # it folds too much
        inverse = None
    return replace(case, warp=warp, inverse_warp=inverse)


def smooth_field(case: Case, draw: Draw, *, points: int, share: float) -> Tensor:
    """(3, D, H, W) random displacement in voxels, whose standard deviation is a share of the image's longest side."""
    shape = case.fixed_grid.shape
    coarse = [1 if n == 1 else points for n in shape]
    values = torch.from_numpy(draw.normal(0, 1, (1, 3, *coarse))).float()
    field = torch.nn.functional.interpolate(values, size=shape, mode="trilinear", align_corners=True)[0]
    field /= field.std()
    for axis, length in enumerate(shape):
        field[axis] *= 0.0 if length == 1 else share * max(shape)
    return field


def turn_of(case: Case, draw: Draw, degrees: float) -> Matrix:
    """A rotation about the middle of the fixed image, about one of the world's axes."""
    axis = np.array((0.0, 0.0, 1.0)) if case.planar else np.eye(3)[int(draw.integers(3))]
    middle = centre_of(case.fixed_grid)
    return about(middle, rotation(axis, math.radians(degrees * draw.choice((-1, 1)))), middle)


def _another(pair: TrialPair, others: Sequence[tuple[TrialPair, Case]], draw: Draw) -> tuple[TrialPair, Case] | None:
    """A pair of the same kind with another fixed image."""
    able = [other for other in others if other[0].kind == pair.kind and other[0].fixed.name != pair.fixed.name]
    return able[int(draw.integers(len(able)))] if able else None


def _centre_map(one: Image, other: Image) -> Matrix:
    """Shift that puts the middle of one image on that of another."""
    ends = [centre_of(image.grid) for image in (one, other)]
    found = np.eye(4)
    found[:3, 3] = ends[1] - ends[0]
    return found

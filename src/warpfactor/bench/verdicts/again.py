"""Further registrations of a pair: after harmless changes, which should be good, and those that ought to fail.

As everywhere here, only the truth says whether a result is good.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from warpfactor.bench.verdicts.results import Draw, MadeResult, draw_of, register_pair
from warpfactor.bench.verdicts.trial import TrialPair
from warpfactor.bench.verdicts.truth import LabelTruth, MapTruth, PointTruth, Truth, side_mm
from warpfactor.geometry.grid import Grid, Matrix
from warpfactor.geometry.image import Image
from warpfactor.io import Landmarks
from warpfactor.stages.linear.motion import about, centre_of
from warpfactor.stages.linear.starts import rotation

MILD, STRONG = 0.25, 2.0  # SD of noise, in units of that of the image
MOVED_DEGREES, MOVED_SHARE = 20.0, 0.15  # of the frame of the moving image, and of its longest side
GAMMA = 0.6
HARMLESS = ("mild noise", "moved", "brighter")
HALF_NOISE, STRONG_NOISE = "half noise", "strong noise"
Way = tuple[str, Callable[[], MadeResult]]


def result_of(pair: TrialPair, how: str, meant: str = "", **options: Any) -> MadeResult:
    """The registration of a pair that was changed."""
    case, truth = register_pair(pair, **options), pair.truth
    return MadeResult(pair.name, pair.kind, how, case, truth.score(case.transform), truth.better, meant)


# Harmless


def harmless(pair: TrialPair) -> MadeResult:
    """One more registration that should be as good as the first: with noise, another start or other intensities."""
    draw = draw_of(f"harmless {pair.name}")
    how = str(draw.choice(HARMLESS))
    if how == "moved":
        return result_of(moved(pair, draw), how)
    change = noisy(pair.moving, draw, MILD) if how == "mild noise" else brighter(pair.moving)
    return result_of(replace(pair, moving=change), how)


def moved(pair: TrialPair, draw: Draw) -> TrialPair:
    """The moving image, and its truth with it, elsewhere in the world, so that registration starts further away."""
    grid = pair.moving.grid
    flat = grid.shape[0] == 1
    axis = np.array((0.0, 0.0, 1.0)) if flat else draw.normal(0, 1, 3)
    turn = rotation(axis / np.linalg.norm(axis), math.radians(MOVED_DEGREES * draw.choice((-1, 1))))
    shift = MOVED_SHARE * side_mm(grid) * draw.choice((-1, 1), 3)
    if flat:
        shift[2] = 0.0
    middle = centre_of(grid)
    motion = about(middle, turn, middle + shift)
    mask = None if pair.moving_mask is None else placed(pair.moving_mask, motion)
    return replace(pair, moving=placed(pair.moving, motion), moving_mask=mask, truth=_moved_truth(pair.truth, motion))


def placed(image: Image, motion: Matrix) -> Image:
    """An image after a motion of its frame."""
    return Image(image.data, Grid(image.grid.shape, motion @ image.grid.matrix, image.grid.ndim), image.name)


def _moved_truth(truth: Truth, motion: Matrix) -> Truth:
    if isinstance(truth, LabelTruth):
        return replace(truth, moving=placed(truth.moving, motion))
    if isinstance(truth, MapTruth):
        return replace(truth, matrix=motion @ truth.matrix)
    assert isinstance(truth, PointTruth)
    points = np.column_stack([truth.points.moving, np.ones(len(truth.points.moving))]) @ motion.T
    return replace(truth, points=Landmarks(truth.points.fixed, points[:, :3]))


def brighter(image: Image) -> Image:
    """Dark parts become brighter: intensities to the power of GAMMA."""
    low, high = float(image.data.min()), float(image.data.max())
    return Image(((image.data.float() - low) / max(high - low, 1e-9)) ** GAMMA, image.grid, image.name)


# Failing


def failing_ways(pair: TrialPair, stranger: TrialPair | None) -> Iterator[Way]:
    """Registrations that ought to fail, by name; each is made when it is called."""
    draw = draw_of(pair.name)
    middle = centre_of(pair.fixed.grid)
    wrong = about(middle, rotation(np.array((0.0, 0.0, 1.0)), math.radians(draw.choice((90, 180)))), middle)
    yield "wrong start", lambda: result_of(pair, "wrong start", initial=wrong)
    yield HALF_NOISE, lambda: result_of(replace(pair, moving=half_noise(pair.moving, draw)), HALF_NOISE)
    yield STRONG_NOISE, lambda: result_of(replace(pair, moving=noisy(pair.moving, draw, STRONG)), STRONG_NOISE)
    if stranger is not None and stranger.moving.grid.ndim == pair.fixed.grid.ndim:
        other = replace(pair, moving=stranger.moving, moving_mask=None)
        yield "unrelated images", lambda: result_of(other, "unrelated images", "failing")
    if pair.sided and isinstance(pair.truth, LabelTruth):
        truth = LabelTruth(pair.truth.fixed, mirrored(pair.truth.moving))
        other_sides = replace(pair, moving=mirrored(pair.moving), truth=truth)
        yield "mirrored", lambda: result_of(other_sides, "mirrored")


def half_noise(image: Image, draw: Draw) -> Image:
    """Half of the image along its longest axis becomes noise."""
    data = image.data.clone()
    axis = int(np.argmax(image.data.shape[1:])) + 1
    half = data.narrow(axis, 0, data.shape[axis] // 2)
    mean, spread = float(data.mean()), float(data.std())
    half.copy_(torch.from_numpy(draw.normal(mean, spread, tuple(half.shape))).to(data.dtype))
    return Image(data, image.grid, image.name)


def noisy(image: Image, draw: Draw, share: float) -> Image:
    """Noise is added, with a share of the standard deviation of the image."""
    noise = torch.from_numpy(draw.normal(0, share * float(image.data.float().std()), tuple(image.data.shape)))
    return Image((image.data + noise).float(), image.grid, image.name)


def mirrored(image: Image) -> Image:
    """Left and right exchanged, in voxels; the grid stays."""
    axis = int(np.argmax(np.abs(image.grid.matrix[0, :3])))
    return Image(image.data.flip(1 + axis), image.grid, image.name)

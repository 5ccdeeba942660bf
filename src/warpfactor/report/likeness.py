"""How alike two images are under a transform, by measures that hold across contrasts, and whether another fits better.

Everything is measured on coarse copies of the images: a verdict is about gross failure, not about the last voxel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from warpfactor import kernels
from warpfactor.errors import InputError
from warpfactor.grid import Matrix
from warpfactor.image import Image
from warpfactor.register.initial import foreground
from warpfactor.register.linear import LinearSettings, register_linear
from warpfactor.register.linear_cost import linear_cost
from warpfactor.register.linear_params import MOTIONS
from warpfactor.register.pair import Scene
from warpfactor.report.case import Case
from warpfactor.report.coarse import coarse_scene, shrink_mask
from warpfactor.resample import resample_through
from warpfactor.transform import Affine, Transform

POINTS = 100_000  # voxels of the coarse fixed image: about 4 mm for a head
SEARCH_POINTS = 30_000  # where a second opinion is sought: about 6 mm
MIRROR_POINTS = 220_000  # left and right of a brain differ in detail: about 3 mm
BINS = 32
RADIUS = 2  # of the windows of local correlation
QUIET = 1e-3  # variance of windows that show nothing, in units of the image's own
SHIFT = 0.1  # of the object's size: what is as alike as this was not aligned at all
FEWEST = 50  # voxels that can be compared
ONE_CONTRAST = ("lncc", "ncc", "mse")
TWO_LEVELS = 32  # voxels along the shortest axis from which a search begins at half the resolution


@dataclass(frozen=True)
class Likeness:
    """How alike two images are where the fixed one shows something.

    Attributes:
        coverage: share of the fixed object that lies inside the moving image.
        information: what they say about each other, 0 to 1: 2 I(F, M) / (H(F) + H(M)).
        correlation: mean squared correlation in small windows, 0 to 1.
    """

    coverage: float
    information: float
    correlation: float


@dataclass(frozen=True)
class Alignment:
    """What the images say about a transform.

    Attributes:
        before, affine, after: under no transform, the affine alone, the whole one; None if it cannot be shown.
        chance: after the whole one and a shift by a tenth of the object: how alike these images are anyway.
        fresh: under the linear transform that a new, coarse search finds.
        mirror_gain: by which share a mirrored moving image lowers the cost of a linear fit (MI: adds to what is
            shared); negative if it is worse.
        mirror_limit: name of the limit that holds for it.
    """

    before: Likeness | None
    affine: Likeness | None
    after: Likeness
    chance: Likeness
    fresh: Likeness | None = None
    mirror_gain: float | None = None
    mirror_limit: str = "mirror"


def align(case: Case) -> Alignment | None:
    """Measure; None if an image is missing or shows nothing."""
    if case.fixed is None or case.after is None:
        return None
    image, transform = case.after
    scene = coarse_scene(case.fixed, image, case.fixed_mask, POINTS)
    if scene is None:
        return None
    mask = None if case.moving is None else shrink_mask(case.moving_mask, scene.moving_grid)
    counts = None if mask is None else Image(mask.data.float(), mask.grid)
    view = _View(scene, foreground(scene.pair.fixed, scene.pair.fixed_mask), counts)
    after, chance = view.likeness(transform), view.chance(transform)
    if case.moving is None:
        return Alignment(None, None, after, chance)
    metric, dof = _metric(case.entries), _dof(case.entries)
    return Alignment(
        before=view.likeness(Affine(dimension=case.affine.ndim)),
        affine=view.likeness(case.affine),
        after=after,
        chance=chance,
        fresh=_second_opinion(case, view, metric, dof),
        mirror_gain=_mirror_gain(case, metric),
        mirror_limit="mirror_mi" if metric == "mi" else "mirror_flat" if case.fixed_grid.shape[0] == 1 else "mirror",
    )


@dataclass(frozen=True)
class _View:
    """Coarse images, where the fixed one shows something, (D, H, W) bool, and where the moving one counts.

    What the moving image's mask leaves out is not compared, but it is covered: overlap is about fields of view.
    """

    scene: Scene
    where: Tensor
    counts: Image | None

    def likeness(self, transform: Transform) -> Likeness:
        return self._compare(*self._through(transform))

    def chance(self, transform: Transform) -> Likeness:
        """Mean over shifts along each axis, to and fro."""
        moved, inside, counts = self._through(transform)
        points = self.where.nonzero()
        extent = (points.amax(0) - points.amin(0) + 1).tolist()
        found = []
        for axis, length in enumerate(extent):
            step = max(1, round(SHIFT * length))
            if moved.shape[axis] > step:
                found += [self._compare(*(t.roll(s, axis) for t in (moved, inside, counts))) for s in (-step, step)]
        return Likeness(*(float(np.mean([getattr(f, name) for f in found])) for name in Likeness.__annotations__))

    def _through(self, transform: Transform) -> tuple[Tensor, Tensor, Tensor]:
        """The moving image on the fixed grid, where it is known, and where it is and counts."""
        moving = Image(self.scene.pair.moving, self.scene.moving_grid)
        known = self.scene.pair.moving_mask
        place = transform.on_grid(self.scene.fixed_grid)
        moved = resample_through(moving, place, outside=math.nan).data[0]
        inside = torch.isfinite(moved)
        if known is not None:
            mask = Image(known[None].float(), self.scene.moving_grid)
            inside &= resample_through(mask, place).data[0] > 0.5
        counts = inside
        if self.counts is not None:
            counts = inside & (resample_through(self.counts, place).data[0] > 0.5)
        return torch.nan_to_num(moved), inside, counts

    def _compare(self, moved: Tensor, inside: Tensor, counts: Tensor) -> Likeness:
        coverage = float((self.where & inside).sum() / self.where.sum())
        shared = self.where & counts
        if int(shared.sum()) < FEWEST:
            return Likeness(coverage, 0.0, 0.0)
        fixed = self.scene.pair.fixed[0]
        information = shared_information(fixed[shared].numpy(), moved[shared].numpy())
        return Likeness(coverage, information, local_correlation(fixed, moved, shared))


def shared_information(a: NDArray[Any], b: NDArray[Any]) -> float:
    """2 I(A, B) / (H(A) + H(B)) of two lists of intensities: 0 if unrelated, 1 if one tells the other."""
    joint = np.bincount(_binned(a) * BINS + _binned(b), minlength=BINS * BINS).reshape(BINS, BINS) / len(a)
    alone = _entropy(joint.sum(axis=1)) + _entropy(joint.sum(axis=0))
    return float(2 * (alone - _entropy(joint.ravel())) / alone) if alone > 0 else 0.0


def local_correlation(a: Tensor, b: Tensor, where: Tensor) -> float:
    """Mean squared correlation in windows of (D, H, W) images; voxels outside `where` count nowhere."""
    weight = where.to(a.dtype)
    share = _box(weight).clamp_(min=1e-3)
    mean_a, mean_b = _box(a * weight) / share, _box(b * weight) / share
    var_a = (_box(a * a * weight) / share - mean_a**2).clamp_(min=0)
    var_b = (_box(b * b * weight) / share - mean_b**2).clamp_(min=0)
    covariance = _box(a * b * weight) / share - mean_a * mean_b
    squared = covariance**2 / ((var_a + QUIET) * (var_b + QUIET))
    return float(squared[where].mean())


def _box(image: Tensor) -> Tensor:
    radii = [RADIUS if n > 1 else 0 for n in image.shape]
    smoothed: Tensor = kernels.select("cpu").smooth_box(image.clone()[None], radii)[0]
    return smoothed


def _binned(values: NDArray[Any]) -> NDArray[np.int64]:
    low, high = np.quantile(values, (0.005, 0.995))
    scaled = (values - low) * (BINS / max(high - low, 1e-12))
    binned: NDArray[np.int64] = np.clip(scaled.astype(np.int64), 0, BINS - 1)
    return binned


def _entropy(shares: NDArray[Any]) -> float:
    filled = shares[shares > 0]
    return float(-(filled * np.log(filled)).sum())


def _metric(entries: Mapping[str, Any]) -> str:
    """Local correlation if the stages went by likeness of one contrast; if not, mutual information."""
    return "lncc" if all(stage["metric"] in ONE_CONTRAST for stage in entries["stages"]) else "mi"


def _dof(entries: Mapping[str, Any]) -> str:
    """What the last linear stage was free to do."""
    names = [stage["name"] for stage in entries["stages"] if stage["name"] in MOTIONS]
    return names[-1] if names else "affine"


def _second_opinion(case: Case, view: _View, metric: str, dof: str) -> Likeness | None:
    """How alike the images are under a linear transform searched for from scratch."""
    scene = _scene(case, SEARCH_POINTS)
    matrix = None if scene is None else _fit(scene, metric, dof, None)[0]
    return None if matrix is None else view.likeness(Affine(matrix, dimension=case.affine.ndim))


def _mirror_gain(case: Case, metric: str) -> float | None:
    """1 - cost of a mirrored fit / cost of a straight one, each from the affine or from none; for MI see Alignment."""
    scene = _scene(case, MIRROR_POINTS)
    if scene is None:
        return None
    affine, reflection = case.affine.matrix, _reflection(scene)
    _, straight = _fit(scene, metric, "affine", _better(scene, metric, affine, np.eye(4)))
    _, mirrored = _fit(scene, metric, "affine", _better(scene, metric, affine @ reflection, reflection))
    if not (math.isfinite(mirrored) and math.isfinite(straight)):
        return None
    if metric == "mi":
        most = math.log(BINS)
        return (most - mirrored) / max(most - straight, 1e-9) - 1
    return 1 - mirrored / max(straight, 1e-9)


def _better(scene: Scene, metric: str, first: Matrix, second: Matrix) -> Matrix:
    """The one of two transforms that costs less."""
    settings = LinearSettings()
    cost = linear_cost(scene, metric, kernels.select("cpu"), window=settings.window, bins=BINS)
    return min((first, second), key=lambda matrix: cost.evaluate(matrix).cost)


def _reflection(scene: Scene) -> Matrix:
    """4x4 that swaps left and right (x of the world) about the middle of the fixed object."""
    inside = foreground(scene.pair.fixed, scene.pair.fixed_mask).nonzero().numpy()
    matrix = np.diag([-1.0, 1.0, 1.0, 1.0])
    matrix[0, 3] = 2 * scene.fixed_grid.index_to_world(inside)[:, 0].mean()
    return matrix


def _scene(case: Case, points: int) -> Scene | None:
    if case.fixed is None or case.moving is None:
        return None
    return coarse_scene(case.fixed, case.moving, case.fixed_mask, points, moving_mask=case.moving_mask)


def _fit(scene: Scene, metric: str, dof: str, start: Matrix | None) -> tuple[Matrix | None, float]:
    """A linear transform on coarse images and its cost; infinite if there is none."""
    shortest = min(n for n in scene.fixed_grid.shape if n > 1)
    levels, iterations = ((2, 1), (30, 10)) if shortest >= TWO_LEVELS else ((1,), (30,))
    settings = LinearSettings(dof=dof, metric=metric, bins=BINS, levels=levels, iterations=iterations)
    try:
        found = register_linear(scene, settings=settings, ops=kernels.select("cpu"), start=start)
    except InputError:  # no overlap
        return None, math.inf
    return found.matrix, found.cost

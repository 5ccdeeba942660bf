"""Similarity of two images under a transform, by measures that hold across contrasts, and whether another fits better.

Everything is measured on coarse copies of the images: a verdict is about gross failure, not about the last voxel.

Whether another affine fits better is answered by a second, coarse search. It is skipped where it could only repeat what
the linear stage has done: if that stage tried all its starts by itself, the affine is still the one that it found, and
the images are clearly more similar under it than by chance. A wrong affine always fails one of these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from warpfactor.checks.alignment import GIVEN
from warpfactor.checks.case import Case
from warpfactor.checks.coarse import coarse_scene, shrink_mask
from warpfactor.checks.limits import GREEN, grade
from warpfactor.errors import InputError
from warpfactor.geometry.grid import Matrix
from warpfactor.geometry.image import Image
from warpfactor.geometry.resample import resample_through
from warpfactor.geometry.transform import Affine, Transform
from warpfactor.kernels.ops import Ops
from warpfactor.scene.object import shown
from warpfactor.scene.scene import Scene
from warpfactor.stages.linear.motion import MOTIONS, about
from warpfactor.stages.linear.solve import LEAST_OVERLAP
from warpfactor.stages.linear.stage import Levels, LinearSettings, run_linear
from warpfactor.stages.linear.starts import STARTS, rotation

POINTS = 100_000  # voxels of the coarse fixed image: about 4 mm for a head
SEARCH_POINTS = 30_000  # of the second search for an affine: about 6 mm for a head
MIRROR_POINTS = 220_000  # left and right of a brain differ in detail: about 3 mm
BINS = 32
RADIUS = 2  # of the windows of local correlation
QUIET = 1e-3  # variance of constant windows, relative to that of the image
SHIFT = 0.1  # of the object's size: images that are as similar after this shift are not aligned
NEAR_SHIFT, NEAR_DEGREES = 0.04, 6.0  # motions that must make aligned images less similar
FLAT = 0.01  # by which a motion must make images more similar to tell anything
FARTHEST = 10.0  # stands for an optimum that cannot be located
LEAST_PART = 0.03  # of the voxels of the object; smaller parts are not judged by themselves
NAMES = ("coverage", "information", "correlation")
FEWEST = 50  # voxels that are needed for a comparison
ONE_CONTRAST = ("lncc", "ncc", "mse")
SEARCH_TOLERANCE = 1e-3  # relative decrease of the cost that ends a search; only a far better affine counts
MIRROR_TOLERANCE = 1e-4  # here a difference of one per cent counts
TWO_LEVELS = 32  # voxels along the shortest axis from which a search begins at half the resolution
SAME_AFFINE = 1e-4  # mm: rounding of an affine in its file


@dataclass(frozen=True)
class Similarity:
    """Similarity of two images in the object of the fixed image.

    Attributes:
        coverage: share of the fixed object that lies inside the moving image.
        information: normalised mutual information, 2 I(F, M) / (H(F) + H(M)), 0 to 1.
        correlation: mean squared correlation in small windows, 0 to 1; NaN if it was not computed.
    """

    coverage: float
    information: float
    correlation: float = math.nan


@dataclass(frozen=True)
class Alignment:
    """Similarity of the images under several transforms.

    Attributes:
        before, affine, after: under the identity, the affine alone and the whole transform; None if it is not known.
        chance: under the whole transform and a shift by a tenth of the object, where nothing is aligned.
        near: the most that small motions after the whole transform reach, of the information and of the correlation.
        off: how far from the transform the images are most similar along any of these motions, in units of the motion;
            0 if none makes them more similar.
        parts: correlation after, and by chance, in each part of the object (octants; quarters of a slice) of which the
            moving image shows something.
        fresh: under the affine of a second, coarse search; None if there was no search.
        mirror_gain: relative decrease of the cost of a linear fit (for MI, increase of the information) if the moving
            image is mirrored; negative if mirroring is worse. An upper bound if that is below the limit; above it the
            least of this and of the gains in local correlation and information.
        mirror_limit: name of the limit that applies to it.
    """

    before: Similarity | None
    affine: Similarity | None
    after: Similarity
    chance: Similarity
    near: Similarity | None = None
    off: float = 0.0
    parts: tuple[tuple[float, float], ...] = ()
    fresh: Similarity | None = None
    mirror_gain: float | None = None
    mirror_limit: str = "mirror"


def align(case: Case, ops: Ops) -> Alignment | None:
    """Compare the images of a case; None if an image is not available or is constant."""
    if case.fixed is None or case.after is None:
        return None
    image, transform = case.after
    scene = coarse_scene(case.fixed, image, case.fixed_mask, POINTS, ops)
    if scene is None:
        return None
    mask = None if case.moving is None else shrink_mask(case.moving_mask, scene.moving.grid, ops)
    counts = None if mask is None else Image(mask.data.float(), mask.grid)
    comparison = _Comparison(scene, shown(scene.fixed), counts, ops)
    moved = comparison.through(transform)
    after, (chance, parts) = comparison.compare(moved, correlate=True), comparison.chance(moved)
    near, off = comparison.near(moved, after)
    if case.moving is None:
        return Alignment(None, None, after, chance, near, off, parts)
    metric, dof = _metric(case.entries), _dof(case.entries)
    limit = "mirror_mi" if metric == "mi" else "mirror_flat" if case.planar else "mirror"
    affine = comparison.compare(comparison.through(case.affine), correlate=True)
    searched = _searched(case) and _beyond_chance(affine, chance)
    return Alignment(
        before=comparison.compare(comparison.through(Affine(dimension=case.affine.ndim)), correlate=True),
        affine=affine,
        after=after,
        chance=chance,
        near=near,
        off=off,
        parts=parts,
        fresh=None if searched else _second_opinion(case, comparison, metric, dof, ops),
        mirror_gain=_mirror_gain(case, comparison, metric, limit, ops),
        mirror_limit=limit,
    )


def _searched(case: Case) -> bool:
    """Whether the affine of the case was found by a linear stage that tried every start by itself."""
    linear = [stage for stage in case.entries["stages"] if stage["name"] in MOTIONS]
    same = np.allclose(case.affine.matrix, case.entries["fixed_to_moving_affine_lps_mm"], atol=SAME_AFFINE)
    return bool(linear) and same and linear[0]["start"] != GIVEN and len(linear[0]["start_costs"]) >= len(STARTS)


def _beyond_chance(affine: Similarity, chance: Similarity) -> bool:
    return grade(affine.information / max(chance.information, 1e-9), "affine_chance", low_is_bad=True) == GREEN


class _Moved(NamedTuple):
    """The moving image on the fixed grid, its field of view, the part of that inside its mask, and where it shows
    something; (D, H, W) each.
    """

    image: Tensor
    inside: Tensor
    counts: Tensor
    shown: Tensor


@dataclass(frozen=True)
class _Comparison:
    """Coarse images, the object of the fixed one, (D, H, W) bool, and the mask of the moving one.

    Voxels outside the mask of the moving image are not compared, but count as covered: overlap is about fields of view.
    """

    scene: Scene
    where: Tensor
    counts: Image | None
    ops: Ops

    def chance(self, moved: _Moved) -> tuple[Similarity, tuple[tuple[float, float], ...]]:
        """Mean over shifts along each axis, in both directions; and `parts` of Alignment."""
        moves = [(s, axis) for axis, step in self._steps(SHIFT) for s in (-step, step)]
        shifted = [_Moved(*(t.roll(*move) for t in moved)) for move in moves]
        found = [self.compare(each) for each in shifted]
        maps = [self._correlations(each) for each in shifted]
        there = self._correlations(moved)
        parts = tuple(
            (float(there[part].mean()), float(torch.stack([each[part].mean() for each in maps]).mean()))
            for part in self._parts(moved)
        )
        coverage, information = (float(np.mean([getattr(f, name) for f in found])) for name in NAMES[:2])
        shared = [each[self.where & other.counts] for each, other in zip(maps, shifted, strict=True)]
        correlation = float(np.mean([float(each.mean()) if len(each) else 0.0 for each in shared]))
        return Similarity(coverage, information, correlation), parts

    def near(self, moved: _Moved, after: Similarity) -> tuple[Similarity, float]:
        """The most that small shifts and turns reach, of each figure; and `off` of Alignment."""
        found = [
            self.compare(_Moved(*(t.roll(s, axis) for t in moved)), correlate=True)
            for axis, step in self._steps(NEAR_SHIFT)
            for s in (-step, step)
        ]
        found += [self.compare(self._turned(moved, turn), correlate=True) for turn in self._turns()]
        ratios = [over(each, after) for each in found]  # motions come in pairs, there and back
        off = max(map(off_optimum, ratios[::2], ratios[1::2]), default=0.0)
        return Similarity(*(max(getattr(each, name) for each in found) for name in NAMES)), off

    def _steps(self, share: float) -> list[tuple[int, int]]:
        """Axes, and a share of the length of the object along each in voxels."""
        points = self.where.nonzero()
        extent = (points.amax(0) - points.amin(0) + 1).tolist()
        steps = [(axis, max(1, round(share * length))) for axis, length in enumerate(extent)]
        return [(axis, step) for axis, step in steps if self.where.shape[axis] > step]

    def _turns(self) -> list[Matrix]:
        """Small rotations about the centre of the object, of a slice in its plane."""
        grid = self.scene.fixed.grid
        middle = grid.index_to_world(self.where.nonzero().numpy()).mean(axis=0)
        axes = np.asarray([(0.0, 0.0, 1.0)]) if grid.shape[0] == 1 else np.eye(3)
        angles = (-NEAR_DEGREES, NEAR_DEGREES)
        return [about(middle, rotation(axis, math.radians(angle)), middle) for axis in axes for angle in angles]

    def _turned(self, moved: _Moved, turn: Matrix) -> _Moved:
        grid, ops = self.scene.fixed.grid, self.ops
        place = Affine(turn, dimension=grid.ndim).on_grid(grid, ops=ops)
        image, inside, counts, seen = (
            resample_through(Image(t[None].float(), grid), place, outside=0.0, ops=ops).data[0] for t in moved
        )
        return _Moved(image, inside > 0.5, counts > 0.5, seen > 0.5)

    def _correlations(self, moved: _Moved) -> Tensor:
        """(D, H, W) squared local correlation."""
        return correlation_map(self.scene.fixed.data[0], moved.image, self.where & moved.counts, self.ops)

    def _parts(self, moved: _Moved) -> list[Tensor]:
        """(D, H, W) masks of the parts of the object, those of which the moving image shows enough.

        Where it shows background, as one that is empty in half does, nothing is alike and nothing can be.
        """
        points = self.where.nonzero()
        middle = points.double().mean(0)
        index = torch.stack(torch.meshgrid(*(torch.arange(n) for n in self.where.shape), indexing="ij"))
        number = torch.zeros(self.where.shape, dtype=torch.long)
        for axis, length in enumerate(self.where.shape):
            if length > 1:
                number = 2 * number + (index[axis] > middle[axis])
        shared = self.where & moved.counts
        seen = shared & moved.shown
        least = max(FEWEST, LEAST_PART * len(points))
        parts = [shared & (number == each) for each in range(int(number.max()) + 1)]
        return [part for part in parts if int((part & seen).sum()) >= least]

    def through(self, transform: Transform) -> _Moved:
        """The moving image on the fixed grid."""
        side, ops = self.scene.moving, self.ops
        place = transform.on_grid(self.scene.fixed.grid, ops=ops)
        moved = resample_through(Image(side.data, side.grid), place, outside=math.nan, ops=ops).data[0]
        inside = torch.isfinite(moved)
        if side.mask is not None:
            mask = Image(side.mask[None].float(), side.grid)
            inside &= resample_through(mask, place, ops=ops).data[0] > 0.5
        counts = inside
        if self.counts is not None:
            counts = inside & (resample_through(self.counts, place, ops=ops).data[0] > 0.5)
        seen = resample_through(Image(shown(side)[None].float(), side.grid), place, outside=0.0, ops=ops).data[0]
        return _Moved(torch.nan_to_num(moved), inside, counts, seen > 0.5)

    def compare(self, moved: _Moved, *, correlate: bool = False) -> Similarity:
        coverage = float((self.where & moved.inside).sum() / self.where.sum())
        shared = self.where & moved.counts
        if int(shared.sum()) < FEWEST:
            return Similarity(coverage, 0.0, 0.0)
        fixed = self.scene.fixed.data[0]
        information = shared_information(fixed[shared].numpy(), moved.image[shared].numpy())
        correlation = local_correlation(fixed, moved.image, shared, self.ops) if correlate else math.nan
        return Similarity(coverage, information, correlation)


def over(one: Similarity, other: Similarity) -> float:
    """How much more similar one is: the geometric mean of the ratios of information and correlation that are known."""
    pairs = [(one.information, other.information), (one.correlation, other.correlation)]
    ratios = [max(a, 1e-9) / max(b, 1e-9) for a, b in pairs if math.isfinite(a) and math.isfinite(b)]
    return math.prod(ratios) ** (1 / len(ratios))


def off_optimum(back: float, ahead: float) -> float:
    """Where images are most similar along a motion, in units of it, away from where they are.

    It is the vertex of a parabola through the logarithms of the similarities after the motion, backwards and forwards,
    over the one without it. How far away the optimum is does not depend on how much the images have in common, as the
    ratios themselves do: they are close to 1 for an affine alone or images with noise. 0 if neither is more similar,
    FARTHEST if there is no optimum in between.
    """
    less, more = sorted(math.log(max(each, 1e-9)) for each in (back, ahead))
    if more <= math.log(1 + FLAT):
        return 0.0
    bend = -(less + more)
    return min((more - less) / (2 * bend), FARTHEST) if bend > 0 else FARTHEST


def shared_information(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Normalised mutual information 2 I(A, B) / (H(A) + H(B)) of two lists of intensities, 0 to 1."""
    joint = np.bincount(_binned(a) * BINS + _binned(b), minlength=BINS * BINS).reshape(BINS, BINS) / len(a)
    alone = _entropy(joint.sum(axis=1)) + _entropy(joint.sum(axis=0))
    return float(2 * (alone - _entropy(joint.ravel())) / alone) if alone > 0 else 0.0


def local_correlation(a: Tensor, b: Tensor, where: Tensor, ops: Ops) -> float:
    """Mean squared correlation in windows of (D, H, W) images, over the voxels of `where`."""
    return float(correlation_map(a, b, where, ops)[where].mean())


def correlation_map(a: Tensor, b: Tensor, where: Tensor, ops: Ops) -> Tensor:
    """(D, H, W) squared correlation in windows around the voxels, of those voxels that are in `where`."""
    weight, radii = where.to(a.dtype), [RADIUS if n > 1 else 0 for n in a.shape]

    def box(image: Tensor) -> Tensor:
        return ops.smooth_box(image.clone()[None], radii)[0]

    share = box(weight).clamp_(min=1e-3)
    mean_a, mean_b = box(a * weight) / share, box(b * weight) / share
    var_a = (box(a * a * weight) / share - mean_a**2).clamp_(min=0)
    var_b = (box(b * b * weight) / share - mean_b**2).clamp_(min=0)
    covariance = box(a * b * weight) / share - mean_a * mean_b
    return covariance**2 / ((var_a + QUIET) * (var_b + QUIET))


def _binned(values: NDArray[Any]) -> NDArray[np.int64]:
    low, high = np.quantile(values, (0.005, 0.995))
    scaled = (values - low) * (BINS / max(high - low, 1e-12))
    binned: NDArray[np.int64] = np.clip(scaled.astype(np.int64), 0, BINS - 1)
    return binned


def _entropy(shares: NDArray[Any]) -> float:
    filled = shares[shares > 0]
    return float(-(filled * np.log(filled)).sum())


def _metric(entries: Mapping[str, Any]) -> str:
    """Local correlation if the linear stages went by it; otherwise mutual information."""
    linear = [stage for stage in entries["stages"] if stage["name"] in MOTIONS] or entries["stages"]
    return "lncc" if all(stage["metric"] in ONE_CONTRAST for stage in linear) else "mi"


def _dof(entries: Mapping[str, Any]) -> str:
    """Group of motions of the last linear stage."""
    names = [stage["name"] for stage in entries["stages"] if stage["name"] in MOTIONS]
    return names[-1] if names else "affine"


def _second_opinion(case: Case, comparison: _Comparison, metric: str, dof: str, ops: Ops) -> Similarity | None:
    """Similarity under an affine that a new search finds."""
    scene = _scene(case, SEARCH_POINTS, ops)
    if scene is None:
        return None
    matrix, _ = _fit(scene, _settings(scene, metric, dof, SEARCH_TOLERANCE), None, ops)
    return (
        None if matrix is None else comparison.compare(comparison.through(Affine(matrix, dimension=case.affine.ndim)))
    )


def _mirror_gain(case: Case, comparison: _Comparison, metric: str, limit: str, ops: Ops) -> float | None:
    """Gain of a mirrored fit over one that is not mirrored, each from the affine or the identity; see Alignment.

    A fit costs no more than its start. If the mirrored fit does not beat even the start of the other one, that other
    fit is not computed, and the gain is an upper bound. A gain that matters must be seen by other measures, too: a cost
    that does not suit the images, as across contrasts, may fall by a mirrored fit that is not right.
    """
    scene = _scene(case, MIRROR_POINTS, ops)
    if scene is None:
        return None
    settings = _settings(scene, metric, "affine", MIRROR_TOLERANCE)
    levels = Levels.of(scene, settings, ops)
    affine, reflection = case.affine.matrix, _reflection(scene)
    start, straight = _better(levels, affine, np.eye(4))
    there, mirrored = _fit(scene, settings, _better(levels, affine @ reflection, reflection)[0], ops, levels)
    gain = _gain(metric, mirrored, straight)
    if gain is not None and grade(gain, limit) == GREEN:
        return gain
    here, straight = _fit(scene, settings, start, ops, levels)
    gain = _gain(metric, mirrored, straight)
    if gain is None or grade(gain, limit) == GREEN or here is None or there is None:
        return gain
    one, other = (
        comparison.compare(comparison.through(Affine(matrix, dimension=case.affine.ndim)), correlate=True)
        for matrix in (there, here)
    )
    missing = max(1 - other.correlation, 1e-9)
    return min(
        gain, (one.correlation - other.correlation) / missing, one.information / max(other.information, 1e-9) - 1
    )


def _gain(metric: str, mirrored: float, straight: float) -> float | None:
    """1 - mirrored / straight; for MI the relative increase of the information; None if a fit failed."""
    if not (math.isfinite(mirrored) and math.isfinite(straight)):
        return None
    if metric == "mi":
        most = math.log(BINS)
        return (most - mirrored) / max(most - straight, 1e-9) - 1
    return 1 - mirrored / max(straight, 1e-9)


def _better(levels: Levels, *matrices: Matrix) -> tuple[Matrix, float]:
    """The transform with the lowest cost at the finest level, and that cost; infinite without enough overlap."""
    finest, share = next(iter(levels.costs.values()))[-1], levels.overlap.share
    costs = [finest.evaluate(m).cost if share(m) >= LEAST_OVERLAP else math.inf for m in matrices]
    best = int(np.argmin(costs))
    return matrices[best], costs[best]


def _reflection(scene: Scene) -> Matrix:
    """4x4 matrix that mirrors left and right (world x) about the centre of the fixed object."""
    inside = shown(scene.fixed).nonzero().numpy()
    matrix = np.diag([-1.0, 1.0, 1.0, 1.0])
    matrix[0, 3] = 2 * scene.fixed.grid.index_to_world(inside)[:, 0].mean()
    return matrix


def _scene(case: Case, points: int, ops: Ops) -> Scene | None:
    if case.fixed is None or case.moving is None:
        return None
    return coarse_scene(case.fixed, case.moving, case.fixed_mask, points, ops, moving_mask=case.moving_mask)


def _settings(scene: Scene, metric: str, dof: str, tolerance: float) -> LinearSettings:
    shortest = min(n for n in scene.shape if n > 1)
    levels, iterations = ((2, 1), (30, 10)) if shortest >= TWO_LEVELS else ((1,), (30,))
    return LinearSettings(dof=dof, metric=metric, bins=BINS, levels=levels, iterations=iterations, tolerance=tolerance)


def _fit(
    scene: Scene, settings: LinearSettings, start: Matrix | None, ops: Ops, levels: Levels | None = None
) -> tuple[Matrix | None, float]:
    """A linear transform fitted to coarse images, and its cost; None and infinity without overlap."""
    try:
        matrix, stage = run_linear(scene, settings, ops=ops, start=start, levels=levels)
    except InputError:  # no overlap
        return None, math.inf
    return matrix, stage.cost_after

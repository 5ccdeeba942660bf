"""The linear stages: the best of several starts, then translation, rigid, similarity, affine from coarse to fine.

Every stage is Levenberg-Marquardt on 2 to 12 parameters. The matrix is Gauss-Newton's where the metric has one; if not, it
starts from one of like structure and BFGS corrects it. A step is kept only if the true cost falls, the images still
overlap and the transform has not collapsed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import ModuleType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from warpfactor.errors import InputError
from warpfactor.grid import Matrix
from warpfactor.register.initial import (
    STARTS,
    Overlap,
    Start,
    axes_starts,
    plain_starts,
    shifted_starts,
    turned_starts,
)
from warpfactor.register.linear_cost import METRICS, Evaluation, LinearCost, linear_cost
from warpfactor.register.linear_params import MOTIONS, Motion, Vector, centre_of, restrict, strain
from warpfactor.register.pair import Scene, finest_spacing, level_scene

LEAST_OVERLAP = 0.25  # of the smaller object
LARGEST_STRAIN = 2.2  # of 2 log(stretch): a factor of 3 along any direction
LARGEST_VOLUME = 1.1  # of |log det|: a factor of 3
FIRST_DAMPING = 1e-3
LARGEST_STEP = 4.0  # voxels of the level, at the image's corner
SMALLEST_STEP = 0.02
REJECTIONS = 6  # in a row, then the stage ends
PROMISING = 4  # starts that are optimised
SEARCH_ITERATIONS = 15


@dataclass(frozen=True)
class LinearSettings:
    """How to find a linear transform.

    Attributes:
        dof: "translation", "rigid", "similarity" or "affine".
        metric: "lncc", "ncc" (global), "mi" or "mse".
        window: edge of the LNCC window in voxels, odd.
        bins: of each axis of the histogram of MI.
        levels: spacing of each level in units of the fixed image's finest spacing, coarse to fine.
        iterations: at most this many per stage, one limit per level.
        starts: what is tried, of initial.STARTS; not used when a start is given.
        tolerance: a stage ends when two steps in a row lower the cost by less than this fraction.
        prior: weight of the squared strain (log stretch) beside the cost; keeps an affine from collapsing.
    """

    dof: str = "affine"
    metric: str = "lncc"
    window: int = 5
    bins: int = 32
    levels: tuple[float, ...] = (8, 4, 2)
    iterations: tuple[int, ...] = (50, 50, 20)
    starts: tuple[str, ...] = STARTS
    tolerance: float = 1e-4
    prior: float = 1e-2

    def __post_init__(self) -> None:
        _one_of("dof", self.dof, MOTIONS)
        _one_of("metric", self.metric, METRICS)
        for name in self.starts:
            _one_of("start", name, STARTS)
        if not set(self.starts) & {"identity", "centre", "mass"}:
            raise InputError(f"starts {self.starts} need at least one of 'identity', 'centre', 'mass'.")
        if not self.levels or len(self.levels) != len(self.iterations):
            raise InputError(
                f"{len(self.levels)} levels {self.levels} and {len(self.iterations)} iteration limits "
                f"{self.iterations}: give one limit per level, and at least one level."
            )


@dataclass(frozen=True)
class LinearRecord:
    """One iteration.

    Attributes:
        level: factor of the level.
        dof: of the stage.
        cost: of the trial transform.
        damping: λ used for the step to it.
        accepted: whether it was kept.
        seconds: since the registration started.
    """

    level: float
    dof: str
    cost: float
    damping: float
    accepted: bool
    seconds: float


@dataclass(frozen=True)
class LinearResult:
    """A linear transform and how it was found.

    Attributes:
        matrix: 4x4 float64, LPS mm, fixed world to moving world.
        cost: at the finest level, without the prior.
        overlap: share of the smaller object inside the other image.
        history: of the stages from the chosen start on.
        status: why it stopped, in words.
        start: name of the chosen start.
        start_costs: cost of every start tried, at the coarsest level, by name.
    """

    matrix: Matrix
    cost: float
    overlap: float
    history: tuple[LinearRecord, ...]
    status: str
    start: str
    start_costs: dict[str, float] = field(default_factory=dict)


Progress = Callable[[LinearRecord], None]


def register_linear(
    scene: Scene,
    *,
    settings: LinearSettings,
    ops: ModuleType,
    start: ArrayLike | None = None,
    progress: Progress | None = None,
) -> LinearResult:
    """The transform of the group `settings.dof` that makes the images most alike.

    Args:
        scene: the two images.
        settings: how.
        ops: kernels.
        start: 4x4, LPS mm, fixed to moving; the search for a start is left out.
        progress: called after every iteration.
    """
    course = _Course(progress)
    given = None if start is None else np.array(start, dtype=np.float64)
    run = _Run(settings, ops, np.eye(4) if given is None else given, course)
    levels = [level_scene(scene, factor, ops) for factor in settings.levels[:1]]
    overlap = Overlap.of(levels[0])
    first = _Level(run, levels[0], overlap, settings.levels[0], settings.iterations[0])
    chosen, costs = first.given(given) if given is not None else first.search()
    matrix = restrict(chosen.matrix, settings.dof, centre_of(scene.fixed_grid))
    for number, factor in enumerate(settings.levels):
        images = levels[0] if number == 0 else level_scene(scene, factor, ops)
        level = first if number == 0 else _Level(run, images, overlap, factor, settings.iterations[number])
        for dof in _stages(settings.dof) if number == 0 else [settings.dof]:
            matrix = level.optimize(matrix, dof)
    matrix = restrict(matrix, settings.dof, centre_of(scene.fixed_grid))
    return LinearResult(
        matrix,
        level.cost.evaluate(matrix).cost,
        overlap.share(matrix),
        tuple(course.records),
        course.status,
        chosen.name,
        costs,
    )


class _Course:
    """What has happened so far: the records, the clock, and why the last stage stopped."""

    def __init__(self, progress: Progress | None) -> None:
        self.records: list[LinearRecord] = []
        self.status = "No iteration was asked for."
        self._progress = progress
        self._began = time.perf_counter()

    def add(self, level: float, dof: str, cost: float, damping: float, accepted: bool) -> None:
        record = LinearRecord(level, dof, cost, damping, accepted, time.perf_counter() - self._began)
        self.records.append(record)
        if self._progress is not None:
            self._progress(record)


@dataclass(frozen=True)
class _Run:
    """What is the same at all levels; strains are measured against `reference`."""

    settings: LinearSettings
    ops: ModuleType
    reference: Matrix
    course: _Course


@dataclass(frozen=True)
class _Point:
    """A transform with its cost (prior included), and gradient and curvature by the motion's parameters."""

    matrix: Matrix
    cost: float
    gradient: Vector
    curvature: NDArray[np.float64] | None


class _Level:
    """The images of one level, their cost, and the optimiser on it."""

    def __init__(self, run: _Run, scene: Scene, overlap: Overlap, factor: float, iterations: int) -> None:
        s = run.settings
        self.run, self.scene, self.overlap = run, scene, overlap
        self.factor, self.iterations = factor, iterations
        self.cost: LinearCost = linear_cost(scene, s.metric, run.ops, window=s.window, bins=s.bins)

    def search(self) -> tuple[Start, dict[str, float]]:
        """The best start after a few rigid steps from the most promising ones, and what every start cost."""
        names = self.run.settings.starts
        tried = {s.name: (s, self.rank(s.matrix)) for s in plain_starts(self.overlap, names)}

        def attempt(starts: list[Start]) -> None:
            tried.update({s.name: (s, self.rank(s.matrix)) for s in starts})

        def best(count: int) -> list[Start]:
            return [s for s, _ in sorted(tried.values(), key=lambda t: t[1])[:count]]

        plain = best(2)
        if "axes" in names and self.run.settings.dof != "translation":
            attempt(axes_starts(self.overlap))
        for start in plain:
            if "turns" in names and self.run.settings.dof != "translation":
                attempt(turned_starts(self.overlap, start))
            if "shifts" in names:
                attempt(shifted_starts(self.overlap, start))
        costs = {name: cost for name, (_, cost) in tried.items()}
        self._check_overlap(max(self.overlap.share(s.matrix) for s, _ in tried.values()))
        silent = _Level.__new__(_Level)
        silent.__dict__.update(self.__dict__)
        silent.run = replace(self.run, course=_Course(None))
        silent.iterations = min(self.iterations, SEARCH_ITERATIONS)
        refined = []
        for start in {s.name: s for s in [*plain[:1], *best(PROMISING)]}.values():
            dof = "translation" if self.run.settings.dof == "translation" else "rigid"
            matrix = silent.optimize(silent.optimize(start.matrix, "translation"), dof)
            refined.append((self.rank(matrix), Start(start.name, matrix)))
            self.run.course.records  # noqa: B018
        return min(refined, key=lambda r: r[0])[1], costs

    def given(self, matrix: Matrix) -> tuple[Start, dict[str, float]]:
        self._check_overlap(self.overlap.share(matrix))
        return Start("given", matrix), {"given": self.rank(matrix)}

    def rank(self, matrix: Matrix) -> float:
        """The cost by which starts are compared: what lies outside the other image counts as unlike."""
        share, worst = self.overlap.share(matrix), self.cost.worst
        cost = self.cost.evaluate(matrix).cost
        return worst - (worst - cost) * share if share >= LEAST_OVERLAP else np.inf

    def _check_overlap(self, share: float) -> None:
        if share < LEAST_OVERLAP:
            raise InputError(
                f"The images hardly overlap: {share:.0%} of the smaller object lies inside the other image. "
                "Check their positions in space or the initial transform, or let the centres be tried as starts."
            )

    def optimize(self, matrix: Matrix, dof: str) -> Matrix:
        """The best transform of the group `dof` applied before `matrix`."""
        motion = Motion.on(self.scene.fixed_grid, dof, finest_spacing(self.scene.fixed_grid))
        here = self._point(matrix, motion)
        if not np.isfinite(here.cost):
            return matrix
        curvature = here.curvature if here.curvature is not None else self._first_curvature(here, motion)
        damping, calm, refused = FIRST_DAMPING, 0, 0
        for _ in range(self.iterations):
            theta, step = _bounded_step(here.gradient, curvature, damping, motion)
            if motion.reach(step) < SMALLEST_STEP and refused == 0:
                self.run.course.status = "Converged: the steps became tiny."
                break
            there = self._point(here.matrix @ step, motion)
            predicted = -float(here.gradient @ theta + theta @ curvature @ theta / 2)
            accepted = there.cost < here.cost
            self.run.course.add(self.factor, dof, there.cost, damping, accepted)
            gain = (here.cost - there.cost) / max(predicted, 1e-300)
            if np.isfinite(there.cost):
                if there.curvature is None:
                    curvature = _bfgs(curvature, theta, there.gradient - here.gradient)
                elif accepted:
                    curvature = there.curvature
            damping = float(np.clip(damping * (0.2 if gain > 0.7 else 1.0 if gain > 0.25 else 5.0), 1e-6, 1e6))
            if not accepted:
                refused += 1
                if refused >= REJECTIONS:
                    self.run.course.status = "No step lowered the cost any more."
                    break
                continue
            refused = 0
            calm = calm + 1 if here.cost - there.cost < self.run.settings.tolerance * abs(here.cost) else 0
            here = there
            if calm >= 2:
                self.run.course.status = "Converged: the cost flattened."
                break
        else:
            self.run.course.status = "The iteration limit was reached."
        return here.matrix

    def _point(self, matrix: Matrix, motion: Motion) -> _Point:
        nothing = _Point(matrix, np.inf, np.zeros(len(motion.generators)), None)
        if self.overlap.share(matrix) < LEAST_OVERLAP:
            return nothing
        stretch = strain(matrix, self.run.reference)
        if np.abs(stretch).max() > LARGEST_STRAIN or abs(np.trace(stretch)) / 2 > LARGEST_VOLUME:
            return nothing
        found = self.cost.evaluate(matrix)
        cost = found.cost + self.run.settings.prior * float((stretch**2).sum()) / 4
        prior, prior_curvature = self._prior(stretch, motion)
        curvature = None
        if found.curvature is not None:
            curvature = motion.jacobian.T @ found.curvature @ motion.jacobian + prior_curvature
        return _Point(matrix, cost, motion.jacobian.T @ found.gradient + prior, curvature)

    def _prior(self, stretch: Matrix, motion: Motion) -> tuple[Vector, NDArray[np.float64]]:
        """Gradient and curvature of weight |log stretch|², by θ."""
        reference = self.run.reference[:3, :3]
        inverse = np.linalg.inv(reference)
        parts = np.stack([reference @ g[:3, :3] @ inverse for g in motion.generators])
        parts = (parts + parts.transpose(0, 2, 1)) / 2
        weight = self.run.settings.prior
        return weight * np.einsum("kab,ab->k", parts, stretch), 2 * weight * np.einsum("kab,lab->kl", parts, parts)

    def _first_curvature(self, here: _Point, motion: Motion) -> NDArray[np.float64]:
        structure = motion.jacobian.T @ self.cost.curvature(here.matrix) @ motion.jacobian
        _, prior = self._prior(np.zeros((3, 3)), motion)
        return structure + prior


def _stages(dof: str) -> list[str]:
    """Rigid was done in the search; then the ones up to `dof`."""
    return list(MOTIONS[: MOTIONS.index(dof) + 1])


def _bounded_step(
    gradient: Vector, curvature: NDArray[np.float64], damping: float, motion: Motion
) -> tuple[Vector, Matrix]:
    """-(H + λ diag H)⁻¹ g, shortened so that no corner moves too far; θ and the 4x4 step."""
    diagonal = np.maximum(np.diag(curvature), 1e-6 * np.trace(curvature) / len(curvature) + 1e-12)
    theta = -np.linalg.solve(curvature + np.diag((damping + 1e-9) * diagonal), gradient)
    step = motion.step(theta)
    reach = motion.reach(step)
    if reach > LARGEST_STEP:
        theta = theta * (LARGEST_STEP / reach)
        step = motion.step(theta)
    return theta, step


def _bfgs(curvature: NDArray[np.float64], s: Vector, y: Vector) -> NDArray[np.float64]:
    """Powell's damped BFGS: stays positive definite, whatever the change y of the gradient along s."""
    bs = curvature @ s
    sbs, sy = float(s @ bs), float(s @ y)
    if sbs <= 0:
        return curvature
    mix = 1.0 if sy >= 0.2 * sbs else 0.8 * sbs / (sbs - sy)
    r = mix * y + (1 - mix) * bs
    result: NDArray[np.float64] = curvature - np.outer(bs, bs) / sbs + np.outer(r, r) / float(s @ r)
    return result


def _one_of(what: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InputError(f"unknown {what} {value!r}; use one of {', '.join(allowed)}")

"""The linear stages: the best of several starts, then translation, rigid, similarity, affine from coarse to fine."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType

import numpy as np
from numpy.typing import ArrayLike

from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid, Matrix
from warpfactor.registration.resources import insist
from warpfactor.scene.scene import Scene, finest_spacing, level_scene, stored
from warpfactor.stages.linear.cost import METRICS, LinearCost, linear_cost
from warpfactor.stages.linear.motion import MOTIONS, Motion, restrict
from warpfactor.stages.linear.solve import INTERRUPTED, LEAST_OVERLAP, Report, Solver
from warpfactor.stages.linear.starts import (
    STARTS,
    Overlap,
    Start,
    axes_starts,
    plain_starts,
    shifted_starts,
    sized_starts,
    turned_starts,
)

PROMISING = 4  # starts that are optimised
SEARCH_ITERATIONS = 15
RIVALS = 3  # of them that are compared at the second level
DENOISING_VOX = 0.7  # SD of the blur of images that were not shrunk
SAME_PLACE_VOX = 1.0  # starts closer together than this, at the image's corner, are one


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
        tolerance: a stage ends when a step promises to lower the cost by less than this fraction.
        prior: weight of the squared strain (log stretch) beside the cost; keeps an affine from collapsing.
    """

    dof: str = "affine"
    metric: str = "lncc"
    window: int = 7
    bins: int = 32
    levels: tuple[float, ...] = (8, 4, 2)
    iterations: tuple[int, ...] = (50, 50, 20)
    starts: tuple[str, ...] = STARTS
    tolerance: float = 1e-5
    prior: float = 1e-2

    def __post_init__(self) -> None:
        _one_of("dof", self.dof, MOTIONS)
        _one_of("metric", self.metric, METRICS)
        for name in self.starts:
            _one_of("start", name, STARTS)
        if not set(self.starts) & {"identity", "centre", "mass"}:
            raise InputError(f"Starts {self.starts} need at least one of 'identity', 'centre', 'mass'.")
        if not self.levels or len(self.levels) != len(self.iterations):
            raise InputError(
                f"{len(self.levels)} levels {self.levels} and {len(self.iterations)} iteration limits "
                f"{self.iterations}: give one limit per level, and at least one level."
            )
        if any(b >= a for a, b in itertools.pairwise(self.levels)) or self.levels[-1] < 1:
            raise InputError(f"Levels {self.levels} must fall from coarse to fine and end at 1 or above.")
        if min(self.iterations) < 0 or self.tolerance < 0 or self.prior < 0:
            raise InputError("Iterations, tolerance and prior must not be negative.")
        if self.window < 3 or self.window % 2 == 0:
            raise InputError(f"LNCC window {self.window} must be odd and at least 3.")


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
        cost_before, cost: of the start (the world as it is, if none was given) and of `matrix`, at the finest level,
            without the prior; infinite without overlap.
        overlap: share of the smaller object inside the other image.
        history: of the stages from the chosen start on.
        status: why it stopped, in words.
        interrupted: whether Ctrl-C ended it.
        start: name of the chosen start.
        start_costs: cost of every start tried, at the coarsest level, by name.
    """

    matrix: Matrix
    cost_before: float
    cost: float
    overlap: float
    history: tuple[LinearRecord, ...]
    status: str
    interrupted: bool
    start: str
    start_costs: dict[str, float] = field(default_factory=dict)


Progress = Callable[[LinearRecord], None]


@dataclass(frozen=True)
class Levels:
    """A scene made ready for searches.

    Attributes:
        scenes: its levels, coarse to fine.
        costs: the metric on each of them.
        overlap: of the objects in the images.
    """

    scenes: Sequence[Scene]
    costs: Sequence[LinearCost]
    overlap: Overlap

    @classmethod
    def of(cls, scene: Scene, settings: LinearSettings, ops: ModuleType) -> Levels:
        scenes = _pyramid(scene, settings.levels, ops)
        costs = [linear_cost(s, settings.metric, ops, window=settings.window, bins=settings.bins) for s in scenes]
        return cls(scenes, costs, Overlap.of(scenes[0]))

    def solvers(self, reference: Matrix, settings: LinearSettings) -> list[Solver]:
        """One per level; strains are measured against `reference`."""
        return [
            Solver(scene, cost, self.overlap, reference, settings.prior, settings.tolerance)
            for scene, cost in zip(self.scenes, self.costs, strict=True)
        ]


def register_linear(
    scene: Scene,
    *,
    settings: LinearSettings,
    ops: ModuleType,
    start: ArrayLike | None = None,
    progress: Progress | None = None,
    keep_interrupted: bool = False,
    levels: Levels | None = None,
) -> LinearResult:
    """The transform of the group `settings.dof` that makes the images most alike.

    Args:
        scene: the two images.
        settings: how.
        ops: kernels.
        start: 4x4, LPS mm, fixed to moving; the search for a start is left out.
        progress: called after every iteration of the stages, not of the search.
        keep_interrupted: let Ctrl-C end the run with the best transform so far, once there is one: not in the search.
        levels: of the scene and these settings, if they were made before.
    """
    levels = levels or Levels.of(scene, settings, ops)
    overlap = levels.overlap
    given = None if start is None else _given_start(start, settings.dof, scene.fixed_grid)
    reference = np.eye(4) if given is None else given.matrix
    solvers = levels.solvers(reference, settings)
    chosen, costs = _search(solvers[:2], settings) if given is None else _check(solvers[0], given)
    course = _Course(chosen.matrix, progress)
    try:
        matrix, status = _descend(solvers, settings, course)
    except KeyboardInterrupt:
        if not keep_interrupted:
            raise
        matrix, status = course.best, INTERRUPTED
    matrix = restrict(matrix, settings.dof, scene.fixed_grid)
    begin = np.eye(4) if start is None else np.asarray(start, dtype=np.float64)
    (before, after, share), stopped = insist(
        lambda: (*(solvers[-1].cost.evaluate(m).cost for m in (begin, matrix)), overlap.share(matrix)),
        keep=keep_interrupted,
    )
    return LinearResult(
        matrix=matrix,
        cost_before=before,
        cost=after,
        overlap=share,
        history=tuple(course.records),
        status=INTERRUPTED if stopped else status,
        interrupted=stopped or status == INTERRUPTED,
        start=chosen.name,
        start_costs=costs,
    )


def _descend(solvers: Sequence[Solver], settings: LinearSettings, course: _Course) -> tuple[Matrix, str]:
    """The transform after all levels from the course's best, and why it stopped."""
    matrix, status = course.best, "No iteration was asked for."
    for number, (factor, solver) in enumerate(zip(settings.levels, solvers, strict=True)):
        for dof in _stages(settings.dof) if number == 0 else (settings.dof,):
            matrix, status = solver.solve(matrix, dof, settings.iterations[number], course.at(factor))
    return matrix, status


class _Course:
    """The best transform and the records so far, and the clock."""

    def __init__(self, start: Matrix, progress: Progress | None) -> None:
        self.best = start
        self.records: list[LinearRecord] = []
        self._progress = progress
        self._began = time.perf_counter()

    def at(self, level: float) -> Report:
        """What a solver calls after every iteration at a level."""

        def report(dof: str, trial: Matrix, cost: float, damping: float, accepted: bool) -> None:
            self.best = trial if accepted else self.best
            record = LinearRecord(level, dof, cost, damping, accepted, time.perf_counter() - self._began)
            self.records.append(record)
            if self._progress is not None:
                self._progress(record)

        return report


def _pyramid(scene: Scene, factors: tuple[float, ...], ops: ModuleType) -> list[Scene]:
    """The levels, coarse to fine; the coarser ones are made from the finest, which is cheaper to read."""
    finest = stored(level_scene(scene, factors[-1], ops), "float32")
    ratio = finest_spacing(scene.fixed_grid) / finest_spacing(finest.fixed_grid)
    coarser = [level_scene(finest, f * ratio, ops) for f in factors[:-1]]
    return [*coarser, _denoised(finest, ops) if factors[-1] == 1 else finest]


def _denoised(scene: Scene, ops: ModuleType) -> Scene:
    """The full images, blurred a little, as those of the coarser levels are.

    Interpolation averages neighbours: where noise differs from voxel to voxel, images look more alike half a voxel
    away from where they belong.
    """
    images = [
        ops.smooth_gaussian(image.clone(), [DENOISING_VOX if n > 1 else 0.0 for n in image.shape[1:]])
        for image in (scene.pair.fixed, scene.pair.moving)
    ]
    return replace(scene, pair=replace(scene.pair, fixed=images[0], moving=images[1]))


def _stages(dof: str) -> tuple[str, ...]:
    """The groups up to `dof`."""
    return MOTIONS[: MOTIONS.index(dof) + 1]


def _search(solvers: Sequence[Solver], settings: LinearSettings) -> tuple[Start, dict[str, float]]:
    """The best start, and what every start cost: a coarse level ranks them all, a finer one decides among the few.

    Args:
        solvers: of the levels that are searched, coarse to fine.
    """
    coarse = solvers[0]
    starts = _starts(coarse, settings)
    costs = {s.name: coarse.rank(s.matrix) for s in starts}
    _require_overlap(max(coarse.overlap.share(s.matrix) for s in starts), min(costs.values()))
    rivals = sorted(_distinct(starts, coarse), key=lambda s: costs[s.name])[:PROMISING]
    for solver in solvers:
        refined = _distinct([_refine(solver, s, settings) for s in rivals], solver)
        rivals = sorted(refined, key=lambda s: solver.rank(s.matrix))[:RIVALS]
    return rivals[0], costs


def _refine(solver: Solver, start: Start, settings: LinearSettings) -> Start:
    """The start after a few steps of translation and, if allowed, rotation."""
    matrix = start.matrix
    for dof in _stages(settings.dof)[:2]:
        matrix, _ = solver.solve(matrix, dof, min(SEARCH_ITERATIONS, max(settings.iterations)))
    return Start(start.name, matrix)


def _distinct(starts: Sequence[Start], solver: Solver) -> list[Start]:
    """The starts; of those that are in the same place only the first."""
    motion = Motion.on(solver.scene.fixed_grid, "rigid", finest_spacing(solver.scene.fixed_grid))
    found: list[Start] = []
    for start in starts:
        apart = (np.asarray(np.linalg.solve(s.matrix, start.matrix), dtype=np.float64) for s in found)
        if all(motion.reach(step) >= SAME_PLACE_VOX for step in apart):
            found.append(start)
    return found


def _starts(solver: Solver, settings: LinearSettings) -> list[Start]:
    """All that is asked for: plain ones first, then turns and shifts around the two best of these."""
    overlap, names = solver.overlap, settings.starts
    turns = settings.dof != "translation"
    plain = plain_starts(overlap, names)
    found = [*plain, *(axes_starts(overlap) if turns and "axes" in names else [])]
    if settings.dof in ("similarity", "affine") and "size" in names:
        found += sized_starts(overlap)
    for start in sorted(plain, key=lambda s: solver.rank(s.matrix))[:2]:
        found += turned_starts(overlap, start) if turns and "turns" in names else []
        found += shifted_starts(overlap, start) if "shifts" in names else []
    return found


def _check(solver: Solver, given: Start) -> tuple[Start, dict[str, float]]:
    cost = solver.rank(given.matrix)
    _require_overlap(solver.overlap.share(given.matrix), cost)
    return given, {given.name: cost}


def _require_overlap(share: float, cost: float) -> None:
    if share < LEAST_OVERLAP:
        raise InputError(
            f"The images hardly overlap: {share:.0%} of the smaller object lies inside the other image. "
            "Check their positions in space and the initial transform, or let the centres be tried as starts."
        )
    if not np.isfinite(cost):
        raise InputError(
            "The images have no voxels with contrast in common where both masks allow them; check the masks."
        )


def _given_start(start: ArrayLike, dof: str, grid: Grid) -> Start:
    matrix = np.array(start, dtype=np.float64)
    whole = matrix.shape == (4, 4) and bool(np.all(np.isfinite(matrix)))
    if not (whole and np.array_equal(matrix[3], (0, 0, 0, 1)) and np.linalg.cond(matrix[:3, :3]) < 1e6):
        raise InputError("The initial transform must be an invertible 4x4 matrix whose last row is 0 0 0 1.")
    return Start("given", restrict(matrix, dof, grid))


def _one_of(what: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InputError(f"Unknown {what} {value!r}; use one of {', '.join(allowed)}.")

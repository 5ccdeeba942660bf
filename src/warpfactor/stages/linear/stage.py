"""The linear stages: the best of several starts, then translation, rigid, similarity, affine from coarse to fine."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid, Matrix
from warpfactor.kernels.ops import Ops
from warpfactor.scene.levels import Level, coarse_to_fine, finest_spacing, level_scene
from warpfactor.scene.scene import Scene, Side
from warpfactor.stages.linear.cost import METRICS, LinearCost, linear_cost
from warpfactor.stages.linear.motion import MOTIONS, Motion, restrict
from warpfactor.stages.linear.solve import LEAST_OVERLAP, LinearTrial, Solver
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
from warpfactor.stages.stage import Ending, Event, Stage, Watch

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
        starts: what is tried, of starts.STARTS; not used when a start is given.
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
    def of(cls, scene: Scene, settings: LinearSettings, ops: Ops) -> Levels:
        scenes = _pyramid(scene, settings.levels, ops)
        costs = [linear_cost(s, settings.metric, ops, window=settings.window, bins=settings.bins) for s in scenes]
        return cls(scenes, costs, Overlap.of(scenes[0]))

    def solvers(self, reference: Matrix, settings: LinearSettings, watch: Watch) -> list[Solver]:
        """One per level; strains are measured against `reference`."""
        return [
            Solver(scene, cost, self.overlap, reference, settings.prior, settings.tolerance, lambda: watch.stopped)
            for scene, cost in zip(self.scenes, self.costs, strict=True)
        ]


def run_linear(
    scene: Scene,
    settings: LinearSettings,
    *,
    ops: Ops,
    start: ArrayLike | None = None,
    watch: Watch | None = None,
    levels: Levels | None = None,
) -> tuple[Matrix, Stage]:
    """The transform of the group `settings.dof` that makes the images most alike, and how the stage went.

    Args:
        scene: the two images.
        settings: how.
        ops: the operations of the images' device.
        start: 4x4, LPS mm, fixed to moving; the search for a start is left out.
        watch: who is told of the iterations (not of the search for a start), and who may stop it.
        levels: of the scene and these settings, if they were made before.

    Returns:
        4x4 float64, LPS mm, fixed world to moving world; and the stage, whose costs are those of the start (the world
        as it is, if none was given) and of the result, at the finest level and without the prior.
    """
    watch = watch or Watch()
    levels = levels or Levels.of(scene, settings, ops)
    given = None if start is None else _given_start(start, settings.dof, scene.fixed.grid)
    solvers = levels.solvers(np.eye(4) if given is None else given.matrix, settings, watch)
    chosen, costs = _search(solvers[:2], settings) if given is None else _check(solvers[0], given)
    matrix, ending = coarse_to_fine(
        _levels(levels, settings), partial(_solve, solvers, settings, watch), (chosen.matrix, Ending.NOTHING)
    )
    matrix = restrict(matrix, settings.dof, scene.fixed.grid)
    begin = np.eye(4) if start is None else np.asarray(start, dtype=np.float64)
    before, after = (solvers[-1].cost.evaluate(m).cost for m in (begin, matrix))
    stage = Stage(
        name=settings.dof,
        metric=settings.metric,
        level=settings.levels[-1],
        cost_before=before,
        cost_after=after,
        ending=ending,
        kept=True,
        seconds=watch.seconds,
        history=tuple(watch.events),
        start=chosen.name,
        start_costs=tuple(costs.items()),
    )
    return matrix, stage


def _levels(levels: Levels, settings: LinearSettings) -> Iterator[Level]:
    last = len(levels.scenes) - 1
    for number, scene in enumerate(levels.scenes):
        yield Level(number, settings.levels[number], settings.iterations[number], number == last, scene)


def _solve(
    solvers: Sequence[Solver],
    settings: LinearSettings,
    watch: Watch,
    level: Level,
    before: tuple[Matrix, Ending],
) -> tuple[Matrix, Ending]:
    """The transform after one level, and why it ended there; the coarsest takes the groups one after the other."""
    matrix, ending = before
    for dof in _stages(settings.dof) if level.number == 0 else (settings.dof,):
        if ending is Ending.INTERRUPTED:
            break
        report = partial(_tell, watch, level, level.number / len(solvers))
        matrix, ending = solvers[level.number].solve(matrix, dof, level.iterations, report)
    return matrix, ending


def _tell(watch: Watch, level: Level, done: float, trial: LinearTrial) -> None:
    watch.tell(
        Event(
            stage=trial.dof,
            level=level.factor,
            iteration=trial.number,
            limit=level.iterations,
            cost=trial.cost,
            residual=None,
            damping=trial.damping,
            accepted=trial.accepted,
            step_vox=None,
            done=done,
            seconds=watch.seconds,
        )
    )


def _pyramid(scene: Scene, factors: tuple[float, ...], ops: Ops) -> list[Scene]:
    """The levels, coarse to fine; the coarser ones are made from the finest, which is cheaper to read."""
    finest = level_scene(scene, factors[-1], ops).single()
    ratio = finest_spacing(scene.fixed.grid) / finest_spacing(finest.fixed.grid)
    coarser = [level_scene(finest, f * ratio, ops) for f in factors[:-1]]
    return [*coarser, _denoised(finest, ops) if factors[-1] == 1 else finest]


def _denoised(scene: Scene, ops: Ops) -> Scene:
    """The full images, blurred a little, as those of the coarser levels are.

    Interpolation averages neighbours: where noise differs from voxel to voxel, images look more alike half a voxel
    away from where they belong.
    """

    def blurred(side: Side) -> Side:
        sigma = [DENOISING_VOX if n > 1 else 0.0 for n in side.shape]
        return replace(side, data=ops.smooth_gaussian(side.data.clone(), sigma))

    return Scene(blurred(scene.fixed), blurred(scene.moving))


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
    motion = Motion.on(solver.scene.fixed.grid, "rigid", finest_spacing(solver.scene.fixed.grid))
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

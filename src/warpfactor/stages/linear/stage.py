"""The linear stages: the best of several starts, then translation, rigid, similarity, affine from coarse to fine."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
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
from warpfactor.stages.linear.depth import levels_for, limits_for
from warpfactor.stages.linear.judge import Judge
from warpfactor.stages.linear.motion import MOTIONS, restrict
from warpfactor.stages.linear.search import Search, plain_and_near_starts, stages_up_to
from warpfactor.stages.linear.solve import LEAST_OVERLAP, LinearTrial, Solver
from warpfactor.stages.linear.starts import STARTS, Overlap, Start, plain_starts
from warpfactor.stages.linear.wide import led_astray, wrong_transforms
from warpfactor.stages.stage import Ending, Event, Stage, Watch

AUTO = "auto"
PORTFOLIO = ("lncc", "mi")  # metrics among which "auto" chooses
JUDGED_WIDTH = 44  # voxels of the level at which starts are compared across metrics
WRONG = 32  # transforms from which a right one must stand out
DENOISING_VOX = 0.7  # SD of the blur of images that were not shrunk


@dataclass(frozen=True)
class LinearSettings:
    """Settings of the linear stages.

    Attributes:
        dof: "translation", "rigid", "similarity" or "affine".
        metric: "lncc", "ncc" (global), "mi" or "mse"; "auto" takes the one of "lncc" and "mi" whose transform makes the
            images most alike by squared local correlation.
        window: edge of the LNCC window in voxels, odd.
        bins: of each axis of the histogram of MI.
        levels: spacing of each level in units of the fixed image's finest spacing, coarse to fine; none lets them
            follow from the image: the coarsest is about 32 voxels wide, the finest of bounded size.
        iterations: at most this many per stage, one limit per level; of the finest ones if the levels are not given.
        starts: what is tried, of starts.STARTS; not used when a start is given.
        tolerance: a stage ends when a step promises to lower the cost by less than this fraction.
        prior: weight of the squared strain (log stretch) beside the cost; keeps an affine from collapsing.
        symmetric: find the transform both ways round and take the mean, so that exchanged images have the inverse of
            it; see both.py.
    """

    dof: str = "affine"
    metric: str = "lncc"
    window: int = 7
    bins: int = 32
    levels: tuple[float, ...] = ()
    iterations: tuple[int, ...] = (50, 50, 20)
    starts: tuple[str, ...] = STARTS
    tolerance: float = 1e-5
    prior: float = 1e-2
    symmetric: bool = False

    def __post_init__(self) -> None:
        _one_of("dof", self.dof, MOTIONS)
        _one_of("metric", self.metric, (*METRICS, AUTO))
        for name in self.starts:
            _one_of("start", name, STARTS)
        if not set(self.starts) & {"identity", "centre", "mass"}:
            raise InputError(f"Starts {self.starts} need at least one of 'identity', 'centre', 'mass'.")
        if not self.iterations or (self.levels and len(self.levels) != len(self.iterations)):
            raise InputError(
                f"{len(self.levels)} levels {self.levels} and {len(self.iterations)} iteration limits "
                f"{self.iterations}: give one limit per level, and at least one level."
            )
        if any(b >= a for a, b in itertools.pairwise(self.levels)) or min(self.levels, default=1) < 1:
            raise InputError(f"Levels {self.levels} must fall from coarse to fine and end at 1 or above.")
        if min(self.iterations) < 0 or self.tolerance < 0 or self.prior < 0:
            raise InputError("Iterations, tolerance and prior must not be negative.")
        if self.window < 3 or self.window % 2 == 0:
            raise InputError(f"LNCC window {self.window} must be odd and at least 3.")

    def on(self, grid: Grid) -> LinearSettings:
        """These settings with the levels of a fixed image on this grid, if they do not give them."""
        if self.levels:
            return self
        levels = levels_for(grid)
        return replace(self, levels=levels, iterations=limits_for(levels, self.iterations))

    @property
    def metrics(self) -> tuple[str, ...]:
        """Those that are tried."""
        return PORTFOLIO if self.metric == AUTO else (self.metric,)


@dataclass(frozen=True)
class Levels:
    """A scene made ready for searches.

    Attributes:
        scenes: its levels, coarse to fine.
        costs: by metric, each on every level.
        overlap: of the objects in the images.
    """

    scenes: Sequence[Scene]
    costs: Mapping[str, Sequence[LinearCost]]
    overlap: Overlap

    @classmethod
    def of(cls, scene: Scene, settings: LinearSettings, ops: Ops) -> Levels:
        settings = settings.on(scene.fixed.grid)
        scenes = _pyramid(scene, settings.levels, ops)
        costs = {
            metric: [linear_cost(s, metric, ops, window=settings.window, bins=settings.bins) for s in scenes]
            for metric in settings.metrics
        }
        return cls(scenes, costs, Overlap.of(scenes[0]))

    def solvers(self, reference: Matrix, settings: LinearSettings, watch: Watch) -> dict[str, list[Solver]]:
        """One per level, by metric; strains are measured against `reference`."""
        return {
            metric: [
                Solver(scene, cost, self.overlap, reference, settings.prior, settings.tolerance, lambda: watch.stopped)
                for scene, cost in zip(self.scenes, costs, strict=True)
            ]
            for metric, costs in self.costs.items()
        }

    def judge(self, ops: Ops) -> Judge:
        """Of the coarsest level that is wide enough, or of the finest."""
        wide = (scene for scene in self.scenes if max(scene.shape) >= JUDGED_WIDTH)
        scene = next(wide, self.scenes[-1])
        return Judge.of(scene, self.overlap, wrong_transforms(self.overlap, WRONG), ops)


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
        as it is, if none was given) and of the result, at the finest level and without the prior. With the metric
        "auto", a result that makes the images no more alike than a plain start is not used: the start is.
    """
    watch = watch or Watch()
    settings = settings.on(scene.fixed.grid)
    levels = levels or Levels.of(scene, settings, ops)
    given = None if start is None else _given_start(start, settings.dof, scene.fixed.grid)
    solvers = levels.solvers(np.eye(4) if given is None else given.matrix, settings, watch)
    judge = levels.judge(ops) if settings.metric == AUTO else None
    hunt = _Hunt(levels, solvers, settings, judge, watch)
    chosen, costs, courses = hunt.from_near() if given is None else hunt.from_given(given)
    kept, best = True, courses[0]
    if judge is not None and not best.interrupted:
        plain = plain_starts(levels.overlap, STARTS) if given is None else [given]
        best, rival = _contest(courses, plain, judge.at(levels.scenes[-1], ops))
        if rival is not None:
            kept, chosen = False, rival
            best = replace(best, matrix=rival.matrix, ending=Ending.WORSE)
    matrix = restrict(best.matrix, settings.dof, scene.fixed.grid)
    begin = np.eye(4) if start is None else np.asarray(start, dtype=np.float64)
    before, after = (solvers[best.metric][-1].cost.value(m) for m in (begin, matrix))
    stage = Stage(
        name=settings.dof,
        metric=best.metric,
        level=settings.levels[-1],
        cost_before=before,
        cost_after=after,
        ending=best.ending,
        kept=kept,
        seconds=watch.seconds,
        history=best.events,
        start=chosen.name,
        start_costs=tuple(costs.items()),
        evidence=None if judge is None else judge.evidence(matrix, led_astray(judge.overlap, matrix, WRONG)),
    )
    return matrix, stage


@dataclass(frozen=True)
class _Course:
    """Where one metric led from the chosen start, why it ended there, and its iterations."""

    metric: str
    matrix: Matrix
    ending: Ending
    events: tuple[Event, ...]

    @property
    def interrupted(self) -> bool:
        return self.ending is Ending.INTERRUPTED


@dataclass(frozen=True)
class _Place:
    """A metric, its number counted from 0, and of how many it is one."""

    metric: str
    number: int
    count: int


@dataclass(frozen=True)
class _Hunt:
    """From where the metrics go on, and where they lead.

    The first metric goes on from the best start that is near. If the images are then so alike that there is no doubt,
    that is all; if not, starts all round are tried, by all metrics.
    """

    levels: Levels
    solvers: Mapping[str, Sequence[Solver]]
    settings: LinearSettings
    judge: Judge | None
    watch: Watch

    def from_near(self) -> tuple[Start, dict[str, float], list[_Course]]:
        """The start that was chosen, what the near ones cost, and the courses from it."""
        runs = [each[:2] for each in self.solvers.values()]
        search = Search(self.settings.dof, self.settings.starts, max(self.settings.iterations))
        starts = plain_and_near_starts(runs[0][0], self.settings.dof, self.settings.starts)
        costs = _checked_costs(runs[0][0], starts)
        near = search.near(runs[0], starts, costs)
        first = self._course(self.settings.metrics[0], near.matrix)
        if self._settled(first) or self.judge is None:
            return near, costs, [first]
        chosen = search.all_round(runs, starts, near, self.judge)
        return chosen, costs, self._courses(chosen, first if chosen is near else None)

    def from_given(self, given: Start) -> tuple[Start, dict[str, float], list[_Course]]:
        """The same from a given start."""
        metric = self.settings.metrics[0]
        costs = _checked_costs(self.solvers[metric][0], [given])
        first = self._course(metric, given.matrix)
        return given, costs, [first] if self._settled(first) else self._courses(given, first)

    def _settled(self, first: _Course) -> bool:
        return first.interrupted or (self.judge is not None and self.judge.sure(first.matrix))

    def _courses(self, start: Start, first: _Course | None) -> list[_Course]:
        """The courses of all metrics, of which the first may be known; if they are stopped, the first one alone."""
        found = [] if first is None else [first]
        for metric in self.settings.metrics[len(found) :]:
            course = self._course(metric, start.matrix)
            found.append(course)
            if course.interrupted:
                return [replace(found[0], ending=course.ending)]
        return found

    def _course(self, metric: str, start: Matrix) -> _Course:
        """Where one metric leads."""
        earlier, metrics = len(self.watch.events), self.settings.metrics
        place = _Place(metric, metrics.index(metric), len(metrics))
        solve = partial(_solve, self.solvers[metric], self.settings, self.watch, place)
        matrix, ending = coarse_to_fine(_levels(self.levels, self.settings), solve, (start, Ending.NOTHING))
        return _Course(metric, matrix, ending, tuple(self.watch.events[earlier:]))


def _contest(courses: Sequence[_Course], plain: Sequence[Start], judge: Judge) -> tuple[_Course, Start | None]:
    """The course the judge prefers, and the best plain start if the images are as alike there as where it led.

    A course after the first must be better by more than the margin.
    """
    charged = [judge.cost(course.matrix) + (judge.margin if k else 0.0) for k, course in enumerate(courses)]
    best = int(np.argmin(charged))
    rivals = [judge.cost(start.matrix) for start in plain]
    rival = int(np.argmin(rivals))
    return courses[best], plain[rival] if rivals[rival] <= charged[best] else None


def _levels(levels: Levels, settings: LinearSettings) -> Iterator[Level]:
    last = len(levels.scenes) - 1
    for number, scene in enumerate(levels.scenes):
        yield Level(number, settings.levels[number], settings.iterations[number], number == last, scene)


def _solve(
    solvers: Sequence[Solver],
    settings: LinearSettings,
    watch: Watch,
    place: _Place,
    level: Level,
    before: tuple[Matrix, Ending],
) -> tuple[Matrix, Ending]:
    """The transform after one level, and why it ended there; the coarsest takes the groups one after the other."""
    matrix, ending = before
    done = (place.number + level.number / len(solvers)) / place.count
    for dof in stages_up_to(settings.dof) if level.number == 0 else (settings.dof,):
        if ending is Ending.INTERRUPTED:
            break
        report = partial(_tell, watch, level, done, place.metric)
        matrix, ending = solvers[level.number].solve(matrix, dof, level.iterations, report)
    return matrix, ending


def _tell(watch: Watch, level: Level, done: float, metric: str, trial: LinearTrial) -> None:
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
            metric=metric,
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


def _checked_costs(solver: Solver, starts: Sequence[Start]) -> dict[str, float]:
    """What each start costs, by name; refused if the images lie apart in all of them."""
    costs = {s.name: solver.rank(s.matrix) for s in starts}
    _require_overlap(max(solver.overlap.share(s.matrix) for s in starts), min(costs.values()))
    return costs


def _require_overlap(share: float, cost: float) -> None:
    if share < LEAST_OVERLAP:
        raise InputError(
            f"The images hardly overlap: {share:.0%} of the smaller object lies inside the other image. "
            "Check their positions in space and the initial transform, or include the centres in linear.starts."
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

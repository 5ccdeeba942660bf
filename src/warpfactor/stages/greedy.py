"""One level of deformable registration: linearize, smooth, descend, bound, compose, smooth, judge.

The level owns its buffers: the warp and one more field of its size, which holds the gradient, then the step, then the
composed warp, and is swapped with the warp. A third field exists only where steps are undone from a copy.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from types import ModuleType

from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.kernels.buffers import field_like
from warpfactor.optim import Descent, Moments, State, take
from warpfactor.scene.scene import Scene
from warpfactor.stages.history import Record
from warpfactor.stages.settings import Deformable
from warpfactor.terms import MSE, Cost, Linearization

Progress = Callable[[Record], None]
Note = Callable[..., None]  # Course.record for one level and iteration


class Outcome(Enum):
    """How a level ended."""

    LIMIT = "iteration limit"
    FLAT = "cost flattened"
    ROSE = "cost rose"
    STALLED = "no step lowered the cost"
    INTERRUPTED = "interrupted"


@dataclass
class Course:
    """What goes from level to level besides the warp: λ, Adam's moments, the records and the clock.

    Attributes:
        started: when the registration started.
        progress: called with every record.
        keep_interrupted: whether Ctrl-C ends the run with the best warp so far instead of an exception.
        damping: λ, or None before the first level.
        moments: Adam's state on the current level's grid; None for all other descents.
        records: one per iteration so far.
    """

    started: float
    progress: Progress | None = None
    keep_interrupted: bool = False
    damping: float | None = None
    moments: Moments | None = None
    records: list[Record] = field(default_factory=list)

    def record(
        self,
        level: float,
        iteration: int,
        point: Linearization,
        damping: float,
        *,
        accepted: bool = True,
        step_vox: float = 0.0,
    ) -> None:
        seconds = time.perf_counter() - self.started
        entry = Record(level, iteration, point.cost, point.residual, damping, accepted, step_vox, seconds)
        self.records.append(entry)
        if self.progress is not None:
            self.progress(entry)


@dataclass
class _Walk:
    """Where a level is.

    Attributes:
        warp: the present one.
        best: the one to end with if there is no time to judge the present one.
        other: gradient, then step, then next warp.
        previous: the warp before, if steps are undone from it.
        moments: Adam's.
        state: of the damping.
        judged: whether the step that led to the present warp has been, or need not be.
        costs: of the warps that were accepted.
    """

    warp: Tensor
    best: Tensor
    other: Tensor
    previous: Tensor | None
    moments: Moments | None
    state: State
    judged: bool
    costs: list[float] = field(default_factory=list)

    def go(self) -> None:
        """Take the step that lies in `other`."""
        if self.previous is None:
            self.warp, self.other = self.other, self.warp
            self.best = self.warp
        else:
            self.warp, self.previous, self.other = self.other, self.warp, self.previous

    def back(self) -> None:
        """Undo the last step."""
        assert self.previous is not None
        self.warp, self.previous = self.previous, self.warp


@dataclass(frozen=True)
class _Units:
    """What a unit of length is along each axis, and how a bounded step becomes voxels.

    Attributes:
        weights: per axis, for the descents.
        length: voxels (of the finest axis) that a step of size one in these units, times weights, stands for.
        sigma: smoothing SD of one voxel of the finest axis, per axis in voxels.
    """

    weights: tuple[float, float, float]
    length: float
    sigma: tuple[float, float, float]


def _units(scene: Scene, settings: Deformable) -> _Units:
    shape = scene.pair.shape
    if settings.units == "normalized":
        # A coordinate runs from -1 to 1 over n - 1 voxels; half a voxel of the longest axis is the unit step (paper).
        half = tuple((n - 1) / 2 for n in shape)
        return _Units((half[0], half[1], half[2]), 1 / max(half), (1.0, 1.0, 1.0))
    spacing = scene.fixed_grid.spacing_mm
    finest = min(s for s, n in zip(spacing, shape, strict=True) if n > 1)
    ratio = tuple(finest / s if n > 1 else 0.0 for s, n in zip(spacing, shape, strict=True))
    weights = (ratio[0], ratio[1], ratio[2])
    return _Units(weights, 1.0, weights)


class LevelSolver:
    """Runs the iterations of one level; made anew for each."""

    def __init__(self, scene: Scene, matrix: Tensor, settings: Deformable, ops: ModuleType, level: int) -> None:
        self.settings = settings
        self.ops = ops
        self.matrix = matrix
        self.units = _units(scene, settings)
        metric = settings.metric
        if settings.descent.name == "demons" and isinstance(metric, MSE):
            metric = replace(metric, demons=settings.descent.alpha, lengths=self.units.weights)
        self.cost: Cost = metric.prepare(scene.pair, ops, level=level, weights=settings.channel_weights)
        self.finest = level == len(settings.levels) - 1
        self.damping_unit = 1.0

    def run(self, warp: Tensor, factor: float, iterations: int, course: Course) -> tuple[Tensor, Outcome]:
        """The warp after at most `iterations`, and how the level ended."""
        walk = self._begin(warp, course)
        outcome: Outcome | None = None
        try:
            for iteration in range(iterations):
                note = partial(course.record, factor, iteration)
                outcome = self._iterate(walk, iteration, note, final=iteration == iterations - 1)
                if outcome is not None:
                    break
            else:
                self._judge_last(walk, partial(course.record, factor, iterations))
        except KeyboardInterrupt:
            if not course.keep_interrupted:
                raise
            walk.warp, outcome = walk.best, Outcome.INTERRUPTED
        course.damping = walk.state.damping
        return walk.warp, outcome or Outcome.LIMIT

    def _begin(self, warp: Tensor, course: Course) -> _Walk:
        rule, damped = self.settings.damping, self.settings.descent.damped
        carried = None if rule.relative else course.damping
        state = State(damping=rule.clamp(rule.initial if carried is None else carried))
        copy = field_like(warp) if damped and rule.copies(finest=self.finest) else None
        return _Walk(warp, warp, field_like(warp), copy, course.moments, state, judged=not damped)

    def _iterate(self, walk: _Walk, iteration: int, note: Note, *, final: bool) -> Outcome | None:
        """One iteration; how the level ended if it did."""
        point = self._arrive(walk, note)
        if point is None:
            return Outcome.STALLED
        stop = self.settings.convergence
        if stop.flat(walk.costs) or stop.rising(walk.costs):
            return Outcome.FLAT if stop.flat(walk.costs) else Outcome.ROSE
        self._step(walk, point, iteration, note)
        if self.settings.descent.damped and walk.previous is None:
            self._look(walk, iteration, note, final=final)
            if self.settings.damping.stalled(walk.state):
                return Outcome.STALLED
        walk.go()
        return None

    def _arrive(self, walk: _Walk, note: Note) -> Linearization | None:
        """Linearize and judge the step that led here; if it is rejected, go back and linearize there.

        None if the level has stalled.
        """
        rule, used = self.settings.damping, walk.state.damping
        point = self._linearize(walk)
        accepted = True
        if not walk.judged:
            accepted, walk.state = rule.judge(walk.state, point.cost, undo=walk.previous is not None)
        if accepted:
            walk.costs.append(point.cost)
        else:
            note(point, used, accepted=False)
            walk.back()
            if rule.stalled(walk.state):
                return None
            point = self._linearize(walk)
        walk.best = walk.warp
        return point

    def _look(self, walk: _Walk, iteration: int, note: Note, *, final: bool) -> None:
        """If the rule wants to, judge the step before it is taken, and try shorter ones until one is accepted.

        All of them were rejected if the walk's state has stalled.
        """
        rule = self.settings.damping
        walk.judged = False
        while rule.looks(walk.state, final=final):
            used = walk.state.damping
            ahead = self.cost.linearize(walk.other, self.matrix)
            walk.judged, walk.state = rule.judge(walk.state, ahead.cost, undo=True)
            if walk.judged:
                return
            note(ahead, used, accepted=False)
            if rule.stalled(walk.state):
                return
            self._step(walk, self._linearize(walk), iteration, note)

    def _judge_last(self, walk: _Walk, note: Note) -> None:
        """Undo the last step of the level if it raised the cost."""
        if walk.previous is None or not walk.costs:
            return
        point = self.cost.linearize(walk.warp, self.matrix)
        accepted, after = self.settings.damping.judge(walk.state, point.cost, undo=True)
        if not accepted:  # else λ goes to the next level as it would without rejection
            note(point, walk.state.damping, accepted=False)
            walk.back()
            walk.state = after

    def _linearize(self, walk: _Walk) -> Linearization:
        point = self.cost.linearize(walk.warp, self.matrix, walk.other)
        if point.count == 0:
            raise InputError(
                "The images do not overlap where they count: every voxel falls outside the moving image or a mask, "
                "or has no contrast. Check the initial transform, the headers and the masks."
            )
        if not math.isfinite(point.cost):
            raise InputError(f"The cost became {point.cost}; check the images for extreme intensities.")
        return point

    def _step(self, walk: _Walk, point: Linearization, iteration: int, note: Note) -> None:
        """Turn the gradient in `walk.other` into the next warp, in place."""
        field, damping = walk.other, walk.state.damping
        settings, ops, units = self.settings, self.ops, self.units
        self._smooth(field, settings.sigma_grad, settings.tail)
        if iteration == 0 and settings.damping.relative:
            # The mean length of the gradient where it is, as empty margins add nothing to either sum.
            squares, lengths, _ = ops.norms(field, units.weights)
            self.damping_unit = (squares / lengths) ** 2 if lengths > 0 else 1.0
        largest, decrease = take(
            settings.descent,
            field,
            damping=damping * self.damping_unit,
            residual=point.residual,
            weights=units.weights,
            ops=ops,
            moments=walk.moments,
        )
        if not math.isfinite(largest + decrease):
            raise InputError("The gradient of the cost has NaN or infinite values; check the images or your own loss.")
        scale = step_scale(settings.descent, settings.step, units.length, largest)
        ops.compose(walk.warp, field, scale=scale, out=field)
        length = scale * largest / units.length
        share = 1.0 if settings.smoothing == "full" else min(1.0, length / settings.step)
        self._smooth(field, settings.sigma_warp * math.sqrt(share))
        note(point, damping, step_vox=length)
        walk.state = replace(walk.state, predicted=scale * decrease / point.count)

    def _smooth(self, field: Tensor, sigma: float, tail: tuple[float, float] = (0.0, 1.0)) -> None:
        settings = self.settings
        if sigma > 0:
            sigmas = [sigma * s for s in self.units.sigma]
            self.ops.smooth_gaussian(field, sigmas, boundary=settings.boundary, truncate=settings.truncate, tail=tail)


def step_scale(descent: Descent, step: float, length: float, largest: float) -> float:
    """What to multiply a step field by so that no voxel moves further than `step` voxels.

    The root form is bounded by one everywhere; the paper's forms and Adam are divided by their largest step if that
    exceeds one; plain gradients have no length of their own and are always divided; demons are lengths already.
    """
    if descent.bounded:
        return step * length
    if descent.name == "sgd":
        return step * length / largest if largest > 0 else 0.0
    if descent.name == "demons":
        return min(1.0, step * length / largest) if largest > 0 else 0.0
    return step * length / max(1.0, largest)

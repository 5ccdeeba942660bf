"""One level of deformable registration: linearize, smooth, descend, bound, compose, smooth, judge.

The level owns its buffers: the warp and one more field of its size, which holds the gradient, then the step, then the
composed warp, and is swapped with the warp. A third field exists only while steps can be rejected.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from types import ModuleType

import torch
from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.optim import Descent, Moments, State, take
from warpfactor.register.history import Record
from warpfactor.register.pair import Scene
from warpfactor.register.settings import Deformable
from warpfactor.similarity import MSE, Cost, Linearization

Progress = Callable[[Record], None]


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
        self.rule = settings.damping.at(finest=level == len(settings.levels) - 1)
        self.damping_unit = 1.0

    def run(self, warp: Tensor, factor: float, iterations: int, course: Course) -> tuple[Tensor, Outcome]:
        """The warp after at most `iterations`, and how the level ended."""
        rule, stop = self.rule, self.settings.convergence
        carried = None if rule.relative else course.damping
        state = State(damping=rule.clamp(rule.initial if carried is None else carried))
        field = torch.empty_like(warp)
        damped = self.settings.descent.damped
        previous = torch.empty_like(warp) if damped and rule.rejects else None
        best = warp
        costs: list[float] = []
        try:
            for iteration in range(iterations):
                point = self._linearize(warp, field)
                used = state.damping
                accepted, state = rule.judge(state, point.cost) if damped else (True, state)
                if accepted:
                    costs.append(point.cost)
                elif previous is not None:
                    course.record(factor, iteration, point, used, accepted=False)
                    warp, previous = previous, warp
                    if rule.stalled(state):
                        return self._end(warp, state, course, Outcome.STALLED)
                    point = self._linearize(warp, field)
                best = warp
                if stop.flat(costs) or stop.rising(costs):
                    return self._end(warp, state, course, Outcome.FLAT if stop.flat(costs) else Outcome.ROSE)
                length, predicted = self._step(warp, field, point, state.damping, iteration, course.moments)
                state = replace(state, predicted=predicted)
                course.record(factor, iteration, point, state.damping, step_vox=length)
                if previous is None:
                    warp, field = field, warp
                    best = warp
                else:
                    warp, previous, field = field, warp, previous
            if previous is not None and iterations:
                point = self.cost.linearize(warp, self.matrix)
                accepted, judged = rule.judge(state, point.cost)
                if not accepted:  # else λ goes to the next level as it would without rejection
                    course.record(factor, iterations, point, state.damping, accepted=False)
                    warp, state = previous, judged
        except KeyboardInterrupt:
            if not course.keep_interrupted:
                raise
            return self._end(best, state, course, Outcome.INTERRUPTED)
        return self._end(warp, state, course, Outcome.LIMIT)

    def _end(self, warp: Tensor, state: State, course: Course, outcome: Outcome) -> tuple[Tensor, Outcome]:
        course.damping = state.damping
        return warp, outcome

    def _linearize(self, warp: Tensor, field: Tensor) -> Linearization:
        point = self.cost.linearize(warp, self.matrix, field)
        if point.count == 0:
            raise InputError(
                "The images do not overlap where they count: every voxel falls outside the moving image or a mask, "
                "or has no contrast. Check the initial transform, the headers and the masks."
            )
        if not math.isfinite(point.cost):
            raise InputError(f"The cost became {point.cost}; check the images for extreme intensities.")
        return point

    def _step(
        self,
        warp: Tensor,
        field: Tensor,
        point: Linearization,
        damping: float,
        iteration: int,
        moments: Moments | None,
    ) -> tuple[float, float]:
        """Turn the gradient in `field` into the next warp, in place; longest step in voxels, predicted decrease."""
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
            moments=moments,
        )
        if not math.isfinite(largest + decrease):
            raise InputError("The gradient of the cost has NaN or infinite values; check the images or your own loss.")
        scale = step_scale(settings.descent, settings.step, units.length, largest)
        ops.compose(warp, field, scale=scale, out=field)
        length = scale * largest / units.length
        share = 1.0 if settings.smoothing == "full" else min(1.0, length / settings.step)
        self._smooth(field, settings.sigma_warp * math.sqrt(share))
        return length, scale * decrease / point.count

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

"""One level of a deformable stage: linearize, smooth, step, bound, compose, smooth, judge.

The level owns its buffers: the warp and one more field of its size, which holds the gradient, then the step, then the
composed warp, and is swapped with the warp. A third field exists only where steps are undone from a copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid
from warpfactor.kernels.buffers import field_like, give_back_memory
from warpfactor.kernels.numbers import quotient
from warpfactor.kernels.ops import DeviceOps, Ops
from warpfactor.optim import DampingState, Units
from warpfactor.scene.levels import Level
from warpfactor.stages.agreement import FAR, Agreement, correlation_length
from warpfactor.stages.settings import Deformable
from warpfactor.stages.share import ALONE, Share
from warpfactor.stages.stage import Ending
from warpfactor.terms import Linearization, Prepared, Term

CHECK_EVERY = 4  # iterations: how often the halves of the force are compared
VOLUME_SIGMA = 1.0  # voxels: SD of the Gaussian on the log Jacobian before its gradient is taken
NO_GRADIENT = "The gradient of the cost has NaN or infinite values; check the images or your own loss."
SHORT, LONG = 1.2, 1.6  # correlation lengths between which the share of the tail rises to that of `heavy`
LEAST_VOLUME = 0.02  # determinants below this have its logarithm


@dataclass(frozen=True)
class Iteration:
    """What a level reports of one iteration; see stage.Event."""

    number: int
    point: Linearization
    damping: float
    accepted: bool = True
    step_vox: float = 0.0


class Stride(NamedTuple):
    """A step that is not taken yet.

    Attributes:
        scale: what to multiply it by.
        length: of the longest one then, in voxels of the finest axis.
        decrease: of the summed cost, as the linear model predicts it.
    """

    scale: float
    length: float
    decrease: float


@dataclass
class Carried:
    """What goes from level to level besides the warp.

    Attributes:
        damping: lambda, or None before the first level.
        state: of the step, on the current level's grid; None for steps without one.
    """

    damping: float | None = None
    state: Any = None


@dataclass
class Walk:
    """Where a level is.

    Attributes:
        warp: the present one.
        best: the one to end with if there is no time to judge the present one.
        other: gradient, then step, then next warp.
        previous: the warp before, if steps are undone from it.
        state: of the damping.
        judged: whether the step that led to the present warp has been, or need not be.
        costs: of the warps that were accepted.
    """

    warp: Tensor
    best: Tensor
    other: Tensor
    previous: Tensor | None
    state: DampingState
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


def level_units(grid: Grid, settings: Deformable) -> Units:
    """The units of length in which steps of a level are measured."""
    shape = grid.shape
    if settings.units == "normalized":
        # A coordinate runs from -1 to 1 over n - 1 voxels; half a voxel of the longest axis is the unit step (paper).
        half = tuple((n - 1) / 2 for n in shape)
        return Units((half[0], half[1], half[2]), 1 / max(half), (1.0, 1.0, 1.0))
    spacing = grid.spacing_mm
    finest = min(s for s, n in zip(spacing, shape, strict=True) if n > 1)
    ratio = tuple(finest / s if n > 1 else 0.0 for s, n in zip(spacing, shape, strict=True))
    weights = (ratio[0], ratio[1], ratio[2])
    return Units(weights, 1.0, weights)


def checked(point: Linearization) -> None:
    """InputError if a cost is none."""
    if point.count == 0:
        raise InputError(
            "The images do not overlap: every voxel lies outside the moving image or a mask, "
            "or has no contrast. Check the initial transform, the headers and the masks."
        )
    if not math.isfinite(point.cost):
        raise InputError(f"The cost became {point.cost}; check the images for extreme intensities.")


class LevelSolver:
    """Runs the iterations of one level; made anew for each.

    Args:
        level: with the images at its resolution.
        matrix: (3, 4), voxels of the level plus displacement to voxels of its moving image.
        report: called with every iteration.
        stop: asked between two iterations whether to end with the best warp so far.
        share: which planes are computed here.
    """

    def __init__(
        self,
        level: Level,
        matrix: Tensor,
        settings: Deformable,
        ops: Ops,
        report: Callable[[Iteration], None] = lambda _: None,
        stop: Callable[[], bool] = lambda: False,
        share: Share = ALONE,
    ) -> None:
        self.level, self.matrix, self.settings, self.ops = level, matrix, settings, ops
        self.share, self.own = share, share.planes(self.grid.shape[0])
        self.units = level_units(self.grid, settings)
        self.cost = self._prepared(settings.optimizer.bind(settings.metric, self.units))
        self.damping_unit = 1.0
        self.widened, self.tail = settings.smoothness, settings.tail
        self.broad = False
        self._report, self._stop = report, stop

    @property
    def grid(self) -> Grid:
        """The grid on which the images are compared."""
        return self.level.scene.fixed.grid

    def _prepared(self, metric: Term) -> Prepared:
        """What is minimised, as a function of what the level finds."""
        settings = self.settings
        return metric.prepare(self.level.scene, self.ops, level=self.level.number, weights=settings.channel_weights)

    def _force(self, other: Tensor) -> Tensor:
        """Where in the second field the gradient lies, (3, D, H, W)."""
        return other

    def foresee(self, warp: Tensor, turns: int) -> object:
        """What has to be known of the warp before so many turns without waiting, which are the same while it is.

        The host waits for it; see device.py.
        """
        return None

    def run(self, warp: Tensor, carried: Carried) -> tuple[Tensor, Ending]:
        """The warp after the iterations of the level, and how it ended; `carried` is updated."""
        walk = self._begin(warp, carried)
        ending: Ending | None = None
        limit = self.level.iterations
        for number in range(limit):
            if self._stop():
                carried.damping = walk.state.damping
                return walk.best, Ending.INTERRUPTED
            ending = self._iterate(walk, number, carried.state, final=number == limit - 1)
            if ending is not None:
                break
        else:
            self._judge_last(walk, limit)
        carried.damping = walk.state.damping
        return walk.warp, ending or Ending.LIMIT

    def _begin(self, warp: Tensor, carried: Carried) -> Walk:
        rule, damped = self.settings.damping, self.settings.optimizer.damped
        state = self._first_damping(carried)
        copy = field_like(warp) if damped and rule.copies(finest=self.level.finest) else None
        return Walk(warp, warp, field_like(warp), copy, state, judged=not damped)

    def _first_damping(self, carried: Carried) -> DampingState:
        rule = self.settings.damping
        before = None if rule.relative else carried.damping
        return DampingState(damping=rule.clamp(rule.initial if before is None else before))

    def _measure_damping(self, force: Tensor) -> None:
        """The unit of a relative damping: the mean length of the gradient where it is, squared.

        Empty margins add nothing to either sum.
        """
        squares, lengths, _ = map(float, self.ops.norms(force, self.units.weights))
        self.damping_unit = (squares / lengths) ** 2 if lengths > 0 else 1.0

    def _iterate(self, walk: Walk, number: int, state: Any, *, final: bool) -> Ending | None:
        """One iteration; how the level ended if it did."""
        point = self._arrive(walk, number)
        if point is None:
            return Ending.STALLED
        stop = self.settings.convergence
        if stop.flat(walk.costs) or stop.rising(walk.costs):
            return Ending.CONVERGED if stop.flat(walk.costs) else Ending.ROSE
        if not self._look_at_halves(self._force(walk.other), number):
            return Ending.BROAD if self.broad else Ending.NOISE
        self._step(walk, point, number, state)
        if self.settings.optimizer.damped and walk.previous is None:
            self._look(walk, number, state, final=final)
            if self.settings.damping.stalled(walk.state):
                return Ending.STALLED
        walk.go()
        return None

    def _arrive(self, walk: Walk, number: int) -> Linearization | None:
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
            self._report(Iteration(number, point, used, accepted=False))
            walk.back()
            if rule.stalled(walk.state):
                return None
            point = self._linearize(walk)
        walk.best = walk.warp
        return point

    def _look(self, walk: Walk, number: int, state: Any, *, final: bool) -> None:
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
            self._report(Iteration(number, ahead, used, accepted=False))
            if rule.stalled(walk.state):
                return
            self._step(walk, self._linearize(walk), number, state)

    def _judge_last(self, walk: Walk, number: int) -> None:
        """Undo the last step of the level if it raised the cost."""
        if walk.previous is None or not walk.costs:
            return
        point = self.cost.linearize(walk.warp, self.matrix)
        accepted, after = self.settings.damping.judge(walk.state, point.cost, undo=True)
        if not accepted:  # if it is kept, lambda goes to the next level as it would without rejection
            self._report(Iteration(number, point, walk.state.damping, accepted=False))
            walk.back()
            walk.state = after

    def _linearize(self, walk: Walk) -> Linearization:
        point = self.cost.linearize(walk.warp, self.matrix, walk.other)
        checked(point)
        return point

    def _step(self, walk: Walk, point: Linearization, number: int, state: Any) -> None:
        """Turn the gradient in `walk.other` into the next warp, in place."""
        damping = walk.state.damping
        stride = self._stride(self._force(walk.other), point, damping, state, first=number == 0)
        self._advance(walk.warp, walk.other, stride.scale, self._share(stride.length))
        self._report(Iteration(number, point, damping, step_vox=stride.length))
        walk.state = replace(walk.state, predicted=stride.decrease / point.count)

    def _stride(self, force: Tensor, point: Linearization, damping: float, state: Any, *, first: bool) -> Stride:
        """Overwrite the force with the step that it leads to.

        Args:
            first: whether it is the first one of the level.
        """
        settings, ops, units = self.settings, self.ops, self.units
        self._smooth_force(force)
        if first and settings.damping.relative:
            self._measure_damping(force)
        taken = settings.optimizer.step(
            force, state, damping=damping * self.damping_unit, residual=point.residual, units=units, ops=ops
        )
        if not math.isfinite(taken.longest + taken.decrease):
            raise InputError(NO_GRADIENT)
        scale = settings.optimizer.scale(settings.step * units.length, taken.longest)
        return Stride(scale, scale * taken.longest / units.length, scale * taken.decrease)

    def _share(self, length: float) -> float:
        """Share of the smoothing of the warp that goes with a step of this length in voxels."""
        return 1.0 if self.settings.smoothing == "full" else min(1.0, length / self.settings.step)

    def _advance(self, warp: Tensor, other: Tensor, scale: Any, share: Any) -> None:
        """Overwrite the step in `other` with the next warp.

        Fields may have the pairs of a company as an axis in front, and numbers be those of the device; see device.py.

        Args:
            scale: what to multiply the step by.
            share: of the smoothing, by the length of the step.
        """
        settings = self.settings
        if isinstance(scale, Tensor):
            self._advance_on_device(warp, other, scale, share)
            return
        if settings.volume > 0:
            self._even_out(self._log_volume(warp), other, quotient(settings.volume * share, scale))
        self.ops.compose(warp, other, scale=scale, out=other)
        self._smooth_warp(other, share)

    def _advance_on_device(self, warp: Tensor, other: Tensor, scale: Tensor, share: Any) -> None:
        """The same with numbers of the device, in operations that it can do at once."""
        settings, units, ops = self.settings, self.units.sigma, cast(DeviceOps, self.ops)
        ends: dict[str, Any] = {"boundary": settings.boundary, "truncate": settings.truncate}
        volume: dict[str, Any] = {}
        if settings.volume > 0:
            log_volume = ops.log_volume(warp, LEAST_VOLUME, [VOLUME_SIGMA * s for s in units], **ends)
            rate = quotient(settings.volume * share, cast(float, scale))
            volume = {"log_volume": log_volume, "rate": rate, "weights": units}
        sigma = [self.widened * settings.sigma_warp * s for s in units]
        ops.advance(warp, other, scale=scale, sigma=sigma, share=share, **ends, **volume)

    def _look_at_halves(self, force: Tensor, number: int) -> bool:
        """Whether the level goes on: the force is more than noise and not too smooth for these settings.

        At the start of the level it is decided how to smooth.
        """
        settings = self.settings
        if number == 0 and settings.reach > 1:
            self._follow(self._length(force))
            give_back_memory()  # of the blocks; the field that the first step makes would otherwise come on top
        if self.broad:
            return False
        if settings.agreement <= 0 or number == 0 or number % CHECK_EVERY:
            return True
        found = self._halves(force, self.widened / settings.smoothness).correlation
        give_back_memory()
        return found >= settings.agreement

    def _length(self, force: Tensor) -> float:
        """Correlation length of a force, in units of the gradient's Gaussian."""
        near, far = self._halves(force, 1.0), self._halves(force, FAR)
        return correlation_length(near, far, sum(n > 1 for n in self.grid.shape))

    def _follow(self, length: float) -> None:
        """Smooth as wide as the correlation length of the force, and with a heavier tail where it is long."""
        settings = self.settings
        self.widened = settings.smoothness * min(max(length, 1.0), settings.reach)
        share, ratio = settings.tail
        rise = min(max((length - SHORT) / (LONG - SHORT), 0.0), 1.0)
        self.tail = share + max(settings.heavy - share, 0.0) * rise, ratio
        self.broad = self.level.finest and 0 < settings.broad_from <= length

    def _halves(self, force: Tensor, wider: float) -> Agreement:
        """How far two halves of the force agree after the gradient's Gaussian, `wider` times as wide."""
        units = self.units
        sigma = [wider * self.settings.sigma_grad * s for s in units.sigma]
        return self.share.agreement(force, units.weights, sigma, self.ops)

    def _log_volume(self, warp: Tensor) -> Tensor:
        """(D, H, W) logarithm of a warp's Jacobian determinant."""
        volume = self.ops.jacobian_determinant(warp)
        volume[..., slice(*self.own), :, :].clamp_(min=LEAST_VOLUME).log_()
        return volume

    def _even_out(self, log_volume: Tensor, step: Tensor, rate: Any) -> None:
        """Add rate * grad(smoothed log J) to the step: composed with it, the log Jacobian of the warp diffuses."""
        single = log_volume.unsqueeze(-4)
        self._smooth(single, VOLUME_SIGMA)
        self.share.around(single, 1)
        weights = self.units.sigma
        if isinstance(rate, Tensor):
            cast(DeviceOps, self.ops).even_out(step, log_volume, rate, weights)
            return
        for axis, weight in enumerate(weights):
            if log_volume.shape[axis] > 2 and weight > 0:
                half = 0.5 * rate * weight * weight
                part = self._inner(step[axis], axis)
                part.add_(self._inner(log_volume, axis, 1), alpha=half)
                part.add_(self._inner(log_volume, axis, -1), alpha=-half)

    def _inner(self, volume: Tensor, axis: int, ahead: int = 0) -> Tensor:
        """The planes of this process without the border along an axis, each so many voxels ahead along it."""
        ranges = [self.own, *((0, n) for n in volume.shape[-2:])]
        first, last = ranges[axis]
        ranges[axis] = max(first, 1), min(last, volume.shape[axis - 3] - 1)
        ends = [(a + ahead, max(a, b) + ahead) if k == axis else (a, b) for k, (a, b) in enumerate(ranges)]
        z, y, x = (slice(a, b) for a, b in ends)
        return volume[..., z, y, x]

    def _smooth_force(self, force: Tensor) -> None:
        self._smooth(force, self.widened * self.settings.sigma_grad, self.tail)

    def _smooth_warp(self, warp: Tensor, share: Any) -> None:
        sigma = self.widened * self.settings.sigma_warp
        if not isinstance(share, Tensor):
            self._smooth(warp, sigma * math.sqrt(share))
        elif sigma > 0:
            settings, ops = self.settings, cast(DeviceOps, self.ops)
            sigmas = [sigma * s for s in self.units.sigma]
            ops.smooth_share(warp, sigmas, share, boundary=settings.boundary, truncate=settings.truncate)

    def _smooth(self, field: Tensor, sigma: float, tail: tuple[float, float] = (0.0, 1.0)) -> None:
        settings = self.settings
        if sigma > 0:
            sigmas = [sigma * s for s in self.units.sigma]
            self.ops.smooth_gaussian(field, sigmas, boundary=settings.boundary, truncate=settings.truncate, tail=tail)


def per_field(factor: Any) -> Any:
    """A number to multiply (B, C, D, H, W) fields by; those of the device are (B,)."""
    return factor.float().reshape(-1, 1, 1, 1, 1) if isinstance(factor, Tensor) else factor

"""One level of the greedy stage without waiting for the device: the device decides, the host reads now and then.

`LevelSolver` reads the cost and the longest step of every iteration and decides what comes next. Here the same rules
decide with numbers that stay on the device (`kernels/numbers.py`), so that a turn is the same sequence of launches on
the same buffers whatever comes out; CUDA can record it once and play it again. What the host wants to know lies in one
small table, which it reads every few turns.

A turn linearizes, steps and, where steps can be undone, looks at the cost ahead; the warp is overwritten if the step is
kept, so no copy of it is needed. A step that is not kept costs a turn; the next one steps again with more damping. The
results are those of `LevelSolver`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.kernels.buffers import field_like, give_back_memory
from warpfactor.kernels.held import device_form
from warpfactor.kernels.numbers import chosen, finite, inverse, quotient, smaller
from warpfactor.kernels.ops import DeviceOps, Ops
from warpfactor.optim import DampingState
from warpfactor.stages.agreement import agree_on_device
from warpfactor.stages.level import (
    CHECK_EVERY,
    NO_GRADIENT,
    VOLUME_SIGMA,
    Carried,
    Iteration,
    LevelSolver,
    checked,
)
from warpfactor.stages.stage import Ending
from warpfactor.terms import Linearization

READ_EVERY = 8  # turns: how often the host reads, at least; also how many records the table holds
GOES_ON, CONVERGED, ROSE, NOISE, STALLED, LIMIT, FAILED = range(7)
RECORDING = threading.Lock()
ENDINGS = {
    CONVERGED: Ending.CONVERGED,
    ROSE: Ending.ROSE,
    NOISE: Ending.NOISE,
    STALLED: Ending.STALLED,
    LIMIT: Ending.LIMIT,
}


def level_solver(ops: Ops) -> type[LevelSolver]:
    """The kind of solver for a level of the greedy stage on a backend."""
    return LevelSolver if device_form(ops) is None else DeviceLevel


class _State(NamedTuple):
    """Where a level is, as numbers of the device; flags are 0 or 1.

    Attributes:
        number: of the iteration, from 0.
        damping, last, before, predicted, gain, retries: see DampingState; `before` is NaN until there is one.
        fresh: whether a step was taken since the cost was last noted.
        counted: number of costs noted.
        turn: number of turns so far.
        ending: one of the codes above.
    """

    number: Any
    damping: Any
    last: Any
    before: Any
    predicted: Any
    gain: Any
    retries: Any
    fresh: Any
    counted: Any
    turn: Any
    ending: Any

    @property
    def rule(self) -> DampingState:
        return DampingState(self.damping, self.last, self.before, self.predicted, self.gain, self.retries)

    def with_rule(self, rule: DampingState) -> _State:
        return self._replace(
            damping=rule.damping,
            last=rule.last,
            before=rule.before,
            predicted=rule.predicted,
            gain=rule.gain,
            retries=rule.retries,
        )


class _Record(NamedTuple):
    """What the host is told of a turn; as many numbers as a state has.

    Attributes:
        cost, residual, count: at the warp.
        damping, step_vox: of the step.
        stepped: whether a step was made.
        ahead_cost, ahead_residual, ahead_count: at its end, if it was looked at.
        rejected: whether it was not kept.
    """

    number: Any
    cost: Any
    residual: Any
    count: Any
    damping: Any
    step_vox: Any
    stepped: Any
    ahead_cost: Any
    ahead_residual: Any
    ahead_count: Any
    rejected: Any


@dataclass
class _Walk:
    """The buffers of a level, which stay where they are.

    Attributes:
        warp: the present one.
        other: gradient, then step, then next warp.
        costs: of the warps that were accepted; the rest is infinite.
        table: (1 + READ_EVERY, 11) float64: the state, then the records of the last turns.
    """

    warp: Tensor
    other: Tensor
    costs: Tensor
    table: Tensor


class DeviceLevel(LevelSolver):
    """Runs the iterations of one level without waiting for any of them; see LevelSolver for the arguments.

    Terms whose numbers cannot stay on the device, such as somebody's own loss, and steps with a state of their own
    (Adam) are left to LevelSolver's loop.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.unwaited = cast(DeviceOps, device_form(self.ops))
        rule, damped = self.settings.damping, self.settings.optimizer.damped
        self.copies = damped and rule.copies(finest=self.level.finest)
        self.undoes = self.copies or (damped and rule.looks(DampingState(1.0), final=True))

    def run(self, warp: Tensor, carried: Carried) -> tuple[Tensor, Ending]:
        """See LevelSolver.run."""
        limit = self.level.iterations
        if not getattr(self.cost, "stays", False) or carried.state is not None or limit == 0 or self._stop():
            return super().run(warp, carried)
        self.ops = self.unwaited
        self.cost = self._prepared(self.settings.optimizer.bind(self.settings.metric, self.units))
        walk = self._prelude(warp, carried)
        if self.broad:
            return warp, Ending.BROAD
        plain, checking = (Replayed(partial(self._turn, walk, check=each), warp.device) for each in (False, True))
        number = looked_at = turns = 0
        while True:
            due = self.settings.agreement > 0 and number > looked_at and number % CHECK_EVERY == 0
            looked_at = number if due else looked_at
            following = range(turns, turns + min(self._unread(number), limit - number))
            for turn in following:
                (checking if due and turn == turns else plain)()
            state = self._read(walk, following)
            number, turns = int(state.number), following.stop
            carried.damping = state.damping
            if state.ending != GOES_ON:
                return walk.warp, ENDINGS[int(state.ending)]
            if self._stop():
                return walk.warp, Ending.INTERRUPTED

    def _unread(self, number: int) -> int:
        """How many turns may follow before the host reads: until the halves of the force are to be compared."""
        return CHECK_EVERY - number % CHECK_EVERY if self.settings.agreement > 0 else READ_EVERY

    def _prelude(self, warp: Tensor, carried: Carried) -> _Walk:
        """The buffers, and what is measured once at the start of a level, for which the host waits."""
        settings, rule = self.settings, self.settings.damping
        other = field_like(warp)
        point = _on_host(self.cost.linearize(warp, self.matrix, other))
        checked(point)
        self._look_at_halves(other, 0)
        if rule.relative:
            self._smooth(other, self.widened * settings.sigma_grad, self.tail)
            self._measure_damping(other)
        _, first = rule.judge(self._first_damping(carried), point.cost, undo=False)
        state = _State(0, 0, 0, 0, 0, 0, 0, fresh=0, counted=1, turn=0, ending=GOES_ON).with_rule(
            replace(first, before=float("nan"))
        )
        costs = torch.full((self.level.iterations + 2,), float("inf"), dtype=torch.float64, device=warp.device)
        costs[0] = point.cost
        table = torch.zeros((1 + READ_EVERY, len(state)), dtype=torch.float64, device=warp.device)
        table[0] = _vector(state, table)
        give_back_memory()
        return _Walk(warp, other, costs, table)

    def _turn(self, walk: _Walk, *, check: bool) -> None:
        """Linearize, decide, step, look ahead, decide; the same launches whatever comes out."""
        begun = _State(*walk.table[0].unbind())
        point = self.cost.linearize(walk.warp, self.matrix, walk.other)
        state = self._noted(walk, begun, point)
        if check:
            widened = self.widened / self.settings.smoothness * self.settings.sigma_grad
            sigma = [widened * s for s in self.units.sigma]
            agree = agree_on_device(walk.other, self.units.weights, sigma, self.unwaited, self.settings.agreement)
            state = _ended(state, NOISE, inverse(agree))
        taken, length = self._step_to(walk, state, point)
        state = _ended(state, FAILED, inverse(finite(taken)))
        after, ahead, kept = self._judged(walk, state._replace(predicted=taken))
        stepped = cast(Any, state.ending == GOES_ON)
        self.unwaited.take(walk.warp, walk.other, stepped & kept)
        record = _Record(
            begun.number,
            point.cost,
            point.residual,
            point.count,
            state.damping,
            length,
            stepped,
            ahead.cost,
            ahead.residual,
            ahead.count,
            stepped & inverse(kept),
        )
        row = (1 + begun.turn.long() % READ_EVERY).reshape(1)
        walk.table.index_copy_(0, row, _vector(record, walk.table)[None])
        walk.table[0] = torch.where(stepped, _vector(after, walk.table), _vector(state, walk.table))

    def _noted(self, walk: _Walk, state: _State, point: Linearization) -> _State:
        """The state after the cost here was noted and, if nobody looked at it before, the step that led here judged."""
        stop = self.settings.convergence
        fresh = (state.fresh > 0) & (state.ending == GOES_ON)
        state = _ended(state, FAILED, inverse(finite(point.cost)) | (point.count == 0))
        if self.settings.optimizer.damped and not self.undoes:
            _, judged = self.settings.damping.judge(state.rule, point.cost, undo=False)
            state = _State(*(chosen(fresh, new, old) for new, old in zip(state.with_rule(judged), state, strict=True)))
        place = state.counted.long().reshape(1)
        walk.costs.index_copy_(0, place, torch.where(fresh, point.cost, walk.costs[place]))
        state = state._replace(counted=state.counted + fresh, fresh=state.fresh * 0, turn=state.turn + 1)
        if stop.tolerance > 0 or stop.slope is not None:
            flat, rising = stop.on_device(walk.costs, state.counted)
            state = _ended(_ended(state, CONVERGED, flat), ROSE, rising)
        return state

    def _step_to(self, walk: _Walk, state: _State, point: Linearization) -> tuple[float, float]:
        """Turn the gradient in `walk.other` into the next warp; the predicted decrease, and the longest step."""
        settings, units = self.settings, self.units
        self._smooth(walk.other, self.widened * settings.sigma_grad, self.tail)
        taken = settings.optimizer.step(
            walk.other,
            None,
            damping=state.damping * self.damping_unit,
            residual=point.residual,
            units=units,
            ops=self.unwaited,
        )
        scale = settings.optimizer.scale(settings.step * units.length, taken.longest)
        length = scale * taken.longest / units.length
        share = 1.0 if settings.smoothing == "full" else smaller(length / settings.step, 1.0)
        self._compose(walk.warp, walk.other, scale, share)
        return quotient(scale * taken.decrease + 0 * taken.longest, point.count), length

    def _judged(self, walk: _Walk, state: _State) -> tuple[_State, Linearization, bool]:
        """The state after the step, the cost at its end and whether it is kept; a step that nobody undoes is."""
        rule, limit = self.settings.damping, self.level.iterations
        final = state.number == limit - 1
        if not self.undoes:
            after = state._replace(number=state.number + 1, fresh=state.fresh + 1)
            nothing = state.number * 0
            return _ended(after, LIMIT, final), Linearization(nothing, nothing, nothing), True
        ahead = self.cost.linearize(walk.other, self.matrix)
        before = state.rule
        undo = True if self.copies else rule.looks(before, final=final)
        kept, judged = rule.judge(before, ahead.cost, undo=undo)
        on = state.number * 0 + 1 if self.copies else kept
        after = state.with_rule(judged)._replace(number=state.number + on, fresh=kept)
        stalled = rule.stalled(judged) & inverse(kept)
        if self.copies:  # the last step is undone if it raised the cost, and judged no further
            after = after._replace(damping=chosen(final & kept, before.damping, judged.damping))
            after = _ended(after, FAILED, (inverse(finite(ahead.cost)) | (ahead.count == 0)) & inverse(final))
            stalled = stalled & inverse(final)
        after = _ended(after, STALLED, stalled)
        return _ended(after, LIMIT, after.number >= limit), ahead, kept

    def _compose(self, warp: Tensor, other: Tensor, scale: Any, share: Any) -> None:
        """`_advance` with numbers of either kind."""
        settings = self.settings
        if settings.volume > 0:
            rate: Any = quotient(settings.volume * share, scale)
            even_out = self._add_slope if isinstance(rate, Tensor) else self._even_out
            even_out(self._log_volume(warp), other, rate)
        self.unwaited.compose(warp, other, scale=scale, out=other)
        sigma = self.widened * settings.sigma_warp
        if not isinstance(share, Tensor):
            self._smooth(other, sigma)
        elif sigma > 0:
            sigmas = [sigma * s for s in self.units.sigma]
            self.unwaited.smooth_share(other, sigmas, share, boundary=settings.boundary, truncate=settings.truncate)

    def _add_slope(self, log_volume: Tensor, step: Tensor, rate: Any) -> None:
        """`_even_out` with a number of the device."""
        self._smooth(log_volume[None], VOLUME_SIGMA)
        for axis, weight in enumerate(self.units.sigma):
            inner = log_volume.shape[axis] - 2
            if inner > 0 and weight > 0:
                half = (0.5 * rate * weight * weight).to(step.dtype)
                part = step[axis].narrow(axis, 1, inner)
                part.addcmul_(log_volume.narrow(axis, 2, inner), half)
                part.addcmul_(log_volume.narrow(axis, 0, inner), half, value=-1)

    def _read(self, walk: _Walk, turns: range) -> _State:
        """The state, for which the host waits; what happened in the turns since the last time is reported."""
        state, *records = walk.table.tolist()
        found = _State(*state)
        for turn in turns:
            self._tell(_Record(*records[turn % READ_EVERY]), failed=found.ending == FAILED and turn == turns[-1])
        return found

    def _tell(self, record: _Record, *, failed: bool) -> None:
        point = Linearization(record.cost, record.residual, record.count)
        ahead = Linearization(record.ahead_cost, record.ahead_residual, record.ahead_count)
        number = int(record.number)
        if record.stepped:
            self._report(Iteration(number, point, record.damping, step_vox=record.step_vox))
        if record.rejected:
            self._report(Iteration(number + self.copies, ahead, record.damping, accepted=False))
        if failed:
            checked(point)
            if record.stepped:
                checked(ahead)
            raise InputError(NO_GRADIENT)


def _ended(state: _State, code: int, when: Any) -> _State:
    """The state, ended if it was not and the time has come."""
    return state._replace(ending=chosen((state.ending == GOES_ON) & when, float(code), state.ending))


def _vector(values: tuple[Any, ...], like: Tensor) -> Tensor:
    """Numbers of both kinds as one tensor, of the type and on the device of another."""
    kind, device = like.dtype, like.device
    return torch.stack(
        [v.to(kind) if isinstance(v, Tensor) else torch.full((), v, dtype=kind, device=device) for v in values]
    )


def _on_host(point: Linearization) -> Linearization:
    return Linearization(float(point.cost), float(point.residual), float(point.count), point.parts)


class Replayed:
    """Work for a device that is the same every time: recorded as a CUDA graph the second time, then played again.

    The first time it runs as it is, which compiles what has to be. Where nothing can be recorded it always does.
    """

    def __init__(self, work: Callable[[], None], device: torch.device) -> None:
        self.work, self.device = work, device
        self.graph: Any = None
        self.calls = 0
        self.recordable = device.type == "cuda"

    def __call__(self) -> None:
        self.calls += 1
        if self.recordable and self.calls > 1 and self.graph is None:
            self._record()
        if self.graph is None:
            self.work()
        else:
            self.graph.replay()

    def _record(self) -> None:
        graph = torch.cuda.CUDAGraph()
        try:
            # Other threads may launch and allocate meanwhile; two that begin to record would wait for each other.
            with RECORDING, torch.cuda.device(self.device), torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self.work()
        except RuntimeError:
            self.recordable = False
        else:
            self.graph = graph

"""Levels without waiting for the device: the device decides, the host reads now and then, for several pairs at once.

`LevelSolver` reads the cost and the longest step of every iteration and decides what comes next. Here the same rules
decide with numbers that stay on the device (`kernels/numbers.py`), so that a turn is the same sequence of launches on
the same buffers whatever comes out; CUDA can record it once and play it again. What the host wants to know lies in one
small table, which it reads every few turns.

A turn linearizes, steps and, where steps can be undone, looks at the cost ahead; the warp is overwritten if the step is
kept, so no copy of it is needed. A step that is not kept costs a turn; the next one steps again with more damping. The
results are those of `LevelSolver`.

All fields, images and numbers of a turn have the pairs of a company (`company.py`) as their first axis, of which there
is one if a pair is alone. Each pair has its own damping, decisions and end: one that has ended is computed with the
others, but its warp is no longer overwritten.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.kernels.buffers import field_like, give_back_memory
from warpfactor.kernels.held import Unwaited, device_form
from warpfactor.kernels.numbers import chosen, finite, inverse, quotient, smaller
from warpfactor.kernels.ops import Ops
from warpfactor.kernels.pairs import PairOps, shared
from warpfactor.optim import DampingState
from warpfactor.stages.agreement import agree_on_device
from warpfactor.stages.company import company_of
from warpfactor.stages.level import CHECK_EVERY, NO_GRADIENT, Carried, Iteration, LevelSolver, checked
from warpfactor.stages.stage import Ending
from warpfactor.terms import Linearization
from warpfactor.terms.base import Prepared, with_ops
from warpfactor.terms.channels import of_pairs

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


def run_level(solver: LevelSolver, warp: Tensor, carried: Carried) -> tuple[Tensor, Ending]:
    """The warp after the iterations of a level, and how it ended; `carried` is updated.

    The host waits in every iteration for backends that know no other way, for terms whose numbers cannot stay on the
    device, such as somebody's own loss, and for steps with a state of their own (Adam). Otherwise the level is run
    together with those of the company's other pairs that are alike.
    """
    task = _begun(solver, warp, carried)
    if task is None:
        return solver.run(warp, carried)
    if solver.broad:
        return warp, Ending.BROAD
    company = company_of(solver.ops)
    found = run_together([task])[0] if company is None else company.join(task.kind, task, run_together)
    if isinstance(found, InputError):
        raise found
    return cast(tuple[Tensor, Ending], found)


def run_together(tasks: Sequence[_Task]) -> list[tuple[Tensor, Ending] | InputError]:
    """What comes out for every pair of one kind, or the error that it causes."""
    found = _Turns(tasks).run()
    _settled(tasks[0].warp.device)
    return found


@dataclass
class _Task:
    """A level of one pair that is ready to go.

    Attributes:
        solver: with what was measured at the start of the level.
        warp: to start from.
        cost: with operations that leave their figures on the device.
        first: the cost at the start.
        rule: of the damping, there.
    """

    solver: LevelSolver
    warp: Tensor
    carried: Carried
    cost: Prepared
    first: Linearization
    rule: DampingState

    @property
    def kind(self) -> object:
        """What levels have in common that can be run together."""
        solver, level = self.solver, self.solver.level
        sides = tuple((side.data.shape, side.data.dtype, side.mask is None) for side in level.scene.sides)
        plan = (level.number, level.factor, level.iterations, level.finest)
        return type(solver), solver.settings, solver.units, self.warp.shape, sides, plan


def _begun(solver: LevelSolver, warp: Tensor, carried: Carried) -> _Task | None:
    """What is measured once at the start of a level, for which the host waits; None if it has to wait all along."""
    unwaited, rule, settings = device_form(solver.ops), solver.settings.damping, solver.settings
    waits = carried.state is not None or solver.level.iterations == 0
    if unwaited is None or waits or with_ops(solver.cost, unwaited) is None or solver._stop():
        return None
    other = field_like(warp)
    point = solver.cost.linearize(warp, solver.matrix, other)
    checked(point)
    cost = with_ops(solver.cost, unwaited)
    if cost is None:
        return None
    force = solver._force(other)
    solver._look_at_halves(force, 0)
    if rule.relative:
        solver._smooth(force, solver.widened * settings.sigma_grad, solver.tail)
        solver._measure_damping(force)
    _, first = rule.judge(solver._first_damping(carried), point.cost, undo=False)
    give_back_memory()
    _settled(warp.device)
    return _Task(solver, warp, carried, cost, point, replace(first, before=float("nan")))


def _settled(device: torch.device) -> None:
    """Wait for what this thread launched: another one, with a stream of its own, goes on from there."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


class _State(NamedTuple):
    """Where every pair is, as numbers of the device; flags are 0 or 1.

    Attributes:
        number: of the iteration, from 0.
        damping, last, before, predicted, gain, retries: see DampingState; `before` is NaN until there is one.
        fresh: whether a step was taken since the cost was last noted.
        counted: number of costs noted.
        turn: number of turns so far.
        looked: number of the iteration in which the halves of the force were last compared.
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
    looked: Any
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
    """What the host is told of a turn of a pair; the costs of the terms of a sum follow, here and ahead.

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
        warp: the present ones, (B, C, D, H, W).
        other: gradients, then steps, then next warps.
        costs: (B, N), of the warps that were accepted; the rest is infinite.
        table: (B, 1 + READ_EVERY, M) float64: the state, then the records of the last turns.
    """

    warp: Tensor
    other: Tensor
    costs: Tensor
    table: Tensor


@dataclass
class _Pair:
    """What the host knows of a pair: how far it has come, when it last looked at the halves, and what came out."""

    task: _Task
    number: int = 0
    looked: int = 0
    found: tuple[Tensor, Ending] | InputError | None = None
    names: tuple[str, ...] = field(default=())


class _Turns:
    """A level of several pairs, run turn by turn.

    Attributes:
        lead: a solver whose fields and numbers are those of all pairs.
    """

    def __init__(self, tasks: Sequence[_Task]) -> None:
        solvers = [task.solver for task in tasks]
        self.pairs = [_Pair(task, names=tuple(name for name, _ in task.first.parts)) for task in tasks]
        self.lead = lead = copy(solvers[0])
        device = tasks[0].warp.device
        lead.ops = cast(Ops, PairOps(cast(Unwaited, device_form(lead.ops)).backend))
        lead.cost = of_pairs([task.cost for task in tasks], [solver.matrix for solver in solvers], lead.ops)
        lead.matrix = shared([solver.matrix for solver in solvers])
        lead.widened = shared([solver.widened for solver in solvers])
        lead.tail = shared([solver.tail for solver in solvers])
        units = [solver.damping_unit for solver in solvers]
        lead.damping_unit = cast(float, torch.tensor(units, dtype=torch.float64).to(device))
        rule, damped = lead.settings.damping, lead.settings.optimizer.damped
        self.copies = damped and rule.copies(finest=lead.level.finest)
        self.undoes = self.copies or (damped and rule.looks(DampingState(1.0), final=True))
        self.walk = self._begin()

    def _begin(self) -> _Walk:
        """The buffers."""
        tasks, limit = [pair.task for pair in self.pairs], self.lead.level.iterations
        warp = shared([task.warp for task in tasks])
        states = [
            _State(0, 0, 0, 0, 0, 0, 0, fresh=0, counted=1, turn=0, looked=0, ending=GOES_ON).with_rule(task.rule)
            for task in tasks
        ]
        costs = torch.full((len(tasks), limit + 2), float("inf"), dtype=torch.float64)
        costs[:, 0] = torch.tensor([task.first.cost for task in tasks], dtype=torch.float64)
        width = len(_Record._fields) + 2 * len(self.pairs[0].names)
        table = torch.zeros((len(tasks), 1 + READ_EVERY, max(width, len(_State._fields))), dtype=torch.float64)
        table[:, 0, : len(_State._fields)] = torch.tensor(states, dtype=torch.float64)
        return _Walk(warp, field_like(warp), costs.to(warp.device), table.to(warp.device))

    def run(self) -> list[tuple[Tensor, Ending] | InputError]:
        """What comes out for every pair."""
        device = self.walk.warp.device
        plain, checking = (Replayed(partial(self._turn, check=each), device) for each in (False, True))
        turns = 0
        while active := [pair for pair in self.pairs if pair.found is None]:
            due = [pair for pair in active if self._due(pair)]
            for pair in due:
                pair.looked = pair.number
            following = range(turns, turns + min(self._unread(pair.number) for pair in active))
            for turn in following:
                (checking if due and turn == turns else plain)()
            self._read(following)
            turns = following.stop
        return [cast(Any, pair.found) for pair in self.pairs]

    def _due(self, pair: _Pair) -> bool:
        """Whether the halves of a pair's force are to be compared in the next turn."""
        return self.lead.settings.agreement > 0 and pair.number > pair.looked and pair.number % CHECK_EVERY == 0

    def _unread(self, number: int) -> int:
        """How many turns may follow before the host reads: until the halves of the force are to be compared."""
        compared = self.lead.settings.agreement > 0
        return min(CHECK_EVERY - number % CHECK_EVERY if compared else READ_EVERY, self.lead.level.iterations - number)

    def _turn(self, *, check: bool) -> None:
        """Linearize, decide, step, look ahead, decide; the same launches whatever comes out."""
        walk, lead = self.walk, self.lead
        begun = _State(*walk.table[:, 0, : len(_State._fields)].unbind(-1))
        point = lead.cost.linearize(walk.warp, lead.matrix, walk.other)
        state = self._noted(begun, point)
        if check:
            state = self._compared(state)
        taken, length = self._step_to(state, point)
        state = _ended(state, FAILED, inverse(finite(taken)))
        after, ahead, kept = self._judged(state._replace(predicted=taken), point)
        stepped = cast(Any, state.ending == GOES_ON)
        cast(Any, lead.ops).take(walk.warp, walk.other, stepped & kept)
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
        told = (*record, *(cost for _, cost in (*point.parts, *ahead.parts)))
        row = (1 + begun.turn.long() % READ_EVERY).reshape(-1, 1, 1)
        line = _vector(told, walk.table)[:, None]
        walk.table.scatter_(1, row.expand_as(line), line)
        walk.table[:, 0, : len(state)] = torch.where(
            stepped[:, None], _vector(after, walk.table), _vector(state, walk.table)
        )

    def _noted(self, state: _State, point: Linearization) -> _State:
        """The state after the cost here was noted and, if nobody looked at it before, the step that led here judged."""
        walk, settings = self.walk, self.lead.settings
        stop = settings.convergence
        fresh = (state.fresh > 0) & (state.ending == GOES_ON)
        state = _ended(state, FAILED, inverse(finite(point.cost)) | (point.count == 0))
        if settings.optimizer.damped and not self.undoes:
            _, judged = settings.damping.judge(state.rule, point.cost, undo=False)
            state = _State(*(chosen(fresh, new, old) for new, old in zip(state.with_rule(judged), state, strict=True)))
        place = state.counted.long()[:, None]
        before = walk.costs.gather(1, place)
        walk.costs.scatter_(1, place, torch.where(fresh[:, None], cast(Any, point.cost)[:, None], before))
        state = state._replace(counted=state.counted + fresh, fresh=state.fresh * 0, turn=state.turn + 1)
        if stop.tolerance > 0 or stop.slope is not None:
            flat, rising = stop.on_device(walk.costs, state.counted)
            state = _ended(_ended(state, CONVERGED, flat), ROSE, rising)
        return state

    def _compared(self, state: _State) -> _State:
        """The state after the halves of the force were compared, for the pairs whose turn it is."""
        lead, settings = self.lead, self.lead.settings
        wider = shared([each.widened / settings.smoothness for each in (pair.task.solver for pair in self.pairs)])
        sigma = [wider * settings.sigma_grad * s for s in lead.units.sigma]
        force = lead._force(self.walk.other)
        agree = agree_on_device(force, lead.units.weights, sigma, lead.ops, settings.agreement)
        due = (state.number > state.looked) & (state.number % CHECK_EVERY == 0)
        return _ended(state._replace(looked=chosen(due, state.number, state.looked)), NOISE, due & inverse(agree))

    def _step_to(self, state: _State, point: Linearization) -> tuple[float, float]:
        """Turn the gradients in `walk.other` into the next warps; predicted decreases, and longest steps."""
        walk, lead, settings, units = self.walk, self.lead, self.lead.settings, self.lead.units
        force = lead._force(walk.other)
        lead._smooth(force, lead.widened * settings.sigma_grad, lead.tail)
        taken = settings.optimizer.step(
            force, None, damping=state.damping * lead.damping_unit, residual=point.residual, units=units, ops=lead.ops
        )
        scale: Any = settings.optimizer.scale(settings.step * units.length, taken.longest)
        scale = scale + 0 * taken.longest  # as a number of the device, if the step needs no scale of its own
        length = scale * taken.longest / units.length
        share = 1.0 if settings.smoothing == "full" else smaller(length / settings.step, 1.0)
        lead._advance(walk.warp, walk.other, scale, share)
        return quotient(scale * taken.decrease + 0 * taken.longest, point.count), length

    def _judged(self, state: _State, point: Linearization) -> tuple[_State, Linearization, bool]:
        """The state after the step, the cost at its end and whether it is kept; a step that nobody undoes is."""
        lead, rule, limit = self.lead, self.lead.settings.damping, self.lead.level.iterations
        final = state.number == limit - 1
        if not self.undoes:
            after = state._replace(number=state.number + 1, fresh=state.fresh + 1)
            nothing = state.number * 0
            parts = tuple((name, nothing) for name, _ in point.parts)
            return _ended(after, LIMIT, final), Linearization(nothing, nothing, nothing, parts), True
        ahead = lead.cost.linearize(self.walk.other, lead.matrix)
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

    def _read(self, turns: range) -> None:
        """What happened in the turns since the last time, for which the host waits, is reported."""
        rows = self.walk.table.tolist()
        for place, (pair, (now, *records)) in enumerate(zip(self.pairs, rows, strict=True)):
            if pair.found is not None:
                continue
            state = _State(*now[: len(_State._fields)])
            pair.number, pair.task.carried.damping = int(state.number), state.damping
            try:
                for turn in turns:
                    self._tell(pair, records[turn % READ_EVERY])
                if state.ending == FAILED:
                    self._complain(pair, place, records[turns[-1] % READ_EVERY])
            except InputError as error:
                pair.found = error
            if state.ending != GOES_ON and pair.found is None:
                pair.found = self._own(place), ENDINGS[int(state.ending)]
            elif pair.found is None and pair.task.solver._stop():
                pair.found = self._own(place), Ending.INTERRUPTED

    def _own(self, place: int) -> Tensor:
        """The warp of a pair, in memory of its own."""
        return self.walk.warp[place] if len(self.pairs) == 1 else self.walk.warp[place].clone()

    def _tell(self, pair: _Pair, line: list[float]) -> None:
        record, point, ahead = _points(pair, line)
        number, report = int(record.number), pair.task.solver._report
        if record.stepped:
            report(Iteration(number, point, record.damping, step_vox=record.step_vox))
        if record.rejected:
            report(Iteration(number + self.copies, ahead, record.damping, accepted=False))

    def _complain(self, pair: _Pair, place: int, line: list[float]) -> None:
        """The error of a level that cannot go on."""
        record, point, ahead = _points(pair, line)
        if point.count == 0:  # a sum says which of its terms it is
            pair.task.solver.cost.linearize(self.walk.warp[place], pair.task.solver.matrix)
        checked(point)
        if record.stepped:
            checked(ahead)
        raise InputError(NO_GRADIENT)


def _points(pair: _Pair, line: list[float]) -> tuple[_Record, Linearization, Linearization]:
    """What was recorded of a turn, and the costs at the warp and at the end of the step."""
    record, costs, names = _Record(*line[: len(_Record._fields)]), line[len(_Record._fields) :], pair.names
    here, there = (tuple(zip(names, costs[k * len(names) :], strict=False)) for k in (0, 1))
    point = Linearization(record.cost, record.residual, record.count, here)
    return record, point, Linearization(record.ahead_cost, record.ahead_residual, record.ahead_count, there)


def _ended(state: _State, code: int, when: Any) -> _State:
    """The state, ended if it was not and the time has come."""
    return state._replace(ending=chosen((state.ending == GOES_ON) & when, float(code), state.ending))


def _vector(values: tuple[Any, ...], like: Tensor) -> Tensor:
    """(B, N) of (B,) numbers and numbers of the host, of the type and on the device of another tensor."""
    kind, device = like.dtype, like.device
    made = (v.to(kind) if isinstance(v, Tensor) else torch.full((), v, dtype=kind, device=device) for v in values)
    return torch.stack([each.expand(len(like)) for each in made], -1)


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

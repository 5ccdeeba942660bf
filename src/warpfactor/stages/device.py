"""Levels without waiting for the device: the device decides, the host reads now and then, for several pairs at once.

`LevelSolver` reads the cost and the longest step of every iteration and decides what comes next. Here the same rules
decide with numbers that stay on the device (`decisions.py`), so that a turn is the same sequence of launches on the
same buffers whatever comes out; CUDA can record it once and play it again. What the host wants to know lies in two
small tables, which it reads every few turns.

A turn linearizes, steps and, where steps can be undone, looks at the cost ahead. Then the two fields are exchanged, and
what was the next warp is the present one. So nothing is copied, unless the step is not kept: then the warp is written
over the next one first. Such a step costs a turn; the next one steps again with more damping. As the fields change
places, turns of even and of odd number are recorded by themselves. The results are those of `LevelSolver`.

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
from typing import Any, cast

import torch
from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.kernels.buffers import field_like, give_back_memory
from warpfactor.kernels.held import Unwaited, device_form
from warpfactor.kernels.ops import Ops
from warpfactor.kernels.pairs import PairOps, shared
from warpfactor.optim import DampingState
from warpfactor.optim.steps.base import Taken
from warpfactor.stages.agreement import agree_on_device
from warpfactor.stages.company import company_of
from warpfactor.stages.decisions import (
    CONVERGED,
    FAILED,
    GOES_ON,
    LIMIT,
    NOISE,
    ROSE,
    STALLED,
    Decisions,
    Record,
    State,
)
from warpfactor.stages.level import CHECK_EVERY, NO_GRADIENT, Carried, Iteration, LevelSolver, checked
from warpfactor.stages.stage import Ending
from warpfactor.terms import Linearization
from warpfactor.terms.base import Prepared, with_ops
from warpfactor.terms.channels import of_pairs

READ_EVERY = 8  # turns: how often the host reads, at least; also how many records the table holds
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
    device, such as somebody's own loss. Otherwise the level is run together with those of the company's other pairs
    that are alike.
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
    if unwaited is None or solver.level.iterations == 0 or with_ops(solver.cost, unwaited) is None or solver._stop():
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


@dataclass
class _Walk:
    """The buffers of a level, which stay where they are.

    Attributes:
        warp: the present ones, (B, C, D, H, W).
        other: gradients, then steps, then next warps; exchanged with the present ones after every turn.
        state: (B, N) float64; see State.flat.
        records: (B, READ_EVERY, M) float64, of the last turns.
        moments: what the optimizer keeps of all pairs; None if nothing.
        earlier: (B,) float64, steps that it took before the level; 0 if it keeps nothing.
    """

    warp: Tensor
    other: Tensor
    state: Tensor
    records: Tensor
    moments: Any
    earlier: Any

    def go(self) -> None:
        """Make the next warps the present ones."""
        self.warp, self.other = self.other, self.warp


@dataclass
class _Pair:
    """What the host knows of a pair: how far it has come, when it last looked at the halves, and what came out.

    Attributes:
        foreseen: what the level's solver foresaw of the turns that follow.
    """

    task: _Task
    number: int = 0
    looked: int = 0
    foreseen: object = None
    found: tuple[Tensor, Ending] | InputError | None = None
    names: tuple[str, ...] = field(default=())


class _Turns:
    """A level of several pairs, run turn by turn.

    Attributes:
        lead: a solver whose fields and numbers are those of all pairs.
        undoes: whether the cost is looked at ahead of a step.
        rules: what is decided.
        memory: where all recorded turns have what they hold for a while; nothing of it outlives a turn.
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
        copies = damped and rule.copies(finest=lead.level.finest)
        self.undoes = copies or (damped and rule.looks(DampingState(1.0), final=True))
        parts = len(tasks[0].first.parts)
        limits = lead.level.iterations, lead.units.length, copies, self.undoes, CHECK_EVERY, READ_EVERY, parts
        self.rules = Decisions(lead.settings, *limits)
        self.walk = self._begin()
        self.memory = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    def _begin(self) -> _Walk:
        """The buffers."""
        tasks, rules = [pair.task for pair in self.pairs], self.rules
        warp = shared([task.warp for task in tasks])
        states = [State.begun(task.rule, task.first.cost, rules.recent).flat for task in tasks]
        state = torch.tensor(states, dtype=torch.float64).to(warp.device)
        width = len(Record._fields) + 2 * rules.parts
        records = torch.zeros((len(tasks), READ_EVERY, width), dtype=torch.float64, device=warp.device)
        kept = tasks[0].solver.settings.optimizer.together([task.carried.state for task in tasks])
        return _Walk(warp, field_like(warp), state, records, kept, 0 if kept is None else kept.number)

    def run(self) -> list[tuple[Tensor, Ending] | InputError]:
        """What comes out for every pair."""
        turns = 0
        work: dict[tuple[bool, int], Replayed] = {}
        while active := [pair for pair in self.pairs if pair.found is None]:
            if self._foresees() or not work:
                work = {(check, odd): self._work(check=check) for check in (False, True) for odd in (0, 1)}
            due = [pair for pair in active if self._due(pair)]
            for pair in due:
                pair.looked = pair.number
            following = range(turns, turns + min(self._unread(pair.number) for pair in active))
            for turn in following:
                work[bool(due) and turn == turns, turn % 2]()
                self.walk.go()
            self._read(following)
            turns = following.stop
        return [cast(Any, pair.found) for pair in self.pairs]

    def _work(self, *, check: bool) -> Replayed:
        return Replayed(partial(self._turn, check=check), self.walk.warp.device, self.memory)

    def _foresees(self) -> bool:
        """Ask what has to be known of the next turns, and tell whether that is something new."""
        before = [pair.foreseen for pair in self.pairs]
        for pair, warp in zip(self.pairs, self.walk.warp, strict=True):
            if pair.found is None:
                pair.foreseen = pair.task.solver.foresee(warp, READ_EVERY)
        return before != [pair.foreseen for pair in self.pairs]

    def _due(self, pair: _Pair) -> bool:
        """Whether the halves of a pair's force are to be compared in the next turn."""
        return self.lead.settings.agreement > 0 and pair.number > pair.looked and pair.number % CHECK_EVERY == 0

    def _unread(self, number: int) -> int:
        """How many turns may follow before the host reads: until the halves of the force are to be compared."""
        compared = self.lead.settings.agreement > 0
        return min(CHECK_EVERY - number % CHECK_EVERY if compared else READ_EVERY, self.lead.level.iterations - number)

    def _turn(self, *, check: bool) -> None:
        """Linearize, decide, step, look ahead, decide; the same launches whatever comes out."""
        walk, lead, rules, ops = self.walk, self.lead, self.rules, cast(Any, self.lead.ops)
        point = lead.cost.linearize(walk.warp, lead.matrix, walk.other)
        agree = self._agree() if check else None
        given = point.cost, point.count, agree, lead.damping_unit, walk.earlier
        damping, number, *state = ops.decide(rules.arrive, *given, *walk.state.unbind(-1)).unbind(-1)
        if walk.moments is not None:
            walk.moments.number = number
        taken = self._force_to_step(damping, point)
        strode = ops.decide(rules.stride, taken.longest, taken.decrease, point.count)
        scale, length, share, predicted = strode.unbind(-1)
        full = lead.settings.smoothing == "full"
        lead._advance(walk.warp, walk.other, scale, 1.0 if full else share)
        seen = [point, lead.cost.linearize(walk.other, lead.matrix)] if self.undoes else [point]
        figures = [figure for each in seen for figure in (each.cost, each.residual, each.count)]
        parts = [cost for each in seen for _, cost in each.parts]
        judged = ops.decide(rules.judge, length, predicted, *figures, *parts, *state)
        ops.take(walk.other, walk.warp, judged[:, 0])
        end = 2 + walk.state.shape[-1]
        walk.state.copy_(judged[:, 2:end])
        line = judged[:, None, end:]
        walk.records.scatter_(1, judged[:, 1].long()[:, None, None].expand_as(line), line)

    def _agree(self) -> Tensor:
        """Whether the halves of the force agree, 1 or 0 for every pair."""
        lead, settings = self.lead, self.lead.settings
        wider = shared([each.widened / settings.smoothness for each in (pair.task.solver for pair in self.pairs)])
        sigma = [wider * settings.sigma_grad * s for s in lead.units.sigma]
        force = lead._force(self.walk.other)
        return agree_on_device(force, lead.units.weights, sigma, lead.ops, settings.agreement).double()

    def _force_to_step(self, damping: Tensor, point: Linearization) -> Taken:
        """Turn the gradients in `walk.other` into steps, in place."""
        lead, settings = self.lead, self.lead.settings
        force, sigma = lead._force(self.walk.other), lead.widened * settings.sigma_grad
        ops: Any = lead.ops
        if sigma > 0:
            ends = {"boundary": settings.boundary, "truncate": settings.truncate, "tail": lead.tail}
            ops = AfterGaussian(ops, [sigma * s for s in lead.units.sigma], ends)
        return settings.optimizer.step(
            force, self.walk.moments, damping=cast(float, damping), residual=point.residual, units=lead.units, ops=ops
        )

    def _read(self, turns: range) -> None:
        """What happened in the turns since the last time, for which the host waits, is reported."""
        every = self.walk.state.tolist(), self.walk.records.tolist()
        for place, (pair, now, records) in enumerate(zip(self.pairs, *every, strict=True)):
            if pair.found is not None:
                continue
            state = State.of(tuple(now))
            self.lead.settings.optimizer.count(pair.task.carried.state, int(state.number) - pair.number)
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
            report(Iteration(number + self.rules.copies, ahead, record.damping, accepted=False))

    def _complain(self, pair: _Pair, place: int, line: list[float]) -> None:
        """The error of a level that cannot go on."""
        record, point, ahead = _points(pair, line)
        if point.count == 0:  # a sum says which of its terms it is
            pair.task.solver.cost.linearize(self.walk.warp[place], pair.task.solver.matrix)
        checked(point)
        if record.stepped:
            checked(ahead)
        raise InputError(NO_GRADIENT)


class AfterGaussian:
    """Operations that make a step of a gradient, after a Gaussian on it, where the device can in one operation.

    Args:
        ends: the boundary, where the Gaussian is truncated, and its tail.
    """

    def __init__(self, ops: Any, sigma: Sequence[Any], ends: dict[str, Any]) -> None:
        self._ops, self._sigma, self._ends = ops, sigma, ends

    def descend(self, gradient: Tensor, **given: Any) -> Any:
        return self._ops.smooth_descend(gradient, self._sigma, **self._ends, **given)

    def adam(self, gradient: Tensor, *moments: Tensor, **given: Any) -> Any:
        return self._ops.smooth_adam(gradient, *moments, self._sigma, **self._ends, **given)

    def tile(self, gradient: Tensor, **given: Any) -> Any:
        self._ops.smooth_gaussian(gradient, self._sigma, **self._ends)
        return self._ops.tile(gradient, **given)


def _points(pair: _Pair, line: list[float]) -> tuple[Record, Linearization, Linearization]:
    """What was recorded of a turn, and the costs at the warp and at the end of the step."""
    record, costs, names = Record(*line[: len(Record._fields)]), line[len(Record._fields) :], pair.names
    here, there = (tuple(zip(names, costs[k * len(names) :], strict=False)) for k in (0, 1))
    point = Linearization(record.cost, record.residual, record.count, here)
    return record, point, Linearization(record.ahead_cost, record.ahead_residual, record.ahead_count, there)


class Replayed:
    """Work for a device that is the same every time: recorded as a CUDA graph the second time, then played again.

    The first time it runs as it is, which compiles what has to be. Where nothing can be recorded it always does.

    Args:
        memory: of a pool that several recordings share.
    """

    def __init__(self, work: Callable[[], None], device: torch.device, memory: Any = None) -> None:
        self.work, self.device, self.memory = work, device, memory
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
            recording = torch.cuda.graph(graph, pool=self.memory, capture_error_mode="thread_local")
            with RECORDING, torch.cuda.device(self.device), recording:
                self.work()
        except RuntimeError:
            self.recordable = False
        else:
            self.graph = graph

"""What is decided in a turn of a level whose host does not wait: functions of numbers only, for every pair by itself.

They are written with `kernels/numbers.py` and by the rules of `optim`; a backend makes one kernel of each (`decide` of
DeviceOps). What they are given and what they return is flat: figures of the device and Python's numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from warpfactor.kernels.numbers import chosen, finite, inverse, quotient, smaller
from warpfactor.optim import DampingState
from warpfactor.stages.settings import Deformable

GOES_ON, CONVERGED, ROSE, NOISE, STALLED, LIMIT, FAILED = range(7)


class State(NamedTuple):
    """Where a pair is; flags are 0 or 1.

    Attributes:
        number: of the iteration, from 0.
        damping, last, before, predicted, gain, retries: see DampingState; `before` is NaN until there is one.
        fresh: whether a step was taken since the cost was last noted.
        counted: number of costs noted.
        row: of the table of records, into which the next turn writes.
        looked: number of the iteration in which the halves of the force were last compared.
        ending: one of the codes above.
        first, least: the first cost and the least.
        recent: the last costs, as many as the test for an end looks at.
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
    row: Any
    looked: Any
    ending: Any
    first: Any
    least: Any
    recent: tuple[Any, ...]

    @staticmethod
    def begun(rule: DampingState, cost: float, recent: int) -> State:
        """At the start of a level, where the cost is known."""
        zero = State._make((*(0,) * (len(State._fields) - 1), (cost,) * recent))
        return zero._replace(counted=1, ending=GOES_ON, first=cost, least=cost).with_rule(rule)

    @staticmethod
    def of(numbers: tuple[Any, ...]) -> State:
        """The state that is flat in these numbers."""
        single = len(State._fields) - 1
        return State._make((*numbers[:single], tuple(numbers[single:])))

    @property
    def flat(self) -> tuple[Any, ...]:
        return (*self[:-1], *self.recent)

    @property
    def rule(self) -> DampingState:
        return DampingState(self.damping, self.last, self.before, self.predicted, self.gain, self.retries)

    def with_rule(self, rule: DampingState) -> State:
        return self._replace(
            damping=rule.damping,
            last=rule.last,
            before=rule.before,
            predicted=rule.predicted,
            gain=rule.gain,
            retries=rule.retries,
        )

    def ended(self, code: int, when: Any) -> State:
        """The state, ended if it was not and the time has come."""
        return self._replace(ending=chosen((self.ending == GOES_ON) & when, float(code), self.ending))


class Record(NamedTuple):
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


@dataclass(frozen=True)
class Decisions:
    """The decisions of a level.

    Attributes:
        iterations: of the level, at most.
        unit: voxels of a step of length one; see Units.length.
        copies: whether every step is judged before it is taken, as if it were undone from a copy.
        undoes: whether any step is.
        every: iterations between two comparisons of the halves of the force.
        rows: of the table of records.
        parts: how many terms the cost has.
    """

    settings: Deformable
    iterations: int
    unit: float
    copies: bool
    undoes: bool
    every: int
    rows: int
    parts: int

    @property
    def recent(self) -> int:
        """How many costs are kept."""
        return self.settings.convergence.looks_back

    def arrive(self, cost: Any, count: Any, agree: Any, unit: Any, earlier: Any, *flat: Any) -> tuple[Any, ...]:
        """The damping of the step, its number for the state of the optimizer, and the state after the cost was noted.

        If nobody looked at it before, the step that led here is judged.

        Args:
            agree: whether the halves of the force agree; None if they were not compared.
            unit: of the damping.
            earlier: steps that the optimizer took before this level.
            flat: the state.
        """
        state, settings = State.of(flat), self.settings
        stop = settings.convergence
        fresh = (state.fresh > 0) & (state.ending == GOES_ON)
        state = state.ended(FAILED, inverse(finite(cost)) | (count == 0))
        if settings.optimizer.damped and not self.undoes:
            _, judged = settings.damping.judge(state.rule, cost, undo=False)
            pairs = zip(state.with_rule(judged).flat, state.flat, strict=True)
            state = State.of(tuple(chosen(fresh, new, old) for new, old in pairs))
        noted = (*state.recent[1:], cost) if state.recent else ()
        state = state._replace(
            least=chosen(fresh, smaller(state.least, cost), state.least),
            recent=tuple(chosen(fresh, new, old) for new, old in zip(noted, state.recent, strict=True)),
            counted=state.counted + chosen(fresh, 1, 0),
            fresh=0,
        )
        flattened, rising = stop.of_recent(state.first, state.least, state.recent, state.counted)
        state = state.ended(CONVERGED, flattened).ended(ROSE, rising)
        if agree is not None:
            due = (state.number > state.looked) & (state.number % self.every == 0)
            looked = chosen(due, state.number, state.looked)
            state = state._replace(looked=looked).ended(NOISE, due & (agree == 0))
        number = chosen(state.ending == GOES_ON, state.number + earlier + 1, 0)
        return state.damping * unit, number, *state.flat

    def stride(self, longest: Any, decrease: Any, count: Any) -> tuple[Any, ...]:
        """What the step is multiplied by, its length in voxels, its share of the smoothing, the decrease predicted.

        Args:
            longest, decrease: of the step as it is; see Taken.
            count: of voxels.
        """
        settings = self.settings
        scale = settings.optimizer.scale(settings.step * self.unit, longest)
        length = scale * longest / self.unit
        share = 1.0 if settings.smoothing == "full" else smaller(length / settings.step, 1.0)
        return scale, length, share, quotient(scale * decrease + 0 * longest, count)

    def judge(self, length: Any, predicted: Any, *figures: Any) -> tuple[Any, ...]:
        """Whether the step is not kept, the row of its record, the state after it, and the record.

        Args:
            length, predicted: see `stride`.
            figures: cost, residual and count here, and if steps can be undone at the end of the step; the costs of the
                terms here and there; the state.
        """
        here, rest = figures[:3], figures[3:]
        there, rest = (rest[:3], rest[3:]) if self.undoes else ((0, 0, 0), rest)
        terms = self.parts * (2 if self.undoes else 1)
        parts, flat = rest[:terms], rest[terms:]
        state = State.of(flat).ended(FAILED, inverse(finite(predicted)))._replace(predicted=predicted)
        stepped = state.ending == GOES_ON
        after, kept = self._judged(state, there[0], there[2])
        cost, residual, count = here
        seen = state.number, cost, residual, count, state.damping, length, stepped
        record = Record._make((*seen, *there, stepped & inverse(kept)))
        pairs = zip(after.flat, state.flat, strict=True)
        following = State.of(tuple(chosen(stepped, new, old) for new, old in pairs))
        row = chosen(state.row == self.rows - 1, 0, state.row + 1)
        unseen = () if self.undoes else (0,) * self.parts
        return inverse(stepped & kept), state.row, *following._replace(row=row).flat, *record, *parts, *unseen

    def _judged(self, state: State, cost: Any, count: Any) -> tuple[State, Any]:
        """The state after the step and whether it is kept; a step that nobody undoes is."""
        rule, limit = self.settings.damping, self.iterations
        final = state.number == limit - 1
        if not self.undoes:
            return state._replace(number=state.number + 1, fresh=1).ended(LIMIT, final), True
        before = state.rule
        undo = True if self.copies else rule.looks(before, final=final)
        kept, judged = rule.judge(before, cost, undo=undo)
        on = 1 if self.copies else chosen(kept, 1, 0)
        after = state.with_rule(judged)._replace(number=state.number + on, fresh=chosen(kept, 1, 0))
        stalled = rule.stalled(judged) & inverse(kept)
        if self.copies:  # the last step is undone if it raised the cost, and judged no further
            after = after._replace(damping=chosen(final & kept, before.damping, judged.damping))
            after = after.ended(FAILED, (inverse(finite(cost)) | (count == 0)) & inverse(final))
            stalled = stalled & inverse(final)
        return after.ended(STALLED, stalled).ended(LIMIT, after.number >= limit), kept

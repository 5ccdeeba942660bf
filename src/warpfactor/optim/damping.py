"""Damping: after each step, did the cost fall, is the step kept, and how large is λ next. Pure functions on a state.

`Paper` is eq. 7 and eq. 12 of the paper; `Trust` compares the actual with the predicted decrease. The numbers of a
state are Python's, or tensors without axes: then the device decides and the host does not wait (`kernels/numbers.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

from warpfactor.errors import InputError
from warpfactor.kernels.numbers import chosen, finite, inverse, larger, quotient, smaller


@dataclass(frozen=True)
class DampingState:
    """What the rule remembers.

    Attributes:
        damping: λ in use.
        last, before: costs of the last two accepted warps; None until there are any.
        predicted: decrease of the cost promised for the step under judgement.
        gain: actual over predicted decrease of the last step that was judged; 0 before any and if the cost rose.
        retries: rejections in a row.
    """

    damping: float
    last: float | None = None
    before: float | None = None
    predicted: float = 0.0
    gain: float = 0.0
    retries: int = 0


class Damping(Protocol):
    """A rule for the damping; hashable and comparable, so that a recipe is data."""

    @property
    def name(self) -> str: ...

    @property
    def initial(self) -> float: ...

    @property
    def relative(self) -> bool:
        """Whether the damping is measured anew at every level, in units of (sum |g|^2 / sum |g|)^2 there."""
        ...

    def clamp(self, damping: float) -> float:
        """The damping within the limits of the rule."""
        ...

    def copies(self, *, finest: bool) -> bool:
        """Whether the steps of a level are undone from a copy of the warp."""
        ...

    def looks(self, state: DampingState, *, final: bool) -> bool:
        """Without a copy: whether the next step is judged before it is taken."""
        ...

    def stalled(self, state: DampingState) -> bool:
        """Whether no further step of the level is worth its time."""
        ...

    def judge(self, state: DampingState, cost: float, *, undo: bool) -> tuple[bool, DampingState]:
        """Whether the step that led to `cost` is kept, and the state for the next one.

        Args:
            undo: whether the step can be undone; it is kept if not.
        """
        ...


@dataclass(frozen=True)
class Paper:
    """λ <- μ⁺ λ if the cost rose, else μ⁻ λ (eq. 7); optionally rejection (eq. 12).

    Attributes:
        initial: λ at the start; with `relative` in units of (Σ|g|² / Σ|g|)².
        increase, decrease: μ⁺ and μ⁻.
        floor, cap: λ stays between them; the cap is the paper's λ_max.
        tolerance: τ of the rejection test; None accepts every step.
        retries: rejections in a row after which a step is kept whatever it does.
        relative: measure λ anew at every level, in units of (Σ|g|² / Σ|g|)² there.
    """

    initial: float = 0.01
    increase: float = 1.5
    decrease: float = 0.975
    floor: float = 1e-12
    cap: float = math.inf
    tolerance: float | None = None
    retries: int = 10
    relative: bool = False
    name: str = "paper"

    def __post_init__(self) -> None:
        _check(self.initial, self.increase, self.decrease, self.floor, self.cap)

    def copies(self, *, finest: bool) -> bool:
        """Whether steps of a level are undone from a copy of the warp."""
        return self.tolerance is not None

    def looks(self, state: DampingState, *, final: bool) -> bool:
        """Never: a step is judged after it was taken."""
        return False

    def stalled(self, state: DampingState) -> bool:
        """Never: after `retries` rejections the next step is kept whatever it does."""
        return False

    def judge(self, state: DampingState, cost: float, *, undo: bool) -> tuple[bool, DampingState]:
        """Keep the step that led to `cost`? And the state for the next one.

        Args:
            undo: whether the step can be undone; it is kept without.
        """
        if state.last is None:
            return True, replace(state, last=cost)
        damping = self.clamp(state.damping * chosen(cost <= state.last, self.decrease, self.increase))
        if self.tolerance is None or undo is False:
            return True, _settled(True, state, damping, cost)
        kept = inverse(undo & self._reject(state, cost, self.tolerance))
        return kept, _settled(kept, state, damping, cost)

    def _reject(self, state: DampingState, cost: float, tolerance: float) -> bool:
        assert state.last is not None
        before = math.nan if state.before is None else state.before  # nothing is larger than NaN
        worse = inverse(finite(cost)) | (cost - state.last > tolerance * abs(state.last - before))
        return worse & (state.retries < self.retries)

    def clamp(self, damping: float) -> float:
        return _within(damping, self.floor, self.cap)


@dataclass(frozen=True)
class Trust:
    """Trust region on the gain ratio ϱ = actual / predicted decrease; λ is relative and re-measured at each level.

    A step whose cost rose is undone and tried again with more damping. A poor gain raises λ, a good one lowers it
    towards the floor, which is the longest step we ever want.

    Attributes:
        initial: κ², λ in units of (Σ|g|² / Σ|g|)² at the level's start.
        increase, decrease: factors for a bad and for a good step; a bad step that was taken raises λ twice.
        floor, cap: limits of κ².
        poor, good: gain ratios below which λ grows and above which it shrinks.
        reject: undo steps that raise the cost; without it every step is kept.
        copy_finest: undo from a copy of the warp at the finest level too. Without it there is none; instead the cost is
            looked at before a step is taken: the first and the last of the level, and each that follows a poor one.
        retries: rejections in a row after which the level has stalled.
        relative: always true; the rule has no other unit.
    """

    initial: float = 40.0
    increase: float = 4.0
    decrease: float = 0.5
    floor: float = 40.0
    cap: float = 1e6
    poor: float = 0.1
    good: float = 0.25
    reject: bool = True
    copy_finest: bool = True
    retries: int = 4
    relative: bool = True
    name: str = "trust"

    def __post_init__(self) -> None:
        if not self.relative:
            raise InputError("The trust rule supports relative damping only; use 'paper' for an absolute one.")
        _check(self.initial, self.increase, self.decrease, self.floor, self.cap)

    def copies(self, *, finest: bool) -> bool:
        """Whether steps of a level are undone from a copy of the warp."""
        return self.reject and (self.copy_finest or not finest)

    def looks(self, state: DampingState, *, final: bool) -> bool:
        """Without a copy: whether the next step is to be judged before it is taken."""
        return (final | (state.gain < self.poor)) & self.reject

    def stalled(self, state: DampingState) -> bool:
        """Whether so many steps in a row were rejected that no further one is worth its time."""
        return state.retries >= self.retries

    def judge(self, state: DampingState, cost: float, *, undo: bool) -> tuple[bool, DampingState]:
        """Keep the step that led to `cost`? And the state for the next one.

        Args:
            undo: whether the step can be undone; it is kept without.
        """
        if state.last is None:
            return True, replace(state, last=cost)
        actual = state.last - cost
        fell = actual > 0
        gain = chosen(fell & (state.predicted > 0), quotient(actual, state.predicted), 0.0)
        slower = chosen(gain >= self.poor, 1.0, self.increase)
        raised = chosen(undo, self.increase, self.increase**2)
        factor = chosen(fell, chosen(gain > self.good, self.decrease, slower), raised)
        kept = fell | inverse(undo)
        return kept, _settled(kept, replace(state, gain=gain), self.clamp(state.damping * factor), cost)

    def clamp(self, damping: float) -> float:
        return _within(damping, self.floor, self.cap)


def _settled(kept: bool, state: DampingState, damping: float, cost: float) -> DampingState:
    """The state after a step that led to `cost` and was kept or not."""
    return replace(
        state,
        damping=damping,
        last=chosen(kept, cost, state.last),
        before=chosen(kept, state.last, state.before),
        retries=chosen(kept, 0, state.retries + 1),
    )


def _within(damping: float, floor: float, cap: float) -> float:
    return smaller(larger(damping, floor), cap)


def _check(initial: float, increase: float, decrease: float, floor: float, cap: float) -> None:
    if not (initial > 0 and math.isfinite(initial)):
        raise InputError(f"The initial damping must be positive and finite, it is {initial}")
    if not increase > 1:
        raise InputError(f"The damping's increase factor must be above 1, it is {increase}")
    if not 0 < decrease <= 1:
        raise InputError(f"The damping's decrease factor must be in (0, 1], it is {decrease}")
    if not 0 < floor <= cap:
        raise InputError(f"The damping's floor {floor} must be positive and not above its cap {cap}")


DAMPINGS = {"paper": Paper, "trust": Trust}

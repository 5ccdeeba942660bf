"""When a level is done: the cost has flattened, or it rises."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from warpfactor.errors import InputError
from warpfactor.kernels.numbers import larger, smaller


@dataclass(frozen=True)
class Convergence:
    """When to stop a level before its iteration limit.

    Attributes:
        tolerance: stop when the last `window` iterations brought less than this share of the level's whole decrease,
            per iteration; 0 never does.
        slope: stop when the least-squares slope of the last `window` costs is above this, as the paper's host package
            does with 1e-6; None never does.
        window: how many iterations are looked at.
    """

    tolerance: float = 0.0
    slope: float | None = None
    window: int = 8

    def __post_init__(self) -> None:
        if self.window < 2 or not self.tolerance >= 0:
            raise InputError(
                f"The stop test needs a window of at least 2 and a tolerance of at least 0, "
                f"not {self.window} and {self.tolerance}."
            )

    def flat(self, costs: Sequence[float]) -> bool:
        """Whether the costs of a level's accepted steps, in order, have flattened."""
        if self.tolerance <= 0 or len(costs) <= self.window:
            return False
        gained = costs[0] - min(costs)
        recent = costs[-self.window - 1] - min(costs[-self.window :])
        return recent <= self.tolerance * self.window * max(gained, 0.0)

    def rising(self, costs: Sequence[float]) -> bool:
        """Whether they rise."""
        if self.slope is None or len(costs) < self.window:
            return False
        recent = np.asarray(costs[-self.window :])
        time = np.arange(self.window) - (self.window - 1) / 2
        return bool(time @ recent / (time @ time) > self.slope)

    @property
    def looks_back(self) -> int:
        """How many of the last costs are looked at; none if a level always runs to its limit."""
        return self.window + 1 if self.tolerance > 0 or self.slope is not None else 0

    def of_recent(self, first: Any, least: Any, recent: Sequence[Any], count: Any) -> tuple[Any, Any]:
        """Whether the costs have flattened and whether they rise, as numbers of any kind; see kernels/numbers.py.

        Args:
            first, least: of the level's accepted steps.
            recent: the last of their costs, `looks_back` of them; the oldest repeat the first if there are fewer.
            count: how many there are in all.
        """
        flat = rising = False
        if self.tolerance > 0:
            gained = larger(first - least, 0.0)
            recently = recent[0] - reduce(smaller, recent[1:])
            flat = (recently <= self.tolerance * self.window * gained) & (count > self.window)
        if self.slope is not None:
            times = [k - (self.window - 1) / 2 for k in range(self.window)]
            slope = sum(time * cost for time, cost in zip(times, recent[1:], strict=True)) / sum(t * t for t in times)
            rising = (slope > self.slope) & (count >= self.window)
        return flat, rising

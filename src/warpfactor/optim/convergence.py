"""When a level is done: the cost has flattened, or it rises."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


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

    def reached(self, costs: Sequence[float]) -> bool:
        """Whether the costs of a level's accepted steps, in order, have flattened or rise."""
        return self._flat(costs) or self._rising(costs)

    def _flat(self, costs: Sequence[float]) -> bool:
        if self.tolerance <= 0 or len(costs) <= self.window:
            return False
        gained = costs[0] - min(costs)
        recent = costs[-self.window - 1] - min(costs[-self.window :])
        return recent <= self.tolerance * self.window * max(gained, 0.0)

    def _rising(self, costs: Sequence[float]) -> bool:
        if self.slope is None or len(costs) < self.window:
            return False
        recent = np.asarray(costs[-self.window :])
        time = np.arange(self.window) - (self.window - 1) / 2
        return bool(time @ recent / (time @ time) > self.slope)

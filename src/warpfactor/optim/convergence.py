"""When a level is done: the cost has flattened."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Convergence:
    """Stop a level when the last `window` iterations brought less than `tolerance` of what the level has gained.

    Attributes:
        tolerance: share of the level's decrease so far, per iteration; 0 never stops.
        window: how many iterations are looked at.
    """

    tolerance: float = 0.0
    window: int = 8

    def reached(self, costs: Sequence[float]) -> bool:
        """Whether the costs of a level's accepted steps, in order, have flattened."""
        if self.tolerance <= 0 or len(costs) <= self.window:
            return False
        gained = costs[0] - min(costs)
        recent = costs[-self.window - 1] - min(costs[-self.window :])
        return recent <= self.tolerance * self.window * max(gained, 0.0)

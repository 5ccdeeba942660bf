"""When a level is done: the cost has flattened, or it rises."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from warpfactor.errors import InputError


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

    def on_device(self, costs: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        """Whether the costs of every pair have flattened and whether they rise, decided on their device.

        Args:
            costs: (B, N) float64; those of a level's accepted steps come first, the others are infinite.
            count: (B,), how many there are.
        """
        place = count.long()[:, None] - self.window - 1 + torch.arange(self.window + 1, device=costs.device)
        recent = costs.gather(1, place.clamp(min=0))
        flat = rising = torch.zeros_like(count, dtype=torch.bool)
        if self.tolerance > 0:
            gained = (costs[:, 0] - costs.amin(1)).clamp(min=0)
            flat = recent[:, 0] - recent[:, 1:].amin(1) <= self.tolerance * self.window * gained
            flat &= count > self.window
        if self.slope is not None:
            time = torch.arange(self.window, device=costs.device) - (self.window - 1) / 2
            rising = (time * recent[:, 1:]).sum(1) / time.square().sum() > self.slope
            rising &= count >= self.window
        return flat, rising

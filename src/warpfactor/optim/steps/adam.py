"""Adam's step -m / (sqrt(s) + epsilon), with two moment fields as state; the yardstick of the paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.kernels.buffers import field_like
from warpfactor.kernels.ops import Ops
from warpfactor.kernels.pairs import shared
from warpfactor.optim.steps.base import Stateless, Taken, Units


@dataclass
class Moments:
    """Adam's state: two fields as large as the warp, and the number of steps taken.

    For several pairs at once the fields have the pairs as their first axis, and the number is one of the device; see
    Step.together.
    """

    first: Tensor
    second: Tensor
    number: int | Tensor = 0


@dataclass(frozen=True)
class Adam(Stateless):
    """Adam's rule per component of the displacement.

    Attributes:
        betas: decay of the two moments.
        epsilon: added to the root of the second moment.
    """

    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    name: str = "adam"

    def __post_init__(self) -> None:
        if not all(0 <= beta < 1 for beta in self.betas) or not self.epsilon > 0:
            raise InputError(f"Adam's betas {self.betas} must be in [0, 1) and its epsilon {self.epsilon} positive")

    @property
    def damped(self) -> bool:
        return False

    def init(self, warp: Tensor) -> Moments:
        return Moments(field_like(warp).zero_(), field_like(warp).zero_())

    def lift(self, state: Moments, resize: Callable[[Tensor], Tensor]) -> Moments:
        """The moments are carried as plain fields, as the paper's host package does."""
        return Moments(resize(state.first), resize(state.second), state.number)

    def together(self, states: Sequence[Moments]) -> Moments:
        first, second = shared([state.first for state in states]), shared([state.second for state in states])
        numbers = torch.tensor([state.number for state in states], dtype=torch.float64).to(first.device)
        for state, own, square in zip(states, first, second, strict=True):
            state.first, state.second = own, square
        return Moments(first, second, numbers)

    def count(self, state: Moments, steps: int) -> None:
        state.number += steps

    def step(
        self, gradient: Tensor, state: Moments, *, damping: float, residual: float, units: Units, ops: Ops
    ) -> Taken:
        if isinstance(state.number, int):
            state.number += 1
        figures = ops.adam(
            gradient,
            state.first,
            state.second,
            number=state.number,
            betas=self.betas,
            epsilon=self.epsilon,
            weights=units.weights,
        )
        return Taken(*figures)

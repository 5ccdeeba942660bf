"""Adam's step -m / (sqrt(s) + epsilon), with two moment fields as state; the yardstick of the paper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.kernels.buffers import field_like
from warpfactor.kernels.ops import Ops
from warpfactor.optim.steps.base import Stateless, Taken, Units


@dataclass
class Moments:
    """Adam's state: two fields as large as the warp, and the number of steps taken."""

    first: Tensor
    second: Tensor
    number: int = 0


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

    def step(
        self, gradient: Tensor, state: Moments, *, damping: float, residual: float, units: Units, ops: Ops
    ) -> Taken:
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

"""Plain gradient descent -g, always scaled to the longest step that is allowed; a yardstick."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from warpfactor.kernels.numbers import quotient
from warpfactor.kernels.ops import Ops
from warpfactor.optim.steps.base import Stateless, Taken, Units


@dataclass(frozen=True)
class SGD(Stateless):
    """The gradient, which has no length of its own."""

    name: str = "sgd"

    @property
    def damped(self) -> bool:
        return False

    def step(self, gradient: Tensor, state: Any, *, damping: float, residual: float, units: Units, ops: Ops) -> Taken:
        return Taken(*ops.descend(gradient, form="plain", damping=damping, weights=units.weights))

    def scale(self, most: float, longest: float) -> float:
        return quotient(most, longest)

"""The demons step r n / (|n|^2 + alpha^2 r^2), equation 9 of the paper; for the mean squared difference only."""

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.kernels.numbers import quotient, smaller
from warpfactor.kernels.ops import Ops
from warpfactor.optim.steps.base import Stateless, Taken, Units
from warpfactor.terms.base import Term
from warpfactor.terms.mse import MSE


@dataclass(frozen=True)
class Demons(Stateless):
    """The force of each voxel by its own residual and slope; a length already.

    Attributes:
        alpha: weight of the residual in the denominator; a step is never longer than 1 / (2 alpha).
    """

    alpha: float = 1.0
    name: str = "demons"

    def __post_init__(self) -> None:
        if not self.alpha > 0:
            raise InputError(f"The demons' alpha must be positive, it is {self.alpha}")

    @property
    def damped(self) -> bool:
        return False

    def bind(self, metric: Term, units: Units) -> Term:
        """The squared difference, which writes the demons force instead of its gradient."""
        if not isinstance(metric, MSE):
            raise InputError(f"The demons step is defined for the metric 'mse', not {metric.name!r}")
        return replace(metric, demons=self.alpha, lengths=units.weights)

    def step(self, gradient: Tensor, state: Any, *, damping: float, residual: float, units: Units, ops: Ops) -> Taken:
        return Taken(*ops.descend(gradient, form="plain", damping=damping, weights=units.weights))

    def scale(self, most: float, longest: float) -> float:
        return smaller(quotient(most, longest), 1.0)

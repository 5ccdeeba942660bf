"""The root step -g / (|g| + sqrt(lambda)): the factored form with the square root of the rank-one Hessian."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from warpfactor.kernels.ops import Ops
from warpfactor.optim.steps.base import Stateless, Taken, Units


@dataclass(frozen=True)
class Root(Stateless):
    """Never longer than one at any voxel, so that no single outlier sets the step of the whole image."""

    name: str = "root"

    @property
    def damped(self) -> bool:
        return True

    def step(self, gradient: Tensor, state: Any, *, damping: float, residual: float, units: Units, ops: Ops) -> Taken:
        return Taken(*ops.descend(gradient, form="root", damping=damping, weights=units.weights))

    def scale(self, most: float, longest: float) -> float:
        return most

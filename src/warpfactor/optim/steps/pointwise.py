"""The paper's pointwise step -r g / (|g|^2 + lambda), its equation 5."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from warpfactor.kernels.ops import Ops
from warpfactor.optim.steps.base import Stateless, Taken, Units


@dataclass(frozen=True)
class Pointwise(Stateless):
    """Levenberg-Marquardt with a rank-one Hessian per voxel."""

    name: str = "pointwise"

    @property
    def damped(self) -> bool:
        return True

    def step(self, gradient: Tensor, state: Any, *, damping: float, residual: float, units: Units, ops: Ops) -> Taken:
        weights = units.weights
        return Taken(*ops.descend(gradient, form="pointwise", damping=damping, weights=weights, residual=residual))

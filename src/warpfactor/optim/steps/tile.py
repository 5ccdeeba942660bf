"""The paper's step with a Hessian pooled over a window, -(H + lambda I)^-1 r g, its equation 6."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.kernels.ops import Ops
from warpfactor.optim.steps.base import Stateless, Taken, Units


@dataclass(frozen=True)
class Tile(Stateless):
    """Levenberg-Marquardt with a 3x3 Hessian per voxel.

    Attributes:
        tile_size: edge of the window in voxels; an even one reaches one voxel further back than ahead.
    """

    tile_size: int = 3
    name: str = "tile"

    def __post_init__(self) -> None:
        if self.tile_size < 1:
            raise InputError(f"The tile size must be at least 1, it is {self.tile_size}")

    @property
    def damped(self) -> bool:
        return True

    @property
    def reach(self) -> int:
        return self.tile_size // 2

    def step(self, gradient: Tensor, state: Any, *, damping: float, residual: float, units: Units, ops: Ops) -> Taken:
        size = tuple(self.tile_size if n > 1 else 1 for n in gradient.shape[-3:])
        return Taken(*ops.tile(gradient, size=size, damping=damping, weights=units.weights, residual=residual))

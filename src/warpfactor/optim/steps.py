"""Descents: how a gradient becomes a step. All but Adam are pure functions of gradient, damping and residual.

| name        | step at a voxel                                         |
|-------------|---------------------------------------------------------|
| pointwise   | -r g / (|g|² + λ), paper eq. 5                          |
| tile        | -(H + λI)⁻¹ r g, H pooled over a window, paper eq. 6    |
| root        | -g / (|g| + √λ), never longer than one                  |
| demons      | r_x n / (|n|² + α² r_x²), paper eq. 9, MSE only         |
| adam        | -m / (√s + ε) with two moment fields as state           |
| sgd         | -g                                                      |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.kernels.buffers import field_like

NAMES = ("pointwise", "tile", "root", "demons", "adam", "sgd")
_FORMS = {"pointwise": "pointwise", "root": "root", "demons": "plain", "sgd": "plain"}


@dataclass(frozen=True)
class Descent:
    """Which step to take, as data.

    Attributes:
        name: one of the table above.
        tile_size: edge of the window of `tile` in voxels; an even one reaches one voxel further back than ahead.
        alpha: of `demons`.
        betas, epsilon: of `adam`.
    """

    name: str = "root"
    tile_size: int = 3
    alpha: float = 1.0
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise InputError(f"Unknown optimizer {self.name!r}; use one of {', '.join(NAMES)}.")
        if not self.alpha > 0:
            raise InputError(f"The demons' alpha must be positive, it is {self.alpha}")
        if not all(0 <= beta < 1 for beta in self.betas) or not self.epsilon > 0:
            raise InputError(f"Adam's betas {self.betas} must be in [0, 1) and its epsilon {self.epsilon} positive")
        if self.tile_size < 1:
            raise InputError(f"The tile size must be at least 1, it is {self.tile_size}")

    @property
    def damped(self) -> bool:
        """Whether the damping has any part in the step."""
        return self.name in ("pointwise", "tile", "root")

    @property
    def bounded(self) -> bool:
        """Whether no voxel's step can be longer than one by construction."""
        return self.name == "root"


@dataclass
class Moments:
    """Adam's state: two fields as large as the warp, and the number of steps taken."""

    first: Tensor
    second: Tensor
    number: int = 0

    @classmethod
    def zeros_like(cls, field: Tensor) -> Moments:
        return cls(field_like(field).zero_(), field_like(field).zero_())


def take(
    descent: Descent,
    gradient: Tensor,
    *,
    damping: float,
    residual: float,
    weights: Sequence[float],
    ops: ModuleType,
    moments: Moments | None = None,
) -> tuple[float, float]:
    """Overwrite `gradient` with the step; the largest step and the decrease the linear model predicts for it."""
    figures: tuple[float, float]
    if descent.name == "adam":
        if moments is None:
            raise ValueError("adam needs its moments")
        moments.number += 1
        figures = ops.adam(
            gradient,
            moments.first,
            moments.second,
            number=moments.number,
            betas=descent.betas,
            epsilon=descent.epsilon,
            weights=weights,
        )
    elif descent.name == "tile":
        size = tuple(descent.tile_size if n > 1 else 1 for n in gradient.shape[1:])
        figures = ops.tile(gradient, size=size, damping=damping, weights=weights, residual=residual)
    else:
        factor = residual if descent.name == "pointwise" else 1.0
        figures = ops.descend(gradient, form=_FORMS[descent.name], damping=damping, weights=weights, residual=factor)
    return figures

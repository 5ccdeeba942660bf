"""A user's own loss: any differentiable `loss(warped, fixed)` in PyTorch."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.kernels.ops import Ops
from warpfactor.scene.scene import Scene
from warpfactor.terms.base import Plain
from warpfactor.terms.channels import Channels

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Custom(Plain):
    """A loss function of both images, (C, D, H, W) each and standardised, to be minimised; it may be negative.

    Attributes:
        loss: `loss(warped, fixed) -> scalar`. Differentiated by autograd with respect to `warped` only; voxels outside
            a mask or outside the moving image come with the fixed image's value and get no gradient.
    """

    loss: Loss
    name: str = "custom"

    def __post_init__(self) -> None:
        if not callable(self.loss):
            raise InputError(
                f"Custom({self.loss!r}): give a function loss(warped, fixed); built-in metrics go by their name alone."
            )

    def prepare(self, scene: Scene, ops: Ops, *, level: int = 0, weights: tuple[float, ...] | None = None) -> Channels:
        """The loss over the images of one level; all channels go into one call."""
        scene = scene.single()
        fixed = scene.fixed.data

        def evaluate(u: Tensor, matrix: Tensor, gradient: Tensor | None) -> tuple[float, float]:
            sampled = [ops.sample_gradient(channel, u, matrix) for channel in scene.moving.data]
            weight = _weight(sampled[0][2], scene, u, matrix, ops)
            warped = torch.stack([s[0] for s in sampled])
            warped = torch.where(weight, warped, fixed).requires_grad_(True)
            value = self.loss(warped, fixed)
            _check(value, self.loss)
            count = float(weight.sum())
            if gradient is not None:
                (derivative,) = torch.autograd.grad(value, warped)
                _warn_of_no_slope(derivative, warped, fixed, self.loss)
                derivative = torch.where(weight, derivative, 0.0) * count
                gradient.copy_(sum(d * s[1] for d, s in zip(derivative, sampled, strict=True)))
            return float(value.detach()) * count, count

        return Channels((evaluate,), (1.0,), bounded=False)


def _weight(inside: Tensor, scene: Scene, u: Tensor, matrix: Tensor, ops: Ops) -> Tensor:
    """(D, H, W) bool: the voxels that lie inside both masks and the moving image."""
    weight = inside
    if scene.fixed.mask is not None:
        weight = weight & (scene.fixed.mask > 0)
    if scene.moving.mask is not None:
        weight = weight & (ops.sample(scene.moving.mask.to(u.dtype), u, matrix, mode="nearest") > 0)
    return weight


def _check(value: Tensor, loss: Loss) -> None:
    if not isinstance(value, Tensor) or value.numel() != 1:
        raise InputError("A custom loss must return one number as a tensor; reduce it with .mean() or .sum().")
    if not value.requires_grad:
        raise InputError("A custom loss must depend on `warped` through differentiable PyTorch operations.")
    if not bool(torch.isfinite(value)):
        raise InputError(
            f"The custom loss {_name(loss)} returned {float(value.detach())}; "
            "add a small number under every root, logarithm and division."
        )


def _warn_of_no_slope(derivative: Tensor, warped: Tensor, fixed: Tensor, loss: Loss) -> None:
    """A warning if the loss of images that differ would not change with any of their voxels."""
    if not derivative.any() and not torch.equal(warped, fixed):
        warnings.warn(
            f"The gradient of the custom loss {_name(loss)} is zero everywhere, so nothing moves; "
            "leave out rounding, comparisons and argmax, which autograd cannot differentiate.",
            stacklevel=2,
        )


def _name(loss: Loss) -> str:
    return getattr(loss, "__name__", type(loss).__name__)

"""What kernels of metrics are given: the images of all pairs, where their voxels go, and what counts."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from warpfactor.kernels.triton.launch import mask_or, matrix_on, plain, takes, takes_images


class Problem(NamedTuple):
    """The first arguments of every metric, over pairs.

    Attributes:
        fixed, moving: (B, D, H, W), or with channels behind.
        displacement, gradient: (B, 3, D, H, W).
        matrix: (B, 3, 4), on the host.
        fixed_mask, moving_mask: (B, D, H, W) uint8, or None.
    """

    fixed: Tensor
    moving: Tensor
    displacement: Tensor
    matrix: Tensor
    gradient: Tensor | None
    fixed_mask: Tensor | None
    moving_mask: Tensor | None

    @property
    def device(self) -> torch.device:
        return self.fixed.device

    @property
    def pairs(self) -> int:
        return len(self.fixed)

    @property
    def shape(self) -> torch.Size:
        """(D, H, W) of the fixed images."""
        return self.fixed.shape[1:4]

    @property
    def shapes(self) -> tuple[int, ...]:
        """(D, H, W) of the fixed, then of the moving images."""
        return (*self.shape, *self.moving.shape[1:4])

    @property
    def voxels(self) -> int:
        """Of a fixed image."""
        return self.shape.numel()

    @property
    def pointers(self) -> tuple[Tensor, ...]:
        """What `points.of_pair` takes after the pair; where there is no mask, any pointer, which is not read."""
        fixed, moving = plain(self.fixed), plain(self.moving)
        masks = mask_or(self.fixed_mask, fixed), mask_or(self.moving_mask, moving)
        return fixed, moving, plain(self.displacement), matrix_on(self.device, self.matrix), *masks

    @property
    def output(self) -> Tensor:
        """The gradient; where there is none, any pointer, which is not written."""
        return self.displacement if self.gradient is None else self.gradient

    @property
    def flags(self) -> dict[str, Any]:
        """The constants of `points.arrived`."""
        return {
            "FIXED_MASK": self.fixed_mask is not None,
            "MOVING_MASK": self.moving_mask is not None,
            "PLANAR": self.shapes[0] == 1 and self.shapes[3] == 1,
        }


def fits(
    fixed: Tensor, moving: Tensor, displacement: Tensor, matrix: Tensor, gradient: Tensor | None = None, **_: Any
) -> bool:
    """Whether the kernels of metrics can take a problem."""
    whole = gradient is None or gradient.is_contiguous()
    fields = (displacement[0], None if gradient is None else gradient[0])
    return whole and takes_images(fixed[0], moving[0]) and takes(*fields)

"""Images on a smaller grid over the same field of view."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from warpfactor.kernels import reference
from warpfactor.kernels.triton.field import resize
from warpfactor.kernels.triton.launch import MOST_VOXELS
from warpfactor.kernels.triton.smooth import smooth_gaussian


@torch.no_grad()
def shrink(images: Tensor, shape: Sequence[int], sigma: Sequence[float]) -> Tensor:
    """See Ops."""
    if images.dtype == torch.float64 or images[0].numel() > MOST_VOXELS:
        return reference.shrink(images, shape, sigma)
    factors = [n / m for n, m in zip(images.shape[1:], shape, strict=True)]
    smooth = images.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
    return resize(smooth_gaussian(smooth, sigma), shape, factors, [(f - 1) / 2 for f in factors])

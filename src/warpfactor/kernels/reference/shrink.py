"""Images on a smaller grid over the same field of view."""

from collections.abc import Sequence

import torch
from torch import Tensor

from warpfactor.kernels.reference.field import resize
from warpfactor.kernels.reference.interpolate import working_type
from warpfactor.kernels.reference.smooth import smooth_gaussian


@torch.no_grad()
def shrink(images: Tensor, shape: Sequence[int], sigma: Sequence[float]) -> Tensor:
    """(C, *shape): the images, smoothed by a Gaussian, on a grid of this shape over the same field of view.

    Args:
        images: (C, D, H, W), of any number type; they are not changed.
        shape: The three sizes of the result, none of which exceeds that of `images`.
        sigma: Standard deviation in voxels of `images` along z, y, x; axes with 0 are not smoothed.
    """
    factors = [n / m for n, m in zip(images.shape[1:], shape, strict=True)]
    smooth = smooth_gaussian(images.to(working_type(images), copy=True), sigma)
    return resize(smooth, shape, factors, [(f - 1) / 2 for f in factors])

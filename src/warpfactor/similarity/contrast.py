"""How much variance a window needs to count: a share of the image's own contrast, or a multiple of its noise.

Correlation divides by the variance of a window. Where that is rounding or noise, the quotient is large and random: such
windows push hardest of all and make the warp depend on the last bit of the images (docs/method.md has the figures).
"""

from types import ModuleType

import torch
from torch import Tensor

SAMPLES = 1_000_000  # voxels whose windows are looked at
PLANES = 16  # at least so many planes are, whatever their size
EMPTY = 1e-4  # windows with a smaller share of the contrast show nothing and say nothing about the noise
MOST = 0.5  # of the contrast: an image of one texture, or of noise alone, still has windows that count
QUIET = 0.05  # this fraction of the windows that show something has noise alone


def least_variance(
    image: Tensor, mask: Tensor | None, radius: tuple[int, ...], *, share: float, noise: float, ops: ModuleType
) -> float:
    """The larger of `share` times the contrast and `noise` times the noise variance, at most half the contrast.

    The contrast is Σv² / Σv over the variances v of the windows, the noise a low quantile of them. Neither changes
    when an empty margin is added, and both scale with the image.

    Args:
        image: (D, H, W).
        mask: where the image counts, or None.
        radius: of the windows, per axis.
    """
    variances = _window_variances(image, mask, radius, ops)
    total = float(variances.sum(dtype=torch.float64))
    if not total > 0:
        return 0.0
    contrast = float(variances.square().sum(dtype=torch.float64)) / total
    shown = variances[variances > EMPTY * contrast]
    thinned = shown[:: max(1, shown.numel() // SAMPLES)]
    return min(max(share * contrast, noise * float(torch.quantile(thinned, QUIET))), MOST * contrast)


def _window_variances(image: Tensor, mask: Tensor | None, radius: tuple[int, ...], ops: ModuleType) -> Tensor:
    """Variances of the windows around the voxels of evenly spread planes, in one row."""
    depth = image.shape[0]
    every = max(1, min(image.numel() // SAMPLES, depth // PLANES))
    centres = range(every // 2, depth, every)

    def slab(z: int) -> Tensor:
        part = image[max(0, z - radius[0]) : z + radius[0] + 1]
        return part if part.is_floating_point() else part.float()

    means = torch.stack([slab(z).mean(0, keepdim=True) for z in centres])
    squares = torch.stack([slab(z).square().mean(0, keepdim=True) for z in centres])
    in_plane = (0, radius[1], radius[2])
    variances: Tensor = ops.smooth_box(squares, in_plane).sub_(ops.smooth_box(means, in_plane).square_()).clamp_(min=0)
    if mask is None:
        return variances.flatten()
    return variances[torch.stack([mask[z : z + 1] for z in centres]) > 0]

"""How much variance a window needs to count: a share of the image's own contrast, or a multiple of its noise.

Correlation divides by the variance of a window. Where that is rounding or noise, the quotient is large and random: such
windows push hardest of all and make the warp depend on the last bit of the images (docs/method.md has the figures).
"""

import torch
from torch import Tensor

from warpfactor.kernels.ops import Ops

SAMPLES = 250_000  # voxels whose windows are looked at
PLANES = 16  # at least so many planes are, whatever their size
EMPTY = 1e-4  # windows with a smaller share of the contrast show nothing and say nothing about the noise
MOST = 0.5  # of the contrast: an image of one texture, or of noise alone, still has windows that count
QUIET = 0.05  # this fraction of the windows that show something has noise alone


def least_variance(
    image: Tensor, mask: Tensor | None, radius: tuple[int, ...], *, share: float, noise: float, ops: Ops
) -> float:
    """The larger of `share` times the contrast and `noise` times the noise variance, at most half the contrast.

    The contrast is Σv² / Σv over the variances v of the windows, the noise a low quantile of them. Neither changes
    when an empty margin is added, and both scale with the image.

    Args:
        image: (D, H, W).
        mask: where the image counts, or None.
        radius: of the windows, per axis.
    """
    variances, inside = _window_variances(image, mask, radius, ops)
    found = ops.tally(variances, mask=inside)
    if not found.total > 0:
        return 0.0
    contrast: float = found.squares / found.total
    shown = variances > EMPTY * contrast
    quiet: float = ops.percentiles(variances, (100 * QUIET,), mask=shown if inside is None else shown & inside)[0]
    return min(max(share * contrast, noise * quiet), MOST * contrast)


def _window_variances(
    image: Tensor, mask: Tensor | None, radius: tuple[int, ...], ops: Ops
) -> tuple[Tensor, Tensor | None]:
    """Variances of the windows around the voxels of evenly spread planes, and which of these voxels count."""
    depth, reach = image.shape[0], radius[0]
    every = max(1, min(image.numel() // SAMPLES, depth // PLANES))
    centres = torch.arange(every // 2, depth, every)
    dtype = image.dtype if image.is_floating_point() else torch.float32
    sums = torch.zeros((2, len(centres), 1, *image.shape[1:]), dtype=dtype, device=image.device)
    for offset in range(-reach, reach + 1):
        within = ((centres + offset >= 0) & (centres + offset < depth)).nonzero().flatten().tolist()
        if within:
            first, last = within[0], within[-1]
            part = image[int(centres[first]) + offset : int(centres[last]) + offset + 1 : every].to(dtype)
            sums[0, first : last + 1, 0] += part
            sums[1, first : last + 1, 0].addcmul_(part, part)
    planes = (centres + reach).clamp(max=depth - 1) - (centres - reach).clamp(min=0) + 1
    sums /= planes.to(sums).reshape(1, -1, 1, 1, 1)
    means, squares = (ops.smooth_box(part, (0, radius[1], radius[2])) for part in sums)
    variances = squares.sub_(means.square_()).clamp_(min=0)
    return variances, None if mask is None else mask[every // 2 :: every][:, None] > 0

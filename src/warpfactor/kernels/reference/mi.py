"""Mutual information (MI) of a joint histogram with Parzen windows, in nats."""

import math

import torch
from torch import Tensor

from warpfactor.kernels.held import two
from warpfactor.kernels.reference.interpolate import exact_type
from warpfactor.kernels.reference.match import match


@two
def mi(
    fixed: Tensor,
    moving: Tensor,
    displacement: Tensor,
    matrix: Tensor,
    *,
    bins: int,
    fixed_range: tuple[float, float],
    moving_range: tuple[float, float],
    gradient: Tensor | None = None,
    fixed_mask: Tensor | None = None,
    moving_mask: Tensor | None = None,
) -> Tensor:
    """N (log B - MI) and N, for the N voxels that count and a joint histogram of B x B bins.

    A fixed intensity contributes to two bins with a linear window, a moving one to four with a cubic B-spline.

    Args:
        fixed: (D, H, W), F.
        moving: (D, H, W), M.
        displacement: (3, *fixed shape), u.
        matrix: (3, 4), fixed voxel index plus displacement to moving voxel index p.
        bins: B, at least 5.
        fixed_range, moving_range: Intensities at the ends of the histogram; values beyond are clipped.
        gradient: (3, *fixed shape), overwritten with d total / du, zero where M is clipped;
            None computes the value only.
        fixed_mask, moving_mask: uint8, each on its own grid; a voxel counts where both masks are not 0 and p is inside.
    """
    pair = match(fixed, moving, displacement, matrix, fixed_mask, moving_mask, gradient is not None)
    if gradient is not None:
        gradient.zero_()
    count = int(pair.weight.sum())
    if count == 0:
        return pair.weight.new_zeros(2, dtype=exact_type(fixed.device))
    rows, row_weights = _linear_window(_unit(pair.fixed[pair.weight], fixed_range)[0], bins)
    unit, unclipped = _unit(pair.warped[pair.weight], moving_range)
    columns, fraction = _cell(1 + unit * (bins - 4), bins - 3)
    p = _histogram(rows, row_weights, columns - 1, _cubic_window(fraction), bins) / count
    ratio = _log_ratio(p)
    if gradient is not None and pair.slope is not None:
        # dMI/dp = log(p / (pf pm)) - 1, and the -1 has no effect because the weights of a voxel sum to one.
        score = torch.zeros_like(fraction)
        for i, row_weight in enumerate(row_weights):
            for j, vote_slope in enumerate(_cubic_slope(fraction)):
                score += row_weight * vote_slope * ratio[rows + i, columns - 1 + j]
        score *= unclipped * (bins - 4) / (moving_range[1] - moving_range[0])
        gradient[:, pair.weight] = (-score * pair.slope[:, pair.weight]).to(gradient.dtype)
    cost = count * (math.log(bins) - (p * ratio).sum())
    return torch.stack([cost, torch.full_like(cost, count)])


def _unit(values: Tensor, ends: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """Intensities mapped from their range to [0, 1] and clipped, and where they were not clipped."""
    unit = (values.to(exact_type(values.device)) - ends[0]) / (ends[1] - ends[0])
    return unit.clamp(0, 1), (unit >= 0) & (unit <= 1)


def _cell(position: Tensor, last: int) -> tuple[Tensor, Tensor]:
    """floor(position), at most `last`, and the remainder."""
    low = position.floor().clamp_(max=last)
    return low.long(), position - low


def _linear_window(unit: Tensor, bins: int) -> tuple[Tensor, list[Tensor]]:
    first, fraction = _cell(unit * (bins - 1), bins - 2)
    return first, [1 - fraction, fraction]


def _cubic_window(f: Tensor) -> list[Tensor]:
    """The cubic B-spline at the distances f + 1, f, 1 - f, 2 - f."""
    return [
        (1 - f) ** 3 / 6,
        (3 * f**3 - 6 * f**2 + 4) / 6,
        (-3 * f**3 + 3 * f**2 + 3 * f + 1) / 6,
        f**3 / 6,
    ]


def _cubic_slope(f: Tensor) -> list[Tensor]:
    """The derivatives of the four values of `_cubic_window` by f."""
    return [-((1 - f) ** 2) / 2, (3 * f**2 - 4 * f) / 2, (-3 * f**2 + 2 * f + 1) / 2, f**2 / 2]


def _histogram(
    rows: Tensor, row_weights: list[Tensor], columns: Tensor, column_weights: list[Tensor], bins: int
) -> Tensor:
    """Joint histogram (fixed bins, moving bins); `rows` and `columns` are the first bins of every voxel."""
    histogram = row_weights[0].new_zeros(bins * bins)
    for i, row_weight in enumerate(row_weights):
        for j, column_weight in enumerate(column_weights):
            votes = (rows + i) * bins + columns + j
            histogram += torch.bincount(votes, weights=row_weight * column_weight, minlength=bins * bins)
    return histogram.reshape(bins, bins)


def _log_ratio(p: Tensor) -> Tensor:
    """log(p / (pf pm)) where p > 0, zero elsewhere."""
    independent = p.sum(1, keepdim=True) * p.sum(0, keepdim=True)
    return torch.where(p > 0, torch.log(p / independent), 0.0)

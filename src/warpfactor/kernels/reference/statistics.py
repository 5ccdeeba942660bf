"""Statistics of many values: count, extremes, sums and percentiles."""

from collections.abc import Sequence

import torch
from torch import Tensor

from warpfactor.kernels.ops import Tally
from warpfactor.kernels.reference.interpolate import exact_type


@torch.no_grad()
def tally(values: Tensor, *, mask: Tensor | None = None, log_range: tuple[float, float] | None = None) -> Tally:
    """Count, extremes and sums of the values where the mask is not zero.

    Args:
        values: Floating-point, of any shape.
        mask: uint8 or bool, of the same shape; None counts all.
        log_range: Clip the values to this range and sum their natural logarithms instead of the values.
    """
    chosen = _chosen(values, mask)
    if not chosen.numel():
        return Tally(0, 0, float("inf"), float("-inf"), 0.0, 0.0)
    exact = chosen.to(exact_type(values.device))
    summed = exact if log_range is None else exact.clamp(*log_range).log()
    return Tally(
        count=chosen.numel(),
        nonpositive=int((chosen <= 0).sum()),
        minimum=float(chosen.min()),
        maximum=float(chosen.max()),
        total=float(summed.sum()),
        squares=float(summed.square().sum()),
    )


@torch.no_grad()
def percentiles(values: Tensor, ranks: Sequence[float], *, mask: Tensor | None = None) -> list[float]:
    """The percentiles of the values, by linear interpolation between the two nearest ones.

    Args:
        values: Floating-point, of any shape; none may be NaN.
        ranks: The percentages, from 0 to 100.
        mask: uint8 or bool, of the same shape, not 0 for at least one value; None counts all.
    """
    ordered = _chosen(values, mask).sort().values
    found = []
    for rank in ranks:
        low, high, share = neighbours(ordered.numel(), rank)
        first, second = float(ordered[low]), float(ordered[high])
        found.append(first + (second - first) * share)
    return found


def neighbours(count: int, rank: float) -> tuple[int, int, float]:
    """Indices of the two sorted values between which a percentile lies, and its fraction between them."""
    place = rank / 100 * (count - 1)
    return int(place), min(int(place) + 1, count - 1), place - int(place)


def _chosen(values: Tensor, mask: Tensor | None) -> Tensor:
    return values.flatten() if mask is None else values.masked_select(mask != 0)

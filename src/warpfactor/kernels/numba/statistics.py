"""CPU form of `tally` and `percentiles`: passes over the values, without copying or sorting them.

Order statistics come from two histograms. Every value is read as an integer that has the same order. The first
histogram counts all values by their upper 16 bits; the second one counts those with the upper bits of a wanted value by
their lower 16 bits.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numba import prange
from torch import Tensor

from warpfactor.kernels.numba._compile.jit import exclusive, inline, parallel, serial
from warpfactor.kernels.numba.arrays import NO_MASK, array, check_shape
from warpfactor.kernels.ops import Tally
from warpfactor.kernels.reference.statistics import neighbours

CHUNK = (
    1 << 16
)  # number of values per partial sum; a constant, so that the result does not depend on the number of threads
PARTS = 4  # number of parts of the values, each with its own histogram
DIGITS = 1 << 16
UNWANTED = -1


@serial
def _log_sums(values, mask, masked, low, high):  # type: ignore[no-untyped-def]
    """Sums of the logarithms of the clipped values, and of their squares."""
    total = squares = 0.0
    for i in range(values.size):
        if not masked or mask[i] != 0:
            s = np.float64(np.log(min(max(values[i], low), high)))
            total += s
            squares += s * s
    return total, squares


@parallel
def _tally(values, mask, masked, logarithm, low, high, out):  # type: ignore[no-untyped-def]
    """Figures of every chunk; the loop has no branches, so that it runs on the vector unit."""
    one = np.float32(1.0)
    for k in prange(out.shape[1]):
        part = values[k * CHUNK : (k + 1) * CHUNK]
        inside = mask[k * CHUNK : (k + 1) * CHUNK] if masked else mask
        count = folded = np.float32(0.0)
        total = squares = 0.0
        least, most = np.float32(np.inf), np.float32(-np.inf)
        for i in range(part.size):
            v = part[i]
            on = inside[i] != 0 if masked else True
            count += one if on else np.float32(0.0)
            folded += one if on & (v <= 0.0) else np.float32(0.0)
            least = min(least, v if on else np.float32(np.inf))
            most = max(most, v if on else np.float32(-np.inf))
            s = np.float64(v) if on else 0.0
            total += s
            squares += s * s
        if logarithm:
            total, squares = _log_sums(part, inside, masked, low, high)
        out[0, k], out[1, k], out[2, k], out[3, k], out[4, k], out[5, k] = count, folded, least, most, total, squares


@inline
def _sortable(bits):  # type: ignore[no-untyped-def]
    """The bits of a float32 as an integer that has the same order."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@parallel
def _upper(keys, mask, masked, counts):  # type: ignore[no-untyped-def]
    n, parts = keys.size, counts.shape[0]
    for part in prange(parts):
        for i in range(part * n // parts, (part + 1) * n // parts):
            if masked and mask[i] == 0:
                continue
            key = _sortable(keys[i])
            counts[part, (key >> 16) + 0x8000] += 1


@parallel
def _lower(keys, mask, masked, slots, counts):  # type: ignore[no-untyped-def]
    n, parts = keys.size, counts.shape[0]
    for part in prange(parts):
        for i in range(part * n // parts, (part + 1) * n // parts):
            if masked and mask[i] == 0:
                continue
            key = _sortable(keys[i])
            slot = slots[(key >> 16) + 0x8000]
            if slot >= 0:
                counts[part, slot, key & 0xFFFF] += 1


@exclusive
def tally(values: Tensor, *, mask: Tensor | None = None, log_range: tuple[float, float] | None = None) -> Tally:
    """Count, extremes and sums of the values where the mask is not zero; see the reference."""
    flat = array(values.to(torch.float32)).ravel()
    out = np.empty((6, -(-flat.size // CHUNK)))
    low, high = log_range or (0.0, 0.0)
    inside, masked = _flat_mask(mask, values), mask is not None
    _tally(flat, inside, masked, log_range is not None, np.float32(low), np.float32(high), out)
    if not out.shape[1]:
        return Tally(0, 0, float("inf"), float("-inf"), 0.0, 0.0)
    count, folded, least, most, total, squares = out
    sums = float(total.sum()), float(squares.sum())
    return Tally(int(count.sum()), int(folded.sum()), float(least.min()), float(most.max()), *sums)


@exclusive
def percentiles(values: Tensor, ranks: Sequence[float], *, mask: Tensor | None = None) -> list[float]:
    """The percentiles of the values; see the reference."""
    keys = array(values.to(torch.float32)).ravel().view(np.int32)
    inside, masked = _flat_mask(mask, values), mask is not None
    counts = np.zeros((PARTS, DIGITS), np.int64)
    _upper(keys, inside, masked, counts)
    upper = np.cumsum(counts.sum(0))
    places = [neighbours(int(upper[-1]), rank) for rank in ranks]
    numbers = np.unique([number for low, high, _ in places for number in (low, high)])
    digits, rows = np.unique(np.searchsorted(upper, numbers, "right"), return_inverse=True)
    slots = np.full(DIGITS, UNWANTED, np.int32)
    slots[digits] = np.arange(len(digits))
    counts = np.zeros((PARTS, len(digits), DIGITS), np.int32)
    _lower(keys, inside, masked, slots, counts)
    lower = np.cumsum(counts.sum(0, dtype=np.int64), axis=1)
    before = np.where(digits > 0, upper[digits - 1], 0)
    value = {
        int(number): _from_key(int(digits[row]), int(np.searchsorted(lower[row], number - before[row], "right")))
        for number, row in zip(numbers, rows, strict=True)
    }
    return [value[low] + (value[high] - value[low]) * share for low, high, share in places]


def _flat_mask(mask: Tensor | None, values: Tensor) -> Any:
    """The mask as a flat array of bytes; a bool tensor is not copied."""
    if mask is None:
        return NO_MASK.ravel()
    check_shape("mask", mask, values.shape)
    return array(mask if mask.dtype == torch.bool else mask.to(torch.uint8)).ravel().view(np.uint8)


def _from_key(upper: int, lower: int) -> float:
    """The float32 number whose sortable integer has these upper and lower 16 bits."""
    key = np.int32(((upper - 0x8000) << 16) | lower)
    return float(np.int32(key ^ ((key >> np.int32(31)) & np.int32(0x7FFFFFFF))).view(np.float32))

"""The span of every row: the range of x outside which the LNCC kernel has nothing to compute.

A window counts if the variance of the fixed image in it exceeds a floor. Where the image differs from one value, the
background, by less than half the square root of the floor, no window does, whatever the displacement. In the image of
a brain without its surroundings this is true of more than half of all voxels, and their gradient is zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import prange
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

from warpfactor.kernels.numba._compile.jit import exclusive, inline, parallel, serial, unsigned
from warpfactor.kernels.numba.arrays import array, mask_array

# Spans begin and end at multiples of this: the part of a row that fills no whole vector costs as much as a vector.
MULTIPLE = 8


def whole_spans(shape: Sequence[int]) -> Any:
    """(D, H, 2) int64: the spans of all rows, if every voxel needs computing."""
    depth, height, width = shape
    spans = np.zeros((depth, height, 2), np.int64)
    spans[..., 1] = width
    return spans


def contrast_spans(fixed: Tensor, mask: Tensor | None, *, radius: Sequence[int], floor: float) -> Any:
    """(D, H, 2) int64: first voxel and last voxel + 1 of every row; equal where a row has nothing to compute.

    A span contains every voxel on which the value of a window that counts, or its gradient, depends.

    Args:
        fixed: (D, H, W).
        mask: Of the same shape, 0 where a voxel does not count; None counts all.
        radius: Of the window, along z, y, x.
        floor: Variance that a window of the fixed image must exceed.
    """
    inside = mask_array("mask", mask, fixed)
    background = _background(fixed) if floor > 0 else math.nan
    if not math.isfinite(background):
        return whole_spans(fixed.shape)
    first, last = _foreground(fixed, inside, background, math.sqrt(floor) / 2)
    width = fixed.shape[2]
    rz, ry, rx = (2 * r for r in radius)  # the gradient at a voxel depends on the windows of its window
    least, most = -_largest_around(-first, rz, ry), _largest_around(last, rz, ry)
    low = np.maximum(least - rx, 0) // MULTIPLE * MULTIPLE
    high = np.minimum(-(-(most + rx) // MULTIPLE) * MULTIPLE, width)
    low[most == 0] = high[most == 0] = 0
    return np.stack([low, high], axis=-1)


def _largest_around(values: Any, rz: int, ry: int) -> Any:
    """For every row, the largest value within rz planes and ry rows of it."""
    for axis, r in ((0, rz), (1, ry)):
        edges = [(r, r) if axis == a else (0, 0) for a in (0, 1)]
        wide = np.pad(values, edges, mode="edge")
        values = sliding_window_view(wide, 2 * r + 1, axis=axis).max(axis=-1)
    return values


@exclusive
def _foreground(fixed: Tensor, mask: Any, background: float, limit: float) -> tuple[Any, Any]:
    """For every row, the first and the last + 1 of the voxels that differ from the background by more than `limit`."""
    depth, height, _ = fixed.shape
    first, last = np.empty((depth, height), np.int64), np.empty((depth, height), np.int64)
    _ends_of_rows(array(fixed), mask, background - limit, background + limit, first, last)
    return first, last


@parallel
def _ends_of_rows(image, mask, low, high, first, last):  # type: ignore[no-untyped-def]
    """Go inwards from both ends of every row; a mask of one voxel stands for none."""
    D, H, W = image.shape
    counts = mask.size == 1
    for row in prange(D * H):
        z = row // H
        y = row - z * H
        line = image[z, y]
        x = 0
        while x < W and not ((line[x] > high or line[x] < low) and (counts or mask[z, y, x] > 0)):
            x += 1
        first[z, y] = x
        end = W if x < W else 0
        while end > x and not ((line[end - 1] > high or line[end - 1] < low) and (counts or mask[z, y, end - 1] > 0)):
            end -= 1
        last[z, y] = end


def _background(fixed: Tensor) -> float:
    """The most frequent value of the eight corners of the image."""
    corners = fixed[:: max(1, fixed.shape[0] - 1), :: max(1, fixed.shape[1] - 1), :: max(1, fixed.shape[2] - 1)]
    values, counts = np.unique(array(corners), return_counts=True)
    return float(values[counts.argmax()])


@inline
def span_of(spans, z, y):  # type: ignore[no-untyped-def]
    """The span of row (z, y); an empty one for planes outside the image."""
    if (z < 0) | (z >= spans.shape[0]):
        return 0, 0
    return spans[z, y, 0], spans[z, y, 1]


@inline
def hull(x0, x1, other):  # type: ignore[no-untyped-def]
    """The shortest span that contains the span (x0, x1) and another one."""
    if other[0] >= other[1]:
        return x0, x1
    if x0 >= x1:
        return other
    return min(x0, other[0]), max(x1, other[1])


@serial
def plane_hulls(spans, z0, z1, y0, y1, low, high):  # type: ignore[no-untyped-def]
    """The ends low[z], high[z] of the shortest span that contains those of rows y0 <= y < y1, for z0 <= z < z1."""
    for z in range(z0, z1):
        a, b = 0, 0
        for y in range(y0, y1):
            a, b = hull(a, b, (spans[z, y, 0], spans[z, y, 1]))
        low[z], high[z] = a, b


@serial
def clear_outside(maps, y, x0, x1):  # type: ignore[no-untyped-def]
    """Set row y of every map to zero outside x0 <= x < x1."""
    for q in range(maps.shape[0]):
        line = maps[q, y]
        for x in range(unsigned(min(x0, x1))):
            line[x] = 0.0
        for x in range(unsigned(max(x0, x1)), unsigned(line.shape[0])):
            line[x] = 0.0

"""Where a row has windows that count: the spans of x that the LNCC kernel works on, one per plane and chunk of rows.

A window counts if the fixed image varies in it by more than a floor. Where the image stays within half the floor's root
of one value no window does, whatever the warp. In an image of a brain alone that is more than half of all voxels, and
their gradient is zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

from .jit import array, inline, mask_array, offset, serial

Spans: TypeAlias = Any  # (D, chunks, 2) int64: first voxel and the one after the last, equal where there is none
EDGE = 8  # spans begin and end at multiples of it: rests of a vector cost as much as whole ones
CHUNKS = 8  # of rows; fixed, so that the result does not depend on the number of threads


def whole_spans(shape: Sequence[int]) -> Spans:
    """Every voxel of every row."""
    depth, height, width = shape
    spans = np.zeros((depth, min(height, CHUNKS), 2), np.int64)
    spans[..., 1] = width
    return spans


def check_spans(spans: Spans, shape: Sequence[int]) -> None:
    """Raise unless the spans lie inside images of that shape."""
    depth, height, width = shape
    if spans.shape != (depth, min(height, CHUNKS), 2) or spans.min() < 0 or spans.max() > width:
        raise ValueError("the spans were made for another image")


def lncc_spans(fixed: Tensor, mask: Tensor | None, *, radius: Sequence[int], flat: float) -> Spans:
    """Spans that hold every voxel on which a window that counts, or its gradient, depends.

    Args:
        fixed: (D, H, W).
        mask: of the same shape, 0 where a voxel does not count; None counts all.
        radius: of the windows.
        flat: variance that a window of the fixed image must exceed.
    """
    if not flat > 0:
        return whole_spans(fixed.shape)
    background = _background(fixed)
    if not math.isfinite(background):
        return whole_spans(fixed.shape)
    first, last = _shown(fixed, mask, background, math.sqrt(flat) / 2)
    depth, height, width = fixed.shape
    rz, ry, rx = (2 * r for r in radius)  # as far as a window's neighbours' windows
    chunks = min(height, CHUNKS)
    spans = np.zeros((depth, chunks, 2), np.int64)
    for k in range(chunks):
        y0, y1 = k * height // chunks, (k + 1) * height // chunks
        rows = slice(max(0, y0 - ry), y1 + ry)
        low, high = first[:, rows].min(axis=1), last[:, rows].max(axis=1)
        for z in range(depth):
            planes = slice(max(0, z - rz), z + rz + 1)
            x0, x1 = max(0, int(low[planes].min()) - rx), int(high[planes].max()) + rx
            if x0 < x1:
                spans[z, k] = x0 // EDGE * EDGE, min(width, -(-x1 // EDGE) * EDGE)
    return spans


def _shown(fixed: Tensor, mask: Tensor | None, background: float, limit: float) -> tuple[Any, Any]:
    """Per row the first voxel that differs from the background by more than `limit`, and the one after the last."""
    depth, height, width = fixed.shape
    image, where = array(fixed), mask_array(mask)
    first = np.full((depth, height), width, np.int64)
    last = np.zeros((depth, height), np.int64)
    for z in range(depth):
        shown = (image[z] > background + limit) | (image[z] < background - limit)
        if mask is not None:
            shown &= where[z] > 0
        rows = shown.any(axis=1)
        first[z, rows] = shown[rows].argmax(axis=1)
        last[z, rows] = width - shown[rows, ::-1].argmax(axis=1)
    return first, last


def _background(fixed: Tensor) -> float:
    """The value that most corners have."""
    corners = fixed[:: max(1, fixed.shape[0] - 1), :: max(1, fixed.shape[1] - 1), :: max(1, fixed.shape[2] - 1)]
    values, counts = np.unique(array(corners), return_counts=True)
    return float(values[counts.argmax()])


@inline
def rows_of(k, height):  # type: ignore[no-untyped-def]
    """First row of chunk k, and the one after its last."""
    chunks = min(height, CHUNKS)
    return k * height // chunks, (k + 1) * height // chunks


@inline
def span_of(spans, z, k):  # type: ignore[no-untyped-def]
    """First voxel and the one after the last in the rows of chunk k of plane z; none outside the image."""
    if (z < 0) | (z >= spans.shape[0]):
        return 0, 0
    return spans[z, k, 0], spans[z, k, 1]


@serial
def clear_beyond(maps, y, before, x0, x1):  # type: ignore[no-untyped-def]
    """Set maps[:, y, x] to zero for x in the span `before` and not in x0 <= x < x1."""
    end, start = min(before[1], x0 if x0 < x1 else before[1]), max(before[0], x1 if x0 < x1 else before[1])
    for q in range(maps.shape[0]):
        for x in range(offset(before[0]), offset(max(end, before[0]))):
            maps[q, y, x] = 0.0
        for x in range(offset(start), offset(max(before[1], start))):
            maps[q, y, x] = 0.0

"""Where a row has windows that count: the spans of x that the LNCC kernel works on, one per row.

A window counts if the fixed image varies in it by more than a floor. Where the image stays within half the floor's root
of one value no window does, whatever the warp. In an image of a brain alone that is more than half of all voxels, and
their gradient is zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

from warpfactor.kernels.numba._compile.jit import array, inline, mask_array, offset, serial
from warpfactor.kernels.numba.lncc.tiles import make_seams, make_tiles

EDGE = 8  # spans begin and end at multiples of it: rests of a vector cost as much as whole ones


class Spans(NamedTuple):
    """Where the kernel has something to do.

    Attributes:
        rows: (D, H, 2) int64, first voxel of a row and the one after the last; equal where there is none.
        tiles, seams: what tiles.py makes of it.
    """

    rows: Any
    tiles: Any
    seams: Any


def _spans(rows: Any, shape: Sequence[int], radius: Sequence[int], *, exact: bool) -> Spans:
    tiles = make_tiles(rows[..., 1] - rows[..., 0], shape, radius, exact=exact)
    return Spans(rows, tiles, make_seams(tiles, shape[1], (2 if exact else 1) * radius[1]))


def whole_spans(shape: Sequence[int], radius: Sequence[int], *, exact: bool = True) -> Spans:
    """Every voxel of every row."""
    depth, height, width = shape
    rows = np.zeros((depth, height, 2), np.int64)
    rows[..., 1] = width
    return _spans(rows, shape, radius, exact=exact)


def check_spans(spans: Spans, shape: Sequence[int]) -> None:
    """Raise unless the spans lie inside images of that shape."""
    depth, height, width = shape
    rows, tiles, seams = spans
    fits = rows.shape == (depth, height, 2) and rows.min() >= 0 and rows.max() <= width
    area = ((tiles[:, 1] - tiles[:, 0]) * (tiles[:, 3] - tiles[:, 2])).sum()
    listed = seams[seams >= 0]
    fits &= seams.shape == (height,) and bool((listed == np.arange(listed.size)).all())
    if not fits or tuple(tiles[:, 1::2].max(axis=0)) != (depth, height) or area != depth * height:
        raise ValueError("the spans were made for another image")


def lncc_spans(fixed: Tensor, mask: Tensor | None, *, radius: Sequence[int], flat: float, exact: bool = True) -> Spans:
    """Spans that hold every voxel on which a window that counts, or its gradient, depends.

    Args:
        fixed: (D, H, W).
        mask: of the same shape, 0 where a voxel does not count; None counts all.
        radius: of the windows.
        flat: variance that a window of the fixed image must exceed.
        exact: whether neighbours' windows will be in the gradient; a cut between tiles costs less if they are not.
    """
    where = mask_array("mask", mask, fixed)
    background = _background(fixed) if flat > 0 else math.nan
    if not math.isfinite(background):
        return whole_spans(fixed.shape, radius, exact=exact)
    first, last = _shown(fixed, where, background, math.sqrt(flat) / 2)
    width = fixed.shape[2]
    rz, ry, rx = (2 * r for r in radius)  # as far as a window's neighbours' windows
    least, most = -_most_around(-first, rz, ry), _most_around(last, rz, ry)
    low = np.maximum(least - rx, 0) // EDGE * EDGE
    high = np.minimum(-(-(most + rx) // EDGE) * EDGE, width)
    low[most == 0] = high[most == 0] = 0
    rows = np.stack([low, high], axis=-1)
    return _spans(rows, fixed.shape, radius, exact=exact)


def _most_around(values: Any, rz: int, ry: int) -> Any:
    """The largest value within rz planes and ry rows."""
    for axis, r in ((0, rz), (1, ry)):
        edges = [(r, r) if axis == a else (0, 0) for a in (0, 1)]
        wide = np.pad(values, edges, mode="edge")
        values = sliding_window_view(wide, 2 * r + 1, axis=axis).max(axis=-1)
    return values


def _shown(fixed: Tensor, mask: Any, background: float, limit: float) -> tuple[Any, Any]:
    """Per row the first voxel that differs from the background by more than `limit`, and the one after the last."""
    depth, height, width = fixed.shape
    image = array(fixed)
    first = np.full((depth, height), width, np.int64)
    last = np.zeros((depth, height), np.int64)
    for z in range(depth):
        shown = (image[z] > background + limit) | (image[z] < background - limit)
        if mask.size > 1:
            shown &= mask[z] > 0
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
def span_of(rows, z, y):  # type: ignore[no-untyped-def]
    """First voxel of row (z, y) and the one after the last; none outside the image."""
    if (z < 0) | (z >= rows.shape[0]):
        return 0, 0
    return rows[z, y, 0], rows[z, y, 1]


@inline
def either(x0, x1, other):  # type: ignore[no-untyped-def]
    """The shortest span that holds two."""
    if other[0] >= other[1]:
        return x0, x1
    if x0 >= x1:
        return other
    return min(x0, other[0]), max(x1, other[1])


@serial
def hulls(rows, z0, z1, y0, y1, low, high):  # type: ignore[no-untyped-def]
    """Ends, low[z] and high[z], of the shortest span that holds those of rows y0 <= y < y1; for z0 <= z < z1."""
    for z in range(z0, z1):
        a, b = 0, 0
        for y in range(y0, y1):
            a, b = either(a, b, (rows[z, y, 0], rows[z, y, 1]))
        low[z], high[z] = a, b


@serial
def clear_beyond(maps, y, x0, x1):  # type: ignore[no-untyped-def]
    """Set row y of every map to zero but for x0 <= x < x1."""
    for q in range(maps.shape[0]):
        line = maps[q, y]
        for x in range(offset(min(x0, x1))):
            line[x] = 0.0
        for x in range(offset(max(x0, x1)), offset(line.shape[0])):
            line[x] = 0.0

"""Blocks of an image, each of which one thread works on: how many there are, and where the image is cut.

A block is a range of planes and a range of rows. What a thread keeps of a block should stay in its cache, and there
should be blocks for all threads. On the other hand windows reach beyond a block, so at every cut both sides compute
some rows twice. (Interpolation, the most expensive part, is done once for both: these rows are called a seam.) Cuts
between rows are preferred to cuts between planes, since less has to be kept of a block of few rows.

At 192³ on two cores of a Zen 4, times in ns per voxel with 2, 4 and 8 blocks were: for gradients that look at the
window centred on a voxel only, 8.2, 7.6, 7.6 (window 7) and 8.9, 8.2, 8.3 (window 15); for exact gradients 10.7, 10.1,
10.6 and 11.2, 12.0, 12.4.

Blocks depend on the image and the metric and never on the number of threads, so the result does not depend on it
either. More threads than blocks are of no use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from warpfactor.kernels.numba._compile.jit import inline

# Distances are in units of the window's radius.
CUT_DISTANCE = 16  # least distance of two cuts between rows, for exact gradients
CUT_DISTANCE_CENTRE = 6  # the same for other gradients, which have half as much to compute twice
THICKNESS = 100  # least number of planes for an additional cut between planes
MOST_PARTS = 8  # greatest number of parts along y, unless the limits on memory below require more
CACHE_BYTES = 10 << 20  # what a thread should keep of a block at most, so that it fits into a cache
CACHE_BYTES_SLICE = 40 << 20  # the same for a single slice, whose rows are used only once


def make_blocks(work: Any, shape: Sequence[int], radius: Sequence[int], *, exact: bool = True) -> Any:
    """(number, 4) int64: first plane, last plane + 1, first row, last row + 1 of every block.

    Args:
        work: (D, H), the cost of each row of the image; blocks cost about the same.
        shape: (D, H, W) of the image.
        radius: Of the window, along z, y, x.
        exact: Whether the gradient will take all windows that contain a voxel into account.
    """
    distance = CUT_DISTANCE if exact else CUT_DISTANCE_CENTRE
    planes, rows = int(np.count_nonzero(work.any(axis=1))), int(np.count_nonzero(work.any(axis=0)))
    along_z = 2 if planes >= THICKNESS * max(radius[0], 1) else 1
    along_y = 1
    while 2 * along_y <= MOST_PARTS and rows >= 2 * along_y * distance * max(radius[1], 1):
        along_y *= 2
    limit = CACHE_BYTES if planes > 1 else CACHE_BYTES_SLICE
    while rows * _row_bytes(shape[2], radius[0]) > along_y * limit and rows > 2 * along_y * 8 * radius[1]:
        along_y *= 2
    if along_z * along_y == 1:
        along_z, along_y = (2, 1) if planes * max(radius[1], 1) > 2 * rows * max(radius[0], 1) else (1, 2)
    z, y = _cuts(work.sum(axis=1), along_z), _cuts(work.sum(axis=0), along_y)
    blocks = [(*z[i : i + 2], *y[j : j + 2]) for i in range(len(z) - 1) for j in range(len(y) - 1)]
    return np.array(blocks, np.int64)


def make_seams(blocks: Any, height: int, reach: int) -> Any:
    """(H,) int64: a consecutive number for every row at most `reach` from a cut between rows, -1 for all others."""
    seams = np.full(height, -1, np.int64)
    for cut in sorted({int(y) for y in blocks[:, 2]} - {0}):
        seams[max(0, cut - reach) : cut + reach] = 0
    seams[seams == 0] = np.arange(np.count_nonzero(seams == 0))
    return seams


def most_rows(blocks: Any, reach: int, height: int) -> int:
    """Number of rows of the largest block, with `reach` more on both sides."""
    return int((np.minimum(blocks[:, 3] + reach, height) - np.maximum(blocks[:, 2] - reach, 0)).max())


def _row_bytes(width: int, rz: int) -> int:
    """Bytes that the kernel keeps of one row of a block; see `Buffers` in plan.py."""
    K = 2 * rz + 1
    return width * (4 * K + 48 + 12 * K + 24 + 4 * (rz + 1))


def _cuts(work: Any, parts: int) -> list[int]:
    """Ends of parts that take about the same work, at most this many."""
    done = np.cumsum(work, dtype=np.float64)
    inner = np.searchsorted(done, done[-1] * np.arange(1, parts) / parts) + 1 if done[-1] > 0 else []
    return sorted({0, *(int(i) for i in inner), len(work)})


@inline
def widened(start, stop, reach, size):  # type: ignore[no-untyped-def]
    """The range with `reach` more on both sides, cut at the border of the image."""
    return max(0, start - reach), min(size, stop + reach)

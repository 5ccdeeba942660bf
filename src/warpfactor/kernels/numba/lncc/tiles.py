"""Tiles of an image for the LNCC kernel: how many there are, and where they are cut.

A tile is a range of planes and of rows. What a thread keeps of it should stay in the cache, and there should be tiles
for all threads. But windows reach beyond a tile, so every cut is paid for by rows that both sides compute; only
sampling, the most expensive part, is done once for both, for the rows of a seam. Cuts between rows are the better ones,
since less is kept of a tile of few rows. At 192³ on two cores of a Zen 4, ns a voxel with 2, 4 and 8 tiles: gradients
without the neighbours' windows 8.2, 7.6, 7.6 (window 7) and 8.9, 8.2, 8.3 (window 15); exact ones 10.7, 10.1, 10.6 and
11.2, 12.0, 12.4. The tiles depend on the image and the metric only, never on the number of threads, so the result does
not either; more threads than tiles are of no use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from warpfactor.kernels.numba._compile.jit import inline

APART = 16  # radii between two cuts of rows at least, for exact gradients
APART_LOOSE = 6  # the same for the others, which have half as much to compute twice
THICK = 100  # radii of planes from which they are cut in two as well
MOST = 8  # parts of the rows, unless more are needed for what follows
KEPT = 10 << 20  # bytes that a thread should keep of a tile: what fits into a cache
ONCE = 40 << 20  # the same for a single plane, whose rows are not met again


def make_tiles(work: Any, shape: Sequence[int], radius: Sequence[int], *, exact: bool = True) -> Any:
    """(number, 4) int64: first plane and the one after the last, first row and the one after the last.

    Args:
        work: (D, H), what each row of the image costs; tiles cost about the same.
        shape: (D, H, W) of the image.
        radius: of the windows.
        exact: whether neighbours' windows will be in the gradient.
    """
    apart = APART if exact else APART_LOOSE
    planes, rows = int(np.count_nonzero(work.any(axis=1))), int(np.count_nonzero(work.any(axis=0)))
    across = 2 if planes >= THICK * max(radius[0], 1) else 1
    along = 1
    while 2 * along <= MOST and rows >= 2 * along * apart * max(radius[1], 1):
        along *= 2
    most = KEPT if planes > 1 else ONCE
    while rows * _row_bytes(shape[2], radius[0]) > along * most and rows > 2 * along * 8 * radius[1]:
        along *= 2
    if across * along == 1:
        across, along = (2, 1) if planes * max(radius[1], 1) > 2 * rows * max(radius[0], 1) else (1, 2)
    z, y = _cuts(work.sum(axis=1), across), _cuts(work.sum(axis=0), along)
    tiles = [(*z[i : i + 2], *y[j : j + 2]) for i in range(len(z) - 1) for j in range(len(y) - 1)]
    return np.array(tiles, np.int64)


def make_seams(tiles: Any, height: int, reach: int) -> Any:
    """(H,) int64: numbers of the rows that are at most `reach` from a cut between tiles, -1 for all others."""
    seams = np.full(height, -1, np.int64)
    for cut in sorted({int(y) for y in tiles[:, 2]} - {0}):
        seams[max(0, cut - reach) : cut + reach] = 0
    seams[seams == 0] = np.arange(np.count_nonzero(seams == 0))
    return seams


def _row_bytes(width: int, rz: int) -> int:
    """What the kernel keeps of a row of a tile: see the room in lncc.py."""
    K = 2 * rz + 1
    return width * (4 * K + 48 + 12 * K + 24 + 4 * (rz + 1))


def _cuts(work: Any, parts: int) -> list[int]:
    """Borders of that many parts, or fewer, of about the same work."""
    done = np.cumsum(work, dtype=np.float64)
    inner = np.searchsorted(done, done[-1] * np.arange(1, parts) / parts) + 1 if done[-1] > 0 else []
    return sorted({0, *(int(i) for i in inner), len(work)})


def most_rows(tiles: Any, reach: int, height: int) -> int:
    """Rows of the largest tile, with as many as `reach` on both sides."""
    return int((np.minimum(tiles[:, 3] + reach, height) - np.maximum(tiles[:, 2] - reach, 0)).max())


@inline
def widened(start, stop, reach, size):  # type: ignore[no-untyped-def]
    """A range with `reach` more on both sides, inside the image."""
    return max(0, start - reach), min(size, stop + reach)

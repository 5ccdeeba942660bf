"""CPU form of `tile`: steps from the outer products of gradients, averaged over a window around every voxel.

Window sums are running sums along all axes, so their cost does not depend on the size of the window. They are kept for
one plane, and for a ring of as many planes as the window has along z; nothing of the field's size is allocated.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import prange
from torch import Tensor

from warpfactor.kernels.numba._compile.jit import exclusive, inline, parallel, serial, unsigned
from warpfactor.kernels.numba.arrays import check_field, target
from warpfactor.kernels.numba.descent import figures, single_precision
from warpfactor.kernels.numba.windows import window_rows
from warpfactor.kernels.reference import descent as reference

ENTRIES = 6  # different entries of a symmetric 3x3 matrix: zz, zy, zx, yy, yx, xx
CHUNKS = 8  # number of chunks of rows; a constant, so that the result does not depend on the number of threads
FLOOR, TINY = reference.FLOOR, reference.TINY


@inline
def _padded(rows, n, r):  # type: ignore[no-untyped-def]
    """`rows` lines of zeros, for n voxels with r more at both ends."""
    return np.zeros((rows, n + 2 * r))


@serial
def _row_sums(src, r, taps, lines, dst, y):  # type: ignore[no-untyped-def]
    """Box sums along x of the three rows src[:, 0] into dst[:, y]; `lines` comes from `_padded(6, n, r)`."""
    pad, n = unsigned(r), unsigned(src.shape[2])
    for q in range(3):
        for x in range(n):
            lines[q, x + pad] = src[q, 0, x]
    window_rows(lines[:3], r, taps, True, lines[3:], 0, n)
    for q in range(3):
        for x in range(n):
            dst[q, y, x] = np.float32(lines[3 + q, x])


@serial
def _column_sums(src, y, fresh, r, acc, rows):  # type: ignore[no-untyped-def]
    """Box sums along y at row y of every plane in src into rows[:, 0].

    `acc` carries the running sums from row to row; `fresh` starts them anew at the first row of a chunk.
    """
    Q, H, W = src.shape
    n = unsigned(W)
    lo, hi = max(0, y - r), min(H - 1, y + r)
    enters, leaves = unsigned(hi), unsigned(max(0, lo - 1))
    for q in range(unsigned(Q)):
        if fresh:
            for x in range(n):
                acc[q, x] = 0.0
            for j in range(lo, hi + 1):
                line = unsigned(j)
                for x in range(n):
                    acc[q, x] += src[q, line, x]
        else:
            plus, minus = (1.0 if y + r < H else 0.0), (1.0 if y > r else 0.0)
            for x in range(n):
                acc[q, x] += plus * src[q, enters, x] - minus * src[q, leaves, x]
        for x in range(n):
            rows[q, 0, x] = np.float32(acc[q, x])


@serial
def _plane_sums(rows, ring, y, z, total):  # type: ignore[no-untyped-def]
    """Put rows[:, 0], which is row y of plane z, into the ring of planes and update the box sums along z."""
    Q, K, _, W = ring.shape
    line, slot = unsigned(y), unsigned(z % K)
    for q in range(unsigned(Q)):
        for x in range(unsigned(W)):
            entered = rows[q, 0, x]
            total[q, line, x] += np.float64(entered) - np.float64(ring[q, slot, line, x])
            ring[q, slot, line, x] = entered


@inline
def _solve3(zz, zy, zx, yy, yx, xx, a, b, c):  # type: ignore[no-untyped-def]
    """Solution of a symmetric positive definite 3x3 system by its adjugate."""
    czz = yy * xx - yx * yx
    czy = zx * yx - zy * xx
    czx = zy * yx - zx * yy
    cyy = zz * xx - zx * zx
    cyx = zy * zx - zz * yx
    cxx = zz * yy - zy * zy
    inv = 1.0 / (zz * czz + zy * czy + zx * czx)
    return (
        (czz * a + czy * b + czx * c) * inv,
        (czy * a + cyy * b + cyx * c) * inv,
        (czx * a + cyx * b + cxx * c) * inv,
    )


@inline
def _inside(i, k, n):  # type: ignore[no-untyped-def]
    """Number of voxels of the window from i - k // 2 to i + (k - 1) // 2 that lie in the image."""
    return min(n - 1, i + (k - 1) // 2) - max(0, i - k // 2) + 1


@serial
def _add_behind(rows, src, y, k):  # type: ignore[no-untyped-def]
    """Add what a window of even edge k has beyond one of edge k - 1 to rows[:, 0]: row y - k // 2 of src."""
    if k % 2 == 0 and y >= k // 2:
        for q in range(rows.shape[0]):
            for x in range(rows.shape[2]):
                rows[q, 0, x] += src[q, y - k // 2, x]


@serial
def _add_left(src, dst, y, k):  # type: ignore[no-untyped-def]
    """The same along x: add src[:, 0], shifted by k // 2 voxels, to dst[:, y]."""
    if k % 2 == 0:
        for q in range(src.shape[0]):
            for x in range(k // 2, src.shape[2]):
                dst[q, y, x] += src[q, 0, x - k // 2]


@serial
def _products(g, weights, z, y, low, high):  # type: ignore[no-untyped-def]
    """The six entries of ĝ ĝᵀ along row (z, y), three of them in `low` and three in `high`."""
    wz, wy, wx = weights
    for x in range(g.shape[3]):
        a, b, c = wz * g[0, z, y, x], wy * g[1, z, y, x], wx * g[2, z, y, x]
        low[0, 0, x] = a * a
        low[1, 0, x] = a * b
        low[2, 0, x] = a * c
        high[0, 0, x] = b * b
        high[1, 0, x] = b * c
        high[2, 0, x] = c * c


@serial
def _solve_row(g, Z, z, y, counts, damping, weights, residual):  # type: ignore[no-untyped-def]
    """Turn the gradients of row (z, y) into steps, and return their largest |v̂|² and -Σ ĝ·v̂.

    Z holds the complete window sums of ĝ ĝᵀ; `counts` is the edge along x and the number of rows in the window.
    """
    wz, wy, wx = weights
    kx, per_line = counts
    n = g.shape[3]
    largest = 0.0
    decrease = 0.0
    for x in range(n):
        k = 1.0 / (per_line * _inside(x, kx, n))
        a, b, c = wz * g[0, z, y, x], wy * g[1, z, y, x], wx * g[2, z, y, x]
        lam = max(damping, FLOOR * k * (Z[0, y, x] + Z[3, y, x] + Z[5, y, x]), TINY)
        va, vb, vc = _solve3(
            k * Z[0, y, x] + lam,
            k * Z[1, y, x],
            k * Z[2, y, x],
            k * Z[3, y, x] + lam,
            k * Z[4, y, x],
            k * Z[5, y, x] + lam,
            np.float64(a),
            np.float64(b),
            np.float64(c),
        )
        va, vb, vc = -residual * va, -residual * vb, -residual * vc
        largest = max(largest, va * va + vb * vb + vc * vc)
        decrease -= a * va + b * vb + c * vc
        g[0, z, y, x] = wz * va
        g[1, z, y, x] = wy * vb
        g[2, z, y, x] = wx * vc
    return largest, decrease


@parallel
def _tile(g, size, damping, weights, residual, taps):  # type: ignore[no-untyped-def]
    """Work along z plane by plane: the gradient of a plane is overwritten once no window needs it any more."""
    _, D, H, W = g.shape
    kz, ky, kx = size
    ahead, ry, rx = (kz - 1) // 2, (ky - 1) // 2, (kx - 1) // 2
    T = np.zeros((ENTRIES, H, W), np.float32)
    S = np.zeros((ENTRIES, kz, H, W), np.float32)
    Z = np.zeros((ENTRIES, H, W))
    chunks = min(H, CHUNKS)
    stats = np.zeros((2, D, H))
    for z in range(D + ahead):
        for y in prange(H):
            if z < D:
                low = np.empty((3, 1, W), np.float32)
                high = np.empty((3, 1, W), np.float32)
                _products(g, weights, z, y, low, high)
                lines = _padded(6, W, rx)
                _row_sums(low, rx, taps, lines, T[:3], y)
                _row_sums(high, rx, taps, lines, T[3:], y)
                _add_left(low, T[:3], y, kx)
                _add_left(high, T[3:], y, kx)
            else:
                T[:, y, :] = 0.0
        zo = z - ahead
        for k in prange(chunks):
            y0, y1 = k * H // chunks, (k + 1) * H // chunks
            acc = np.empty((ENTRIES, W))
            rows = np.empty((ENTRIES, 1, W), np.float32)
            for y in range(y0, y1):
                _column_sums(T, y, y == y0, ry, acc, rows)
                _add_behind(rows, T, y, ky)
                _plane_sums(rows, S, y, z, Z)
                if zo >= 0:
                    lines = _inside(zo, kz, D) * _inside(y, ky, H)
                    a, b = _solve_row(g, Z, zo, y, (kx, lines), damping, weights, residual)
                    stats[0, zo, y] = a
                    stats[1, zo, y] = b
    return stats


@exclusive
def tile(
    gradient: Tensor,
    *,
    size: Sequence[int],
    damping: float,
    weights: Sequence[float],
    residual: float = 1.0,
) -> tuple[float, float]:
    """Replace the gradient by a step with the curvature averaged over a window; see the reference."""
    check_field("gradient", gradient)
    edges: Any = tuple(min(int(k), 2 * n - 1) for k, n in zip(size, gradient.shape[1:], strict=True))
    stats = _tile(target(gradient), edges, float(damping), single_precision(weights), float(residual), np.ones(1))
    return figures(stats.reshape(2, -1))

"""Window sums along one axis: along x for LNCC, and boxes along all axes for the pooled curvature of descent.py.

A large box is a running sum, in double precision, so its cost does not depend on its size. Indices are unsigned
(`offset`): a sum of signed ones might be negative, and the test for that keeps a loop off the vector unit.
"""

import math
from typing import Any

import numpy as np

from warpfactor.kernels.numba._compile.jit import inline, offset, ordered, serial
from warpfactor.kernels.numba.running import LANES, sum_on


def gaussian_taps(radius: int) -> Any:
    """exp(-k²/2s²) for k = -radius..radius with s = a sixth of the window; not normalised."""
    s = (2 * radius + 1) / 6
    return np.array([math.exp(-0.5 * (k / s) ** 2) for k in range(-radius, radius + 1)])


@inline
def padded(rows, n, r):  # type: ignore[no-untyped-def]
    """`rows` lines of n voxels with r zeros at both ends."""
    return np.zeros((rows, n + 2 * r))


@ordered
def _small_window(line, r, out, x0, x1):  # type: ignore[no-untyped-def]
    """out[x] = sum of line[x : x + 2r + 1] for r = 1 or 2, in one loop on the vector unit."""
    one, two, three = offset(1), offset(2), offset(3)
    if r == 1:
        for x in range(x0, x1):
            out[x] = line[x] + (line[x + one] + line[x + two])
    else:
        for x in range(x0, x1):
            y = x + one
            out[x] = line[x] + ((line[y] + line[y + one]) + (line[y + two] + line[y + three]))


@ordered
def _large_windows(lines, r, out, x0, x1):  # type: ignore[no-untyped-def]
    """The same for three lines and any r, as running sums; the first and the last voxels of all three at once."""
    a, b, c = lines[0], lines[1], lines[2]
    p, q, s = out[0], out[1], out[2]
    one, size, lanes = offset(1), offset(2 * r), offset(LANES)
    t, u, v = 0.0, 0.0, 0.0
    for x in range(x0, x0 + size + one):
        t += a[x]
        u += b[x]
        v += c[x]
    p[x0], q[x0], s[x0] = t, u, v
    for x in range(x0 + one, min(x0 + lanes, x1)):
        t += a[x + size] - a[x - one]
        u += b[x + size] - b[x - one]
        v += c[x + size] - c[x - one]
        p[x], q[x], s[x] = t, u, v
    left = x0 + lanes
    if left + lanes <= x1:
        sum_on(a, size, p, x0, x1)
        sum_on(b, size, q, x0, x1)
        left = sum_on(c, size, s, x0, x1)
    for x in range(left, x1):
        p[x] = p[x - one] + (a[x + size] - a[x - one])
        q[x] = q[x - one] + (b[x + size] - b[x - one])
        s[x] = s[x - one] + (c[x + size] - c[x - one])


@serial
def window_rows(lines, r, taps, box, out, x0, x1):  # type: ignore[no-untyped-def]
    """out[q, x] = sum over the window of lines[q, x : x + 2r + 1]; three or six lines, in double precision."""
    x0, x1 = offset(x0), offset(x1)
    if x0 >= x1:
        return
    if box & (r > 2):
        for q in range(0, lines.shape[0], 3):
            _large_windows(lines[q : q + 3], r, out[q : q + 3], x0, x1)
        return
    for q in range(lines.shape[0]):
        line, sums = lines[q], out[q]
        if box & (r > 0):
            _small_window(line, r, sums, x0, x1)
        else:
            for x in range(x0, x1):
                s = 0.0
                for k in range(offset(2 * r + 1)):
                    s += taps[k] * line[x + k]
                sums[x] = s


@serial
def row_sums(src, r, taps, lines, dst, y):  # type: ignore[no-untyped-def]
    """Box sums along x of the three rows src[:, 0] into dst[:, y]; `lines` from padded(6, n, r)."""
    pad, n = offset(r), offset(src.shape[2])
    for q in range(3):
        for x in range(n):
            lines[q, x + pad] = src[q, 0, x]
    window_rows(lines[:3], r, taps, True, lines[3:], 0, n)
    for q in range(3):
        for x in range(n):
            dst[q, y, x] = np.float32(lines[3 + q, x])


@serial
def column_sums(src, y, fresh, r, acc, rows):  # type: ignore[no-untyped-def]
    """Box sums along y at row y of every plane in src into rows[:, 0].

    `acc` carries the running sums from row to row; `fresh` starts them anew, at the first row of a chunk.
    """
    Q, H, W = src.shape
    n = offset(W)
    lo, hi = max(0, y - r), min(H - 1, y + r)
    enters, leaves = offset(hi), offset(max(0, lo - 1))
    for q in range(offset(Q)):
        if fresh:
            for x in range(n):
                acc[q, x] = 0.0
            for j in range(lo, hi + 1):
                line = offset(j)
                for x in range(n):
                    acc[q, x] += src[q, line, x]
        else:
            plus, minus = (1.0 if y + r < H else 0.0), (1.0 if y > r else 0.0)
            for x in range(n):
                acc[q, x] += plus * src[q, enters, x] - minus * src[q, leaves, x]
        for x in range(n):
            rows[q, 0, x] = np.float32(acc[q, x])


@serial
def plane_sums(rows, ring, y, z, total):  # type: ignore[no-untyped-def]
    """Put row y of plane z, rows[:, 0], into the ring of planes and bring the box sums along z up to date."""
    Q, K, _, W = ring.shape
    line, slot = offset(y), offset(z % K)
    for q in range(offset(Q)):
        for x in range(offset(W)):
            entered = rows[q, 0, x]
            total[q, line, x] += np.float64(entered) - np.float64(ring[q, slot, line, x])
            ring[q, slot, line, x] = entered

"""Window sums along one axis, the parts of the streaming LNCC kernel: boxes and Gaussians of any size.

Along x a box is a sum of sums over 1, 2, 4, ... voxels, so its cost hardly grows with its size. Along y and z boxes are
running sums, in double precision, so they do not drift along a column or the stack of planes. Indices are unsigned
(`offset`): a sum of signed ones might be negative, and the test for that keeps a loop off the vector unit.

Every sum is taken for the voxels x0 <= x < x1 of a row only; beyond them its sources hold zeros, or count as such.
"""

import math
from typing import Any

import numpy as np

from .jit import inline, offset, ordered, serial


def gaussian_taps(radius: int) -> Any:
    """exp(-k²/2s²) for k = -radius..radius with s = a sixth of the window; not normalised."""
    s = (2 * radius + 1) / 6
    return np.array([math.exp(-0.5 * (k / s) ** 2) for k in range(-radius, radius + 1)])


@inline
def padded(rows, n, r):  # type: ignore[no-untyped-def]
    """`rows` lines of n voxels with r zeros at both ends, and two more to work in."""
    return np.zeros((rows + 2, n + 2 * r), np.float32)


@ordered
def _small_window(line, r, dst, x0, x1):  # type: ignore[no-untyped-def]
    """dst[x] = sum of line[x : x + 2r + 1] for r = 1 to 3: one loop, the same sums in the same order as by doubling."""
    one, two, three = offset(1), offset(2), offset(3)
    if r == 1:
        for x in range(x0, x1):
            dst[x] = line[x] + (line[x + one] + line[x + two])
    elif r == 2:
        for x in range(x0, x1):
            y = x + one
            dst[x] = line[x] + ((line[y] + line[y + one]) + (line[y + two] + line[y + three]))
    else:
        for x in range(x0, x1):
            y = x + three
            first = line[x] + (line[x + one] + line[x + two])
            dst[x] = first + ((line[y] + line[y + one]) + (line[y + two] + line[y + three]))


@serial
def window_row(lines, i, r, taps, box, dst, q, y, x0, x1):  # type: ignore[no-untyped-def]
    """dst[q, y, x] = sum over the window of lines[i, x : x + 2r + 1]; the last two lines are overwritten."""
    x0, x1 = offset(x0), offset(x1)
    i, q, y = offset(i), offset(q), offset(y)
    if not box:
        for x in range(x0, x1):
            s = 0.0
            for k in range(offset(2 * r + 1)):
                s += taps[k] * lines[i, x + k]
            dst[q, y, x] = np.float32(s)
        return
    if 0 < r <= 3:
        _small_window(lines[i], r, dst[q, y], x0, x1)
        return
    for x in range(x0, x1):
        dst[q, y, x] = lines[i, x]
    spare = offset(lines.shape[0] - 2)
    end, start, size, left = x1 + offset(2 * r + 1), offset(1), offset(1), r
    while left > 0:  # line i holds sums over `size` voxels; the window is one voxel and the bits of 2r
        for x in range(x0, end - size - size):
            lines[spare, x] = lines[i, x] + lines[i, x + size]
        size += size
        if left & 1:
            for x in range(x0, x1):
                dst[q, y, x] += lines[spare, x + start]
            start += size
        i, spare = spare, offset(2 * lines.shape[0] - 3) - spare
        left >>= 1


@serial
def product_sums(F, M, w, z, slot, y, r, taps, box, lines, dst, x0, x1):  # type: ignore[no-untyped-def]
    """Window sums along row y of w, wF, wM, wFF, wMM, wFM into dst[:, y]; `lines` from padded(6, n, r)."""
    pad = offset(r)
    for x in range(offset(x0), offset(x1)):
        a = w[slot, y, x]
        f = np.float32(F[z, y, x]) if a > 0.0 else np.float32(0.0)
        m = M[slot, y, x]
        lines[0, x + pad] = a
        lines[1, x + pad] = f
        lines[2, x + pad] = m
        lines[3, x + pad] = f * f
        lines[4, x + pad] = m * m
        lines[5, x + pad] = f * m
    for q in range(6):
        window_row(lines, q, r, taps, box, dst, q, y, x0, x1)


@serial
def row_sums(src, r, taps, box, lines, dst, y, x0, x1):  # type: ignore[no-untyped-def]
    """Window sums along x of the rows src[:, 0] into dst[:, y]; `lines` from padded(1, n, r)."""
    pad = offset(r)
    for q in range(src.shape[0]):
        for x in range(offset(x0), offset(x1)):
            lines[0, x + pad] = src[q, 0, x]
        window_row(lines, 0, r, taps, box, dst, q, y, x0, x1)


@serial
def column_sums(src, y, fresh, r, taps, box, acc, rows, x0, x1):  # type: ignore[no-untyped-def]
    """Window sums along y at row y of every plane in src into rows[:, 0].

    `acc` carries the running sums from row to row; `fresh` starts them anew, at the first row of a chunk.
    """
    Q, H, _ = src.shape
    x0, x1 = offset(x0), offset(x1)
    lo, hi = max(0, y - r), min(H - 1, y + r)
    enters, leaves = offset(hi), offset(max(0, lo - 1))
    for q in range(offset(Q)):
        if fresh or not box:
            for x in range(x0, x1):
                acc[q, x] = 0.0
            for j in range(lo, hi + 1):
                t = 1.0 if box else taps[j - y + r]
                line = offset(j)
                for x in range(x0, x1):
                    acc[q, x] += t * src[q, line, x]
        else:
            plus, minus = (1.0 if y + r < H else 0.0), (1.0 if y > r else 0.0)
            for x in range(x0, x1):
                acc[q, x] += plus * src[q, enters, x] - minus * src[q, leaves, x]
        for x in range(x0, x1):
            rows[q, 0, x] = np.float32(acc[q, x])


@serial
def plane_sums(rows, ring, y, z, taps, box, total, x0, x1):  # type: ignore[no-untyped-def]
    """Put row y of plane z, rows[:, 0], into the ring of planes and bring the window sums along z up to date."""
    Q, K, _, _ = ring.shape
    x0, x1, line, slot = offset(x0), offset(x1), offset(y), offset(z % K)
    for q in range(offset(Q)):
        if box:
            for x in range(x0, x1):
                entered = rows[q, 0, x]
                total[q, line, x] += np.float64(entered) - np.float64(ring[q, slot, line, x])
                ring[q, slot, line, x] = entered
        else:
            for x in range(x0, x1):
                ring[q, slot, line, x] = rows[q, 0, x]
                total[q, line, x] = 0.0
            for k in range(K):
                t = taps[k]
                plane = offset((z + 1 + k) % K)
                for x in range(x0, x1):
                    total[q, line, x] += t * ring[q, plane, line, x]

"""Window sums along one axis, the parts of the streaming LNCC kernel: running sums for boxes, taps for Gaussians.

Running sums are kept in double precision, so they do not drift along a row, a column or the stack of planes.
"""

import math
from typing import Any

import numpy as np

from .jit import serial


def gaussian_taps(radius: int) -> Any:
    """exp(-k²/2s²) for k = -radius..radius with s = a sixth of the window; not normalised."""
    s = (2 * radius + 1) / 6
    return np.array([math.exp(-0.5 * (k / s) ** 2) for k in range(-radius, radius + 1)])


@serial
def product_sums(F, M, w, z, slot, y, r, dst):  # type: ignore[no-untyped-def]
    """Box sums along a row of w, wF, wM, wFF, wMM, wFM: six independent chains in one loop."""
    n = F.shape[2]
    s0 = s1 = s2 = s3 = s4 = s5 = 0.0
    for x in range(n + r):
        if x < n:
            a = np.float64(w[slot, y, x])
            p = np.float64(F[z, y, x]) if a > 0.0 else 0.0
            q = np.float64(M[slot, y, x])
            f = a * p
            m = a * q
            s0 += a
            s1 += f
            s2 += m
            s3 += f * p
            s4 += m * q
            s5 += f * q
        if x > 2 * r:
            j = x - 2 * r - 1
            a = np.float64(w[slot, y, j])
            p = np.float64(F[z, y, j]) if a > 0.0 else 0.0
            q = np.float64(M[slot, y, j])
            f = a * p
            m = a * q
            s0 -= a
            s1 -= f
            s2 -= m
            s3 -= f * p
            s4 -= m * q
            s5 -= f * q
        if x >= r:
            i = x - r
            dst[0, y, i] = np.float32(s0)
            dst[1, y, i] = np.float32(s1)
            dst[2, y, i] = np.float32(s2)
            dst[3, y, i] = np.float32(s3)
            dst[4, y, i] = np.float32(s4)
            dst[5, y, i] = np.float32(s5)


@serial
def product_taps(F, M, w, z, slot, y, r, taps, dst):  # type: ignore[no-untyped-def]
    """As `product_sums`, for a Gaussian window."""
    n = F.shape[2]
    for x in range(n):
        s0 = s1 = s2 = s3 = s4 = s5 = 0.0
        for j in range(max(0, x - r), min(n, x + r + 1)):
            a = taps[j - x + r] * w[slot, y, j]
            p = F[z, y, j] if a > 0.0 else np.float32(0.0)
            f = a * p
            m = a * M[slot, y, j]
            s0 += a
            s1 += f
            s2 += m
            s3 += f * p
            s4 += m * M[slot, y, j]
            s5 += f * M[slot, y, j]
        dst[0, y, x] = np.float32(s0)
        dst[1, y, x] = np.float32(s1)
        dst[2, y, x] = np.float32(s2)
        dst[3, y, x] = np.float32(s3)
        dst[4, y, x] = np.float32(s4)
        dst[5, y, x] = np.float32(s5)


@serial
def row_sums(src, r, taps, box, dst):  # type: ignore[no-untyped-def]
    """Window sums along x of three rows at once, the window truncated at the ends."""
    n = src.shape[1]
    if box:
        s0 = s1 = s2 = 0.0
        for x in range(n + r):
            if x < n:
                s0 += src[0, x]
                s1 += src[1, x]
                s2 += src[2, x]
            if x > 2 * r:
                j = x - 2 * r - 1
                s0 -= src[0, j]
                s1 -= src[1, j]
                s2 -= src[2, j]
            if x >= r:
                dst[0, x - r] = np.float32(s0)
                dst[1, x - r] = np.float32(s1)
                dst[2, x - r] = np.float32(s2)
    else:
        for x in range(n):
            s0 = s1 = s2 = 0.0
            for j in range(max(0, x - r), min(n, x + r + 1)):
                t = taps[j - x + r]
                s0 += t * src[0, j]
                s1 += t * src[1, j]
                s2 += t * src[2, j]
            dst[0, x] = np.float32(s0)
            dst[1, x] = np.float32(s1)
            dst[2, x] = np.float32(s2)


@serial
def column_sums(src, y, fresh, r, taps, box, acc, rows):  # type: ignore[no-untyped-def]
    """Window sums along y at row y of every plane in src; `acc` carries the running sums from row to row.

    `fresh` starts the running sums anew, at the first row of a chunk.
    """
    Q, H, n = src.shape
    lo = max(0, y - r)
    hi = min(H - 1, y + r)
    for q in range(Q):
        if fresh or not box:
            for x in range(n):
                acc[q, x] = 0.0
            for j in range(lo, hi + 1):
                t = 1.0 if box else taps[j - y + r]
                for x in range(n):
                    acc[q, x] += t * src[q, j, x]
        else:
            if y + r < H:
                for x in range(n):
                    acc[q, x] += src[q, hi, x]
            if y > r:
                for x in range(n):
                    acc[q, x] -= src[q, lo - 1, x]
        for x in range(n):
            rows[q, x] = np.float32(acc[q, x])


@serial
def plane_sums(rows, ring, y, z, taps, box, total):  # type: ignore[no-untyped-def]
    """Put row y of plane z into the ring of planes and bring the window sums along z up to date."""
    Q, K, _, n = ring.shape
    slot = z % K
    for q in range(Q):
        if box:
            for x in range(n):
                total[q, y, x] += np.float64(rows[q, x]) - np.float64(ring[q, slot, y, x])
                ring[q, slot, y, x] = rows[q, x]
        else:
            for x in range(n):
                ring[q, slot, y, x] = rows[q, x]
                total[q, y, x] = 0.0
            for k in range(K):
                i = (z + 1 + k) % K
                for x in range(n):
                    total[q, y, x] += taps[k] * ring[q, i, y, x]

"""CPU forms of `norms`, `descend`, `tile` and `adam`: in place, nothing of the field's size is allocated."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import prange
from torch import Tensor

from warpfactor.kernels.numba._compile.jit import array, check_field, exclusive, inline, parallel, serial, target
from warpfactor.kernels.numba.filters import column_sums, padded, plane_sums, row_sums
from warpfactor.kernels.reference import descent as reference

FORMS = {"pointwise": 0, "root": 1, "plain": 2}
BLOCKS = 6  # entries of a symmetric 3x3 matrix: zz, zy, zx, yy, yx, xx
CHUNKS = 8  # of rows; fixed, so that the result does not depend on the number of threads
FLOOR, TINY = reference.FLOOR, reference.TINY


@parallel
def _norms(g, weights):  # type: ignore[no-untyped-def]
    _, D, H, W = g.shape
    wz, wy, wx = weights
    sums = np.zeros((3, D * H))
    for row in prange(D * H):
        z = row // H
        y = row - z * H
        squares = 0.0
        lengths = 0.0
        count = 0.0
        for x in range(W):
            a, b, c = wz * g[0, z, y, x], wy * g[1, z, y, x], wx * g[2, z, y, x]
            n = np.float64(a * a + b * b + c * c)
            squares += n
            lengths += np.sqrt(n)
            count += 1.0 if n > 0.0 else 0.0
        sums[0, row] = squares
        sums[1, row] = lengths
        sums[2, row] = count
    return sums


@parallel
def _descend(g, form, damping, weights, residual):  # type: ignore[no-untyped-def]
    _, D, H, W = g.shape
    wz, wy, wx = weights
    root = np.float32(np.sqrt(damping))
    lam = np.float32(damping)
    r = np.float32(residual)
    zero = np.float32(0.0)
    stats = np.zeros((2, D * H))
    for row in prange(D * H):
        z = row // H
        y = row - z * H
        squares, scales = np.empty(W, np.float32), np.empty(W, np.float32)
        decrease = 0.0
        for x in range(W):
            a, b, c = wz * g[0, z, y, x], wy * g[1, z, y, x], wx * g[2, z, y, x]
            n = a * a + b * b + c * c
            if form == 0:
                s = r / (n + lam)
            elif form == 1:
                s = r / (np.sqrt(n) + root)
            else:
                s = r
            s = s if n > zero else zero
            squares[x] = s * s * n
            decrease += np.float64(s * n)
            scales[x] = -s
        for k in range(3):  # axis by axis, see `gradient_row`
            line, square = g[k, z, y], weights[k] * weights[k]
            for x in range(W):
                line[x] *= square * scales[x]
        stats[0, row] = _largest(squares)
        stats[1, row] = decrease
    return stats


@serial
def _largest(squares):  # type: ignore[no-untyped-def]
    """The largest of numbers that are not negative; where one is NaN, anything.

    Their bits, as whole numbers, have the same order, and maxima of those run on the vector unit: with them `descend`
    takes 0.6 ns a voxel at 192x192x192, one thread, against 3.1.
    """
    largest = np.int32(0)
    bits = squares.view(np.int32)
    for x in range(bits.shape[0]):
        largest = max(largest, bits[x])
    return np.int32(largest).view(np.float32)


@inline
def solve3(zz, zy, zx, yy, yx, xx, a, b, c):  # type: ignore[no-untyped-def]
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
    """Voxels of the window i - k // 2 to i + (k - 1) // 2 that are in the image."""
    return min(n - 1, i + (k - 1) // 2) - max(0, i - k // 2) + 1


@serial
def _add_behind(rows, src, y, k):  # type: ignore[no-untyped-def]
    """Add to rows[:, 0] what a window of even edge k has beyond one of k - 1: the row of src that is k // 2 before."""
    if k % 2 == 0 and y >= k // 2:
        for q in range(rows.shape[0]):
            for x in range(rows.shape[2]):
                rows[q, 0, x] += src[q, y - k // 2, x]


@serial
def _add_left(src, dst, y, k):  # type: ignore[no-untyped-def]
    """The same along x: add src[:, 0] to dst[:, y], shifted by k // 2 voxels."""
    if k % 2 == 0:
        for q in range(src.shape[0]):
            for x in range(k // 2, src.shape[2]):
                dst[q, y, x] += src[q, 0, x - k // 2]


@serial
def _products(g, weights, z, y, low, high):  # type: ignore[no-untyped-def]
    """The six entries of ĝ ĝᵀ along a row."""
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
    """Turn one row of gradients into steps with the complete window sums Z."""
    wz, wy, wx = weights
    kx, per_line = counts
    n = g.shape[3]
    largest = 0.0
    decrease = 0.0
    for x in range(n):
        k = 1.0 / (per_line * _inside(x, kx, n))
        a, b, c = wz * g[0, z, y, x], wy * g[1, z, y, x], wx * g[2, z, y, x]
        lam = max(damping, FLOOR * k * (Z[0, y, x] + Z[3, y, x] + Z[5, y, x]), TINY)
        va, vb, vc = solve3(
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
    """Streams along z, plane by plane: a plane's gradient is overwritten once no window needs it."""
    _, D, H, W = g.shape
    kz, ky, kx = size
    ahead, ry, rx = (kz - 1) // 2, (ky - 1) // 2, (kx - 1) // 2
    T = np.zeros((BLOCKS, H, W), np.float32)
    S = np.zeros((BLOCKS, kz, H, W), np.float32)
    Z = np.zeros((BLOCKS, H, W))
    chunks = min(H, CHUNKS)
    stats = np.zeros((2, D, H))
    for z in range(D + ahead):
        for y in prange(H):
            if z < D:
                low = np.empty((3, 1, W), np.float32)
                high = np.empty((3, 1, W), np.float32)
                _products(g, weights, z, y, low, high)
                lines = padded(6, W, rx)
                row_sums(low, rx, taps, lines, T[:3], y)
                row_sums(high, rx, taps, lines, T[3:], y)
                _add_left(low, T[:3], y, kx)
                _add_left(high, T[3:], y, kx)
            else:
                T[:, y, :] = 0.0
        zo = z - ahead
        for k in prange(chunks):
            y0, y1 = k * H // chunks, (k + 1) * H // chunks
            acc = np.empty((BLOCKS, W))
            rows = np.empty((BLOCKS, 1, W), np.float32)
            for y in range(y0, y1):
                column_sums(T, y, y == y0, ry, acc, rows)
                _add_behind(rows, T, y, ky)
                plane_sums(rows, S, y, z, Z)
                if zo >= 0:
                    lines = _inside(zo, kz, D) * _inside(y, ky, H)
                    a, b = _solve_row(g, Z, zo, y, (kx, lines), damping, weights, residual)
                    stats[0, zo, y] = a
                    stats[1, zo, y] = b
    return stats


@parallel
def _adam(g, m, s, betas, corrections, epsilon, weights):  # type: ignore[no-untyped-def]
    _, D, H, W = g.shape
    b1, b2 = np.float32(betas[0]), np.float32(betas[1])
    c1, c2 = np.float32(corrections[0]), np.float32(corrections[1])
    one = np.float32(1.0)
    eps = np.float32(epsilon)
    stats = np.zeros((2, D * H))
    for row in prange(D * H):
        z = row // H
        y = row - z * H
        norm = np.zeros(W, np.float32)
        decrease = 0.0
        for k in range(3):
            w = weights[k]
            for x in range(W):
                v = w * g[k, z, y, x]
                a = b1 * m[k, z, y, x] + (one - b1) * v
                b = b2 * s[k, z, y, x] + (one - b2) * v * v
                m[k, z, y, x] = a
                s[k, z, y, x] = b
                t = -(a * c1) / (np.sqrt(b * c2) + eps)
                norm[x] += t * t
                decrease -= np.float64(t * v)
                g[k, z, y, x] = w * t
        stats[0, row] = norm.max()
        stats[1, row] = decrease
    return stats


def _summary(stats: Any) -> tuple[float, float]:
    return float(np.sqrt(stats[0].max())), float(stats[1].sum())


def _single(weights: Sequence[float]) -> Any:
    return tuple(np.float32(w) for w in weights)


@exclusive
def norms(gradient: Tensor, weights: Sequence[float]) -> tuple[float, float, float]:
    """Σ |ĝ|², Σ |ĝ| and the number of voxels that have a gradient; see the reference."""
    check_field("gradient", gradient)
    squares, lengths, count = _norms(array(gradient), _single(weights)).sum(1)
    return float(squares), float(lengths), float(count)


@exclusive
def descend(
    gradient: Tensor, *, form: str, damping: float, weights: Sequence[float], residual: float = 1.0
) -> tuple[float, float]:
    """Gradient -> step by a pointwise formula, in place; see the reference."""
    if form not in FORMS:
        raise ValueError(f"unknown form {form!r}; use 'pointwise', 'root' or 'plain'")
    check_field("gradient", gradient)
    return _summary(_descend(target(gradient), FORMS[form], damping, _single(weights), residual))


@exclusive
def tile(
    gradient: Tensor,
    *,
    size: Sequence[int],
    damping: float,
    weights: Sequence[float],
    residual: float = 1.0,
) -> tuple[float, float]:
    """Gradient -> step with curvature pooled over a window, in place; see the reference."""
    check_field("gradient", gradient)
    edges: Any = tuple(min(int(k), 2 * n - 1) for k, n in zip(size, gradient.shape[1:], strict=True))
    stats = _tile(target(gradient), edges, float(damping), _single(weights), float(residual), np.ones(1))
    return _summary(stats.reshape(2, -1))


@exclusive
def adam(
    gradient: Tensor,
    first: Tensor,
    second: Tensor,
    *,
    number: int,
    betas: tuple[float, float],
    epsilon: float,
    weights: Sequence[float],
) -> tuple[float, float]:
    """Gradient -> Adam's step, in place, with its two moments; see the reference."""
    for name, field in (("gradient", gradient), ("first", first), ("second", second)):
        check_field(name, field, gradient.shape[1:])
    corrections = (1 / (1 - betas[0] ** number), 1 / (1 - betas[1] ** number))
    fields = target(gradient), target(first), target(second)
    return _summary(_adam(*fields, betas, corrections, epsilon, _single(weights)))

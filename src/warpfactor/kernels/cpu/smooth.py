"""CPU forms of `smooth_gaussian` and `smooth_box`: separable, in place, one slab of lines at a time.

Planes are filtered along x and y through a buffer of one plane, then slabs (all z at one y) along z: the field is
read and written twice in all, and every inner loop runs along x. Rows of zeros, as a gradient has them where an image
is empty, are passed over, and so is what they alone would give.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import prange
from torch import Tensor

from ..taps import gaussian_kernel
from .jit import exclusive, parallel, serial, target

IDENTITY = np.ones(1, np.float32)


@serial
def _shows(row):  # type: ignore[no-untyped-def]
    """Whether a row holds anything but zeros; most that do have something in the middle."""
    if row[row.shape[0] // 2] != 0.0:
        return True
    count = 0
    for x in range(row.shape[0]):
        count += 1 if row[x] != 0.0 else 0
    return count > 0


@serial
def _pad_lines(buf, pad, n, zero):  # type: ignore[no-untyped-def]
    """Fill the rows before and after buf[pad:pad+n] with the edge rows or zero."""
    for k in range(pad):
        for x in range(buf.shape[1]):
            buf[k, x] = np.float32(0.0) if zero else buf[pad, x]
            buf[pad + n + k, x] = np.float32(0.0) if zero else buf[pad + n - 1, x]


@serial
def _add_pairs(src, o, stride, k, taps, row):  # type: ignore[no-untyped-def]
    """Add the taps k to k+6 on both sides of element o to `row`.

    Slices, not sums of indices: an index that might be negative costs a test for each element and the vector unit.
    """
    n = row.shape[0]
    c = taps.shape[0] // 2 + k
    t, u, v, w = taps[c], taps[c + 1], taps[c + 2], taps[c + 3]
    i, j, h = taps[c + 4], taps[c + 5], taps[c + 6]
    lo, hi = o - k * stride, o + k * stride
    a0, b0 = src[lo : lo + n], src[hi : hi + n]
    a1, b1 = src[lo - stride : lo - stride + n], src[hi + stride : hi + stride + n]
    a2, b2 = src[lo - 2 * stride : lo - 2 * stride + n], src[hi + 2 * stride : hi + 2 * stride + n]
    a3, b3 = src[lo - 3 * stride : lo - 3 * stride + n], src[hi + 3 * stride : hi + 3 * stride + n]
    a4, b4 = src[lo - 4 * stride : lo - 4 * stride + n], src[hi + 4 * stride : hi + 4 * stride + n]
    a5, b5 = src[lo - 5 * stride : lo - 5 * stride + n], src[hi + 5 * stride : hi + 5 * stride + n]
    a6, b6 = src[lo - 6 * stride : lo - 6 * stride + n], src[hi + 6 * stride : hi + 6 * stride + n]
    for x in range(n):
        near = t * (a0[x] + b0[x]) + u * (a1[x] + b1[x]) + v * (a2[x] + b2[x]) + w * (a3[x] + b3[x])
        row[x] += near + i * (a4[x] + b4[x]) + j * (a5[x] + b5[x]) + h * (a6[x] + b6[x])


@serial
def _combine(src, o, stride, taps, row):  # type: ignore[no-untyped-def]
    """row[x] = sum over k of taps[k] src[o + k stride + x]: along x with stride one, across rows with that of a row."""
    n = row.shape[0]
    pad = taps.shape[0] // 2
    t = taps[pad]
    middle = src[o : o + n]
    for x in range(n):
        row[x] = t * middle[x]
    k = 1
    while k + 6 <= pad:
        _add_pairs(src, o, stride, k, taps, row)
        k += 7
    while k < pad:
        t, u = taps[pad + k], taps[pad + k + 1]
        lo, hi = o - k * stride, o + k * stride
        a0, b0 = src[lo : lo + n], src[hi : hi + n]
        a1, b1 = src[lo - stride : lo - stride + n], src[hi + stride : hi + stride + n]
        for x in range(n):
            row[x] += t * (a0[x] + b0[x]) + u * (a1[x] + b1[x])
        k += 2
    if k == pad:
        t = taps[pad + k]
        lo, hi = o - k * stride, o + k * stride
        a0, b0 = src[lo : lo + n], src[hi : hi + n]
        for x in range(n):
            row[x] += t * (a0[x] + b0[x])


@serial
def _filter_row(row, taps, zero, line, out):  # type: ignore[no-untyped-def]
    """Filter one row into `out` (which may be the row itself) through the padded buffer `line`."""
    n = row.shape[0]
    pad = taps.shape[0] // 2
    first, last = row[0], row[n - 1]
    inner = line[pad : pad + n]
    for x in range(n):
        inner[x] = row[x]
    for k in range(pad):
        line[k] = np.float32(0.0) if zero else first
        line[pad + n + k] = np.float32(0.0) if zero else last
    _combine(line, pad, 1, taps, out)


@serial
def _filter_plane(plane, tx, ty, zero):  # type: ignore[no-untyped-def]
    """Filter a plane along x and y in place."""
    H, W = plane.shape
    px, py = tx.shape[0] // 2, ty.shape[0] // 2
    line = np.empty(W + 2 * px, np.float32)
    buf = np.empty((H + 2 * py, W), np.float32)
    first, last = H, 0  # rows that hold something
    for y in range(H):
        if not _shows(plane[y]):
            buf[y + py, :] = 0.0
            continue
        _filter_row(plane[y], tx, zero, line, buf[y + py])
        first, last = min(first, y), y + 1
    _pad_lines(buf, py, H, zero)
    flat = buf.reshape(-1)
    for y in range(max(0, first - py), min(H, last + py)):
        _combine(flat, (y + py) * W, W, ty, plane[y])


@serial
def _filter_slab(field, c, y, tz, zero):  # type: ignore[no-untyped-def]
    """Filter the rows at one y along z in place."""
    _, D, _, W = field.shape
    pz = tz.shape[0] // 2
    buf = np.empty((D + 2 * pz, W), np.float32)
    first, last = D, 0
    for z in range(D):
        row = field[c, z, y]
        for x in range(W):
            buf[z + pz, x] = row[x]
        if _shows(row):
            first, last = min(first, z), z + 1
    _pad_lines(buf, pz, D, zero)
    flat = buf.reshape(-1)
    for z in range(max(0, first - pz), min(D, last + pz)):
        _combine(flat, (z + pz) * W, W, tz, field[c, z, y])


@parallel
def _gaussian(field, taps, zero):  # type: ignore[no-untyped-def]
    C, D, H, _ = field.shape
    tz, ty, tx = taps
    if tx.shape[0] + ty.shape[0] > 2:
        for i in prange(C * D):
            c = i // D
            _filter_plane(field[c, i - c * D], tx, ty, zero)
    if tz.shape[0] > 1:
        for i in prange(C * H):
            c = i // H
            _filter_slab(field, c, i - c * H, tz, zero)


@serial
def _box_lines(buf, r, out):  # type: ignore[no-untyped-def]
    """Mean over rows i-r..i+r of buf (truncated at the ends) into out."""
    n, W = buf.shape
    acc = np.zeros(W)
    for i in range(n + r):
        if i < n:
            for x in range(W):
                acc[x] += buf[i, x]
        if i > 2 * r:
            for x in range(W):
                acc[x] -= buf[i - 2 * r - 1, x]
        if i >= r:
            k = i - r
            inv = 1.0 / (min(n - 1, k + r) - max(0, k - r) + 1)
            for x in range(W):
                out[k, x] = np.float32(acc[x] * inv)


@parallel
def _box(field, radius):  # type: ignore[no-untyped-def]
    C, D, H, W = field.shape
    rz, ry, rx = radius
    for i in prange(C * D):
        c = i // D
        plane = field[c, i - c * D]
        if rx > 0:
            column = np.empty((W, 1), np.float32)
            for y in range(H):
                for x in range(W):
                    column[x, 0] = plane[y, x]
                _box_lines(column, rx, plane[y].reshape(W, 1))
        if ry > 0:
            _box_lines(plane.copy(), ry, plane)
    if rz > 0:
        for i in prange(C * H):
            c = i // H
            slab = field[c, :, i - c * H]
            _box_lines(slab.copy(), rz, slab)


@exclusive
def smooth_gaussian(
    field: Tensor,
    sigma: Sequence[float],
    *,
    boundary: str = "nearest",
    truncate: float = 3.0,
    tail: tuple[float, float] = (0.0, 1.0),
) -> Tensor:
    """Gaussian smoothing in place, sigma in voxels per axis; see the reference."""
    if boundary not in ("nearest", "zero"):
        raise ValueError(f"unknown boundary {boundary!r}; use 'nearest' or 'zero'")
    taps: Any = tuple(
        np.asarray(gaussian_kernel(s, truncate, tail), np.float32) if s > 0 and n > 1 else IDENTITY
        for s, n in zip(sigma, field.shape[1:], strict=True)
    )
    _gaussian(target(field), taps, boundary == "zero")
    return field


@exclusive
def smooth_box(field: Tensor, radius: Sequence[int]) -> Tensor:
    """Mean over (2r+1)-windows in place, truncated at the border; see the reference."""
    reach: Any = tuple(min(int(r), n - 1) for r, n in zip(radius, field.shape[1:], strict=True))
    _box(target(field), reach)
    return field

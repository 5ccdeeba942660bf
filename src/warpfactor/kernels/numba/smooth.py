"""CPU form of `smooth_gaussian` and `smooth_box`: separable filters, in place.

Planes are filtered along x and y through a buffer of one plane; then slabs, which are some adjacent voxels of a plane
in all planes, are filtered along z. The field is read and written twice in all, and every inner loop runs along x. Rows
of zeros, which a gradient has where the image is empty, are skipped, and so are rows of the result that depend on them
only. What a plane becomes depends on the planes that its taps reach and on nothing else, so a part of the planes can be
filtered alone (planes.py).

A loop over a row has a fixed cost, for the voxels before the first and after the last whole vector, that equals the
cost of 50 to 100 voxels. Adjacent rows are therefore filtered as one: with 29 taps this takes 3.0 ns per voxel in rows
of 41 voxels, 2.0 in rows of 81, and 1.1 in rows of 640 or more.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import prange
from torch import Tensor

from warpfactor.kernels.numba._compile.jit import allocating, exclusive, parallel, serial
from warpfactor.kernels.numba.arrays import target
from warpfactor.kernels.taps import gaussian_kernel

IDENTITY = np.ones(1, np.float32)
LINE = 1024  # voxels that are filtered as one row along x and y; with their neighbours they fit the nearest cache
SLAB = 256  # voxels of a plane filtered together along z; wider slabs leave the cache and skip fewer zeros
MULTIPLE = 8  # buffers have a width that is a multiple of this: aligned loads take 0.75 ns per voxel, others 1.0
GROUPS = 32  # number of groups of planes or slabs; a thread allocates its buffers once per group


@serial
def _is_not_zero(row):  # type: ignore[no-untyped-def]
    """Whether a row contains anything but zeros; most such rows do in their middle, which is tested first."""
    if row[row.shape[0] // 2] != 0.0:
        return True
    count = 0
    for x in range(row.shape[0]):
        count += 1 if row[x] != 0.0 else 0
    return count > 0


@serial
def _copy(src, dst):  # type: ignore[no-untyped-def]
    """dst[:n] = src, of n elements; a loop takes a third of the time of an assignment to a slice."""
    for x in range(src.shape[0]):
        dst[x] = src[x]


@serial
def _fill(dst, number):  # type: ignore[no-untyped-def]
    """Set every element to a number."""
    for x in range(dst.shape[0]):
        dst[x] = number


@serial
def _pad_lines(buf, pad, n, zero):  # type: ignore[no-untyped-def]
    """Fill the rows before and after buf[pad : pad + n] with the edge rows, or with zero."""
    for k in range(pad):
        for x in range(buf.shape[1]):
            buf[k, x] = np.float32(0.0) if zero else buf[pad, x]
            buf[pad + n + k, x] = np.float32(0.0) if zero else buf[pad + n - 1, x]


@serial
def _add_pairs(src, o, stride, k, taps, row):  # type: ignore[no-untyped-def]
    """Add the terms of taps k to k + 6 on both sides of the centre to `row`.

    Slices are used instead of sums of indices for the reason given for `unsigned` in jit.py.
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
    """row[x] = sum over k of taps[k] src[o + k stride + x], k counted from the central tap.

    A stride of one filters along x, the stride of a row filters along y.
    """
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


@allocating
def _filter_rows(plane, taps, zero, line, out, buf, py):  # type: ignore[no-untyped-def]
    """Filter a plane along x into buf[py:]; returns the first row that is not zero, and the last one + 1.

    As many rows as fit are placed in `line` one behind the other, each with its own padding, and filtered as one.
    """
    H, W = plane.shape
    pad = taps.shape[0] // 2
    pitch = W + 2 * pad
    waiting = np.empty(line.shape[0] // pitch, np.int64)
    held = 0
    first, last = H, 0
    for y in range(H):
        row = plane[y]
        if _is_not_zero(row):
            _pad_row(row, line[held * pitch : (held + 1) * pitch], pad, zero)
            waiting[held] = y
            held += 1
            first, last = min(first, y), y + 1
        else:
            _fill(buf[y + py], np.float32(0.0))
        if held == waiting.shape[0] or (y == H - 1 and held > 0):
            _combine(line, pad, 1, taps, out[: held * pitch - 2 * pad])
            for i in range(held):
                _copy(out[i * pitch : i * pitch + W], buf[waiting[i] + py])
            held = 0
    return first, last


@serial
def _pad_row(row, line, pad, zero):  # type: ignore[no-untyped-def]
    """Copy a row to the middle of `line`, and its end values, or zero, to the rest."""
    n = row.shape[0]
    _copy(row, line[pad:])
    _fill(line[:pad], np.float32(0.0) if zero else row[0])
    _fill(line[pad + n :], np.float32(0.0) if zero else row[n - 1])


@serial
def _filter_plane(plane, tx, ty, zero, line, out, buf):  # type: ignore[no-untyped-def]
    """Filter a plane along x and y, in place."""
    H, W = plane.shape
    py = ty.shape[0] // 2
    first, last = _filter_rows(plane, tx, zero, line, out, buf, py)
    if first >= last:
        return
    _pad_lines(buf, py, H, zero)
    flat, pitch = buf.reshape(-1), buf.shape[1]
    many = out.shape[0] // pitch
    end = min(H, last + py)
    whole = plane.reshape(-1)
    for y in range(max(0, first - py), end, many):
        rows = min(many, end - y)
        dst = whole[y * W : (y + rows) * W] if pitch == W else out[: rows * pitch]
        _combine(flat, (y + py) * pitch, pitch, ty, dst)
        if pitch > W:
            for i in range(rows):
                _copy(out[i * pitch : i * pitch + W], plane[y + i])


@serial
def _filter_slab(planes, z0, z1, start, tz, zero, buf, filled):  # type: ignore[no-untyped-def]
    """Filter planes[z0:z1, start:], at most as many voxels as `buf` is wide, along z, in place.

    Rows of `buf` are the planes within reach, and before and after them what stands for planes beyond the border.
    `filled` says which of them are not zero.
    """
    D, size = planes.shape
    pz = tz.shape[0] // 2
    end = min(size, start + buf.shape[1])
    first, last = max(0, z0 - pz), min(D, z1 + pz)
    count = 0
    for z in range(first, last):
        row = planes[z, start:end]
        _copy(row, buf[z - first + pz])
        filled[z - first] = 1 if _is_not_zero(row) else 0
        count += filled[z - first]
    if count == 0:
        return
    _pad_lines(buf, pz, last - first, zero)
    flat, pitch = buf.reshape(-1), buf.shape[1]
    near = 0  # planes within reach of plane z that are not zero
    for z in range(first, min(last, z0 + pz)):
        near += filled[z - first]
    for z in range(z0, z1):
        if z + pz < last:
            near += filled[z + pz - first]
        if z - pz > first:
            near -= filled[z - pz - 1 - first]
        if near > 0:
            _combine(flat, (z - first + pz) * pitch, pitch, tz, planes[z, start:end])


@parallel
def filter_planes(field, ty, tx, zero):  # type: ignore[no-untyped-def]
    """Filter every plane along x and y, in place."""
    C, D, H, W = field.shape
    if tx.shape[0] + ty.shape[0] > 2:
        pitch = -(-W // MULTIPLE) * MULTIPLE
        length = max(LINE, pitch, W + 2 * (tx.shape[0] // 2))
        groups = min(C * D, GROUPS)
        for g in prange(groups):
            line = np.empty(length, np.float32)
            out = np.empty(length, np.float32)
            buf = np.zeros((H + 2 * (ty.shape[0] // 2), pitch), np.float32)
            for i in range(g, C * D, groups):  # every thread gets some of the middle planes, which have fewer zeros
                c = i // D
                _filter_plane(field[c, i - c * D], tx, ty, zero, line, out, buf)


@parallel
def filter_along_z(field, z0, z1, tz, zero):  # type: ignore[no-untyped-def]
    """Filter planes z0 <= z < z1 along z, in place; the planes that the taps reach must be as they were before."""
    C, D, H, W = field.shape
    if tz.shape[0] > 1:
        slabs = -(-H * W // SLAB)
        groups = min(C * slabs, GROUPS)
        flat = field.reshape(C, D, H * W)
        pz = tz.shape[0] // 2
        rows = min(D, z1 + pz) - max(0, z0 - pz)
        for g in prange(groups):
            slab = np.zeros((rows + 2 * pz, SLAB), np.float32)
            filled = np.empty(rows, np.int64)
            for i in range(g * C * slabs // groups, (g + 1) * C * slabs // groups):
                c = i // slabs
                _filter_slab(flat[c], z0, z1, (i - c * slabs) * SLAB, tz, zero, slab, filled)


@allocating
def _box_lines(buf, r, out):  # type: ignore[no-untyped-def]
    """out[i] = mean of the rows i - r to i + r of buf, as far as they exist."""
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
    """The field, smoothed in place by a Gaussian; see the reference."""
    tz, ty, tx = field_taps(field, sigma, boundary, truncate, tail)
    whole, zero = target(field), boundary == "zero"
    filter_planes(whole, ty, tx, zero)
    filter_along_z(whole, 0, field.shape[1], tz, zero)
    return field


def field_taps(field: Tensor, sigma: Sequence[float], boundary: str, truncate: float, tail: tuple[float, float]) -> Any:
    """The taps along z, y and x of a field (C, D, H, W)."""
    if boundary not in ("nearest", "zero"):
        raise ValueError(f"unknown boundary {boundary!r}; use 'nearest' or 'zero'")
    return tuple(
        np.asarray(gaussian_kernel(s, truncate, tail), np.float32) if s > 0 and n > 1 else IDENTITY
        for s, n in zip(sigma, field.shape[1:], strict=True)
    )


@exclusive
def smooth_box(field: Tensor, radius: Sequence[int]) -> Tensor:
    """The field, replaced in place by its mean over a window; see the reference."""
    reach: Any = tuple(min(int(r), n - 1) for r, n in zip(radius, field.shape[1:], strict=True))
    _box(target(field), reach)
    return field

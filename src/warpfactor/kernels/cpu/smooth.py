"""CPU forms of `smooth_gaussian` and `smooth_box`: separable, in place, one slab of lines at a time.

Planes are filtered along x and y through a buffer of one plane, then slabs (all z at one y) along z: the field is
read and written twice in all, and every inner loop runs along x.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import prange
from torch import Tensor

from ..taps import gaussian_kernel
from .jit import array, exclusive, parallel, serial

IDENTITY = np.ones(1, np.float32)


@serial
def _pad_lines(buf, pad, n, zero):  # type: ignore[no-untyped-def]
    """Fill the rows before and after buf[pad:pad+n] with the edge rows or zero."""
    for k in range(pad):
        for x in range(buf.shape[1]):
            buf[k, x] = np.float32(0.0) if zero else buf[pad, x]
            buf[pad + n + k, x] = np.float32(0.0) if zero else buf[pad + n - 1, x]


@serial
def _combine(buf, c, taps, row):  # type: ignore[no-untyped-def]
    """Row c of buf filtered across rows into `row`, a contiguous row, four taps at a time."""
    pad = taps.shape[0] // 2
    t = taps[pad]
    for x in range(row.shape[0]):
        row[x] = t * buf[c, x]
    k = 1
    while k + 3 <= pad:
        t, u, v, w = taps[pad + k], taps[pad + k + 1], taps[pad + k + 2], taps[pad + k + 3]
        for x in range(row.shape[0]):
            near = t * (buf[c - k, x] + buf[c + k, x]) + u * (buf[c - k - 1, x] + buf[c + k + 1, x])
            far = v * (buf[c - k - 2, x] + buf[c + k + 2, x]) + w * (buf[c - k - 3, x] + buf[c + k + 3, x])
            row[x] += near + far
        k += 4
    while k <= pad:
        t = taps[pad + k]
        for x in range(row.shape[0]):
            row[x] += t * (buf[c - k, x] + buf[c + k, x])
        k += 1


@serial
def _filter_row(row, taps, zero, line):  # type: ignore[no-untyped-def]
    """Filter one row in place through the padded buffer `line`."""
    n = row.shape[0]
    pad = taps.shape[0] // 2
    for x in range(n):
        line[pad + x] = row[x]
    for k in range(pad):
        line[k] = np.float32(0.0) if zero else row[0]
        line[pad + n + k] = np.float32(0.0) if zero else row[n - 1]
    t = taps[pad]
    for x in range(n):
        row[x] = t * line[x + pad]
    k = 1
    while k + 3 <= pad:
        t, u, v, w = taps[pad + k], taps[pad + k + 1], taps[pad + k + 2], taps[pad + k + 3]
        for x in range(n):
            c = x + pad
            near = t * (line[c - k] + line[c + k]) + u * (line[c - k - 1] + line[c + k + 1])
            far = v * (line[c - k - 2] + line[c + k + 2]) + w * (line[c - k - 3] + line[c + k + 3])
            row[x] += near + far
        k += 4
    while k <= pad:
        t = taps[pad + k]
        for x in range(n):
            row[x] += t * (line[x + pad - k] + line[x + pad + k])
        k += 1


@parallel
def _gaussian(field, taps, zero):  # type: ignore[no-untyped-def]
    C, D, H, W = field.shape
    tz, ty, tx = taps
    pz, py, px = tz.shape[0] // 2, ty.shape[0] // 2, tx.shape[0] // 2
    if px + py > 0:
        for i in prange(C * D):
            c = i // D
            plane = field[c, i - c * D]
            line = np.empty(W + 2 * px, np.float32)
            buf = np.empty((H + 2 * py, W), np.float32)
            for y in range(H):
                if px > 0:
                    _filter_row(plane[y], tx, zero, line)
                if py > 0:
                    for x in range(W):
                        buf[y + py, x] = plane[y, x]
            if py > 0:
                _pad_lines(buf, py, H, zero)
                for y in range(H):
                    _combine(buf, y + py, ty, plane[y])
    if pz > 0:
        for i in prange(C * H):
            c = i // H
            y = i - c * H
            buf = np.empty((D + 2 * pz, W), np.float32)
            for z in range(D):
                for x in range(W):
                    buf[z + pz, x] = field[c, z, y, x]
            _pad_lines(buf, pz, D, zero)
            for z in range(D):
                _combine(buf, z + pz, tz, field[c, z, y])


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
    _gaussian(array(field), taps, boundary == "zero")
    return field


@exclusive
def smooth_box(field: Tensor, radius: Sequence[int]) -> Tensor:
    """Mean over (2r+1)-windows in place, truncated at the border; see the reference."""
    reach: Any = tuple(min(int(r), n - 1) for r, n in zip(radius, field.shape[1:], strict=True))
    _box(array(field), reach)
    return field

"""CPU form of `mind`: all channels of a voxel at once.

Twelve channels of a voxel lie side by side in twelve bytes, so the corners of a cell are eight loads and not 96, and
an image of channels takes as much memory as three of single precision. The loops over channels read sixteen bytes,
four of them of the next voxel, and give these no weight: that fits the vector unit. So the last voxel is followed by
four spare bytes.
"""

from typing import Any

import numpy as np
import torch
from numba import prange
from torch import Tensor

from warpfactor.kernels.numba._compile.jit import exclusive, inline, parallel, serial, unsigned
from warpfactor.kernels.numba.arrays import (
    array,
    check_field,
    check_shape,
    gradient_array,
    mask_array,
    matrix_array,
    strides,
)
from warpfactor.kernels.numba.interpolate_rows import CHUNKS, mask_row, place_row, row_buffers
from warpfactor.kernels.numba.mind_channels import LANES
from warpfactor.kernels.reference.mind import CHANNELS, FULL


@inline
def _fixed_slopes(own, at, z, y, x, D, H, W):  # type: ignore[no-untyped-def]
    """Where the neighbours of a voxel along each axis are, from `at`, and what to multiply their difference by."""
    size = unsigned(CHANNELS)
    up, down = unsigned(min(z + 1, D - 1) - z), unsigned(z - max(z - 1, 0))
    back, front = unsigned(min(y + 1, H - 1) - y), unsigned(y - max(y - 1, 0))
    right, left = unsigned(min(x + 1, W - 1) - x), unsigned(x - max(x - 1, 0))
    row = unsigned(W) * size
    plane = unsigned(H) * row
    half, one = np.float32(0.5), unsigned(1)
    return (
        (at - down * plane, at + up * plane, at - front * row, at + back * row, at - left * size, at + right * size),
        (half / max(up + down, one), half / max(back + front, one), half / max(right + left, one)),
    )


@serial
def _value(own, flat, f, corners, weights, keep):  # type: ignore[no-untyped-def]
    """Sum over channels of the squared difference at a voxel."""
    (b00, b01, b10, b11), sx = corners
    wz, wy, wx = weights
    square = np.float32(0.0)
    for k in range(LANES):
        c = unsigned(k)
        v00, v01 = np.float32(flat[b00 + c]), np.float32(flat[b01 + c])
        v10, v11 = np.float32(flat[b10 + c]), np.float32(flat[b11 + c])
        v00 += wx * (np.float32(flat[b00 + sx + c]) - v00)
        v01 += wx * (np.float32(flat[b01 + sx + c]) - v01)
        v10 += wx * (np.float32(flat[b10 + sx + c]) - v10)
        v11 += wx * (np.float32(flat[b11 + sx + c]) - v11)
        v00 += wy * (v01 - v00)
        v10 += wy * (v11 - v10)
        r = (np.float32(own[f + c]) - (v00 + wz * (v10 - v00))) * keep[c]
        square += r * r
    return square


@inline
def _channel(own, flat, f, c, corners, weights, keep):  # type: ignore[no-untyped-def]
    """The difference of a channel at a voxel, and the slopes of the moving channel there along z, y and x."""
    (b00, b01, b10, b11), sx = corners
    wz, wy, wx = weights
    v00, v01 = np.float32(flat[b00 + c]), np.float32(flat[b01 + c])
    v10, v11 = np.float32(flat[b10 + c]), np.float32(flat[b11 + c])
    d00, d01 = np.float32(flat[b00 + sx + c]) - v00, np.float32(flat[b01 + sx + c]) - v01
    d10, d11 = np.float32(flat[b10 + sx + c]) - v10, np.float32(flat[b11 + sx + c]) - v11
    v00 += wx * d00
    v10 += wx * d10
    e0 = v01 + wx * d01 - v00
    e1 = v11 + wx * d11 - v10
    v00 += wy * e0
    gz = v10 + wy * e1 - v00
    d00 += wy * (d01 - d00)
    d10 += wy * (d11 - d10)
    difference = (np.float32(own[f + c]) - (v00 + wz * gz)) * keep[c]
    return difference, gz, e0 + wz * (e1 - e0), d00 + wz * (d10 - d00)


@serial
def _force(own, flat, f, corners, weights, keep):  # type: ignore[no-untyped-def]
    """The same, and the sums of difference times slope of the moving channels, in its voxels."""
    zero = np.float32(0.0)
    square, az, ay, ax = zero, zero, zero, zero
    for k in range(LANES):
        r, gz, gy, gx = _channel(own, flat, f, unsigned(k), corners, weights, keep)
        square += r * r
        az += r * gz
        ay += r * gy
        ax += r * gx
    return square, az, ay, ax


@serial
def _both_forces(own, flat, f, corners, weights, keep, around):  # type: ignore[no-untyped-def]
    """The same, and then of the fixed channels' differences."""
    n0, n1, n2, n3, n4, n5 = around
    zero = np.float32(0.0)
    square, az, ay, ax, tz, ty, tx = zero, zero, zero, zero, zero, zero, zero
    for k in range(LANES):
        c = unsigned(k)
        r, gz, gy, gx = _channel(own, flat, f, c, corners, weights, keep)
        square += r * r
        az += r * gz
        ay += r * gy
        ax += r * gx
        tz += r * (np.float32(own[n1 + c]) - np.float32(own[n0 + c]))
        ty += r * (np.float32(own[n3 + c]) - np.float32(own[n2 + c]))
        tx += r * (np.float32(own[n5 + c]) - np.float32(own[n4 + c]))
    return square, az, ay, ax, tz, ty, tx


@serial
def _compare_row(F, moving, z, y, cells, parts, weight, A, symmetric, want, keep, grad):  # type: ignore[no-untyped-def]
    """Sum over a row of the squared differences of channels, and their forces into grad."""
    flat, _, stride = moving
    own, D, H, W = F
    size = unsigned(CHANNELS)
    sz, sy, sx = unsigned(stride[0]) * size, unsigned(stride[1]) * size, unsigned(stride[2]) * size
    here = unsigned((z * H + y) * W) * size
    scale, half, zero = np.float32(-2.0 / (CHANNELS * FULL**2)), np.float32(0.5), np.float32(0.0)
    total = 0.0
    for x in range(W):
        az, ay, ax, tz, ty, tx = zero, zero, zero, zero, zero, zero
        if weight[x] > 0.0:
            b, f = unsigned(cells[x]) * size, here + unsigned(x) * size
            corners = (b, b + sy, b + sz, b + sz + sy), sx
            three = parts[0, x], parts[1, x], parts[2, x]
            if not want:
                total += _value(own, flat, f, corners, three, keep)
            elif symmetric:
                around, by = _fixed_slopes(own, f, z, y, x, D, H, W)
                square, az, ay, ax, tz, ty, tx = _both_forces(own, flat, f, corners, three, keep, around)
                total += square
                az, ay, ax = half * az, half * ay, half * ax
                tz, ty, tx = tz * np.float32(by[0]), ty * np.float32(by[1]), tx * np.float32(by[2])
            else:
                square, az, ay, ax = _force(own, flat, f, corners, three, keep)
                total += square
            az, ay, ax = az * parts[3, x], ay * parts[4, x], ax * parts[5, x]
        if want:
            grad[0, z, y, x] = scale * (A[0, 0] * az + A[1, 0] * ay + A[2, 0] * ax + tz)
            grad[1, z, y, x] = scale * (A[0, 1] * az + A[1, 1] * ay + A[2, 1] * ax + ty)
            grad[2, z, y, x] = scale * (A[0, 2] * az + A[1, 2] * ay + A[2, 2] * ax + tx)
    return total


@parallel
def mind_of_planes(F, size, moving, u, A, fmask, mmask, symmetric, want, grad, z0, z1):  # type: ignore[no-untyped-def]
    """(2, D) totals and counts of planes z0 <= z < z1, and their part of the gradient."""
    D, H, W = size
    flat, shape, stride = moving
    B = A.astype(np.float32)
    sums = np.zeros((D, H))
    counts = np.zeros((D, H))
    rows = (z1 - z0) * H
    chunks = min(rows, CHUNKS)
    keep = np.zeros(LANES, np.float32)
    keep[:CHANNELS] = 1.0
    for k in prange(chunks):
        weight = np.empty(W, np.float32)
        cells, parts, _, _ = row_buffers(W)
        image, own = (flat, shape, stride), (F, D, H, W)
        for row in range(k * rows // chunks, (k + 1) * rows // chunks):
            z = z0 + row // H
            y = row % H
            place_row(u[0, z, y], u[1, z, y], u[2, z, y], A, z, y, 0, shape, cells, parts, weight)
            mask_row(fmask, mmask, z, y, 0, stride, cells, parts, weight)
            sums[z, y] = _compare_row(own, image, z, y, cells, parts, weight, B, symmetric, want, keep, grad)
            for x in range(W):
                counts[z, y] += weight[x]
    parts = np.zeros((2, D))
    for z in range(z0, z1):
        for y in range(H):
            parts[0, z] += sums[z, y]
            parts[1, z] += counts[z, y]
        parts[0, z] /= CHANNELS * FULL**2
    return parts


@exclusive
def mind(
    fixed: Tensor,
    moving: Tensor,
    displacement: Tensor,
    matrix: Tensor,
    *,
    gradient: Tensor | None = None,
    fixed_mask: Tensor | None = None,
    moving_mask: Tensor | None = None,
    symmetric: bool = False,
) -> tuple[float, float]:
    """Sum of squared differences of channels, count, and the derivative of the sum; see the reference."""
    arrays = mind_arrays(fixed, moving, displacement, matrix, fixed_mask, moving_mask)
    wanted = gradient is not None, gradient_array(gradient, tuple(fixed.shape[:3]))
    total, count = mind_of_planes(*arrays, symmetric, *wanted, 0, fixed.shape[0]).sum(1)
    return float(total), float(count)


def mind_arrays(
    fixed: Tensor,
    moving: Tensor,
    displacement: Tensor,
    matrix: Tensor,
    fixed_mask: Tensor | None,
    moving_mask: Tensor | None,
) -> Any:
    """The arrays as the kernel takes them."""
    shape, other = tuple(fixed.shape[:3]), tuple(moving.shape[:3])
    check_field("displacement", displacement, shape)
    return (
        _line(fixed),
        shape,
        (_line(moving), other, strides(other)),
        array(displacement),
        matrix_array(matrix, moving[..., 0], shape[0]),
        mask_array("fixed_mask", fixed_mask, fixed[..., 0]),
        mask_array("moving_mask", moving_mask, moving[..., 0]).reshape(-1),
    )


def _line(channels: Tensor) -> Any:
    """All channels in one line that goes on beyond them, as loops over sixteen bytes need; copied if it does not."""
    check_shape("channels", channels, (*channels.shape[:3], CHANNELS))
    size = channels.numel() + LANES - CHANNELS
    room = channels.untyped_storage().nbytes() - channels.storage_offset()
    if channels.dtype != torch.uint8 or not channels.is_contiguous() or room < size:
        line = np.zeros(size, np.uint8)
        line[: channels.numel()] = array(channels.to(torch.uint8)).reshape(-1)
        return line
    return array(channels.as_strided((size,), (1,)))

"""CPU forms of `mind_channels` and `mind`.

Twelve channels of a voxel lie side by side in twelve bytes, so the corners of a cell are eight loads and not 96, and
an image of channels takes as much memory as three of single precision. The loops over channels read sixteen bytes,
four of them of the next voxel, and give these no weight: that fits the vector unit. So the last voxel is followed by
four spare bytes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numba import prange
from torch import Tensor

from ..reference.mind import CHANNELS, FULL, LEAST, TRUNCATE, Offset
from ..taps import gaussian_kernel
from .jit import (
    array,
    check_field,
    check_shape,
    exclusive,
    gradient_array,
    inline,
    mask_array,
    matrix_array,
    offset,
    parallel,
    serial,
    strides,
)
from .warp import CHUNKS, mask_row, place_row, scratch

LANES = 16  # bytes read at once
TILE = 12  # planes and rows of a tile whose channels are made at once


@serial
def _shift_row(image, z, y, low, fraction, line, out):  # type: ignore[no-untyped-def]
    """out[x] = image at (z, y, x) + low + fraction, linear, edge values beyond the border; `line` is spare."""
    D, H, W = image.shape
    z0, z1 = min(max(z + low[0], 0), D - 1), min(max(z + low[0] + 1, 0), D - 1)
    y0, y1 = min(max(y + low[1], 0), H - 1), min(max(y + low[1] + 1, 0), H - 1)
    fz, fy, fx = fraction[0], fraction[1], fraction[2]
    a, b, c, d = image[z0, y0], image[z0, y1], image[z1, y0], image[z1, y1]
    one = np.float32(1.0)
    w0, w1, w2, w3 = (one - fz) * (one - fy), (one - fz) * fy, fz * (one - fy), fz * fy
    if w0 == one:
        for x in range(offset(W)):
            line[x] = np.float32(a[x])
    else:
        for x in range(offset(W)):
            line[x] = w0 * np.float32(a[x]) + w1 * np.float32(b[x]) + w2 * np.float32(c[x]) + w3 * np.float32(d[x])
    move = low[2]
    first, last = min(max(-move, 0), W), min(max(W - 1 - move, 0), W)  # where both neighbours are in the line
    for x in range(first):
        out[x] = line[0]
    for x in range(max(last, first), W):
        out[x] = line[W - 1]
    if first < last:
        target, both = out[first:last], line[first + move : last + move + 1]
        left, right = both[:-1], both[1:]
        for x in range(offset(target.shape[0])):
            target[x] = left[x] + fx * (right[x] - left[x])


@serial
def _weigh(lines, taps, out):  # type: ignore[no-untyped-def]
    """out[x] = sum over k of taps[k] lines[k, x]."""
    n = taps.shape[0]
    if n == 3:
        a, b, c, s, t, u = lines[0], lines[1], lines[2], taps[0], taps[1], taps[2]
        for x in range(offset(out.shape[0])):
            out[x] = s * a[x] + t * b[x] + u * c[x]
        return
    for x in range(offset(out.shape[0])):
        out[x] = taps[0] * lines[0, x]
    for k in range(1, n):
        t, line = taps[k], lines[k]
        for x in range(offset(out.shape[0])):
            out[x] += t * line[x]


@serial
def _weigh_along(padded, taps, out):  # type: ignore[no-untyped-def]
    """The same along a line, which begins half a window before `out`; its ends get its edge values first."""
    r, W = taps.shape[0] // 2, out.shape[0]
    for x in range(r):
        padded[x] = padded[r]
        padded[W + r + x] = padded[W + r - 1]
    if r == 1:
        a, b, c, s, t, u = padded[:-2], padded[1:-1], padded[2:], taps[0], taps[1], taps[2]
        for x in range(offset(W)):
            out[x] = s * a[x] + t * b[x] + u * c[x]
        return
    for x in range(offset(W)):
        out[x] = np.float32(0.0)
    for k in range(taps.shape[0]):
        t, moved = taps[k], padded[k : k + W]
        for x in range(offset(W)):
            out[x] += t * moved[x]


@serial
def _square_rows(image, z, y, shifts, pairs, moved, squares):  # type: ignore[no-untyped-def]
    """squares[k] = squared differences of pair k along row (z, y)."""
    lows, fractions = shifts
    for s in range(lows.shape[0]):
        _shift_row(image, z, y, lows[s], fractions[s], moved[lows.shape[0]], moved[s])
    for k in range(pairs.shape[0]):
        a, b, line = moved[pairs[k, 0]], moved[pairs[k, 1]], squares[k]
        for x in range(offset(line.shape[0])):
            d = a[x] - b[x]
            line[x] = d * d


@serial
def _distances(image, tile, shifts, pairs, taps, rooms, out):  # type: ignore[no-untyped-def]
    """out[k, z - z0, y - y0] = patch distances of pair k, for the planes z and rows y of a tile."""
    D, H, W = image.shape
    z0, z1, y0, y1 = tile
    tz, ty, tx = taps
    rz, ry, rx = tz.shape[0] // 2, ty.shape[0] // 2, tx.shape[0] // 2
    moved, squares, along_z, padded = rooms
    for i in range(z0 - rz, z1 + rz):
        for j in range(y0 - ry, y1 + ry):
            z, y = min(max(i, 0), D - 1), min(max(j, 0), H - 1)
            _square_rows(image, z, y, shifts, pairs, moved, squares[:, j - y0 + ry, i - z0 + rz])
    for k in range(pairs.shape[0]):
        for z in range(z1 - z0):
            for j in range(y1 - y0 + 2 * ry):
                _weigh(squares[k, j, z:], tz, along_z[j])
            for y in range(y1 - y0):
                _weigh(along_z[y:], ty, padded[rx : rx + W])
                _weigh_along(padded, tx, out[k, z, y])


@serial
def _spread_row(distances, out):  # type: ignore[no-untyped-def]
    """out[x] = mean of the twelve distances; returns its sum."""
    for x in range(offset(out.shape[0])):
        out[x] = np.float32(0.0)
    for k in range(CHANNELS):
        d = distances[k]
        for x in range(offset(out.shape[0])):
            out[x] += d[x]
    share, total = np.float32(1.0 / CHANNELS), 0.0
    for x in range(offset(out.shape[0])):
        out[x] *= share
        total += np.float64(out[x])
    return total


@serial
def _exponentials(distances, spread, floor, lines, out):  # type: ignore[no-untyped-def]
    """out[x, k] = 255 exp(-d_k / V), V being in `spread`; channel by channel, as `out` has no lines of its own."""
    one, quarter, third, half = np.float32(1.0), np.float32(0.25), np.float32(1.0 / 3.0), np.float32(0.5)
    sixteenth, most, full = np.float32(1.0 / 16.0), np.float32(8.0), np.float32(FULL)
    for x in range(offset(spread.shape[0])):
        spread[x] = one / max(spread[x], floor)
    for k in range(CHANNELS):
        d, line = distances[k], lines[k]
        for x in range(offset(spread.shape[0])):
            # exp(-t / 16) by its series, to the power of 16: within a hundredth of a step of 1/255
            t = min(d[x] * spread[x], most) * sixteenth
            e = one - t * (one - half * t * (one - third * t * (one - quarter * t)))
            e *= e
            e *= e
            e *= e
            e *= e
            line[x] = np.uint8(np.int32(full * e + half))
    for x in range(offset(spread.shape[0])):
        for k in range(CHANNELS):
            out[x, k] = lines[k, x]


@parallel
def _channels(image, lows, fractions, pairs, tz, ty, tx, tiles, floor, sums, out):  # type: ignore[no-untyped-def]
    """Channels of tiles, each given by its first plane and the one after the last, and the same for rows.

    sums[tile] is the sum of V in it. A negative floor makes no channels.
    """
    W = image.shape[2]
    rz, ry, rx = tz.shape[0] // 2, ty.shape[0] // 2, tx.shape[0] // 2
    for n in prange(tiles.shape[0]):
        z0, z1, y0, y1 = tiles[n, 0], tiles[n, 1], tiles[n, 2], tiles[n, 3]
        depth, height, single = z1 - z0, y1 - y0, np.float32
        distances = np.empty((CHANNELS, depth, height, W), single)
        squares = np.empty((CHANNELS, height + 2 * ry, depth + 2 * rz, W), single)
        moved, along_z = np.empty((lows.shape[0] + 1, W), single), np.empty((height + 2 * ry, W), single)
        rooms = moved, squares, along_z, np.empty(W + 2 * rx, single)
        spread, lines = np.empty(W, single), np.empty((CHANNELS, W), np.uint8)
        _distances(image, (z0, z1, y0, y1), (lows, fractions), pairs, (tz, ty, tx), rooms, distances)
        for z in range(depth):
            for y in range(height):
                sums[n] += _spread_row(distances[:, z, y], spread)
                if floor >= 0.0:
                    _exponentials(distances[:, z, y], spread, floor, lines, out[z0 + z, y0 + y])


@exclusive
def mind_channels(image: Tensor, *, pairs: Sequence[tuple[Offset, Offset]], sigma: Sequence[float]) -> Tensor:
    """Self-similarity channels; see the reference. The mean of V is that of one tile in eight, or of all of few."""
    shape = tuple(image.shape)
    if len(pairs) != CHANNELS:
        raise ValueError(f"{len(pairs)} pairs of patches; {CHANNELS} are needed")
    points = sorted({point for pair in pairs for point in pair})
    places = np.array(points, np.float64)
    lows = np.floor(places)
    index = np.array([[points.index(a), points.index(b)] for a, b in pairs], np.int64)
    taps = [_taps(s, n) for s, n in zip(sigma, shape, strict=True)]
    cuts = [[(i, min(i + TILE, n)) for i in range(0, n, TILE)] for n in shape[:2]]
    tiles = np.array([(*a, *b) for a in cuts[0] for b in cuts[1]], np.int64)
    room = torch.empty(image.numel() * CHANNELS + LANES - CHANNELS, dtype=torch.uint8)
    room[-(LANES - CHANNELS) :] = 0
    out = room[: image.numel() * CHANNELS].reshape(*shape, CHANNELS)
    args = (array(image), lows.astype(np.int64), (places - lows).astype(np.float32), index, *taps)
    some = tiles[:: 8 if len(tiles) >= 256 else 1]
    sums = np.zeros(len(some))
    _channels(*args, some, np.float32(-1.0), sums, out.numpy())
    voxels = ((some[:, 1] - some[:, 0]) * (some[:, 3] - some[:, 2])).sum() * shape[2]
    floor = np.float32(max(LEAST * sums.sum() / voxels, np.finfo(np.float32).tiny))
    _channels(*args, tiles, floor, np.zeros(len(tiles)), out.numpy())
    return out


def _taps(sigma: float, n: int) -> Any:
    return np.array(gaussian_kernel(sigma, TRUNCATE) if sigma > 0 and n > 1 else [1.0], np.float32)


@inline
def _fixed_slopes(own, at, z, y, x, D, H, W):  # type: ignore[no-untyped-def]
    """Where the neighbours of a voxel along each axis are, from `at`, and what to multiply their difference by."""
    size = offset(CHANNELS)
    up, down = offset(min(z + 1, D - 1) - z), offset(z - max(z - 1, 0))
    back, front = offset(min(y + 1, H - 1) - y), offset(y - max(y - 1, 0))
    right, left = offset(min(x + 1, W - 1) - x), offset(x - max(x - 1, 0))
    row = offset(W) * size
    plane = offset(H) * row
    half, one = np.float32(0.5), offset(1)
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
        c = offset(k)
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


@serial
def _force(own, flat, f, corners, weights, keep):  # type: ignore[no-untyped-def]
    """The same, and the sums of difference times slope of the moving channels, in its voxels."""
    (b00, b01, b10, b11), sx = corners
    wz, wy, wx = weights
    zero = np.float32(0.0)
    square, az, ay, ax = zero, zero, zero, zero
    for k in range(LANES):
        c = offset(k)
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
        r = (np.float32(own[f + c]) - (v00 + wz * gz)) * keep[c]
        square += r * r
        az += r * gz
        ay += r * (e0 + wz * (e1 - e0))
        ax += r * (d00 + wz * (d10 - d00))
    return square, az, ay, ax


@serial
def _both_forces(own, flat, f, corners, weights, keep, around):  # type: ignore[no-untyped-def]
    """The same, and then of the fixed channels' differences."""
    (b00, b01, b10, b11), sx = corners
    n0, n1, n2, n3, n4, n5 = around
    wz, wy, wx = weights
    zero = np.float32(0.0)
    square, az, ay, ax, tz, ty, tx = zero, zero, zero, zero, zero, zero, zero
    for k in range(LANES):
        c = offset(k)
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
        r = (np.float32(own[f + c]) - (v00 + wz * gz)) * keep[c]
        square += r * r
        az += r * gz
        ay += r * (e0 + wz * (e1 - e0))
        ax += r * (d00 + wz * (d10 - d00))
        tz += r * (np.float32(own[n1 + c]) - np.float32(own[n0 + c]))
        ty += r * (np.float32(own[n3 + c]) - np.float32(own[n2 + c]))
        tx += r * (np.float32(own[n5 + c]) - np.float32(own[n4 + c]))
    return square, az, ay, ax, tz, ty, tx


@serial
def _compare_row(F, moving, z, y, cells, parts, weight, A, symmetric, want, keep, grad):  # type: ignore[no-untyped-def]
    """Sum over a row of the squared differences of channels, and their forces into grad."""
    flat, _, stride = moving
    own, D, H, W = F
    size = offset(CHANNELS)
    sz, sy, sx = offset(stride[0]) * size, offset(stride[1]) * size, offset(stride[2]) * size
    here = offset((z * H + y) * W) * size
    scale, half, zero = np.float32(-2.0 / (CHANNELS * FULL**2)), np.float32(0.5), np.float32(0.0)
    total = 0.0
    for x in range(W):
        az, ay, ax, tz, ty, tx = zero, zero, zero, zero, zero, zero
        if weight[x] > 0.0:
            b, f = offset(cells[x]) * size, here + offset(x) * size
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
def _mind(F, size, moving, u, A, fmask, mmask, symmetric, want, grad):  # type: ignore[no-untyped-def]
    D, H, W = size
    flat, shape, stride = moving
    B = A.astype(np.float32)
    sums = np.zeros((D, H))
    counts = np.zeros((D, H))
    chunks = min(D * H, CHUNKS)
    keep = np.zeros(LANES, np.float32)
    keep[:CHANNELS] = 1.0
    for k in prange(chunks):
        weight = np.empty(W, np.float32)
        cells, parts, _, _ = scratch(W)
        image, own = (flat, shape, stride), (F, D, H, W)
        for row in range(k * D * H // chunks, (k + 1) * D * H // chunks):
            z = row // H
            y = row - z * H
            place_row(u[0, z, y], u[1, z, y], u[2, z, y], A, z, y, 0, shape, cells, parts, weight)
            mask_row(fmask, mmask, z, y, 0, stride, cells, parts, weight)
            sums[z, y] = _compare_row(own, image, z, y, cells, parts, weight, B, symmetric, want, keep, grad)
            for x in range(W):
                counts[z, y] += weight[x]
    total = 0.0
    count = 0.0
    for z in range(D):
        for y in range(H):
            total += sums[z, y]
            count += counts[z, y]
    return total / (CHANNELS * FULL**2), count


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
    shape, other = tuple(fixed.shape[:3]), tuple(moving.shape[:3])
    check_field("displacement", displacement, shape)
    own, theirs = _line(fixed), _line(moving)
    return _mind(
        own,
        shape,
        (theirs, other, strides(other)),
        array(displacement),
        matrix_array(matrix, moving[..., 0], shape[0]),
        mask_array("fixed_mask", fixed_mask, fixed[..., 0]),
        mask_array("moving_mask", moving_mask, moving[..., 0]).reshape(-1),
        symmetric,
        gradient is not None,
        gradient_array(gradient, shape),
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

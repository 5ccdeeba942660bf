"""CPU form of `mind_channels`: a tile at a time, whose patch distances stay in the cache."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numba import prange
from torch import Tensor

from warpfactor.kernels.numba._compile.jit import exclusive, parallel, serial, unsigned
from warpfactor.kernels.numba.arrays import array
from warpfactor.kernels.reference.mind import CHANNELS, FULL, LEAST, TRUNCATE, Offset
from warpfactor.kernels.taps import gaussian_kernel

LANES = 16  # bytes that `mind` reads at once; so the last voxel is followed by spare ones
TILE = 12  # planes and rows of a tile


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
        for x in range(unsigned(W)):
            line[x] = np.float32(a[x])
    else:
        for x in range(unsigned(W)):
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
        for x in range(unsigned(target.shape[0])):
            target[x] = left[x] + fx * (right[x] - left[x])


@serial
def _weigh(lines, taps, out):  # type: ignore[no-untyped-def]
    """out[x] = sum over k of taps[k] lines[k, x]."""
    n = taps.shape[0]
    if n == 3:
        a, b, c, s, t, u = lines[0], lines[1], lines[2], taps[0], taps[1], taps[2]
        for x in range(unsigned(out.shape[0])):
            out[x] = s * a[x] + t * b[x] + u * c[x]
        return
    for x in range(unsigned(out.shape[0])):
        out[x] = taps[0] * lines[0, x]
    for k in range(1, n):
        t, line = taps[k], lines[k]
        for x in range(unsigned(out.shape[0])):
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
        for x in range(unsigned(W)):
            out[x] = s * a[x] + t * b[x] + u * c[x]
        return
    for x in range(unsigned(W)):
        out[x] = np.float32(0.0)
    for k in range(taps.shape[0]):
        t, moved = taps[k], padded[k : k + W]
        for x in range(unsigned(W)):
            out[x] += t * moved[x]


@serial
def _square_rows(image, z, y, shifts, pairs, moved, squares):  # type: ignore[no-untyped-def]
    """squares[k] = squared differences of pair k along row (z, y)."""
    lows, fractions = shifts
    for s in range(lows.shape[0]):
        _shift_row(image, z, y, lows[s], fractions[s], moved[lows.shape[0]], moved[s])
    for k in range(pairs.shape[0]):
        a, b, line = moved[pairs[k, 0]], moved[pairs[k, 1]], squares[k]
        for x in range(unsigned(line.shape[0])):
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
    for x in range(unsigned(out.shape[0])):
        out[x] = np.float32(0.0)
    for k in range(CHANNELS):
        d = distances[k]
        for x in range(unsigned(out.shape[0])):
            out[x] += d[x]
    share, total = np.float32(1.0 / CHANNELS), 0.0
    for x in range(unsigned(out.shape[0])):
        out[x] *= share
        total += np.float64(out[x])
    return total


@serial
def _exponentials(distances, spread, floor, lines, out):  # type: ignore[no-untyped-def]
    """out[x, k] = 255 exp(-d_k / V), V being in `spread`; channel by channel, as `out` has no lines of its own."""
    one, quarter, third, half = np.float32(1.0), np.float32(0.25), np.float32(1.0 / 3.0), np.float32(0.5)
    sixteenth, most, full = np.float32(1.0 / 16.0), np.float32(8.0), np.float32(FULL)
    for x in range(unsigned(spread.shape[0])):
        spread[x] = one / max(spread[x], floor)
    for k in range(CHANNELS):
        d, line = distances[k], lines[k]
        for x in range(unsigned(spread.shape[0])):
            # exp(-t / 16) by its series, to the power of 16: within a hundredth of a step of 1/255
            t = min(d[x] * spread[x], most) * sixteenth
            e = one - t * (one - half * t * (one - third * t * (one - quarter * t)))
            e *= e
            e *= e
            e *= e
            e *= e
            line[x] = np.uint8(np.int32(full * e + half))
    for x in range(unsigned(spread.shape[0])):
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

"""CPU form of `compose`, fast for the short steps that registration takes.

A step s of at most one voxel along each axis ends between a voxel and its 26 neighbours. Interpolation is then a sum
over all 27 with the weights max(-s, 0), 1 - |s| and max(s, 0) along each axis. These are three times as many products
as for the corners of a cell, but they read whole rows, which the vector unit can do: at 192x192x192 with one thread
this takes 4.8 ns per voxel instead of 15.4. Rows with longer steps are composed voxel by voxel.
"""

from typing import Any

import numpy as np
import torch
from numba import prange
from torch import Tensor

from warpfactor.kernels.numba._compile.jit import exclusive, parallel, serial, unsigned
from warpfactor.kernels.numba.arrays import array, check_field, field_strides, target
from warpfactor.kernels.numba.interpolate import vector_at

BATCH = 1024  # number of voxels, in adjacent rows, that are composed at once
GROUPS = 64  # number of groups of batches; a thread allocates its buffers once per group


@serial
def _along_x(row, x, lo, mid, hi):  # type: ignore[no-untyped-def]
    """Weighted sum of three voxels in a row."""
    return lo * row[x - unsigned(1)] + mid * row[x] + hi * row[x + unsigned(1)]


@serial
def _weights(s):  # type: ignore[no-untyped-def]
    """Weights of the previous voxel, the voxel itself and the next one for a step s."""
    hi = max(s, np.float32(0.0))
    lo = hi - s
    return lo, np.float32(1.0) - hi - lo, hi


@serial
def _compose_near(f, steps, k, o, reach, dst):  # type: ignore[no-untyped-def]
    """Compose component k of all but the first and the last voxel from flat index o on; no step exceeds one voxel.

    `reach` holds the distances, in the flat index, of the previous and the next voxel along z, then along y.
    """
    n = dst.shape[0]
    zl, zh, yl, yh = reach
    below, above = o - zl, o + zh
    s, s0, s1, s2 = steps[k], steps[0], steps[1], steps[2]
    r00, r01, r02 = f[below - yl : below - yl + n], f[below : below + n], f[below + yh : below + yh + n]
    r10, r11, r12 = f[o - yl : o - yl + n], f[o : o + n], f[o + yh : o + yh + n]
    r20, r21, r22 = f[above - yl : above - yl + n], f[above : above + n], f[above + yh : above + yh + n]
    for x in range(unsigned(1), unsigned(n - 1)):
        z0, z1, z2 = _weights(s0[x])
        y0, y1, y2 = _weights(s1[x])
        x0, x1, x2 = _weights(s2[x])
        a = y0 * _along_x(r00, x, x0, x1, x2) + y1 * _along_x(r01, x, x0, x1, x2) + y2 * _along_x(r02, x, x0, x1, x2)
        b = y0 * _along_x(r10, x, x0, x1, x2) + y1 * _along_x(r11, x, x0, x1, x2) + y2 * _along_x(r12, x, x0, x1, x2)
        c = y0 * _along_x(r20, x, x0, x1, x2) + y1 * _along_x(r21, x, x0, x1, x2) + y2 * _along_x(r22, x, x0, x1, x2)
        dst[x] = s[x] + z0 * a + z1 * b + z2 * c


@serial
def _compose_far(f0, f1, f2, shape, stride, steps, z, y, x, i, d0, d1, d2):  # type: ignore[no-untyped-def]
    """Compose voxel (z, y, x), whose step is number i of `steps`."""
    a, b, c = steps[0, i], steps[1, i], steps[2, i]
    u0, u1, u2 = vector_at(f0, f1, f2, shape, stride, z + np.float64(a), y + np.float64(b), x + np.float64(c))
    d0[i], d1[i], d2[i] = a + u0, b + u1, c + u2


@serial
def _scaled(step, o, n, scale, steps):  # type: ignore[no-untyped-def]
    """Copy n steps from flat index o on, scaled, to `steps`; returns whether none exceeds one voxel along any axis."""
    one = np.float32(1.0)
    short = 0
    for k in range(3):
        src, dst = step[k, o : o + n], steps[k]
        for x in range(n):
            s = scale * src[x]
            dst[x] = s
            short += 1 if abs(s) <= one else 0
    return short == 3 * n


@serial
def _compose_rows(f0, f1, f2, shape, stride, step, scale, out, z, y0, y1, steps):  # type: ignore[no-untyped-def]
    """Compose rows y0 <= y < y1 of plane z; either all or none have a previous row, and the same for the next row."""
    D, H, W = shape
    o, n = (z * H + y0) * W, (y1 - y0) * W
    d0, d1, d2 = out[0, o : o + n], out[1, o : o + n], out[2, o : o + n]
    near = _scaled(step, o, n, scale, steps)
    if near:
        reach = (H * W if z > 0 else 0, H * W if z < D - 1 else 0, W if y0 > 0 else 0, W if y1 < H else 0)
        _compose_near(f0, steps, 0, o, reach, d0)
        _compose_near(f1, steps, 1, o, reach, d1)
        _compose_near(f2, steps, 2, o, reach, d2)
    for y in range(y0, y1):
        i = (y - y0) * W
        for x in range(0, W, max(1, W - 1) if near else 1):
            _compose_far(f0, f1, f2, shape, stride, steps, z, y, x, i + x, d0, d1, d2)


@parallel
def compose_planes(warp, shape, stride, step, scale, out, z0, z1):  # type: ignore[no-untyped-def]
    """Compose flat fields, (3, D H W), for planes z0 <= z < z1."""
    _, H, W = shape
    f0, f1, f2 = warp[0], warp[1], warp[2]
    many = max(1, BATCH // W)
    batches = -(-H // many)
    count = (z1 - z0) * batches
    groups = min(count, GROUPS)
    for g in prange(groups):
        steps = np.empty((3, many * W), np.float32)
        for k in range(g * count // groups, (g + 1) * count // groups):
            plane = k // batches
            z = z0 + plane
            y = (k - plane * batches) * many
            end = min(H, y + many)
            while y < end:  # the first and the last row of a plane, at its border, are composed on their own
                until = min(end, H - 1) if 0 < y < H - 1 else y + 1
                _compose_rows(f0, f1, f2, shape, stride, step, scale, out, z, y, until, steps)
                y = until


@exclusive
def compose(warp: Tensor, step: Tensor, *, scale: float = 1.0, out: Tensor | None = None) -> Tensor:
    """Displacement x -> s step(x) + warp(x + s step(x)); `out` may be `step`; see the reference."""
    result = torch.empty_like(warp, memory_format=torch.contiguous_format) if out is None else out
    compose_planes(*compose_arrays(warp, step, scale, result), 0, warp.shape[1])
    return result


def compose_arrays(warp: Tensor, step: Tensor, scale: float, result: Tensor) -> Any:
    """What the kernel takes: flat fields, their shape and strides."""
    shape = tuple(warp.shape[1:])
    for name, field in (("warp", warp), ("step", step), ("out", result)):
        check_field(name, field, shape)
    flat = (array(warp).reshape(3, -1), array(step).reshape(3, -1), target(result).reshape(3, -1))
    return flat[0], shape, field_strides(warp), flat[1], np.float32(scale), flat[2]

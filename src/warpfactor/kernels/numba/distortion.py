"""CPU form of `distortion`: shear and the least one-sided determinant, one pass over the rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numba import prange
from torch import Tensor

from warpfactor.kernels.numba._compile.jit import exclusive, inline, parallel
from warpfactor.kernels.numba.arrays import array, check_field, target
from warpfactor.kernels.reference.distortion import LEAST


@inline
def _minor(a, b, c, d):  # type: ignore[no-untyped-def]
    return a * d - b * c


@inline
def _solid(z0, z1, z2, y0, y1, y2, x0, x1, x2):  # type: ignore[no-untyped-def]
    """The determinant of the matrix with columns z, y, x."""
    return z0 * _minor(y1, y2, x1, x2) - y0 * _minor(z1, z2, x1, x2) + x0 * _minor(z1, z2, y1, y2)


@inline
def _least_of_four(z0, z1, z2, a0, a1, a2, b0, b1, b2, p0, p1, p2, q0, q1, q2):  # type: ignore[no-untyped-def]
    """The least determinant with column z, one of the columns a and b, and one of the columns p and q."""
    first = min(_solid(z0, z1, z2, a0, a1, a2, p0, p1, p2), _solid(z0, z1, z2, a0, a1, a2, q0, q1, q2))
    second = min(_solid(z0, z1, z2, b0, b1, b2, p0, p1, p2), _solid(z0, z1, z2, b0, b1, b2, q0, q1, q2))
    return min(first, second)


@parallel
def _distortion(u, spacing, shear, least):  # type: ignore[no-untyped-def]
    _, D, H, W = u.shape
    one, half, third = np.float32(1.0), np.float32(0.5), np.float32(1.0 / 3.0)
    floor = np.float32(LEAST)
    zy, zx = np.float32(spacing[0] / spacing[1]), np.float32(spacing[0] / spacing[2])
    yz, yx = np.float32(spacing[1] / spacing[0]), np.float32(spacing[1] / spacing[2])
    xz, xy = np.float32(spacing[2] / spacing[0]), np.float32(spacing[2] / spacing[1])
    for row in prange(D * H):
        z = row // H
        y = row - z * H
        # Both ends of the differences ahead and back; at the border both are the same difference.
        za, zb = max(min(z, D - 2), 0), max(z - 1, 0)
        zc, zd = min(za + 1, D - 1), min(zb + 1, D - 1)
        ya, yb = min(y, H - 2), max(y - 1, 0)
        u0, u1, u2 = u[0], u[1], u[2]
        for x in range(W):
            xa, xb = min(x, W - 2), max(x - 1, 0)
            a0, b0 = u0[z, ya + 1, x] - u0[z, ya, x], u0[z, yb + 1, x] - u0[z, yb, x]
            a1, b1 = one + u1[z, ya + 1, x] - u1[z, ya, x], one + u1[z, yb + 1, x] - u1[z, yb, x]
            a2, b2 = u2[z, ya + 1, x] - u2[z, ya, x], u2[z, yb + 1, x] - u2[z, yb, x]
            p0, q0 = u0[z, y, xa + 1] - u0[z, y, xa], u0[z, y, xb + 1] - u0[z, y, xb]
            p1, q1 = u1[z, y, xa + 1] - u1[z, y, xa], u1[z, y, xb + 1] - u1[z, y, xb]
            p2, q2 = one + u2[z, y, xa + 1] - u2[z, y, xa], one + u2[z, y, xb + 1] - u2[z, y, xb]
            y0, y1, y2 = half * (a0 + b0), half * (a1 + b1), half * (a2 + b2)
            x0, x1, x2 = half * (p0 + q0), half * (p1 + q1), half * (p2 + q2)
            if D == 1:
                volume = max(_minor(y1, y2, x1, x2), floor)
                square = y1 * y1 + (xy * y2) ** 2 + (yx * x1) ** 2 + x2 * x2
                shear[z, y, x] = half * square / volume - one
                first = min(_minor(a1, a2, p1, p2), _minor(a1, a2, q1, q2))
                least[z, y, x] = min(first, min(_minor(b1, b2, p1, p2), _minor(b1, b2, q1, q2)))
            else:
                m0, n0 = one + u0[zc, y, x] - u0[za, y, x], one + u0[zd, y, x] - u0[zb, y, x]
                m1, n1 = u1[zc, y, x] - u1[za, y, x], u1[zd, y, x] - u1[zb, y, x]
                m2, n2 = u2[zc, y, x] - u2[za, y, x], u2[zd, y, x] - u2[zb, y, x]
                z0, z1, z2 = half * (m0 + n0), half * (m1 + n1), half * (m2 + n2)
                volume = max(_solid(z0, z1, z2, y0, y1, y2, x0, x1, x2), floor)
                square = z0 * z0 + (yz * z1) ** 2 + (xz * z2) ** 2
                square += (zy * y0) ** 2 + y1 * y1 + (xy * y2) ** 2
                square += (zx * x0) ** 2 + (yx * x1) ** 2 + x2 * x2
                shear[z, y, x] = third * square * volume ** np.float32(-2.0 / 3.0) - one
                first = _least_of_four(m0, m1, m2, a0, a1, a2, b0, b1, b2, p0, p1, p2, q0, q1, q2)
                second = _least_of_four(n0, n1, n2, a0, a1, a2, b0, b1, b2, p0, p1, p2, q0, q1, q2)
                least[z, y, x] = min(first, second)


@exclusive
def distortion(displacement: Tensor, spacing: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Shear and the least one-sided determinant at every voxel; see the reference."""
    check_field("displacement", displacement)
    shear = torch.empty(displacement.shape[1:], dtype=displacement.dtype)
    least = torch.empty_like(shear)
    lengths: Any = tuple(float(s) for s in spacing)
    _distortion(array(displacement), lengths, target(shear), target(least))
    return shear, least

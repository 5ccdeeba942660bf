"""CPU form of `round_trip`, `resize`, `jacobian_determinant` and `invert`: operations on displacement fields."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numba import prange
from torch import Tensor

from warpfactor.kernels.buffers import new_field
from warpfactor.kernels.numba._compile.jit import exclusive, parallel, serial
from warpfactor.kernels.numba.arrays import array, check_field, field_strides, target
from warpfactor.kernels.numba.interpolate import split, value_gradient, vector_at
from warpfactor.kernels.reference.field import FIXED_POINT, SINGULAR, Matrix

GROUPS = 32  # number of groups of planes in `resize`; a thread allocates its row once per group
NEAR = 0.5  # voxels: residual below which `invert` starts from the voxels before


@parallel
def _round_trip(first, second, stride, gram, lengths, stays):  # type: ignore[no-untyped-def]
    _, D, H, W = first.shape
    zz, zy, zx, yy, yx, xx = gram
    f0, f1, f2 = second[0].ravel(), second[1].ravel(), second[2].ravel()
    for row in prange(D * H):
        z = row // H
        y = row - z * H
        for x in range(W):
            a, b, c = first[0, z, y, x], first[1, z, y, x], first[2, z, y, x]
            pz, py, px = z + np.float64(a), y + np.float64(b), x + np.float64(c)
            u0, u1, u2 = vector_at(f0, f1, f2, (D, H, W), stride, pz, py, px)
            a, b, c = a + u0, b + u1, c + u2
            square = a * (zz * a + zy * b + zx * c) + b * (zy * a + yy * b + yx * c) + c * (zx * a + yx * b + xx * c)
            lengths[z, y, x] = np.sqrt(max(square, np.float32(0.0)))
            stays[z, y, x] = (pz >= 0) & (pz <= D - 1) & (py >= 0) & (py <= H - 1) & (px >= 0) & (px <= W - 1)


@parallel
def resize_planes(field, scale, offset, out, z0, z1):  # type: ignore[no-untyped-def]
    """Blend four rows of the field into one, then interpolate along it, for planes z0 <= z < z1 of the result."""
    _, d, h, w = field.shape
    C, _, H, W = out.shape
    D = z1 - z0
    first = np.empty(W, np.int64)
    share = np.empty(W, np.float32)
    for x in range(W):
        first[x], share[x] = split(scale[2] * x + offset[2], w)
    groups = min(C * D, GROUPS)
    for g in prange(groups):
        line = np.empty(w + 1, np.float32)
        for plane in range(g * C * D // groups, (g + 1) * C * D // groups):
            c = plane // D
            z = z0 + plane - c * D
            iz, fz = split(scale[0] * z + offset[0], d)
            near, far = field[c, iz], field[c, min(iz + 1, d - 1)]
            for y in range(H):
                iy, fy = split(scale[1] * y + offset[1], h)
                jy = min(iy + 1, h - 1)
                for x in range(w):
                    a = near[iy, x] + fy * (near[jy, x] - near[iy, x])
                    b = far[iy, x] + fy * (far[jy, x] - far[iy, x])
                    line[x] = a + fz * (b - a)
                line[w] = line[w - 1]
                for x in range(W):
                    i = first[x]
                    out[c, z, y, x] = line[i] + share[x] * (line[i + 1] - line[i])


@parallel
def jacobian_of_planes(u, out, start, stop):  # type: ignore[no-untyped-def]
    """Determinants of planes start <= z < stop."""
    _, D, H, W = u.shape
    for row in prange((stop - start) * H):
        z = start + row // H
        y = row % H
        z0, z1 = max(z - 1, 0), min(z + 1, D - 1)
        y0, y1 = max(y - 1, 0), min(y + 1, H - 1)
        kz = np.float32(1.0 / max(z1 - z0, 1))
        ky = np.float32(1.0 / max(y1 - y0, 1))
        one = np.float32(1.0)
        for x in range(W):
            x0, x1 = max(x - 1, 0), min(x + 1, W - 1)
            kx = one / np.float32(max(x1 - x0, 1))
            zz = one + kz * (u[0, z1, y, x] - u[0, z0, y, x])
            zy = ky * (u[0, z, y1, x] - u[0, z, y0, x])
            zx = kx * (u[0, z, y, x1] - u[0, z, y, x0])
            yz = kz * (u[1, z1, y, x] - u[1, z0, y, x])
            yy = one + ky * (u[1, z, y1, x] - u[1, z, y0, x])
            yx = kx * (u[1, z, y, x1] - u[1, z, y, x0])
            xz = kz * (u[2, z1, y, x] - u[2, z0, y, x])
            xy = ky * (u[2, z, y1, x] - u[2, z, y0, x])
            xx = one + kx * (u[2, z, y, x1] - u[2, z, y, x0])
            out[z, y, x] = zz * (yy * xx - yx * xy) - zy * (yz * xx - yx * xz) + zx * (yz * xy - yy * xz)


@serial
def _newton_direction(f0, f1, f2, shape, stride, pz, py, px, qa, qb, qc):  # type: ignore[no-untyped-def]
    """(I + du/dx)⁻¹ q with the derivative of the linear interpolant at a point; q itself where that is singular."""
    D, H, W = shape
    sz, sy, sx = stride
    iz, fz = split(pz, D)
    iy, fy = split(py, H)
    ix, fx = split(px, W)
    b = (iz * H + iy) * W + ix
    _, zz, zy, zx = value_gradient(f0, b, sz, sy, sx, fz, fy, fx)
    _, yz, yy, yx = value_gradient(f1, b, sz, sy, sx, fz, fy, fx)
    _, xz, xy, xx = value_gradient(f2, b, sz, sy, sx, fz, fy, fx)
    zz += 1.0
    yy += 1.0
    xx += 1.0
    m0 = yy * xx - yx * xy
    m1 = zx * xy - zy * xx
    m2 = zy * yx - zx * yy
    det = zz * m0 + yz * m1 + xz * m2
    if abs(det) < SINGULAR:
        return qa, qb, qc
    a = m0 * qa + m1 * qb + m2 * qc
    b_ = (yx * xz - yz * xx) * qa + (zz * xx - zx * xz) * qb + (zx * yz - zz * yx) * qc
    c = (yz * xy - yy * xz) * qa + (zy * xz - zz * xy) * qb + (zz * yy - zy * yz) * qc
    return a / det, b_ / det, c / det


@parallel
def _invert(u, stride, v, iterations, tolerance, residual):  # type: ignore[no-untyped-def]
    """Iterate at every voxel separately; see the reference for the rule.

    Along a row the inverse is continued in a straight line from the two voxels before, which is most often much nearer
    than the start that is given: on a brain it saves half of the iterations. It is used if it is near.
    """
    _, D, H, W = u.shape
    f0, f1, f2 = u[0].ravel(), u[1].ravel(), u[2].ravel()
    for row in prange(D * H):
        z = row // H
        y = row - z * H
        va, vb, vc = v[0, z, y], v[1, z, y], v[2, z, y]
        for x in range(W):
            a, b, c = np.float64(va[x]), np.float64(vb[x]), np.float64(vc[x])
            guessed = x > 1 and iterations > 0
            if guessed:
                a, b, c = 2.0 * va[x - 1] - va[x - 2], 2.0 * vb[x - 1] - vb[x - 2], 2.0 * vc[x - 1] - vc[x - 2]
            best_a, best_b, best_c, best = a, b, c, np.inf
            ra = rb = rc = 0.0
            rate = 1.0
            for k in range(iterations + 1):
                u0, u1, u2 = vector_at(f0, f1, f2, (D, H, W), stride, z + a, y + b, x + c)
                qa, qb, qc = a + u0, b + u1, c + u2
                r = np.sqrt(qa * qa + qb * qb + qc * qc)
                if guessed and k == 0 and not r < NEAR:
                    a, b, c = np.float64(va[x]), np.float64(vb[x]), np.float64(vc[x])
                    continue
                if r < best:
                    best_a, best_b, best_c, best = a, b, c, r
                    ra, rb, rc = qa, qb, qc
                    rate = min(1.0, 2.0 * rate)
                else:
                    rate *= 0.5
                if best < tolerance:
                    break
                if k == FIXED_POINT:
                    rate = 1.0
                da, db, dc = ra, rb, rc
                if k >= FIXED_POINT:
                    da, db, dc = _newton_direction(
                        f0, f1, f2, (D, H, W), stride, z + best_a, y + best_b, x + best_c, ra, rb, rc
                    )
                a, b, c = best_a - rate * da, best_b - rate * db, best_c - rate * dc
            va[x], vb[x], vc[x] = best_a, best_b, best_c
            residual[z, y, x] = best


@exclusive
def round_trip(first: Tensor, second: Tensor, gram: Matrix) -> tuple[Tensor, Tensor]:
    """|first(x) + second(x + first(x))| and whether x + first(x) is inside the grid; see the reference."""
    check_field("first", first)
    check_field("second", second, first.shape[1:])
    lengths = torch.empty(first.shape[1:], dtype=first.dtype)
    stays = torch.empty(first.shape[1:], dtype=torch.bool)
    entries: Any = tuple(np.float32(gram[a][b]) for a, b in ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)))
    _round_trip(array(first), array(second), field_strides(first), entries, target(lengths), target(stays))
    return lengths, stays


@exclusive
def resize(field: Tensor, shape: Sequence[int], scale: Sequence[float], offset: Sequence[float]) -> Tensor:
    """The field at scale i + offset for every index i of the result; see the reference."""
    out = new_field((field.shape[0], *shape), dtype=field.dtype)
    resize_planes(*resize_arrays(field, scale, offset, out), 0, out.shape[1])
    return out


def resize_arrays(field: Tensor, scale: Sequence[float], offset: Sequence[float], out: Tensor) -> Any:
    """What the kernel takes."""
    return array(field), tuple(float(s) for s in scale), tuple(float(s) for s in offset), target(out)


@exclusive
def jacobian_determinant(displacement: Tensor) -> Tensor:
    """det(I + du/dx) at every voxel; see the reference."""
    check_field("displacement", displacement)
    out = torch.empty(displacement.shape[1:], dtype=displacement.dtype)
    jacobian_of_planes(array(displacement), target(out), 0, out.shape[0])
    return out


@exclusive
def invert(
    displacement: Tensor, *, start: Tensor | None = None, iterations: int = 50, tolerance: float = 1e-3
) -> tuple[Tensor, Tensor]:
    """Displacement v with v(x) + u(x + v(x)) ≈ 0, and the norm of that sum; see the reference."""
    check_field("displacement", displacement)
    if start is not None:
        check_field("start", start, displacement.shape[1:])
    v = (-displacement if start is None else start.clone()).contiguous()
    residual = torch.empty(displacement.shape[1:], dtype=displacement.dtype)
    _invert(array(displacement), field_strides(displacement), target(v), iterations, tolerance, target(residual))
    return v, residual

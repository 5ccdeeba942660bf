"""Linear interpolation at one point: the cell that contains it, its value and its derivative.

Images may have any real number type; a value is converted to float32 when it is read.
"""

import numpy as np

from warpfactor.kernels.numba._compile.jit import inline


@inline
def split(p, n):  # type: ignore[no-untyped-def]
    """Index of the cell and fraction within it of coordinate p, clamped to [0, n - 1]; a NaN gives cell 0."""
    q = min(max(p, 0.0), n - 1.0)
    i = max(min(int(q), max(n - 2, 0)), 0)
    return i, np.float32(q - i)


@inline
def is_inside(pz, py, px, d, h, w):  # type: ignore[no-untyped-def]
    """Whether a point belongs to the image: up to half a voxel beyond the outermost voxel centres, as in ITK."""
    return (pz >= -0.5) & (pz <= d - 0.5) & (py >= -0.5) & (py <= h - 0.5) & (px >= -0.5) & (px <= w - 0.5)


@inline
def locate(A, z, y, x, uz, uy, ux):  # type: ignore[no-untyped-def]
    """Moving voxel coordinates A (x + u) of the fixed voxel (z, y, x) with displacement (uz, uy, ux)."""
    qz = z + np.float64(uz)
    qy = y + np.float64(uy)
    qx = x + np.float64(ux)
    return (
        A[0, 0] * qz + A[0, 1] * qy + A[0, 2] * qx + A[0, 3],
        A[1, 0] * qz + A[1, 1] * qy + A[1, 2] * qx + A[1, 3],
        A[2, 0] * qz + A[2, 1] * qy + A[2, 2] * qx + A[2, 3],
    )


@inline
def value_gradient(flat, b, sz, sy, sx, fz, fy, fx):  # type: ignore[no-untyped-def]
    """Trilinear value and its derivative along (z, y, x) in the cell whose lowest corner is flat[b]."""
    v000 = np.float32(flat[b])
    v010 = np.float32(flat[b + sy])
    c = b + sz
    v100 = np.float32(flat[c])
    v110 = np.float32(flat[c + sy])
    d00 = np.float32(flat[b + sx]) - v000
    d01 = np.float32(flat[b + sy + sx]) - v010
    d10 = np.float32(flat[c + sx]) - v100
    d11 = np.float32(flat[c + sy + sx]) - v110
    w00 = v000 + fx * d00
    w10 = v100 + fx * d10
    e0 = v010 + fx * d01 - w00
    e1 = v110 + fx * d11 - w10
    s0 = w00 + fy * e0
    gz = w10 + fy * e1 - s0
    gx0 = d00 + fy * (d01 - d00)
    gx1 = d10 + fy * (d11 - d10)
    return s0 + fz * gz, gz, e0 + fz * (e1 - e0), gx0 + fz * (gx1 - gx0)


@inline
def value(flat, b, sz, sy, sx, fz, fy, fx):  # type: ignore[no-untyped-def]
    """Trilinear value in the cell whose lowest corner is flat[b]."""
    c = b + sz
    v000, v010 = np.float32(flat[b]), np.float32(flat[b + sy])
    v100, v110 = np.float32(flat[c]), np.float32(flat[c + sy])
    w00 = v000 + fx * (np.float32(flat[b + sx]) - v000)
    w01 = v010 + fx * (np.float32(flat[b + sy + sx]) - v010)
    w10 = v100 + fx * (np.float32(flat[c + sx]) - v100)
    w11 = v110 + fx * (np.float32(flat[c + sy + sx]) - v110)
    s0 = w00 + fy * (w01 - w00)
    return s0 + fz * (w10 + fy * (w11 - w10) - s0)


@inline
def vector_at(f0, f1, f2, shape, stride, pz, py, px):  # type: ignore[no-untyped-def]
    """The vector of a field at a point, by linear interpolation; beyond the border the edge value holds."""
    D, H, W = shape
    sz, sy, sx = stride
    iz, fz = split(pz, D)
    iy, fy = split(py, H)
    ix, fx = split(px, W)
    b = (iz * H + iy) * W + ix
    c = b + sz
    gx = np.float32(1.0) - fx
    w00 = (np.float32(1.0) - fz) * (np.float32(1.0) - fy)
    w01 = (np.float32(1.0) - fz) * fy
    w10 = fz * (np.float32(1.0) - fy)
    w11 = fz * fy
    u0 = gx * (w00 * f0[b] + w01 * f0[b + sy] + w10 * f0[c] + w11 * f0[c + sy]) + fx * (
        w00 * f0[b + sx] + w01 * f0[b + sy + sx] + w10 * f0[c + sx] + w11 * f0[c + sy + sx]
    )
    u1 = gx * (w00 * f1[b] + w01 * f1[b + sy] + w10 * f1[c] + w11 * f1[c + sy]) + fx * (
        w00 * f1[b + sx] + w01 * f1[b + sy + sx] + w10 * f1[c + sx] + w11 * f1[c + sy + sx]
    )
    u2 = gx * (w00 * f2[b] + w01 * f2[b + sy] + w10 * f2[c] + w11 * f2[c + sy]) + fx * (
        w00 * f2[b + sx] + w01 * f2[b + sy + sx] + w10 * f2[c + sx] + w11 * f2[c + sy + sx]
    )
    return u0, u1, u2


@inline
def field_at(u, moved, z, y, x):  # type: ignore[no-untyped-def]
    """The displacement at a voxel; zero without a field (`moved` is False, and u is arrays.NO_FIELD)."""
    if moved:
        return u[0, z, y, x], u[1, z, y, x], u[2, z, y, x]
    return u[0, 0, 0, 0], u[1, 0, 0, 0], u[2, 0, 0, 0]

"""Linear interpolation of the moving image along one row of the fixed grid: values, and derivatives by u.

This is done in three loops: compute the cell, the fractions and the weight of every point; read the corners of every
cell; interpolate. Only reading the corners does not use the vector unit, since some processors gather more slowly than
they load pairs. On one thread of a Zen 4, with the data in the cache, value and gradient take 3.5 ns per voxel; a
single loop that reads and interpolates takes 5.4.
"""

import numpy as np

from warpfactor.kernels.numba._compile.jit import inline, serial, unsigned

# Fractions along z, y, x; then, per axis, 1 where the value changes along it and 0 beyond the outermost voxel centres,
# where the edge value holds.
PARTS = 6
CHUNKS = 64  # number of chunks of the rows of a volume; a thread allocates its buffers once per chunk
ZERO = np.float32(0.0)
HALF = np.float32(0.5)  # a point is inside the image up to half a voxel beyond the outermost centres, as in ITK


@inline
def row_buffers(n):  # type: ignore[no-untyped-def]
    """Buffers for a row of n points: cells (flat index of the lowest corner), parts, corners and intermediate lines."""
    return (
        np.empty(n, np.uint32),
        np.empty((PARTS, n), np.float32),
        np.empty((4, 2 * n), np.float32),
        np.empty((8, n), np.float32),
    )


@inline
def clamp(p, n):  # type: ignore[no-untyped-def]
    """Coordinate clamped to [0, n - 1], its cell and its fraction; a NaN gives cell 0."""
    q = min(max(p, 0.0), n - 1.0)
    i = max(min(np.int32(q), np.int32(max(n - 2, 0))), np.int32(0))
    return q, i, np.float32(q - i)


@serial
def place_row(u0, u1, u2, A, z, y, x0, shape, cells, parts, weight):  # type: ignore[no-untyped-def]
    """Compute cells, parts and weights of the points A (x + u(x)) of row (z, y), from x0 on, in an image of `shape`.

    The weight is 1 where a point is inside the image and 0 elsewhere.
    """
    d, h, w = shape
    cz = A[0, 0] * z + A[0, 1] * y + A[0, 3]
    cy = A[1, 0] * z + A[1, 1] * y + A[1, 3]
    cx = A[2, 0] * z + A[2, 1] * y + A[2, 3]
    zz, zy, zx = A[0, 0], A[0, 1], A[0, 2]
    yz, yy, yx = A[1, 0], A[1, 1], A[1, 2]
    xz, xy, xx = A[2, 0], A[2, 1], A[2, 2]
    fz, fy, fx, kz, ky, kx = parts[0], parts[1], parts[2], parts[3], parts[4], parts[5]
    one, zero = np.float32(1.0), np.float32(0.0)
    for x in range(cells.shape[0]):
        a, b, c = np.float64(u0[x]), np.float64(u1[x]), x0 + x + np.float64(u2[x])
        pz = cz + zz * a + zy * b + zx * c
        py = cy + yz * a + yy * b + yx * c
        px = cx + xz * a + xy * b + xx * c
        qz, iz, fz[x] = clamp(pz, d)
        qy, iy, fy[x] = clamp(py, h)
        qx, ix, fx[x] = clamp(px, w)
        kz[x] = one if pz == qz else zero
        ky[x] = one if py == qy else zero
        kx[x] = one if px == qx else zero
        cells[x] = (iz * h + iy) * w + ix
        far = max(max(abs(pz - qz), abs(py - qy)), abs(px - qx))
        weight[x] = one if far <= HALF else zero


@serial
def mask_row(fmask, mmask, z, y, x0, stride, cells, parts, weight):  # type: ignore[no-untyped-def]
    """Set the weight to 0 where the fixed mask, or the moving mask at the nearest voxel, is 0.

    The moving mask is flat, like the image that is interpolated. A mask of one voxel stands for none.
    """
    if fmask.size > 1:
        for x in range(weight.shape[0]):
            weight[x] = weight[x] if fmask[z, y, x0 + x] > 0 else np.float32(0.0)
    if mmask.size > 1:
        sz, sy, sx = stride
        for x in range(weight.shape[0]):
            b = np.int64(cells[x])
            b += sz if parts[0, x] >= HALF else 0
            b += sy if parts[1, x] >= HALF else 0
            b += sx if parts[2, x] >= HALF else 0
            weight[x] = weight[x] if mmask[b] > 0 else np.float32(0.0)


@serial
def _read_corners(flat, stride, cells, corners):  # type: ignore[no-untyped-def]
    """Read the corners of all cells: lines of pairs along x, at (z, y), (z, y + 1), (z + 1, y) and (z + 1, y + 1)."""
    sz, sy, sx = unsigned(stride[0]), unsigned(stride[1]), unsigned(stride[2])
    if sx == unsigned(1):  # as a constant, it lets the compiler read a pair at once
        _read_pairs(flat, sz, sy, unsigned(1), cells, corners)
    else:
        _read_pairs(flat, sz, sy, sx, cells, corners)


@inline
def _read_pairs(flat, sz, sy, sx, cells, corners):  # type: ignore[no-untyped-def]
    """`_read_corners` with the strides as separate numbers."""
    one = unsigned(1)
    p, q, r, s = corners[0], corners[1], corners[2], corners[3]
    for x in range(unsigned(cells.shape[0])):
        i, b = x + x, unsigned(cells[x])
        c = b + sz
        p[i], p[i + one] = np.float32(flat[b]), np.float32(flat[b + sx])
        q[i], q[i + one] = np.float32(flat[b + sy]), np.float32(flat[b + sy + sx])
        r[i], r[i + one] = np.float32(flat[c]), np.float32(flat[c + sx])
        s[i], s[i + one] = np.float32(flat[c + sy]), np.float32(flat[c + sy + sx])


@serial
def _interpolate_pairs(corners, fx, values, slopes):  # type: ignore[no-untyped-def]
    """Interpolate the pairs of corners along x: their values, and their differences as slopes."""
    one = unsigned(1)
    for x in range(unsigned(values.shape[0])):
        i = x + x
        low = corners[i]
        slope = corners[i + one] - low
        slopes[x] = slope
        values[x] = low + fx[x] * slope


@serial
def value_row(flat, stride, buffers, weight, outside, out):  # type: ignore[no-untyped-def]
    """Image values at the points that `place_row` computed; `outside` where the weight is zero."""
    cells, parts, corners, lines = buffers
    n = out.shape[0]
    _read_corners(flat, stride, cells[:n], corners)
    fz, fy, fx = parts[0], parts[1], parts[2]
    for k in range(4):
        _interpolate_pairs(corners[k], fx, lines[k, :n], lines[4 + k, :n])
    v00, v01, v10, v11 = lines[0], lines[1], lines[2], lines[3]
    for x in range(n):
        e0 = v01[x] - v00[x]
        e1 = v11[x] - v10[x]
        s0 = v00[x] + fy[x] * e0
        gz = v10[x] + fy[x] * e1 - s0
        out[x] = s0 + fz[x] * gz if weight[x] > 0.0 else outside


@serial
def gradient_row(flat, stride, buffers, weight, B, outside, out, g0, g1, g2):  # type: ignore[no-untyped-def]
    """As `value_row`, with the derivatives by the displacement, which are zero where the weight is zero.

    The derivatives are collected in `parts` and then written component by component. The components of a field of
    512³ lie a power of two apart and share places in the cache: a loop that wrote to all three took 43 ns per voxel
    there, and 12 at 496³.
    """
    cells, parts, corners, lines = buffers
    n = out.shape[0]
    _read_corners(flat, stride, cells[:n], corners)
    fz, fy, fx, kz, ky, kx = parts[0], parts[1], parts[2], parts[3], parts[4], parts[5]
    zz, zy, zx = B[0, 0], B[0, 1], B[0, 2]
    yz, yy, yx = B[1, 0], B[1, 1], B[1, 2]
    xz, xy, xx = B[2, 0], B[2, 1], B[2, 2]
    zero = np.float32(0.0)
    for k in range(4):
        _interpolate_pairs(corners[k], fx, lines[k, :n], lines[4 + k, :n])
    v00, v01, v10, v11 = lines[0], lines[1], lines[2], lines[3]
    d00, d01, d10, d11 = lines[4], lines[5], lines[6], lines[7]
    for x in range(n):
        e0 = v01[x] - v00[x]
        e1 = v11[x] - v10[x]
        s0 = v00[x] + fy[x] * e0
        gz = v10[x] + fy[x] * e1 - s0
        gx0 = d00[x] + fy[x] * (d01[x] - d00[x])
        gx1 = d10[x] + fy[x] * (d11[x] - d10[x])
        a, b, c = gz * kz[x], (e0 + fz[x] * (e1 - e0)) * ky[x], (gx0 + fz[x] * (gx1 - gx0)) * kx[x]
        on = weight[x] > 0.0
        out[x] = s0 + fz[x] * gz if on else outside
        kz[x] = zz * a + yz * b + xz * c if on else zero
        ky[x] = zy * a + yy * b + xy * c if on else zero
        kx[x] = zx * a + yx * b + xx * c if on else zero
    for x in range(n):
        g0[x] = kz[x]
    for x in range(n):
        g1[x] = ky[x]
    for x in range(n):
        g2[x] = kx[x]


@serial
def sample_row(image, u, A, B, fmask, mmask, z, y, x0, want, outside, M, weight, buffers, grad):  # type: ignore[no-untyped-def]
    """Warped values M and weights of row (z, y) for as many voxels as M holds, from x0 on; dM/du too if `want`.

    Where the weight is zero, M gets the value `outside`. `image` comes from `arrays.volume`.
    """
    flat, shape, stride = image
    cells, parts = buffers[0][: M.shape[0]], buffers[1]
    x1 = x0 + M.shape[0]
    u0, u1, u2 = u[0, z, y, x0:x1], u[1, z, y, x0:x1], u[2, z, y, x0:x1]
    place_row(u0, u1, u2, A, z, y, x0, shape, cells, parts, weight)
    mask_row(fmask, mmask, z, y, x0, stride, cells, parts, weight)
    if want:
        g0, g1, g2 = grad[0, z, y, x0:x1], grad[1, z, y, x0:x1], grad[2, z, y, x0:x1]
        gradient_row(flat, stride, buffers, weight, B, outside, M, g0, g1, g2)
    else:
        value_row(flat, stride, buffers, weight, outside, M)


@serial
def symmetrize_row(F, z, y, rho, grad, x0, x1):  # type: ignore[no-untyped-def]
    """Replace dM/du by (dM/du + rho dF/dx) / 2 for the voxels x0 <= x < x1 of a row where rho is not zero."""
    D, H, W = F.shape
    z0, z1 = max(z - 1, 0), min(z + 1, D - 1)
    y0, y1 = max(y - 1, 0), min(y + 1, H - 1)
    kz = np.float32(0.5 / max(z1 - z0, 1))
    ky = np.float32(0.5 / max(y1 - y0, 1))
    half, one = np.float32(0.5), np.float32(1.0)
    below, above, before, after = F[z0, y], F[z1, y], F[z, y0], F[z, y1]
    row = F[z, y]
    g0, g1, g2 = grad[0, z, y], grad[1, z, y], grad[2, z, y]
    for x in range(unsigned(x0), unsigned(x1)):
        q = rho[x]
        own = half if q != 0.0 else one
        g0[x] = own * g0[x] + q * kz * (np.float32(above[x]) - np.float32(below[x]))
        g1[x] = own * g1[x] + q * ky * (np.float32(after[x]) - np.float32(before[x]))
        g2[x] = own * g2[x]
    quarter = np.float32(0.25)
    left, right, inner, ratio = row[:-2], row[2:], g2[1:-1], rho[1:-1]
    for x in range(unsigned(max(x0 - 1, 0)), unsigned(max(min(x1, W - 1) - 1, 0))):
        inner[x] += quarter * ratio[x] * (np.float32(right[x]) - np.float32(left[x]))
    if x0 == 0 and x0 < x1 and W > 1:
        g2[0] += half * rho[0] * (np.float32(row[1]) - np.float32(row[0]))
    if x1 == W and x0 < x1 and W > 1:
        g2[W - 1] += half * rho[W - 1] * (np.float32(row[W - 1]) - np.float32(row[W - 2]))


@serial
def multiply_row(force, grad, z, y, x0, x1):  # type: ignore[no-untyped-def]
    """grad *= force along a row, component by component for the reason given in `gradient_row`."""
    for k in range(3):
        line = grad[k, z, y]
        for x in range(unsigned(x0), unsigned(x1)):
            line[x] *= force[x]

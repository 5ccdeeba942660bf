"""Parts of kernels: where voxels go, and what an image has there. They are inlined into the kernels that call them."""

import triton
import triton.language as tl


@triton.jit
def voxel(i, ny, nx):
    """(z, y, x) of the voxel number i."""
    row = i // nx
    return row // ny, row % ny, i - row * nx


@triton.jit
def moved_voxel(u, voxels, i, ny, nx, use, HAS_FIELD: tl.constexpr):
    """x + u(x) of the voxel number i, as floating-point coordinates (z, y, x)."""
    z, y, x = voxel(i, ny, nx)
    qz, qy, qx = z.to(tl.float32), y.to(tl.float32), x.to(tl.float32)
    if HAS_FIELD:
        far = i.to(tl.int64)
        qz += tl.load(u + far, mask=use, other=0.0).to(tl.float32)
        qy += tl.load(u + voxels + far, mask=use, other=0.0).to(tl.float32)
        qx += tl.load(u + voxels + voxels + far, mask=use, other=0.0).to(tl.float32)
    return qz, qy, qx


@triton.jit
def mapped(A, z, y, x, PLANAR: tl.constexpr):
    """p = A[:, :3] q + A[:, 3]; in the plane if both images have depth one."""
    pz = tl.load(A) * z + tl.load(A + 1) * y + tl.load(A + 2) * x + tl.load(A + 3)
    py = tl.load(A + 4) * z + tl.load(A + 5) * y + tl.load(A + 6) * x + tl.load(A + 7)
    px = tl.load(A + 8) * z + tl.load(A + 9) * y + tl.load(A + 10) * x + tl.load(A + 11)
    if PLANAR:
        pz = tl.zeros_like(pz)
    return pz, py, px


@triton.jit
def pulled_back(A, dz, dy, dx):
    """Derivative by u from that by p: the transpose of A[:, :3] times it."""
    gz = tl.load(A) * dz + tl.load(A + 4) * dy + tl.load(A + 8) * dx
    gy = tl.load(A + 1) * dz + tl.load(A + 5) * dy + tl.load(A + 9) * dx
    gx = tl.load(A + 2) * dz + tl.load(A + 6) * dy + tl.load(A + 10) * dx
    return gz, gy, gx


@triton.jit
def inside(pz, py, px, mz, my, mx):
    """Whether -0.5 <= p <= n - 0.5 on every axis; false for NaN."""
    along_z = (pz >= -0.5) & (pz <= mz - 0.5)
    along_y = (py >= -0.5) & (py <= my - 0.5)
    return along_z & along_y & (px >= -0.5) & (px <= mx - 0.5)


@triton.jit
def cell(p, n):
    """The two voxels between which p lies along an axis of n voxels, and the fraction; the edge beyond the border."""
    held = tl.minimum(tl.maximum(p, 0.0), n - 1.0)
    low = tl.minimum(tl.floor(held), tl.maximum(n - 2.0, 0.0))
    first = low.to(tl.int32)
    return first, tl.minimum(first + 1, n - 1), (held - low).to(tl.float32)


@triton.jit
def between(p, n):
    """One where the derivative along an axis exists, zero beyond the border."""
    return ((p >= 0.0) & (p <= n - 1.0)).to(tl.float32)


@triton.jit
def mix(low, high, fraction):
    return low + fraction * (high - low)


@triton.jit
def corners(image, pz, py, px, mz, my, mx, use, STRIDE: tl.constexpr):
    """The eight voxels around p, in the order in which x changes fastest, and the three fractions."""
    z0, z1, fz = cell(pz, mz)
    y0, y1, fy = cell(py, my)
    x0, x1, fx = cell(px, mx)
    r00, r01 = (z0 * my + y0) * mx, (z0 * my + y1) * mx
    r10, r11 = (z1 * my + y0) * mx, (z1 * my + y1) * mx
    x0, x1 = x0.to(tl.int64), x1.to(tl.int64)
    v000 = tl.load(image + (r00 + x0) * STRIDE, mask=use, other=0).to(tl.float32)
    v001 = tl.load(image + (r00 + x1) * STRIDE, mask=use, other=0).to(tl.float32)
    v010 = tl.load(image + (r01 + x0) * STRIDE, mask=use, other=0).to(tl.float32)
    v011 = tl.load(image + (r01 + x1) * STRIDE, mask=use, other=0).to(tl.float32)
    v100 = tl.load(image + (r10 + x0) * STRIDE, mask=use, other=0).to(tl.float32)
    v101 = tl.load(image + (r10 + x1) * STRIDE, mask=use, other=0).to(tl.float32)
    v110 = tl.load(image + (r11 + x0) * STRIDE, mask=use, other=0).to(tl.float32)
    v111 = tl.load(image + (r11 + x1) * STRIDE, mask=use, other=0).to(tl.float32)
    return v000, v001, v010, v011, v100, v101, v110, v111, fz, fy, fx


@triton.jit
def value_at(image, pz, py, px, mz, my, mx, use, STRIDE: tl.constexpr = 1):
    """The linear interpolant of an image at p; the edge value beyond the border."""
    a, b, c, d, e, f, g, h, fz, fy, fx = corners(image, pz, py, px, mz, my, mx, use, STRIDE)
    near = mix(mix(a, b, fx), mix(c, d, fx), fy)
    far = mix(mix(e, f, fx), mix(g, h, fx), fy)
    return mix(near, far, fz)


@triton.jit
def slope_at(image, pz, py, px, mz, my, mx, use, STRIDE: tl.constexpr = 1):
    """The linear interpolant of an image at p and its derivative by p, zero along an axis beyond its border."""
    a, b, c, d, e, f, g, h, fz, fy, fx = corners(image, pz, py, px, mz, my, mx, use, STRIDE)
    dx = mix(mix(b - a, d - c, fy), mix(f - e, h - g, fy), fz)
    ab, cd, ef, gh = mix(a, b, fx), mix(c, d, fx), mix(e, f, fx), mix(g, h, fx)
    dy = mix(cd - ab, gh - ef, fz)
    near, far = mix(ab, cd, fy), mix(ef, gh, fy)
    return mix(near, far, fz), (far - near) * between(pz, mz), dy * between(py, my), dx * between(px, mx)


@triton.jit
def nearest_at(image, pz, py, px, mz, my, mx, use):
    """The image at floor(p + 0.5); the edge value beyond the border."""
    z = tl.minimum(tl.maximum(tl.floor(pz + 0.5), 0.0), mz - 1.0).to(tl.int32)
    y = tl.minimum(tl.maximum(tl.floor(py + 0.5), 0.0), my - 1.0).to(tl.int32)
    x = tl.minimum(tl.maximum(tl.floor(px + 0.5), 0.0), mx - 1.0).to(tl.int32)
    return tl.load(image + (z * my + y) * mx + x, mask=use, other=0)


@triton.jit
def counts(
    fixed_mask, moving_mask, i, pz, py, px, mz, my, mx, use, FIXED_MASK: tl.constexpr, MOVING_MASK: tl.constexpr
):
    """Whether voxel i counts: p is inside the moving image, and both masks are not zero."""
    found = use & inside(pz, py, px, mz, my, mx)
    if FIXED_MASK:
        found = found & (tl.load(fixed_mask + i, mask=use, other=0) != 0)
    if MOVING_MASK:
        found = found & (nearest_at(moving_mask, pz, py, px, mz, my, mx, use) != 0)
    return found


@triton.jit
def of_pair(pair, fixed, moving, u, A, fixed_mask, moving_mask, voxels, others, CHANNELS: tl.constexpr = 1):
    """Where the images, the displacement, the matrix and the masks of a pair begin."""
    far = pair.to(tl.int64)
    image, other = far * voxels, far * others
    fixed, moving = fixed + image * CHANNELS, moving + other * CHANNELS
    return fixed, moving, u + 3 * image, A + 12 * far, fixed_mask + image, moving_mask + other


@triton.jit
def arrived(
    u,
    A,
    fixed_mask,
    moving_mask,
    voxels,
    i,
    ny,
    nx,
    mz,
    my,
    mx,
    use,
    FIXED_MASK: tl.constexpr,
    MOVING_MASK: tl.constexpr,
    PLANAR: tl.constexpr,
):
    """p = A (x + u(x)) of the voxel number i, and whether the voxel counts: the frame of every metric."""
    qz, qy, qx = moved_voxel(u, voxels, i, ny, nx, use, True)
    pz, py, px = mapped(A, qz, qy, qx, PLANAR)
    w = counts(fixed_mask, moving_mask, i, pz, py, px, mz, my, mx, use, FIXED_MASK, MOVING_MASK)
    return pz, py, px, w


@triton.jit
def difference(image, i, at, n, stride, use, STRIDE: tl.constexpr = 1):
    """Central difference of an image along one axis at voxel i, one-sided at the border."""
    low, high = tl.maximum(at - 1, 0), tl.minimum(at + 1, n - 1)
    far = i.to(tl.int64)
    before = tl.load(image + (far + (low - at) * stride) * STRIDE, mask=use, other=0).to(tl.float32)
    after = tl.load(image + (far + (high - at) * stride) * STRIDE, mask=use, other=0).to(tl.float32)
    return (after - before) / tl.maximum(high - low, 1).to(tl.float32)


@triton.jit
def fixed_slope(image, i, nz, ny, nx, use, STRIDE: tl.constexpr = 1):
    """dF/dx at voxel i by central differences along z, y, x."""
    z, y, x = voxel(i, ny, nx)
    gz = difference(image, i, z, nz, ny * nx, use, STRIDE)
    gy = difference(image, i, y, ny, nx, use, STRIDE)
    gx = difference(image, i, x, nx, 1, use, STRIDE)
    return gz, gy, gx

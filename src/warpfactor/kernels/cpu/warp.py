"""One row of the warped moving image with its weights and dM/du: the start of every cost kernel."""

import numpy as np

from .jit import inline, is_inside, locate, serial, split, unclamped, value, value_gradient


@inline
def weight_at(pz, py, px, d, h, w, fixed_on, mmask):  # type: ignore[no-untyped-def]
    """1 where the fixed mask, the moving image and the moving mask all hold the voxel."""
    ok = fixed_on & is_inside(pz, py, px, d, h, w)
    if ok & (mmask.size > 1):
        iz = min(int(np.floor(pz + 0.5)), d - 1)
        iy = min(int(np.floor(py + 0.5)), h - 1)
        ix = min(int(np.floor(px + 0.5)), w - 1)
        ok = mmask[iz, iy, ix] > 0
    return ok


@serial
def sample_row(img, stride, u, A, B, fmask, mmask, z, y, want, M, w_row, slot, grad):  # type: ignore[no-untyped-def]
    """Fill row (slot, y) of warped values and weights, and row (z, y) of dM/du if it is wanted."""
    d, h, w = img.shape
    sz, sy, sx = stride
    flat = img.ravel()
    masked = fmask.size > 1
    for x in range(M.shape[2]):
        pz, py, px = locate(A, z, y, x, u[0, z, y, x], u[1, z, y, x], u[2, z, y, x])
        fixed_on = (fmask[z, y, x] > 0) if masked else True
        v = gz = gy = gx = np.float32(0.0)
        ok = weight_at(pz, py, px, d, h, w, fixed_on, mmask)
        if ok:
            iz, fz = split(pz, d)
            iy, fy = split(py, h)
            ix, fx = split(px, w)
            b = (iz * h + iy) * w + ix
            if want:
                v, gz, gy, gx = value_gradient(flat, b, sz, sy, sx, fz, fy, fx)
                gz *= unclamped(pz, d)
                gy *= unclamped(py, h)
                gx *= unclamped(px, w)
            else:
                v = value(flat, b, sz, sy, sx, fz, fy, fx)
        M[slot, y, x] = v
        w_row[slot, y, x] = np.float32(1.0) if ok else np.float32(0.0)
        if want:
            grad[0, z, y, x] = B[0, 0] * gz + B[1, 0] * gy + B[2, 0] * gx
            grad[1, z, y, x] = B[0, 1] * gz + B[1, 1] * gy + B[2, 1] * gx
            grad[2, z, y, x] = B[0, 2] * gz + B[1, 2] * gy + B[2, 2] * gx


@serial
def symmetrize_row(F, z, y, rho, turn, grad):  # type: ignore[no-untyped-def]
    """dM/du <- (dM/du + rho dF/dx) / 2 along a row, where rho is not zero."""
    D, H, W = F.shape
    z0, z1 = max(z - 1, 0), min(z + 1, D - 1)
    y0, y1 = max(y - 1, 0), min(y + 1, H - 1)
    kz = np.float32(0.5 / max(z1 - z0, 1))
    ky = np.float32(0.5 / max(y1 - y0, 1))
    half = np.float32(0.5)
    for x in range(W):
        q = rho[turn, y, x]
        x0, x1 = max(x - 1, 0), min(x + 1, W - 1)
        kx = half / np.float32(max(x1 - x0, 1))
        own = half if q != 0.0 else np.float32(1.0)
        grad[0, z, y, x] = own * grad[0, z, y, x] + q * kz * (F[z1, y, x] - F[z0, y, x])
        grad[1, z, y, x] = own * grad[1, z, y, x] + q * ky * (F[z, y1, x] - F[z, y0, x])
        grad[2, z, y, x] = own * grad[2, z, y, x] + q * kx * (F[z, y, x1] - F[z, y, x0])

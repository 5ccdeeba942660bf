"""The inverse of a displacement: every voxel iterates on its own, so all iterations are one kernel."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from warpfactor.kernels import reference
from warpfactor.kernels.reference.field import FIXED_POINT, SINGULAR
from warpfactor.kernels.triton.field import field_at, load_vector, store_vector
from warpfactor.kernels.triton.kernel import declared
from warpfactor.kernels.triton.launch import block, plain, takes
from warpfactor.kernels.triton.points import slope_at, voxel


@triton.jit
def newton(u, voxels, pz, py, px, nz, ny, nx, use, gz, gy, gx, LEAST: tl.constexpr):
    """(I + du/dx)⁻¹ g with the derivative of the interpolant at p; g itself where that is singular."""
    _, zz, zy, zx = slope_at(u, pz, py, px, nz, ny, nx, use)
    _, yz, yy, yx = slope_at(u + voxels, pz, py, px, nz, ny, nx, use)
    _, xz, xy, xx = slope_at(u + voxels + voxels, pz, py, px, nz, ny, nx, use)
    zz, yy, xx = zz + 1.0, yy + 1.0, xx + 1.0
    a, b, c = yy * xx - yx * xy, yx * xz - yz * xx, yz * xy - yy * xz
    determinant = zz * a + zy * b + zx * c
    regular = tl.abs(determinant) >= LEAST
    scale = 1.0 / tl.where(regular, determinant, 1.0)
    vz = scale * (a * gz + (zx * xy - zy * xx) * gy + (zy * yx - zx * yy) * gx)
    vy = scale * (b * gz + (zz * xx - zx * xz) * gy + (zx * yz - zz * yx) * gx)
    vx = scale * (c * gz + (zy * xz - zz * xy) * gy + (zz * yy - zy * yz) * gx)
    return tl.where(regular, vz, gz), tl.where(regular, vy, gy), tl.where(regular, vx, gx)


@declared(
    "4 *fp32 fp32 4 i32",
    {"usual": {"START": False, "SWITCH": FIXED_POINT, "LEAST": SINGULAR, "BLOCK": 128}},
    reads={"displacement": 12},
    writes={"inverse": 12, "residual": 4},
)
def invert_voxels(
    u,
    initial,
    inverse,
    residuals,
    tolerance,
    iterations,
    nz,
    ny,
    nx,
    START: tl.constexpr,
    SWITCH: tl.constexpr,
    LEAST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """v <- v - q d with d = v + u(x + v) and then Newton's direction; see the reference."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    voxels = nz.to(tl.int64) * ny * nx
    use = i < voxels
    z, y, x = voxel(i, ny, nx)
    if START:
        vz, vy, vx = load_vector(initial, voxels, i, use)
    else:
        vz, vy, vx = load_vector(u, voxels, i, use)
        vz, vy, vx = -vz, -vy, -vx
    gz, gy, gx = field_at(u, voxels, z + vz, y + vy, x + vx, nz, ny, nx, use)
    gz, gy, gx = gz + vz, gy + vy, gx + vx
    residual = tl.where(use, tl.sqrt(gz * gz + gy * gy + gx * gx), 0.0)
    rate = tl.full((BLOCK,), 1.0, tl.float32)
    k = 0
    left = tl.max((residual >= tolerance).to(tl.int32), 0) * iterations
    while k < left:
        if k == SWITCH:
            rate = tl.full((BLOCK,), 1.0, tl.float32)
        dz, dy, dx = gz, gy, gx
        if k >= SWITCH:
            dz, dy, dx = newton(u, voxels, z + vz, y + vy, x + vx, nz, ny, nx, use, gz, gy, gx, LEAST)
        tz, ty, tx = vz - rate * dz, vy - rate * dy, vx - rate * dx
        hz, hy, hx = field_at(u, voxels, z + tz, y + ty, x + tx, nz, ny, nx, use)
        hz, hy, hx = hz + tz, hy + ty, hx + tx
        found = tl.sqrt(hz * hz + hy * hy + hx * hx)
        better = (found < residual) & (residual >= tolerance)
        vz, vy, vx = tl.where(better, tz, vz), tl.where(better, ty, vy), tl.where(better, tx, vx)
        gz, gy, gx = tl.where(better, hz, gz), tl.where(better, hy, gy), tl.where(better, hx, gx)
        residual = tl.where(better, found, residual)
        rate = tl.where(better, tl.minimum(2 * rate, 1.0), rate / 2)
        k += 1
        left = tl.max((residual >= tolerance).to(tl.int32), 0) * iterations
    store_vector(inverse, voxels, i, vz, vy, vx, use)
    tl.store(residuals + i, residual.to(residuals.dtype.element_ty), mask=use)


@torch.no_grad()
def invert(
    displacement: Tensor, *, start: Tensor | None = None, iterations: int = 50, tolerance: float = 1e-3
) -> tuple[Tensor, Tensor]:
    """See Ops."""
    if not takes(displacement, start):
        return reference.invert(displacement, start=start, iterations=iterations, tolerance=tolerance)
    displacement = plain(displacement)
    inverse, residual = torch.empty_like(displacement), torch.empty_like(displacement[0])
    width = block(displacement.device, residual.numel(), 128)
    invert_voxels.launch(
        (triton.cdiv(residual.numel(), width),),
        displacement,
        displacement if start is None else plain(start),
        inverse,
        residual,
        tolerance,
        iterations,
        *residual.shape,
        START=start is not None,
        SWITCH=FIXED_POINT,
        LEAST=SINGULAR,
        BLOCK=width,
    )
    return inverse, residual

"""Squared difference of intensities, and the demons force: one kernel."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from warpfactor.kernels import reference
from warpfactor.kernels.held import held, two
from warpfactor.kernels.triton.field import store_vector
from warpfactor.kernels.triton.kernel import declared
from warpfactor.kernels.triton.launch import Partials, block, mask_or, matrix_on, plain, takes_metric
from warpfactor.kernels.triton.points import counts, fixed_slope, mapped, moved_voxel, pulled_back, slope_at, value_at

_USUAL = {
    "GRADIENT": True,
    "SYMMETRIC": False,
    "DEMONS": False,
    "FIXED_MASK": False,
    "MOVING_MASK": False,
    "PLANAR": False,
    "BLOCK": 256,
}


@declared(
    "4 *fp32 2 *u8 *fp32 *fp64 6 fp32 6 i32",
    {"usual": _USUAL, "all": {**_USUAL, "SYMMETRIC": True, "DEMONS": True, "FIXED_MASK": True, "MOVING_MASK": True}},
    reads={"fixed": 4, "displacement": 12, "moving": 4},
    writes={"gradient": 12},
)
def squared_difference(
    fixed,
    moving,
    u,
    A,
    fixed_mask,
    moving_mask,
    gradient,
    partials,
    scale,
    shift,
    alpha,
    lz,
    ly,
    lx,
    nz,
    ny,
    nx,
    mz,
    my,
    mx,
    GRADIENT: tl.constexpr,
    SYMMETRIC: tl.constexpr,
    DEMONS: tl.constexpr,
    FIXED_MASK: tl.constexpr,
    MOVING_MASK: tl.constexpr,
    PLANAR: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """r = F - (scale M(p) + shift); sums of r² and of the voxels that count, and the gradient or minus the force."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    i = program * BLOCK + tl.arange(0, BLOCK)
    voxels = nz.to(tl.int64) * ny * nx
    use = i < voxels
    qz, qy, qx = moved_voxel(u, voxels, i, ny, nx, use, True)
    pz, py, px = mapped(A, qz, qy, qx, PLANAR)
    w = counts(fixed_mask, moving_mask, i, pz, py, px, mz, my, mx, use, FIXED_MASK, MOVING_MASK)
    f = tl.load(fixed + i, mask=use, other=0).to(tl.float32)
    if GRADIENT:
        m, dz, dy, dx = slope_at(moving, pz, py, px, mz, my, mx, use)
        r = tl.where(w, f - (scale * m + shift), 0.0)
        gz, gy, gx = pulled_back(A, dz, dy, dx)
        gz, gy, gx = scale * gz, scale * gy, scale * gx
        if SYMMETRIC:
            fz, fy, fx = fixed_slope(fixed, i, nz, ny, nx, use)
            gz, gy, gx = (gz + fz) / 2, (gy + fy) / 2, (gx + fx) / 2
        if DEMONS:
            az, ay, ax = lz * gz, ly * gy, lx * gx
            force = -r / (az * az + ay * ay + ax * ax + alpha * alpha * r * r + 1e-20)
        else:
            force = -2 * r
        gz, gy, gx = tl.where(w, force * gz, 0.0), tl.where(w, force * gy, 0.0), tl.where(w, force * gx, 0.0)
        store_vector(gradient, voxels, i, gz, gy, gx, use)
    else:
        m = value_at(moving, pz, py, px, mz, my, mx, use)
        r = tl.where(w, f - (scale * m + shift), 0.0)
    tl.store(partials + program, tl.sum((r * r).to(tl.float64), 0))
    tl.store(partials + programs + program, tl.sum(w.to(tl.float64), 0))


@two
def mse(
    fixed: Tensor,
    moving: Tensor,
    displacement: Tensor,
    matrix: Tensor,
    *,
    gradient: Tensor | None = None,
    fixed_mask: Tensor | None = None,
    moving_mask: Tensor | None = None,
    alike: tuple[float, float] = (1.0, 0.0),
    symmetric: bool = False,
    demons: float | None = None,
    lengths: tuple[float, float, float] = (1.0, 1.0, 1.0),
) -> Tensor:
    """See Ops."""
    if not takes_metric(fixed, moving, displacement, gradient):
        return held(reference.mse)(
            fixed,
            moving,
            displacement,
            matrix,
            gradient=gradient,
            fixed_mask=fixed_mask,
            moving_mask=moving_mask,
            alike=alike,
            symmetric=symmetric,
            demons=demons,
            lengths=lengths,
        )
    fixed, moving = plain(fixed), plain(moving)
    width = block(fixed.device, fixed.numel())
    programs = triton.cdiv(fixed.numel(), width)
    partials = Partials(fixed.device, 2, programs)
    squared_difference.launch(
        (programs,),
        fixed,
        moving,
        plain(displacement),
        matrix_on(fixed.device, matrix),
        mask_or(fixed_mask, fixed),
        mask_or(moving_mask, moving),
        displacement if gradient is None else gradient,
        partials.table,
        *alike,
        demons or 0.0,
        *lengths,
        *fixed.shape,
        *moving.shape,
        GRADIENT=gradient is not None,
        SYMMETRIC=symmetric,
        DEMONS=demons is not None,
        FIXED_MASK=fixed_mask is not None,
        MOVING_MASK=moving_mask is not None,
        PLANAR=fixed.shape[0] == 1 and moving.shape[0] == 1,
        BLOCK=width,
    )
    return partials.combined()

"""Squared difference of self-similarity channels: one kernel, which goes through the twelve channels of a voxel."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from warpfactor.kernels import reference
from warpfactor.kernels.held import held, two
from warpfactor.kernels.reference.mind import CHANNELS, FULL
from warpfactor.kernels.triton.field import store_vector
from warpfactor.kernels.triton.kernel import declared
from warpfactor.kernels.triton.launch import MOST_VOXELS, Partials, block, mask_or, matrix_on, plain, takes
from warpfactor.kernels.triton.points import counts, fixed_slope, mapped, moved_voxel, pulled_back, slope_at, value_at

_USUAL = {
    "GRADIENT": True,
    "SYMMETRIC": True,
    "FIXED_MASK": False,
    "MOVING_MASK": False,
    "PLANAR": False,
    "CHANNELS": CHANNELS,
    "BLOCK": 128,
}


@declared(
    "2 *u8 2 *fp32 2 *u8 *fp32 *fp64 fp32 6 i32",
    {"usual": _USUAL, "masks": {**_USUAL, "FIXED_MASK": True, "MOVING_MASK": True}},
    reads={"fixed": 12, "displacement": 12, "moving": 12},
    writes={"gradient": 12},
)
def channel_difference(
    fixed,
    moving,
    u,
    A,
    fixed_mask,
    moving_mask,
    gradient,
    partials,
    unit,
    nz,
    ny,
    nx,
    mz,
    my,
    mx,
    GRADIENT: tl.constexpr,
    SYMMETRIC: tl.constexpr,
    FIXED_MASK: tl.constexpr,
    MOVING_MASK: tl.constexpr,
    PLANAR: tl.constexpr,
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """r = F_k - M_k(p) over the channels k; sums of r² and of the voxels that count, and the gradient."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    i = program * BLOCK + tl.arange(0, BLOCK)
    voxels = nz.to(tl.int64) * ny * nx
    use = i < voxels
    qz, qy, qx = moved_voxel(u, voxels, i, ny, nx, use, True)
    pz, py, px = mapped(A, qz, qy, qx, PLANAR)
    w = counts(fixed_mask, moving_mask, i, pz, py, px, mz, my, mx, use, FIXED_MASK, MOVING_MASK)
    cost = tl.zeros((BLOCK,), tl.float32)
    gz, gy, gx = cost, cost, cost
    for k in range(CHANNELS):
        f = tl.load(fixed + i.to(tl.int64) * CHANNELS + k, mask=use, other=0).to(tl.float32)
        if GRADIENT:
            m, dz, dy, dx = slope_at(moving + k, pz, py, px, mz, my, mx, use, CHANNELS)
            r = tl.where(w, f - m, 0.0)
            sz, sy, sx = pulled_back(A, dz, dy, dx)
            if SYMMETRIC:
                fz, fy, fx = fixed_slope(fixed + k, i, nz, ny, nx, use, CHANNELS)
                sz, sy, sx = (sz + fz) / 2, (sy + fy) / 2, (sx + fx) / 2
            gz, gy, gx = gz - 2 * r * sz, gy - 2 * r * sy, gx - 2 * r * sx
        else:
            r = tl.where(w, f - value_at(moving + k, pz, py, px, mz, my, mx, use, CHANNELS), 0.0)
        cost += r * r
    if GRADIENT:
        store_vector(gradient, voxels, i, unit * gz, unit * gy, unit * gx, use)
    tl.store(partials + program, tl.sum(cost.to(tl.float64), 0) * unit)
    tl.store(partials + programs + program, tl.sum(w.to(tl.float64), 0))


@two
def mind(
    fixed: Tensor,
    moving: Tensor,
    displacement: Tensor,
    matrix: Tensor,
    *,
    gradient: Tensor | None = None,
    fixed_mask: Tensor | None = None,
    moving_mask: Tensor | None = None,
    symmetric: bool = False,
) -> Tensor:
    """See Ops."""
    shape, other = fixed.shape[:3], moving.shape[:3]
    fits = gradient is None or gradient.is_contiguous()
    if not fits or not takes(displacement, gradient) or max(shape.numel(), other.numel()) > MOST_VOXELS:
        return held(reference.mind)(
            fixed,
            moving,
            displacement,
            matrix,
            gradient=gradient,
            fixed_mask=fixed_mask,
            moving_mask=moving_mask,
            symmetric=symmetric,
        )
    fixed, moving = plain(fixed), plain(moving)
    width = block(fixed.device, shape.numel(), 128)
    programs = triton.cdiv(shape.numel(), width)
    partials = Partials(fixed.device, 2, programs)
    channel_difference.launch(
        (programs,),
        fixed,
        moving,
        plain(displacement),
        matrix_on(fixed.device, matrix),
        mask_or(fixed_mask, fixed),
        mask_or(moving_mask, moving),
        displacement if gradient is None else gradient,
        partials.table,
        1 / (CHANNELS * FULL**2),
        *shape,
        *other,
        GRADIENT=gradient is not None,
        SYMMETRIC=symmetric,
        FIXED_MASK=fixed_mask is not None,
        MOVING_MASK=moving_mask is not None,
        PLANAR=shape[0] == 1 and other[0] == 1,
        CHANNELS=CHANNELS,
        BLOCK=width,
    )
    return partials.combined()

"""Squared difference of self-similarity channels: one kernel, which goes through the twelve channels of a voxel."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from warpfactor.kernels import reference
from warpfactor.kernels.pairs import paired
from warpfactor.kernels.reference.mind import CHANNELS, FULL
from warpfactor.kernels.triton.field import store_vector
from warpfactor.kernels.triton.kernel import declared
from warpfactor.kernels.triton.launch import MOST_VOXELS, Partials, block, takes
from warpfactor.kernels.triton.metric import Problem
from warpfactor.kernels.triton.points import arrived, fixed_slope, of_pair, pulled_back, slope_at, value_at

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
    program, programs, pair = tl.program_id(0), tl.num_programs(0), tl.program_id(1)
    i = program * BLOCK + tl.arange(0, BLOCK)
    voxels, others = nz.to(tl.int64) * ny * nx, mz.to(tl.int64) * my * mx
    use = i < voxels
    fixed, moving, u, A, fixed_mask, moving_mask = of_pair(
        pair, fixed, moving, u, A, fixed_mask, moving_mask, voxels, others, CHANNELS
    )
    gradient += 3 * pair.to(tl.int64) * voxels
    partials += 2 * pair * programs
    pz, py, px, w = arrived(
        u, A, fixed_mask, moving_mask, voxels, i, ny, nx, mz, my, mx, use, FIXED_MASK, MOVING_MASK, PLANAR
    )
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


def _fits(
    fixed: Tensor, moving: Tensor, displacement: Tensor, matrix: Tensor, *, gradient: Tensor | None = None, **_: Any
) -> bool:
    whole = gradient is None or gradient.is_contiguous()
    fields = (displacement[0], None if gradient is None else gradient[0])
    return whole and takes(*fields) and max(fixed[0, ..., 0].numel(), moving[0, ..., 0].numel()) <= MOST_VOXELS


@paired(reference.mind, _fits)
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
    problem = Problem(fixed, moving, displacement, matrix, gradient, fixed_mask, moving_mask)
    width = block(problem.device, problem.voxels, 128)
    programs = triton.cdiv(problem.voxels, width)
    partials = Partials(problem.device, 2, programs, problem.pairs)
    channel_difference.launch(
        (programs, problem.pairs),
        *problem.pointers,
        problem.output,
        partials.table,
        1 / (CHANNELS * FULL**2),
        *problem.shapes,
        GRADIENT=gradient is not None,
        SYMMETRIC=symmetric,
        **problem.flags,
        CHANNELS=CHANNELS,
        BLOCK=width,
    )
    return partials.combined()

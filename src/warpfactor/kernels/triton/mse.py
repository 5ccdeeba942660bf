"""Squared difference of intensities, and the demons force: one kernel."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from warpfactor.kernels import reference
from warpfactor.kernels.pairs import paired
from warpfactor.kernels.triton.field import store_vector
from warpfactor.kernels.triton.kernel import declared
from warpfactor.kernels.triton.launch import Partials, block, pair_numbers
from warpfactor.kernels.triton.metric import Problem, fits
from warpfactor.kernels.triton.points import arrived, fixed_slope, of_pair, pulled_back, slope_at, value_at

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
    "4 *fp32 2 *u8 *fp32 *fp64 *fp32 4 fp32 6 i32",
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
    alike,
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
    """r = F - (scale M(p) + shift); sums of r² and of the voxels that count, and the gradient or minus the force.

    `alike` holds scale and shift of every pair.
    """
    program, programs, pair = tl.program_id(0), tl.num_programs(0), tl.program_id(1)
    i = program * BLOCK + tl.arange(0, BLOCK)
    voxels, others = nz.to(tl.int64) * ny * nx, mz.to(tl.int64) * my * mx
    use = i < voxels
    fixed, moving, u, A, fixed_mask, moving_mask = of_pair(
        pair, fixed, moving, u, A, fixed_mask, moving_mask, voxels, others
    )
    gradient += 3 * pair.to(tl.int64) * voxels
    partials += 2 * pair * programs
    scale, shift = tl.load(alike + 2 * pair), tl.load(alike + 2 * pair + 1)
    pz, py, px, w = arrived(
        u, A, fixed_mask, moving_mask, voxels, i, ny, nx, mz, my, mx, use, FIXED_MASK, MOVING_MASK, PLANAR
    )
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


@paired(reference.mse, fits)
def mse(
    fixed: Tensor,
    moving: Tensor,
    displacement: Tensor,
    matrix: Tensor,
    *,
    gradient: Tensor | None = None,
    fixed_mask: Tensor | None = None,
    moving_mask: Tensor | None = None,
    alike: Any = (1.0, 0.0),
    symmetric: bool = False,
    demons: float | None = None,
    lengths: tuple[float, float, float] = (1.0, 1.0, 1.0),
) -> Tensor:
    """See Ops."""
    problem = Problem(fixed, moving, displacement, matrix, gradient, fixed_mask, moving_mask)
    width = block(problem.device, problem.voxels)
    programs = triton.cdiv(problem.voxels, width)
    partials = Partials(problem.device, 2, programs, problem.pairs)
    squared_difference.launch(
        (programs, problem.pairs),
        *problem.pointers,
        problem.output,
        partials.table,
        pair_numbers(problem.device, problem.pairs, alike),
        demons or 0.0,
        *lengths,
        *problem.shapes,
        GRADIENT=gradient is not None,
        SYMMETRIC=symmetric,
        DEMONS=demons is not None,
        **problem.flags,
        BLOCK=width,
    )
    return partials.combined()

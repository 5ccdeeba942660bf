"""Mutual information: joint histogram, table of log ratios, gradient.

The histogram is a matrix product: a voxel's votes for the bins of its fixed intensity, times its votes for the bins of
its moving one. That needs no atomic additions, whose order, and so whose sum, would change from run to run.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from warpfactor.kernels import reference
from warpfactor.kernels.pairs import Each, paired, picked
from warpfactor.kernels.triton.field import store_vector
from warpfactor.kernels.triton.kernel import declared
from warpfactor.kernels.triton.launch import block, pair_numbers
from warpfactor.kernels.triton.metric import Problem
from warpfactor.kernels.triton.metric import fits as fits_metrics
from warpfactor.kernels.triton.points import arrived, of_pair, pulled_back, slope_at, value_at
from warpfactor.kernels.triton.tables import programs_for, summed_tables

VOXELS = {16: 32, 32: 32, 64: 16}  # of a block whose votes are multiplied at once, by the number of bins
MOST_BINS = 64  # more go to the reference


@triton.jit
def placed(value, low, high):
    """An intensity mapped from its range to [0, 1] and clipped, and whether it was not clipped."""
    unit = (value - low) / (high - low)
    return tl.minimum(tl.maximum(unit, 0.0), 1.0), (unit >= 0) & (unit <= 1)


@triton.jit
def range_ends(ranges, pair):
    """Lowest and highest intensity of a pair's fixed image, then of its moving one."""
    own = ranges + 4 * pair
    return tl.load(own), tl.load(own + 1), tl.load(own + 2), tl.load(own + 3)


@triton.jit
def spline(t):
    """The cubic B-spline."""
    a = tl.abs(t)
    near = (3 * a * a * a - 6 * a * a + 4) / 6
    far = (2 - a) * (2 - a) * (2 - a) / 6
    return tl.where(a < 1, near, tl.where(a < 2, far, 0.0))


@triton.jit
def spline_slope(t):
    """Its derivative by t."""
    a = tl.abs(t)
    sign = tl.where(t < 0, -1.0, 1.0)
    near = (3 * a * a - 4 * a) / 2
    far = -(2 - a) * (2 - a) / 2
    return sign * tl.where(a < 1, near, tl.where(a < 2, far, 0.0))


_VOTES = {"FIXED_MASK": False, "MOVING_MASK": False, "PLANAR": False}


@declared(
    "4 *fp32 2 *u8 *fp64 *fp32 8 i32",
    {f"{n} bins": {**_VOTES, "BINS": n, "BLOCK": VOXELS[n]} for n in (32, 64)},
    warps=16,
    reads={"fixed": 4, "displacement": 12, "moving": 4},
)
def mi_votes(
    fixed,
    moving,
    u,
    A,
    fixed_mask,
    moving_mask,
    tables,
    ranges,
    bins,
    blocks,
    nz,
    ny,
    nx,
    mz,
    my,
    mx,
    FIXED_MASK: tl.constexpr,
    MOVING_MASK: tl.constexpr,
    PLANAR: tl.constexpr,
    BINS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The joint histogram of the blocks of a program, and the number of its voxels that count."""
    program, pair = tl.program_id(0), tl.program_id(1)
    voxels, others = nz.to(tl.int64) * ny * nx, mz.to(tl.int64) * my * mx
    fixed, moving, u, A, fixed_mask, moving_mask = of_pair(
        pair, fixed, moving, u, A, fixed_mask, moving_mask, voxels, others
    )
    fixed_low, fixed_high, moving_low, moving_high = range_ends(ranges, pair)
    bin = tl.arange(0, BINS).to(tl.float32)
    histogram = tl.zeros((BINS, BINS), tl.float32)
    number = tl.zeros((BLOCK,), tl.float32)
    for k in range(blocks):
        i = (program * blocks + k) * BLOCK + tl.arange(0, BLOCK)
        use = i < voxels
        pz, py, px, w = arrived(
            u, A, fixed_mask, moving_mask, voxels, i, ny, nx, mz, my, mx, use, FIXED_MASK, MOVING_MASK, PLANAR
        )
        f, _ = placed(tl.load(fixed + i, mask=use, other=0).to(tl.float32), fixed_low, fixed_high)
        m, _ = placed(value_at(moving, pz, py, px, mz, my, mx, use), moving_low, moving_high)
        rows = tl.maximum(1 - tl.abs(bin[:, None] - (f * (bins - 1))[None, :]), 0.0)
        rows = tl.where(w[None, :], rows, 0.0)
        columns = spline(bin[None, :] - (1 + m * (bins - 4))[:, None])
        columns = tl.where(w[:, None], columns, 0.0)
        histogram += tl.dot(rows, columns, input_precision="ieee")
        number += w.to(tl.float32)
    size = BINS * BINS + 1
    lane = tl.arange(0, BINS)
    table = tables + (pair * tl.num_programs(0) + program) * size
    tl.store(table + lane[:, None] * BINS + lane[None, :], histogram.to(tl.float64))
    tl.store(table + BINS * BINS, tl.sum(number.to(tl.float64), 0))


@declared("*fp64 *fp32 *fp64", {"32 bins": {"BINS": 32}, "64 bins": {"BINS": 64}})
def mi_ratios(histogram, ratios, found, BINS: tl.constexpr):
    """log(p / (pf pm)) where p > 0, the information, and the number of voxels."""
    pair = tl.program_id(0)
    histogram, ratios, found = histogram + pair * (BINS * BINS + 1), ratios + pair * BINS * BINS, found + 2 * pair
    lane = tl.arange(0, BINS)
    place = lane[:, None] * BINS + lane[None, :]
    number = tl.load(histogram + BINS * BINS)
    p = tl.load(histogram + place) / tl.where(number > 0, number, 1.0)
    apart = tl.sum(p, 1)[:, None] * tl.sum(p, 0)[None, :]
    ratio = tl.where(p > 0, tl.log(tl.where(p > 0, p / tl.where(p > 0, apart, 1.0), 1.0)), 0.0)
    tl.store(ratios + place, ratio.to(tl.float32))
    tl.store(found, tl.sum(tl.sum(p * ratio, 1), 0))
    tl.store(found + 1, number)


@declared(
    "4 *fp32 2 *u8 3 *fp32 7 i32",
    {"usual": {**_VOTES, "BINS": 32, "BLOCK": 256}},
    reads={"fixed": 4, "displacement": 12, "moving": 4},
    writes={"gradient": 12},
)
def mi_force(
    fixed,
    moving,
    u,
    A,
    fixed_mask,
    moving_mask,
    ratios,
    gradient,
    ranges,
    bins,
    nz,
    ny,
    nx,
    mz,
    my,
    mx,
    FIXED_MASK: tl.constexpr,
    MOVING_MASK: tl.constexpr,
    PLANAR: tl.constexpr,
    BINS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradient: minus the slope of a voxel's votes times the ratios of their bins, times the slope of the image."""
    pair = tl.program_id(1)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    voxels, others = nz.to(tl.int64) * ny * nx, mz.to(tl.int64) * my * mx
    use = i < voxels
    fixed, moving, u, A, fixed_mask, moving_mask = of_pair(
        pair, fixed, moving, u, A, fixed_mask, moving_mask, voxels, others
    )
    fixed_low, fixed_high, moving_low, moving_high = range_ends(ranges, pair)
    ratios += pair * BINS * BINS
    gradient += 3 * pair.to(tl.int64) * voxels
    pz, py, px, w = arrived(
        u, A, fixed_mask, moving_mask, voxels, i, ny, nx, mz, my, mx, use, FIXED_MASK, MOVING_MASK, PLANAR
    )
    f, _ = placed(tl.load(fixed + i, mask=use, other=0).to(tl.float32), fixed_low, fixed_high)
    value, dz, dy, dx = slope_at(moving, pz, py, px, mz, my, mx, use)
    m, unclipped = placed(value, moving_low, moving_high)
    at_f, at_m = f * (bins - 1), 1 + m * (bins - 4)
    row = tl.minimum(tl.floor(at_f), bins - 2.0)
    first = tl.minimum(tl.floor(at_m), bins - 3.0) - 1
    score = tl.zeros((BLOCK,), tl.float32)
    for j in tl.static_range(4):
        votes = -spline_slope(first + j - at_m)
        place = row.to(tl.int32) * BINS + first.to(tl.int32) + j
        low, high = tl.load(ratios + place, mask=w, other=0.0), tl.load(ratios + place + BINS, mask=w, other=0.0)
        score += votes * (low + (at_f - row) * (high - low))
    score = tl.where(w & unclipped, -score * (bins - 4) / (moving_high - moving_low), 0.0)
    gz, gy, gx = pulled_back(A, dz, dy, dx)
    gz, gy, gx = tl.where(w, score * gz, 0.0), tl.where(w, score * gy, 0.0), tl.where(w, score * gx, 0.0)
    store_vector(gradient, voxels, i, gz, gy, gx, use)


def _fits(*args: Any, bins: int, **options: Any) -> bool:
    return bins <= MOST_BINS and fits_metrics(*args, **options)


@paired(reference.mi, _fits)
def mi(
    fixed: Tensor,
    moving: Tensor,
    displacement: Tensor,
    matrix: Tensor,
    *,
    bins: int,
    fixed_range: Any,
    moving_range: Any,
    gradient: Tensor | None = None,
    fixed_mask: Tensor | None = None,
    moving_mask: Tensor | None = None,
) -> Tensor:
    """See Ops; more than 64 bins go to the reference."""
    problem = Problem(fixed, moving, displacement, matrix, gradient, fixed_mask, moving_mask)
    device, pairs = problem.device, problem.pairs
    size = max(16, triton.next_power_of_2(bins))
    ends = Each((*picked(fixed_range, n), *picked(moving_range, n)) for n in range(pairs))
    ranges = pair_numbers(device, pairs, ends)
    width = min(block(device, problem.voxels, VOXELS[size]), 4096)
    programs, blocks = programs_for(device, problem.voxels, width)
    tables = torch.empty((pairs, programs, size * size + 1), dtype=torch.float64, device=device)
    pointers, shapes, options = problem.pointers, problem.shapes, {**problem.flags, "BINS": size}
    mi_votes.launch((programs, pairs), *pointers, tables, ranges, bins, blocks, *shapes, **options, BLOCK=width)
    ratios = torch.empty((pairs, size, size), dtype=torch.float32, device=device)
    found = torch.empty((pairs, 2), dtype=torch.float64, device=device)
    mi_ratios.launch((pairs,), summed_tables(tables), ratios, found, BINS=size)
    if gradient is not None:
        width = block(device, problem.voxels)
        grid = (triton.cdiv(problem.voxels, width), pairs)
        mi_force.launch(grid, *pointers, ratios, gradient, ranges, bins, *shapes, **options, BLOCK=width)
    information, number = found.unbind(-1)
    return torch.stack([(math.log(bins) - information) * number, number], -1)

"""From gradient g to step v at every voxel, in place: the factored forms and Adam, and the lengths of a gradient.

Steps are computed from ĝ = weights * g and written as weights * v̂; see `kernels/reference/descent.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from warpfactor.kernels import reference
from warpfactor.kernels.held import doubles_on, held, three
from warpfactor.kernels.pairs import paired
from warpfactor.kernels.triton.field import load_vector, store_vector
from warpfactor.kernels.triton.kernel import declared
from warpfactor.kernels.triton.launch import Partials, block, numbers, numbers_on, plain, takes, takes_pairs

FORMS = ("pointwise", "root", "plain")
ADAM = "adam"


@triton.jit
def weighted(g, voxels, i, wz, wy, wx, use):
    """ĝ = weights * g at voxel i."""
    gz, gy, gx = load_vector(g, voxels, i, use)
    return wz * gz, wy * gy, wx * gx


@triton.jit
def step_from(gz, gy, gx, damping, residual, FORM: tl.constexpr):
    """v̂ = -r ĝ / (|ĝ|² + λ), -r ĝ / (|ĝ| + λ) with the root of λ given, or -r ĝ."""
    squares = gz * gz + gy * gy + gx * gx
    if FORM == "pointwise":
        scale = -residual / (squares + damping)
    elif FORM == "root":
        scale = -residual / (tl.sqrt(squares) + damping)
    else:
        scale = -residual + 0.0 * squares
    scale = tl.where(squares > 0, scale, 0.0)  # where g is NaN, so is the step
    return scale * gz, scale * gy, scale * gx


@triton.jit
def finish(g, voxels, i, wz, wy, wx, gz, gy, gx, vz, vy, vx, use, partials, programs, program):
    """Write the step; the longest |v̂|² of the program, and its sum of -ĝ·v̂."""
    store_vector(g, voxels, i, wz * vz, wy * vy, wx * vx, use)
    length = tl.where(use, vz * vz + vy * vy + vx * vx, 0.0)
    decrease = tl.where(use, -(gz * vz + gy * vy + gx * vx), 0.0)
    tl.store(partials + program, tl.max(length, 0).to(tl.float64))
    tl.store(partials + programs + program, tl.sum(decrease.to(tl.float64), 0))


@declared("*fp32 *fp64 3 fp32 3 i32", {"usual": {"BLOCK": 256}}, reads={"gradient": 12})
def lengths(g, partials, wz, wy, wx, nz, ny, nx, BLOCK: tl.constexpr):
    """Sums of |ĝ|² and |ĝ|, and the number of voxels with a gradient."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    i = program * BLOCK + tl.arange(0, BLOCK)
    voxels = nz.to(tl.int64) * ny * nx
    use = i < voxels
    gz, gy, gx = weighted(g, voxels, i, wz, wy, wx, use)
    squares = gz * gz + gy * gy + gx * gx
    tl.store(partials + program, tl.sum(squares.to(tl.float64), 0))
    tl.store(partials + programs + program, tl.sum(tl.sqrt(squares).to(tl.float64), 0))
    tl.store(partials + programs + programs + program, tl.sum((squares > 0).to(tl.float64), 0))


@declared(
    "*fp32 *fp64 *fp32 3 fp32 3 i32",
    {form: {"FORM": form, "BLOCK": 256} for form in FORMS},
    reads={"gradient": 12},
    writes={"step": 12},
)
def step_by_voxel(
    g,
    partials,
    numbers,
    wz,
    wy,
    wx,
    nz,
    ny,
    nx,
    FORM: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The step of every voxel by its own gradient; `numbers` holds λ and r of `step_from`."""
    pair = tl.program_id(1)
    damping, residual = tl.load(numbers + 2 * pair), tl.load(numbers + 2 * pair + 1)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    voxels = nz.to(tl.int64) * ny * nx
    use = i < voxels
    g += 3 * pair.to(tl.int64) * voxels
    partials += 2 * pair * tl.num_programs(0)
    gz, gy, gx = weighted(g, voxels, i, wz, wy, wx, use)
    vz, vy, vx = step_from(gz, gy, gx, damping, residual, FORM)
    finish(g, voxels, i, wz, wy, wx, gz, gy, gx, vz, vy, vx, use, partials, tl.num_programs(0), tl.program_id(0))


@triton.jit
def adam_from(gz, gy, gx, first, second, voxels, i, use, rates, rule):
    """v̂ = -m / (√s + ε) with the moments m and s corrected for their start; they stay if the third rate is 0.

    The rates are 1 / (1 - βⁿ) for both β and whether a step is taken; the rule is both β and 1 - β, and ε.
    """
    correction1, correction2, taken = tl.load(rates), tl.load(rates + 1), tl.load(rates + 2)
    beta1, beta2, rest1, rest2 = tl.load(rule), tl.load(rule + 1), tl.load(rule + 2), tl.load(rule + 3)
    epsilon = tl.load(rule + 4)
    mz, my, mx = load_vector(first, voxels, i, use)
    sz, sy, sx = load_vector(second, voxels, i, use)
    mz, my, mx = beta1 * mz + rest1 * gz, beta1 * my + rest1 * gy, beta1 * mx + rest1 * gx
    sz, sy, sx = beta2 * sz + rest2 * gz * gz, beta2 * sy + rest2 * gy * gy, beta2 * sx + rest2 * gx * gx
    stays = use & (taken + 0 * i != 0)
    store_vector(first, voxels, i, mz, my, mx, stays)
    store_vector(second, voxels, i, sz, sy, sx, stays)
    vz = -correction1 * mz / (tl.sqrt(correction2 * sz) + epsilon)
    vy = -correction1 * my / (tl.sqrt(correction2 * sy) + epsilon)
    vx = -correction1 * mx / (tl.sqrt(correction2 * sx) + epsilon)
    return vz, vy, vx


@declared(
    "5 *fp32 *fp64 3 fp32 3 i32",
    {"usual": {"BLOCK": 256}},
    reads={"gradient": 12, "moments": 24},
    writes={"step": 12, "moments": 24},
)
def adam_step(g, first, second, rates, rule, partials, wz, wy, wx, nz, ny, nx, BLOCK: tl.constexpr):
    """Adam's step of every voxel; see `adam_from`."""
    pair, programs = tl.program_id(1), tl.num_programs(0)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    voxels = nz.to(tl.int64) * ny * nx
    use = i < voxels
    far = 3 * pair.to(tl.int64) * voxels
    g, first, second = g + far, first + far, second + far
    partials += 2 * pair * programs
    gz, gy, gx = weighted(g, voxels, i, wz, wy, wx, use)
    vz, vy, vx = adam_from(gz, gy, gx, first, second, voxels, i, use, rates + 3 * pair, rule)
    finish(g, voxels, i, wz, wy, wx, gz, gy, gx, vz, vy, vx, use, partials, programs, tl.program_id(0))


@declared("2 *fp64 *fp32", {"usual": {}}, warps=1)
def adam_rates(steps, logs, rates):
    """The rates of `adam_from` for a pair, of the number of its step and the logarithms of both β."""
    pair = tl.program_id(0)
    number = tl.load(steps + pair)
    taken = tl.maximum(number, 1.0)
    tl.store(rates + 3 * pair, (1.0 / (1.0 - tl.exp(taken * tl.load(logs)))).to(tl.float32))
    tl.store(rates + 3 * pair + 1, (1.0 / (1.0 - tl.exp(taken * tl.load(logs + 1)))).to(tl.float32))
    tl.store(rates + 3 * pair + 2, tl.where(number > 0, 1.0, 0.0).to(tl.float32))


def finished(partials: Partials) -> Tensor:
    """(pairs, 2): the longest step and the predicted decrease."""
    found = partials.combined(maxima=(0,))
    found[:, 0].sqrt_()
    return found


@three
def norms(gradient: Tensor, weights: Sequence[float]) -> Tensor:
    """See Ops."""
    if not takes(gradient):
        return held(reference.norms)(gradient, weights)
    voxels = gradient[0].numel()
    width = block(gradient.device, voxels)
    programs = triton.cdiv(voxels, width)
    partials = Partials(gradient.device, 3, programs)
    lengths.launch((programs,), plain(gradient), partials.table, *weights, *gradient.shape[1:], BLOCK=width)
    return partials.combined()[0]


def _fits(gradient: Tensor, *, form: str, **_: Any) -> bool:
    return takes_pairs(gradient) and form in FORMS


@paired(reference.descend, _fits)
def descend(gradient: Tensor, *, form: str, damping: Any, weights: Sequence[float], residual: Any = 1.0) -> Tensor:
    """See Ops."""
    pairs, shape = len(gradient), gradient.shape[2:]
    width = block(gradient.device, shape.numel())
    programs = triton.cdiv(shape.numel(), width)
    partials = Partials(gradient.device, 2, programs, pairs)
    step_by_voxel.launch(
        (programs, pairs),
        gradient,
        partials.table,
        damping_of(gradient, form, damping, residual),
        *weights,
        *shape,
        FORM=form,
        BLOCK=width,
    )
    return finished(partials)


def damping_of(gradient: Tensor, form: str, damping: Any, residual: Any) -> Tensor:
    """(B, 2) numbers that `step_from` takes."""
    least = damping**0.5 if form == "root" else damping
    return numbers(gradient.device, len(gradient), least, residual)


def _fits_adam(gradient: Tensor, first: Tensor, second: Tensor, **_: Any) -> bool:
    return takes_pairs(gradient, first, second)


@paired(reference.adam, _fits_adam)
def adam(
    gradient: Tensor,
    first: Tensor,
    second: Tensor,
    *,
    number: Any,
    betas: tuple[float, float],
    epsilon: float,
    weights: Sequence[float],
) -> Tensor:
    """See Ops."""
    pairs, shape = len(gradient), gradient.shape[2:]
    width = block(gradient.device, shape.numel())
    programs = triton.cdiv(shape.numel(), width)
    partials = Partials(gradient.device, 2, programs, pairs)
    rule = adam_of(gradient, number, betas, epsilon)
    adam_step.launch((programs, pairs), gradient, first, second, *rule, partials.table, *weights, *shape, BLOCK=width)
    return finished(partials)


def adam_of(gradient: Tensor, number: Any, betas: tuple[float, float], epsilon: float) -> tuple[Tensor, Tensor]:
    """(B, 3) rates and the rule that `adam_from` takes."""
    device, pairs = gradient.device, len(gradient)
    steps = number if isinstance(number, Tensor) else torch.full((pairs,), number, dtype=torch.float64, device=device)
    logs = doubles_on(device, tuple(math.log(beta) if beta > 0 else -math.inf for beta in betas))
    rates = torch.empty((pairs, 3), dtype=torch.float32, device=device)
    adam_rates.launch((pairs,), plain(steps), logs, rates)
    return rates, numbers_on(device, (*betas, *(1 - beta for beta in betas), epsilon))

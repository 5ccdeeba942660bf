"""Count, extremes and sums of many values."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from warpfactor.kernels import reference
from warpfactor.kernels.ops import Tally
from warpfactor.kernels.triton.kernel import declared
from warpfactor.kernels.triton.launch import MOST_VOXELS, Partials, block, mask_or, plain

TYPES = (torch.float32, torch.float16, torch.bfloat16)


@declared(
    "*fp32 *u8 *fp64 2 fp32 i32",
    {"usual": {"MASK": True, "LOG": False, "BLOCK": 1024}, "logarithms": {"MASK": True, "LOG": True, "BLOCK": 1024}},
    reads={"values": 4, "mask": 1},
)
def tally_values(values, mask, partials, low, high, number, MASK: tl.constexpr, LOG: tl.constexpr, BLOCK: tl.constexpr):
    """Count, number that is not positive, sums of the values (or their logarithms) and of squares, extremes."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    i = program * BLOCK + tl.arange(0, BLOCK)
    use = i < number
    value = tl.load(values + i, mask=use, other=0.0).to(tl.float32)
    if MASK:
        use = use & (tl.load(mask + i, mask=use, other=0) != 0)
    if LOG:
        summed = tl.log(tl.minimum(tl.maximum(value, low), high).to(tl.float64))
    else:
        summed = value.to(tl.float64)
    summed = tl.where(use, summed, 0.0)
    tl.store(partials + program, tl.sum(use.to(tl.float64), 0))
    tl.store(partials + programs + program, tl.sum((use & (value <= 0)).to(tl.float64), 0))
    tl.store(partials + 2 * programs + program, tl.sum(summed, 0))
    tl.store(partials + 3 * programs + program, tl.sum(summed * summed, 0))
    tl.store(partials + 4 * programs + program, tl.min(tl.where(use, value, float("inf")), 0).to(tl.float64))
    tl.store(partials + 5 * programs + program, tl.max(tl.where(use, value, -float("inf")), 0).to(tl.float64))


@torch.no_grad()
def tally(values: Tensor, *, mask: Tensor | None = None, log_range: tuple[float, float] | None = None) -> Tally:
    """See Ops."""
    if values.dtype not in TYPES or not 0 < values.numel() <= MOST_VOXELS:
        return reference.tally(values, mask=mask, log_range=log_range)
    width = block(values.device, values.numel(), 1024)
    programs = triton.cdiv(values.numel(), width)
    partials = Partials(values.device, 6, programs)
    tally_values.launch(
        (programs,),
        plain(values),
        mask_or(None if mask is None else mask.to(torch.uint8), values),
        partials.table,
        *(log_range or (0.0, 0.0)),
        values.numel(),
        MASK=mask is not None,
        LOG=log_range is not None,
        BLOCK=width,
    )
    count, nonpositive, total, squares, least, most = partials.combined(minima=(4,), maxima=(5,))[0].tolist()
    return Tally(int(count), int(nonpositive), least, most, total, squares)

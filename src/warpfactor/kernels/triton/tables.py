"""Tables of sums that programs leave: a histogram, or the products of a few values, each summed over many voxels."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from warpfactor.kernels.triton.kernel import declared

PROGRAMS = 512  # of kernels that leave a table each


def programs_for(device: torch.device, voxels: int, block: int) -> tuple[int, int]:
    """Number of programs, and how many blocks of voxels each goes through."""
    blocks = triton.cdiv(voxels, block)
    programs = min(blocks, 1 if device.type == "cpu" else PROGRAMS)
    return programs, triton.cdiv(blocks, programs)


def summed_tables(tables: Tensor) -> Tensor:
    """Sum of (pairs, programs, columns) over the programs, in their order, in double precision."""
    pairs, programs, columns = tables.shape
    found = torch.empty((pairs, columns), dtype=torch.float64, device=tables.device)
    width = 32 if tables.device.type != "cpu" else triton.next_power_of_2(columns)
    sum_tables.launch((triton.cdiv(columns, width), pairs), tables, found, programs, columns, ROWS=32, COLUMNS=width)
    return found


@declared("*fp64 *fp64 2 i32", {"usual": {"ROWS": 32, "COLUMNS": 32}})
def sum_tables(tables, found, programs, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Column sums: each lane over every ROWS-th row, then a fixed tree."""
    pair = tl.program_id(1)
    tables, found = tables + pair.to(tl.int64) * programs * columns, found + pair * columns
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    row = tl.arange(0, ROWS)
    total = tl.zeros((ROWS, COLUMNS), tl.float64)
    for start in range(0, programs, ROWS):
        use = (start + row < programs)[:, None] & (column < columns)[None, :]
        total += tl.load(tables + (start + row)[:, None] * columns + column[None, :], mask=use, other=0.0)
    tl.store(found + column, tl.sum(total, 0), mask=column < columns)

"""Between tensors and kernels: which tensors kernels can take, block sizes, constants on the device, sums."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from warpfactor.kernels.pairs import Each
from warpfactor.kernels.triton.kernel import declared

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
IMAGES = (*FLOATS, torch.int16, torch.uint8)  # metrics take images as they are stored
MOST_VOXELS = 2**31 - 1  # voxels are numbered with 32 bits
BLOCK = 256  # voxels of a program, two to a thread
INTERPRETED_BLOCK = 1 << 15  # the interpreter takes as long for few voxels as for many


def takes(*tensors: Tensor | None) -> bool:
    """Whether kernels can take these fields; the reference does what they cannot."""
    return all(t is None or (t.dtype in FLOATS and t[0].numel() <= MOST_VOXELS) for t in tensors)


def takes_images(*tensors: Tensor) -> bool:
    """Whether kernels of metrics can take these images."""
    return all(t.dtype in IMAGES and t.numel() <= MOST_VOXELS for t in tensors)


def takes_pairs(*tensors: Tensor | None) -> bool:
    """Whether kernels can take these fields of several pairs, and write into them."""
    return takes(*(None if t is None else t[0] for t in tensors)) and all(
        t is None or t.is_contiguous() for t in tensors
    )


def block(device: torch.device, voxels: int, usual: int = BLOCK) -> int:
    """Voxels of one program."""
    if device.type != "cpu":
        return usual
    return min(triton.next_power_of_2(voxels), INTERPRETED_BLOCK)


def plain(tensor: Tensor) -> Tensor:
    """The tensor with its elements one after the other, as kernels index them."""
    return tensor if tensor.is_contiguous() else tensor.contiguous()


def matrix_on(device: torch.device, matrix: Tensor) -> Tensor:
    """The twelve numbers of a (3, 4) matrix, or of one after the other, in single precision on a device."""
    return numbers_on(device, tuple(matrix.flatten().tolist()))


@functools.lru_cache(maxsize=4096)  # a captured iteration reads them: they must not go while it lives
def numbers_on(device: torch.device, numbers: tuple[float, ...]) -> Tensor:
    """Numbers in single precision on a device, copied there once."""
    return torch.tensor(numbers, dtype=torch.float32).to(device)


def numbers(device: torch.device, pairs: int, *values: Any) -> Tensor:
    """(pairs, N) numbers in single precision on a device: those of the host are copied there, the device's own stay."""
    if any(isinstance(value, Tensor) for value in values):
        held = [v if isinstance(v, Tensor) else torch.full((), v, device=device) for v in values]
        return torch.stack([each.float().expand(pairs) for each in held], -1)
    if set(values) == {1.0}:  # always the same: nothing is copied where an iteration is recorded
        return numbers_on(device, (1.0,) * (pairs * len(values))).reshape(pairs, -1)
    return torch.tensor([values] * pairs, dtype=torch.float32).to(device)


def pair_numbers(device: torch.device, pairs: int, values: Any) -> Tensor:
    """(pairs, N) numbers of the host that stay the same, in single precision on a device, copied there once.

    Args:
        values: N numbers for all pairs, or Each of N.
    """
    every = values if isinstance(values, Each) else (values,) * pairs
    return numbers_on(device, tuple(float(value) for own in every for value in own))


def mask_or(mask: Tensor | None, instead: Tensor) -> Tensor:
    """A mask as a kernel takes it; where there is none, any pointer, which is not read."""
    return instead if mask is None else plain(mask)


class Partials:
    """Sums, and extremes, of what every program found for a pair, combined in the order of the programs."""

    def __init__(self, device: torch.device, columns: int, programs: int, pairs: int = 1) -> None:
        self.table = torch.empty((pairs, columns, programs), dtype=torch.float64, device=device)

    def combined(self, *, maxima: Sequence[int] = (), minima: Sequence[int] = ()) -> Tensor:
        """(pairs, columns), on the device: the sum, or the extreme for the columns named."""
        pairs, columns, programs = self.table.shape
        found = torch.empty((pairs, columns), dtype=torch.float64, device=self.table.device)
        flags = {"MAXIMA": sum(1 << c for c in maxima), "MINIMA": sum(1 << c for c in minima)}
        combine.launch((columns, pairs), self.table, found, programs, **flags, BLOCK=1024)
        return found


@declared("*fp64 *fp64 i32", {"sums": {"MAXIMA": 1, "MINIMA": 0, "BLOCK": 1024}})
def combine(table, found, programs, MAXIMA: tl.constexpr, MINIMA: tl.constexpr, BLOCK: tl.constexpr):
    """Sum or extreme of a row of the table: each lane over every BLOCK-th number, then a fixed tree."""
    column = tl.program_id(0)
    place = tl.program_id(1) * tl.num_programs(0) + column
    lane = tl.arange(0, BLOCK)
    row = table + place.to(tl.int64) * programs
    total = tl.zeros((BLOCK,), tl.float64)
    most = tl.full((BLOCK,), -float("inf"), tl.float64)
    least = tl.full((BLOCK,), float("inf"), tl.float64)
    for start in range(0, programs, BLOCK):
        use = start + lane < programs
        total += tl.load(row + start + lane, mask=use, other=0.0)
        most = tl.maximum(most, tl.load(row + start + lane, mask=use, other=-float("inf")))
        least = tl.minimum(least, tl.load(row + start + lane, mask=use, other=float("inf")))
    is_most, is_least = (MAXIMA >> column) & 1, (MINIMA >> column) & 1
    result = tl.where(is_most == 1, tl.max(most, 0), tl.where(is_least == 1, tl.min(least, 0), tl.sum(total, 0)))
    tl.store(found + place, result)

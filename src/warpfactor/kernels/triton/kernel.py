"""What a kernel says about itself, beside its code: argument types, variants, and the bytes it moves per voxel.

The launcher, the compilation ahead of time and the model of memory traffic all read this one declaration.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
import triton
from torch import Tensor

Constants = Mapping[str, Any]


@dataclass(frozen=True)
class Kernel:
    """A Triton kernel and what it declares.

    Attributes:
        name: of the kernel; unique in the package.
        function: what `triton.jit` returned.
        types: Triton types of the arguments that are no constants, in order: "*fp32" is a pointer, "i32" a number.
        variants: by name, the constants with which the kernel is compiled ahead of time; the first is the usual one.
        warps: number of warps of a program.
        reads, writes: bytes per voxel moved from and to the memory of the device, by what they are. Values that the
            kernel fetches several times from one place count once, as caches serve the rest. Names that begin with
            "slab" lie in a buffer of a few planes that the second-level cache may hold.
    """

    name: str
    function: Any
    types: tuple[str, ...]
    variants: Mapping[str, Constants]
    warps: int
    reads: Mapping[str, float] = field(default_factory=dict)
    writes: Mapping[str, float] = field(default_factory=dict)

    def launch(self, grid: Sequence[int], first: Tensor, *arguments: Any, **constants: Any) -> None:
        """Run the kernel over a grid of programs, on the device of its first argument."""
        device = first.device
        # Triton launches on the current GPU, which need not be the one that holds the tensors.
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            self.function[tuple(grid)](first, *arguments, **constants, num_warps=self.warps)


def declared(
    types: str,
    variants: Mapping[str, Constants],
    *,
    warps: int = 4,
    reads: Mapping[str, float] | None = None,
    writes: Mapping[str, float] | None = None,
) -> Callable[[Any], Kernel]:
    """Compile the decorated function with Triton and declare what it is; see Kernel.

    Args:
        types: as in Kernel, separated by blanks; "3 i32" stands for three of them.
    """

    def declare(function: Any) -> Kernel:
        # Sizes are not specialised: an axis of one voxel, or a level of another size, needs no compilation of its own.
        numbers = [n for n, kind in zip(_arguments(function), _types(types), strict=True) if not kind.startswith("*")]
        compiled = triton.jit(do_not_specialize=numbers)(function)
        return Kernel(function.__name__, compiled, _types(types), variants, warps, reads or {}, writes or {})

    return declare


def _arguments(function: Any) -> list[str]:
    """Names of the arguments that are no constants."""
    return [name for name in inspect.signature(function).parameters if name not in function.__annotations__]


def _types(text: str) -> tuple[str, ...]:
    found: list[str] = []
    times = 1
    for word in text.split():
        if word.isdigit():
            times = int(word)
        else:
            found += [word] * times
            times = 1
    return tuple(found)

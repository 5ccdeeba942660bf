"""For kernels that go through the planes one by one: each lane has a column of voxels and the sums of its windows."""

import torch
import triton
import triton.language as tl

TILE = (8, 32)  # voxels of a program along y and x
CHUNK = 16  # planes of a program


@triton.jit
def advanced(sums, newest, taps, LENGTH: tl.constexpr, BOX: tl.constexpr):
    """Sums of windows along z when one more plane has been seen: the first is complete, the last has just begun.

    Sums that move on by one place are kept instead of the planes themselves: with those, the compiler of Triton 3.9
    fails for the H100 (an assertion in LLVM about reordered PHI nodes).
    """
    found = ()
    for k in tl.static_range(1, LENGTH):
        found = found + (sums[k] + (newest if BOX else tl.load(taps + LENGTH - k) * newest),)  # type: ignore[assignment]
    return found + (newest if BOX else tl.load(taps) * newest,)


def plane_tiles(device: torch.device, height: int, width: int) -> tuple[int, tuple[int, int]]:
    """Number of tiles of a plane, and their edges along y and x."""
    ty, tx = TILE if device.type != "cpu" else (triton.next_power_of_2(height), triton.next_power_of_2(width))
    return triton.cdiv(height, ty) * triton.cdiv(width, tx), (ty, tx)

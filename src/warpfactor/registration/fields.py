"""Displacement fields computed slab by slab, for transforms whose fields are too large to be held beside each other."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from warpfactor.errors import OutOfMemoryError
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.inversion import invert_everywhere
from warpfactor.geometry.transform import Transform, Warp
from warpfactor.io.formats import field_suffixes, find_format
from warpfactor.io.lazy import box_grid, whole_planes
from warpfactor.io.voxels import Array, VoxelSource
from warpfactor.kernels.ops import Ops
from warpfactor.measure import LOG_JACOBIAN_RANGE
from warpfactor.memory import shown_bytes
from warpfactor.registration.plan import own_bytes

READ_BYTES = 18  # a voxel of a field takes while it is read
HELD_BYTES = 12  # and then
SLAB_BYTES = 140  # a voxel of a slab takes while it is computed
WHOLE_BYTES = 60  # a voxel of a field takes while it is inverted or written as a whole
MOST_VOXELS, FEWEST_PLANES = 1 << 23, 4


class SlabField(Protocol):
    """A field of which any planes can be computed by themselves."""

    @property
    def grid(self) -> Grid: ...

    @property
    def reach(self) -> int:
        """Planes on both sides of others that are needed to compute these."""
        ...

    def planes(self, planes: slice) -> Tensor:
        """(3, planes, H, W) in voxels of the grid."""
        ...


@dataclass(frozen=True)
class Composed:
    """A whole transform as one displacement on a grid."""

    transform: Transform
    grid: Grid
    ops: Ops
    reach: int = 0

    def planes(self, planes: slice) -> Tensor:
        """See SlabField."""
        return self.transform.on_grid(box_grid(self.grid, whole_planes(self.grid, planes)), ops=self.ops).total()


class Inverted:
    """The inverse of a warp on its own grid."""

    def __init__(self, warp: Warp, ops: Ops) -> None:
        self.warp, self.grid, self.ops = warp, warp.grid, ops
        least, most = warp.displacement[0].aminmax()
        self.reach = math.ceil(max(abs(float(least)), abs(float(most)))) + 2  # an inverse moves no further

    def planes(self, planes: slice) -> Tensor:
        """See SlabField."""
        low, high = max(0, planes.start - self.reach), min(self.grid.shape[0], planes.stop + self.reach)
        field = self.warp.displacement[:, low:high].to(torch.float32).contiguous()
        return invert_everywhere(field, self.ops)[0][:, planes.start - low : planes.stop - low]


def determinants(field: SlabField, count: int, ops: Ops) -> Iterator[Tensor]:
    """(planes, H, W) Jacobian determinants of a field, `count` planes after the other."""
    depth = field.grid.shape[0]
    for start in range(0, depth, count):
        stop = min(start + count, depth)
        low, high = max(0, start - 1), min(depth, stop + 1)
        whole = field.planes(slice(low, high)).contiguous()
        yield ops.jacobian_determinant(whole)[start - low : stop - low]


def write_field(field: SlabField, path: Path, count: int, *, force: bool) -> None:
    """Write a field in LPS mm, `count` planes after the other; each component is computed by itself."""
    grid = field.grid

    def component(_: int, axis: int) -> Iterator[Array]:
        for start in range(0, grid.shape[0], count):
            part = field.planes(slice(start, min(start + count, grid.shape[0])))
            yield grid.voxels_to_mm(part, axis).numpy().astype(np.float32)

    source = VoxelSource(component, np.dtype(np.float32), grid, channels=grid.ndim)
    find_format(path).write(source, path, force=force)


def write_jacobian(field: SlabField, path: Path, count: int, ops: Ops, *, log: bool, force: bool) -> tuple[int, float]:
    """Write the determinants of a field while they are computed; the number of folded voxels, and the least one."""
    folded, least = 0, math.inf

    def parts(_: int, __: int) -> Iterator[Array]:
        nonlocal folded, least
        for part in determinants(field, count, ops):
            folded, least = folded + int((part <= 0).sum()), min(least, float(part.min()))
            yield (part.clamp(*LOG_JACOBIAN_RANGE).log() if log else part).numpy()

    find_format(path).write(VoxelSource(parts, np.dtype(np.float32), field.grid), path, force=force)
    return folded, least


def reading_bytes(files: list[Path]) -> int:
    """Memory that the fields among some transform files take while they are read, by their headers."""
    most = held = 0
    for path in files:
        if path.exists() and path.name.lower().endswith(field_suffixes()):
            shape = find_format(path).read_header(path).shape or ()
            most = max(most, math.prod(shape))
            held += HELD_BYTES * math.prod(shape)
    return held + (READ_BYTES - HELD_BYTES) * most


def check_limit(limit: int, needed: float, what: str) -> None:
    """OutOfMemoryError, which says what the least is, if more is needed than allowed."""
    least = own_bytes() + needed
    if least > limit:
        raise OutOfMemoryError(
            f"A memory limit of {shown_bytes(limit)} is too low: {what} needs at least {shown_bytes(least)}."
        )


def slab_planes(limit: int, grid: Grid, what: str, reach: int = 0) -> int:
    """Planes of a field that can be computed at once within a limit, beside what the process holds already.

    Args:
        limit: in bytes.
        grid: of the field.
        what: for the message.
        reach: planes on both sides of them that are needed.
    """
    plane = math.prod(grid.shape[1:])
    around = min(2 * reach, grid.shape[0])
    check_limit(limit, SLAB_BYTES * (FEWEST_PLANES + around) * plane, what)
    room = int((limit - own_bytes()) / SLAB_BYTES) // plane - around
    return max(FEWEST_PLANES, min(room, MOST_VOXELS // plane))

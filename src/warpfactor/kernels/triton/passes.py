"""Passes over a field, slab by slab: filters along an axis or over a small window, and what else is done on the way.

A field is read by the first pass and overwritten by the last one; what lies between is in rings (`slabs.py`). What a
plane of the field was is no longer needed when it is written: the first pass is as far ahead as the others look.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import triton
import triton.language as tl
from torch import Tensor

from warpfactor.kernels.triton import slabs
from warpfactor.kernels.triton.columns import CHUNK, advanced, plane_tiles
from warpfactor.kernels.triton.kernel import declared
from warpfactor.kernels.triton.launch import block, numbers_on
from warpfactor.kernels.triton.points import voxel

MEAN = "mean"  # a boundary beside "nearest" and "zero": the mean is over the voxels that exist
NARROW = 2  # radius: wider windows need more loads in one pass than along the axes, which then take longer than memory


@triton.jit
def neighbour(k, z, y, x, slot, planes, depth, ny, nx, AXIS: tl.constexpr):
    """Where in a ring the voxel k further along an axis is, or the last one before the border; whether it exists.

    Plane z lies in `slot` of the ring.
    """
    if AXIS == 0:
        at, n = z + k, depth
        there = slot + tl.minimum(tl.maximum(at, 0), n - 1) - z
        there = tl.where(there < 0, there + planes, there)
        there = tl.where(there >= planes, there - planes, there)
        index = there * (ny * nx) + y * nx + x
    elif AXIS == 1:
        at, n = y + k, ny
        index = slot * (ny * nx) + tl.minimum(tl.maximum(at, 0), n - 1) * nx + x
    else:
        at, n = x + k, nx
        index = slot * (ny * nx) + y * nx + tl.minimum(tl.maximum(at, 0), n - 1)
    return index, (at >= 0) & (at < n)


@declared(
    "3 *fp32 10 i32",
    {
        "x": {"AXIS": 2, "BOUNDARY": "nearest", "BLOCK": 256},
        "y": {"AXIS": 1, "BOUNDARY": "nearest", "BLOCK": 256},
        "z": {"AXIS": 0, "BOUNDARY": "nearest", "BLOCK": 256},
        "mean": {"AXIS": 0, "BOUNDARY": MEAN, "BLOCK": 256},
    },
    reads={"source": 4},
    writes={"target": 4},
)
def filter_axis(
    source,
    target,
    taps,
    radius,
    components,
    apart,
    start,
    stop,
    depth,
    ny,
    nx,
    source_planes,
    target_planes,
    AXIS: tl.constexpr,
    BOUNDARY: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """target(i) = sum over k of taps[k + radius] source(i + k) along an axis, for the planes from start up to stop.

    The taps of two pairs of `components` components each lie so far `apart`; 0 if they are the same.
    """
    component = tl.program_id(1).to(tl.int64)
    taps += tl.program_id(1) // components * apart
    plane = ny * nx
    i = start * plane + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    use = i < stop * plane
    z, y, x = voxel(i, ny, nx)
    slot = z % source_planes
    base = source + component * source_planes * plane
    total = tl.zeros((BLOCK,), tl.float32)
    share = tl.zeros((BLOCK,), tl.float32)
    for k in range(-radius, radius + 1):
        tap = tl.load(taps + k + radius)
        index, exists = neighbour(k, z, y, x, slot, source_planes, depth, ny, nx, AXIS)
        value = tl.load(base + index, mask=use, other=0.0).to(tl.float32)
        if BOUNDARY == "nearest":
            total += tap * value
        else:
            total += tl.where(exists, tap * value, 0.0)
            share += tl.where(exists, tap, 0.0)
    if BOUNDARY == "mean":
        total = total / share
    place = target + component * target_planes * plane + (z % target_planes) * plane + y * nx + x
    tl.store(place, total.to(target.dtype.element_ty), mask=use)


_WINDOW = {"RZ": 2, "RX": 2, "BOUNDARY": "nearest", "TY": 8, "TX": 32}


@declared(
    "5 *fp32 13 i32",
    {"radius 2": _WINDOW, "radius 1": {**_WINDOW, "RZ": 1, "RX": 1}, "zero": {**_WINDOW, "BOUNDARY": "zero"}},
    warps=8,
    reads={"source": 4},
    writes={"target": 4},
)
def filter_window(
    source,
    target,
    taps_z,
    taps_y,
    taps_x,
    apart_z,
    apart_y,
    apart_x,
    ry,
    components,
    start,
    stop,
    chunk,
    depth,
    ny,
    nx,
    source_planes,
    target_planes,
    RZ: tl.constexpr,
    RX: tl.constexpr,
    BOUNDARY: tl.constexpr,
    TY: tl.constexpr,
    TX: tl.constexpr,
):
    """The filters along z, y and x in one pass, for the planes from start up to stop; `apart` as in `filter_axis`."""
    LENGTH: tl.constexpr = 2 * RZ + 1
    component = tl.program_id(2).to(tl.int64)
    pair = tl.program_id(2) // components
    taps_z, taps_y, taps_x = taps_z + pair * apart_z, taps_y + pair * apart_y, taps_x + pair * apart_x
    source += component * source_planes * ny * nx
    target += component * target_planes * ny * nx
    tiles = tl.cdiv(nx, TX)
    lane = tl.arange(0, TY * TX)
    y = tl.program_id(0) // tiles * TY + lane // TX
    x = tl.program_id(0) % tiles * TX + lane % TX
    use = (y < ny) & (x < nx)
    z0 = start + tl.program_id(1) * chunk
    z1 = tl.minimum(z0 + chunk, stop)
    zero = tl.zeros((TY * TX,), tl.float32)
    sums = (zero,) * LENGTH
    for z in range(z0 - RZ, z1 + RZ):
        held = tl.minimum(tl.maximum(z, 0), depth - 1)
        from_plane = source + (held % source_planes) * (ny * nx)
        newest = zero
        for dy in range(-ry, ry + 1):
            row = tl.minimum(tl.maximum(y + dy, 0), ny - 1)
            along = zero
            for dx in tl.static_range(-RX, RX + 1):
                there = use
                if BOUNDARY == "zero":
                    there = use & (lane * 0 + z == held) & (y + dy == row) & (x + dx >= 0) & (x + dx < nx)
                place = row * nx + tl.minimum(tl.maximum(x + dx, 0), nx - 1)
                value = tl.load(from_plane + place, mask=there, other=0.0).to(tl.float32)
                along += tl.load(taps_x + RX + dx) * value
            newest += tl.load(taps_y + ry + dy) * along
        sums = advanced(sums, newest, taps_z, LENGTH, False)
        if z - RZ >= z0:
            place = target + ((z - RZ) % target_planes) * (ny * nx) + y * nx + x
            tl.store(place, sums[0].to(target.dtype.element_ty), mask=use)


class Pass(Protocol):
    """What is done for the planes of a turn, from one (B, C, planes, H, W) field or ring to another."""

    @property
    def reach(self) -> slabs.Reach: ...

    def launch(self, source: Tensor, target: Tensor, turn: slabs.Turn, depth: int) -> None: ...


@dataclass(frozen=True)
class AxisPass:
    """A filter along one axis, with taps (1, N) for all pairs or (B, N)."""

    axis: int
    taps: Tensor
    boundary: str

    @property
    def reach(self) -> slabs.Reach:
        return axis_reach(self.axis, self.taps.shape[1] // 2)

    def launch(self, source: Tensor, target: Tensor, turn: slabs.Turn, depth: int) -> None:
        pairs, components, planes, height, width = source.shape
        span = (turn.stop - turn.start) * height * width
        size = block(source.device, span)
        filter_axis.launch(
            (triton.cdiv(span, size), pairs * components),
            source,
            target,
            self.taps,
            self.taps.shape[1] // 2,
            components,
            apart(self.taps),
            turn.start,
            turn.stop,
            depth,
            height,
            width,
            planes,
            target.shape[2],
            AXIS=self.axis,
            BOUNDARY=self.boundary,
            BLOCK=size,
        )


@dataclass(frozen=True)
class WindowPass:
    """Filters along several axes at once, with taps as for one; an axis that is left out has one tap."""

    taps: Mapping[int, Tensor]
    boundary: str

    @property
    def reach(self) -> slabs.Reach:
        return axis_reach(0, self.taps[0].shape[1] // 2 if 0 in self.taps else 0)

    def launch(self, source: Tensor, target: Tensor, turn: slabs.Turn, depth: int) -> None:
        pairs, components, planes, height, width = source.shape
        lines = [self.taps.get(axis, no_taps(source.device)) for axis in range(3)]
        rz, ry, rx = (line.shape[1] // 2 for line in lines)
        tiles, (ty, tx) = plane_tiles(source.device, height, width)
        chunk = depth if source.device.type == "cpu" else CHUNK
        filter_window.launch(
            (tiles, triton.cdiv(turn.stop - turn.start, chunk), pairs * components),
            source,
            target,
            *lines,
            *(apart(line) for line in lines),
            ry,
            components,
            turn.start,
            turn.stop,
            chunk,
            depth,
            height,
            width,
            planes,
            target.shape[2],
            RZ=rz,
            RX=rx,
            BOUNDARY=self.boundary,
            TY=ty,
            TX=tx,
        )


def axis_reach(axis: int, radius: int) -> slabs.Reach:
    """How far a filter along an axis looks."""
    return slabs.Reach(radius, radius) if axis == 0 else slabs.Reach()


def apart(taps: Tensor) -> int:
    """How far the taps of two pairs lie apart; 0 if they are the same."""
    return taps.shape[1] if len(taps) > 1 else 0


def no_taps(device: torch.device) -> Tensor:
    """Of a filter that changes nothing."""
    return numbers_on(device, (1.0,))[None]


def copying(device: torch.device) -> AxisPass:
    """A pass that copies."""
    return AxisPass(2, no_taps(device), "nearest")


def passes_of(taps: Mapping[int, Tensor], boundary: str) -> list[Pass]:
    """The filters along the axes that have taps: in one pass if all are narrow, otherwise one by one."""
    narrow = all(line.shape[1] // 2 <= NARROW for line in taps.values())
    if len(taps) > 1 and narrow and boundary != MEAN:
        return [WindowPass(taps, boundary)]
    return [AxisPass(axis, line, boundary) for axis, line in taps.items()]


def chain_of(shape: Sequence[int], reaches: Sequence[slabs.Reach]) -> slabs.PassChain:
    """Passes that look so far, over a field of this shape (C, D, H, W)."""
    components, depth, height, width = shape
    ring = 4 * components * height * width
    return slabs.PassChain(depth, tuple(reaches), (ring,) * (len(reaches) - 1))


def run_passes(field: Tensor, passes: Sequence[Pass]) -> None:
    """Take a field (B, C, D, H, W) through the passes, in place; the first one looks at no planes but its own."""
    pairs, components, depth, *plane = field.shape
    chain = chain_of(field.shape[1:], [each.reach for each in passes])
    rings = [torch.empty((pairs, components, n, *plane), dtype=torch.float32, device=field.device) for n in chain.rings]
    tensors = [field, *rings, field]
    for turn in chain.turns():
        passes[turn.number].launch(tensors[turn.number], tensors[turn.number + 1], turn, depth)

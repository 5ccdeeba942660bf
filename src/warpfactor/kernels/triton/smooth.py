"""Smoothing along the axes, in place: one kernel for all axes, borders and buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from warpfactor.kernels import reference
from warpfactor.kernels.taps import gaussian_kernel, gaussian_kernels
from warpfactor.kernels.triton import slabs
from warpfactor.kernels.triton.kernel import declared
from warpfactor.kernels.triton.launch import block, numbers_on, takes
from warpfactor.kernels.triton.points import voxel

MEAN = "mean"  # a boundary beside "nearest" and "zero": the mean is over the voxels that exist


@declared(
    "3 *fp32 8 i32",
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
    """target(i) = sum over k of taps[k + radius] source(i + k) along an axis, for the planes from start up to stop."""
    component = tl.program_id(1).to(tl.int64)
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
        if AXIS == 0:
            at, n = z + k, depth
            there = slot + tl.minimum(tl.maximum(at, 0), n - 1) - z
            there = tl.where(there < 0, there + source_planes, there)
            there = tl.where(there >= source_planes, there - source_planes, there)
            index = there * plane + y * nx + x
        elif AXIS == 1:
            at, n = y + k, ny
            index = slot * plane + tl.minimum(tl.maximum(at, 0), n - 1) * nx + x
        else:
            at, n = x + k, nx
            index = slot * plane + y * nx + tl.minimum(tl.maximum(at, 0), n - 1)
        value = tl.load(base + index, mask=use, other=0.0).to(tl.float32)
        if BOUNDARY == "nearest":
            total += tap * value
        else:
            exists = (at >= 0) & (at < n)
            total += tl.where(exists, tap * value, 0.0)
            share += tl.where(exists, tap, 0.0)
    if BOUNDARY == "mean":
        total = total / share
    place = target + component * target_planes * plane + (z % target_planes) * plane + y * nx + x
    tl.store(place, total.to(target.dtype.element_ty), mask=use)


@dataclass(frozen=True)
class AxisPass:
    """A filter along one axis; one tap, of radius 0, copies."""

    axis: int
    radius: int

    @property
    def reach(self) -> slabs.Reach:
        return slabs.Reach(self.radius, self.radius) if self.axis == 0 else slabs.Reach()


@torch.no_grad()
def smooth_gaussian(
    field: Tensor,
    sigma: Sequence[float],
    *,
    boundary: Any = "nearest",
    truncate: float = 3.0,
    tail: tuple[float, float] = (0.0, 1.0),
) -> Tensor:
    """See Ops."""
    if not takes(field) or not field.is_contiguous():
        return reference.smooth_gaussian(field, sigma, boundary=boundary, truncate=truncate, tail=tail)
    taps = {a: tuple(gaussian_kernel(sigma[a], truncate, tail)) for a in _axes(field, sigma)}
    return _filtered(field, {a: numbers_on(field.device, line) for a, line in taps.items()}, boundary)


@torch.no_grad()
def smooth_share(
    field: Tensor, sigma: Sequence[float], share: Tensor, *, boundary: Any = "nearest", truncate: float = 3.0
) -> Tensor:
    """See DeviceOps."""
    if not takes(field) or not field.is_contiguous():
        return reference.smooth_share(field, sigma, share, boundary=boundary, truncate=truncate)
    lines = gaussian_kernels(sigma, share, truncate)
    return _filtered(field, {a: lines[a].float() for a in _axes(field, sigma)}, boundary)


def _axes(field: Tensor, sigma: Sequence[float]) -> list[int]:
    """The axes along which there is something to smooth, in the order of the passes."""
    return [axis for axis in (2, 1, 0) if sigma[axis] > 0 and field.shape[axis + 1] > 1]


@torch.no_grad()
def smooth_box(field: Tensor, radius: Sequence[int]) -> Tensor:
    """See Ops."""
    if not takes(field) or not field.is_contiguous():
        return reference.smooth_box(field, radius)
    taps = {a: numbers_on(field.device, (1.0,) * (2 * radius[a] + 1)) for a in _axes(field, radius)}
    return _filtered(field, taps, MEAN)


def filter_chain(shape: Sequence[int], passes: Sequence[AxisPass]) -> slabs.PassChain:
    """The passes over a field of this shape (C, D, H, W)."""
    components, depth, height, width = shape
    ring = 4 * components * height * width
    return slabs.PassChain(depth, tuple(each.reach for each in passes), (ring,) * (len(passes) - 1))


def _filtered(field: Tensor, taps: dict[int, Tensor], boundary: str) -> Tensor:
    """Filter along the axes that have taps, one by one, slab by slab, from the field through buffers back into it.

    What a plane of the field was is no longer needed when it is written: the first pass is as far ahead as the last
    one looks. A single pass could not write where it reads, so it reads a copy.
    """
    if not taps:
        return field
    passes, lines = [AxisPass(axis, len(line) // 2) for axis, line in taps.items()], list(taps.values())
    if len(passes) == 1:
        passes, lines = [AxisPass(2, 0), *passes], [numbers_on(field.device, (1.0,)), *lines]
    chain = filter_chain(field.shape, passes)
    if len(field) > 1 and chain.nbytes > slabs.BYTES:  # thin slabs, of which much would be halo
        for component in field:
            _filtered(component[None], taps, boundary)
        return field
    components, depth, *plane = field.shape
    rings = [torch.empty((components, n, *plane), dtype=torch.float32, device=field.device) for n in chain.rings]
    tensors = [field, *rings, field]
    for turn in chain.turns():
        each, place = passes[turn.number], turn.number
        launch_filter(tensors[place], tensors[place + 1], lines[place], turn, depth, axis=each.axis, boundary=boundary)
    return field


def launch_filter(
    source: Tensor, target: Tensor, taps: Tensor, turn: slabs.Turn, depth: int, *, axis: int, boundary: str
) -> None:
    """Filter the planes of a turn from one (C, planes, H, W) field or ring to another."""
    components, _, height, width = source.shape
    span = (turn.stop - turn.start) * height * width
    size = block(source.device, span)
    filter_axis.launch(
        (triton.cdiv(span, size), components),
        source,
        target,
        taps,
        len(taps) // 2,
        turn.start,
        turn.stop,
        depth,
        height,
        width,
        source.shape[1],
        target.shape[1],
        AXIS=axis,
        BOUNDARY=boundary,
        BLOCK=size,
    )

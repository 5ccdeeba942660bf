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
from warpfactor.kernels.held import doubles_on
from warpfactor.kernels.pairs import Each, paired
from warpfactor.kernels.taps import gaussian_kernel, gaussian_radius
from warpfactor.kernels.triton import slabs
from warpfactor.kernels.triton.kernel import declared
from warpfactor.kernels.triton.launch import block, numbers_on, plain, takes_pairs
from warpfactor.kernels.triton.points import voxel

MEAN = "mean"  # a boundary beside "nearest" and "zero": the mean is over the voxels that exist


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


@declared("2 *fp64 *fp32 i32", {"usual": {"WIDTH": 16}}, warps=1)
def share_taps(sigmas, shares, taps, radius, WIDTH: tl.constexpr):
    """Weights of a Gaussian of sigma sqrt(share), as in `kernels/taps.py`, for an axis and a pair.

    Behind the sigmas is the distance at which the weights end, in units of them.
    """
    pair, place = tl.program_id(1), tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    s = tl.load(sigmas + place) * tl.sqrt(tl.load(shares + pair))
    k = tl.arange(0, WIDTH) - radius
    truncate = tl.load(sigmas + tl.num_programs(0) * tl.num_programs(1))
    last = tl.maximum(tl.ceil(truncate * s - 0.5), 1.0)
    unit = 1.4142135623730951 * s + 0.0 * k  # a share of 0 leaves the weight in the middle
    weight = tl.erf((k + 0.5) / unit) - tl.erf((k - 0.5) / unit)
    weight = tl.where((k <= last) & (k >= -last), weight, 0.0) / (2.0 * tl.erf((last + 0.5) / unit))
    tl.store(taps + place * (2 * radius + 1) + k + radius, weight.to(tl.float32), mask=k <= radius)


@dataclass(frozen=True)
class AxisPass:
    """A filter along one axis; one tap, of radius 0, copies."""

    axis: int
    radius: int

    @property
    def reach(self) -> slabs.Reach:
        return slabs.Reach(self.radius, self.radius) if self.axis == 0 else slabs.Reach()


def _fits(field: Tensor, *_: Any, **__: Any) -> bool:
    return takes_pairs(field)


@paired(reference.smooth_gaussian, _fits)
def smooth_gaussian(
    field: Tensor,
    sigma: Sequence[Any],
    *,
    boundary: Any = "nearest",
    truncate: float = 3.0,
    tail: Any = (0.0, 1.0),
) -> Tensor:
    """See Ops."""
    pairs = range(len(field) if isinstance(tail, Each) or any(isinstance(each, Each) for each in sigma) else 1)

    def taps(sigmas: Any) -> Tensor:
        return _lines(field.device, [gaussian_kernel(own(sigmas, n), truncate, own(tail, n)) for n in pairs])

    def own(value: Any, number: int) -> Any:
        return value[number] if isinstance(value, Each) else value

    return _filtered(field, {axis: taps(sigma[axis]) for axis in _axes(field, sigma)}, boundary)


@paired(reference.smooth_share, _fits)
def smooth_share(
    field: Tensor, sigma: Sequence[Any], share: Tensor, *, boundary: Any = "nearest", truncate: float = 3.0
) -> Tensor:
    """See DeviceOps."""
    axes, pairs = _axes(field, sigma), len(field)
    if not axes:
        return field
    each = [sigma[axis] if isinstance(sigma[axis], Each) else (sigma[axis],) * pairs for axis in axes]
    radii = [max(gaussian_radius(own, truncate) for own in every) for every in each]
    taps = torch.empty((len(axes), pairs, 2 * max(radii) + 1), dtype=torch.float32, device=field.device)
    sigmas = doubles_on(field.device, (*(float(own) for every in each for own in every), truncate))
    width = triton.next_power_of_2(taps.shape[-1])
    share_taps.launch((len(axes), pairs), sigmas, plain(share), taps, max(radii), WIDTH=width)
    inner = (slice(max(radii) - r, max(radii) + r + 1) for r in radii)
    lines = {axis: plain(line[:, own]) for axis, line, own in zip(axes, taps, inner, strict=True)}
    return _filtered(field, lines, boundary)


def _axes(field: Tensor, sigma: Sequence[Any]) -> list[int]:
    """The axes along which there is something to smooth, in the order of the passes."""
    return [axis for axis in (2, 1, 0) if sigma[axis] > 0 and field.shape[axis + 2] > 1]


def _lines(device: torch.device, taps: list[list[float]]) -> Tensor:
    """(N, taps) on the device; lines shorter than the longest have zeros at both ends."""
    longest = max(len(line) for line in taps)
    ends = ([0.0] * ((longest - len(line)) // 2) for line in taps)
    padded = tuple(tap for end, line in zip(ends, taps, strict=True) for tap in (*end, *line, *end))
    return numbers_on(device, padded).reshape(len(taps), longest)


@paired(reference.smooth_box, _fits)
def smooth_box(field: Tensor, radius: Sequence[int]) -> Tensor:
    """See Ops."""
    taps = {a: numbers_on(field.device, (1.0,) * (2 * radius[a] + 1))[None] for a in _axes(field, radius)}
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

    Args:
        field: (B, C, D, H, W).
        taps: by axis, (1, N) for all pairs or (B, N).
    """
    if not taps:
        return field
    passes, lines = [AxisPass(axis, line.shape[1] // 2) for axis, line in taps.items()], list(taps.values())
    if len(passes) == 1:
        passes, lines = [AxisPass(2, 0), *passes], [numbers_on(field.device, (1.0,))[None], *lines]
    pairs, components, depth, *plane = field.shape
    chain = filter_chain((components, depth, *plane), passes)
    if components > 1 and chain.nbytes > slabs.BYTES:  # thin slabs, of which much would be halo
        for number, own in enumerate(field):
            lines_of = {axis: line[number : number + 1] if len(line) > 1 else line for axis, line in taps.items()}
            for component in own:
                _filtered(component[None, None], lines_of, boundary)
        return field
    rings = [torch.empty((pairs, components, n, *plane), dtype=torch.float32, device=field.device) for n in chain.rings]
    tensors = [field, *rings, field]
    for turn in chain.turns():
        each, place = passes[turn.number], turn.number
        launch_filter(tensors[place], tensors[place + 1], lines[place], turn, depth, axis=each.axis, boundary=boundary)
    return field


def launch_filter(
    source: Tensor, target: Tensor, taps: Tensor, turn: slabs.Turn, depth: int, *, axis: int, boundary: str
) -> None:
    """Filter the planes of a turn from one (B, C, planes, H, W) field or ring to another; see _filtered for `taps`."""
    pairs, components, planes, height, width = source.shape
    span = (turn.stop - turn.start) * height * width
    size = block(source.device, span)
    filter_axis.launch(
        (triton.cdiv(span, size), pairs * components),
        source,
        target,
        taps,
        taps.shape[1] // 2,
        components,
        taps.shape[1] if len(taps) > 1 else 0,
        turn.start,
        turn.stop,
        depth,
        height,
        width,
        planes,
        target.shape[2],
        AXIS=axis,
        BOUNDARY=boundary,
        BLOCK=size,
    )

"""Smoothing along the axes, in place: the taps, and the passes that they make."""

from __future__ import annotations

from collections.abc import Sequence
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
from warpfactor.kernels.triton.launch import numbers_on, plain, takes_pairs
from warpfactor.kernels.triton.passes import MEAN, chain_of, copying, passes_of, run_passes


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
    return filtered(field, gaussian_taps(field, sigma, truncate, tail), boundary)


@paired(reference.smooth_share, _fits)
def smooth_share(
    field: Tensor, sigma: Sequence[Any], share: Tensor, *, boundary: Any = "nearest", truncate: float = 3.0
) -> Tensor:
    """See DeviceOps."""
    return filtered(field, share_of_taps(field, sigma, share, truncate), boundary)


def gaussian_taps(field: Tensor, sigma: Sequence[Any], truncate: float, tail: Any = (0.0, 1.0)) -> dict[int, Tensor]:
    """The taps of Gaussians along the axes of (B, C, D, H, W) along which there is something to smooth."""
    pairs = range(len(field) if isinstance(tail, Each) or any(isinstance(each, Each) for each in sigma) else 1)

    def taps(sigmas: Any) -> Tensor:
        return _lines(field.device, [gaussian_kernel(own(sigmas, n), truncate, own(tail, n)) for n in pairs])

    def own(value: Any, number: int) -> Any:
        return value[number] if isinstance(value, Each) else value

    return {axis: taps(sigma[axis]) for axis in _axes(field, sigma)}


def share_of_taps(field: Tensor, sigma: Sequence[Any], share: Tensor, truncate: float) -> dict[int, Tensor]:
    """The same for SDs of sigma sqrt(share), computed on the device."""
    axes, pairs = _axes(field, sigma), len(field)
    if not axes:
        return {}
    each = [sigma[axis] if isinstance(sigma[axis], Each) else (sigma[axis],) * pairs for axis in axes]
    radii = [max(gaussian_radius(own, truncate) for own in every) for every in each]
    taps = torch.empty((len(axes), pairs, 2 * max(radii) + 1), dtype=torch.float32, device=field.device)
    sigmas = doubles_on(field.device, (*(float(own) for every in each for own in every), truncate))
    width = triton.next_power_of_2(taps.shape[-1])
    share_taps.launch((len(axes), pairs), sigmas, plain(share), taps, max(radii), WIDTH=width)
    inner = (slice(max(radii) - r, max(radii) + r + 1) for r in radii)
    return {axis: plain(line[:, own]) for axis, line, own in zip(axes, taps, inner, strict=True)}


def _axes(field: Tensor, sigma: Sequence[Any]) -> list[int]:
    """The axes along which there is something to smooth, in the order of the passes.

    The first reads planes of the field that the last has not written yet, so it does not look along z; the last does
    not either if it can, as there are planes for that in the ring before it.
    """
    y, z, x = (axis if sigma[axis] > 0 and field.shape[axis + 2] > 1 else None for axis in (1, 0, 2))
    return [axis for axis in ((x, z) if y is None else (y, z, x)) if axis is not None]


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
    return filtered(field, taps, MEAN)


def filtered(field: Tensor, taps: dict[int, Tensor], boundary: str) -> Tensor:
    """Filter (B, C, D, H, W) along the axes that have taps, in place. A single pass reads a copy."""
    if not taps:
        return field
    passes = passes_of(taps, boundary)
    passes = passes if len(passes) > 1 else [copying(field.device), *passes]
    components = field.shape[1]
    if components > 1 and not together(field.shape[1:], [each.reach for each in passes]):
        for number, own in enumerate(field):
            lines_of = {axis: line[number : number + 1] if len(line) > 1 else line for axis, line in taps.items()}
            for component in own:
                filtered(component[None, None], lines_of, boundary)
        return field
    run_passes(field, passes)
    return field


def together(shape: Sequence[int], reaches: Sequence[slabs.Reach]) -> bool:
    """Whether all components of a field go through passes together: in thin slabs much would be halo."""
    return chain_of(shape, reaches).nbytes <= slabs.BYTES

"""Self-similarity channels of an image: distances of patches, their mean, and what a channel has of both.

The distances of all channels lie in memory while they are smoothed, 48 bytes a voxel, as in the reference. Their mean
over the image, by which the least spread is measured, stays on the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from warpfactor.kernels import reference
from warpfactor.kernels.reference.mind import CHANNELS, FULL, LEAST, TRUNCATE
from warpfactor.kernels.triton.kernel import declared
from warpfactor.kernels.triton.launch import Partials, block, numbers_on, plain, takes_images
from warpfactor.kernels.triton.points import value_at, voxel
from warpfactor.kernels.triton.smooth import smooth_gaussian

TINY = torch.finfo(torch.float32).tiny


@declared("3 *fp32 3 i32", {"usual": {"BLOCK": 256}}, reads={"image": 4}, writes={"distance": 4})
def point_distance(image, places, out, nz, ny, nx, BLOCK: tl.constexpr):
    """(I(x + a) - I(x + b))², one channel per program row; `places` holds a and b of every channel."""
    channel = tl.program_id(1)
    own = places + 6 * channel
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    voxels = nz.to(tl.int64) * ny * nx
    use = i < voxels
    z, y, x = voxel(i, ny, nx)
    az, ay, ax = z + tl.load(own), y + tl.load(own + 1), x + tl.load(own + 2)
    bz, by, bx = z + tl.load(own + 3), y + tl.load(own + 4), x + tl.load(own + 5)
    apart = value_at(image, az, ay, ax, nz, ny, nx, use) - value_at(image, bz, by, bx, nz, ny, nx, use)
    tl.store(out + channel * voxels + i, apart * apart, mask=use)


@triton.jit
def mean_distance(distances, voxels, i, use, CHANNELS: tl.constexpr):
    """The mean over the channels at voxel i."""
    total = tl.load(distances + i, mask=use, other=0.0)
    for k in range(1, CHANNELS):
        total += tl.load(distances + k * voxels + i, mask=use, other=0.0)
    return total / CHANNELS


_USUAL = {"CHANNELS": CHANNELS, "BLOCK": 256}


@declared("*fp32 *fp64 3 i32", {"usual": _USUAL}, reads={"distances": 48})
def distance_sums(distances, partials, nz, ny, nx, CHANNELS: tl.constexpr, BLOCK: tl.constexpr):
    """The sum over the voxels of the mean distance."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    voxels = nz.to(tl.int64) * ny * nx
    use = i < voxels
    mean = mean_distance(distances, voxels, i, use, CHANNELS)
    tl.store(partials + tl.program_id(0), tl.sum(mean.to(tl.float64), 0))


@declared(
    "*fp32 *fp64 *u8 2 fp32 3 i32",
    {"usual": {**_USUAL, "FULL": FULL}},
    reads={"distances": 48},
    writes={"channels": CHANNELS},
)
def distance_channels(
    distances, total, out, least, tiny, nz, ny, nx, CHANNELS: tl.constexpr, FULL: tl.constexpr, BLOCK: tl.constexpr
):
    """FULL exp(-d / V), V the mean distance of a voxel, at least a small part of its mean over the image."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    voxels = nz.to(tl.int64) * ny * nx
    use = i < voxels
    floor = tl.maximum((tl.load(total) / voxels).to(tl.float32) * least, tiny)
    spread = tl.maximum(mean_distance(distances, voxels, i, use, CHANNELS), floor)
    for k in range(CHANNELS):
        distance = tl.load(distances + k * voxels + i, mask=use, other=0.0)
        value = tl.floor(FULL * tl.exp(-distance / spread) + 0.5)
        tl.store(out + i.to(tl.int64) * CHANNELS + k, value.to(tl.uint8), mask=use)


@torch.no_grad()
def mind_channels(image: Tensor, *, pairs: Sequence[tuple[Any, Any]], sigma: Sequence[float]) -> Tensor:
    """See Ops."""
    if not takes_images(image):
        return reference.mind_channels(image, pairs=pairs, sigma=sigma)
    device, shape, voxels = image.device, image.shape, image.numel()
    places = numbers_on(device, tuple(float(value) for pair in pairs for place in pair for value in place))
    distances = torch.empty((CHANNELS, *shape), dtype=torch.float32, device=device)
    width = block(device, voxels)
    programs = triton.cdiv(voxels, width)
    point_distance.launch((programs, CHANNELS), plain(image), places, distances, *shape, BLOCK=width)
    smooth_gaussian(distances, sigma, truncate=TRUNCATE)
    partials = Partials(device, 1, programs)
    distance_sums.launch((programs,), distances, partials.table, *shape, CHANNELS=CHANNELS, BLOCK=width)
    found = torch.empty((*shape, CHANNELS), dtype=torch.uint8, device=device)
    distance_channels.launch(
        (programs,),
        distances,
        partials.combined(),
        found,
        LEAST,
        TINY,
        *shape,
        CHANNELS=CHANNELS,
        FULL=FULL,
        BLOCK=width,
    )
    return found

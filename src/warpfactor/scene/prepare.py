"""Images made ready for a registration: checked, standardised, masked and, on request, stored in 16 bits."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.geometry.grid import slabs
from warpfactor.geometry.image import Image
from warpfactor.kernels.ops import Ops
from warpfactor.scene.frame import frame_of
from warpfactor.scene.scene import Scene, Side, sampled

TAILS = 0.001  # fraction of intensities at each end that do not belong to the bulk
QUANTILE_SAMPLES = 1_000_000  # enough for percentiles to a thousandth of the range
FILL_VOX = 2.0  # SD of the smoothing that continues an image into voxels that do not count


def make_scene(
    fixed: Image,
    moving: Image,
    *,
    ops: Ops,
    fixed_mask: Image | None = None,
    moving_mask: Image | None = None,
    device: str | torch.device = "cpu",
) -> Scene:
    """Check two images and make them ready; InputError names what cannot be registered."""
    if (fixed.grid.shape[0] == 1) != (moving.grid.shape[0] == 1):
        flat, deep = (fixed, moving) if fixed.grid.shape[0] == 1 else (moving, fixed)
        raise InputError(
            f"{flat.name} has one slice and {deep.name} has {deep.grid.shape[0]}: "
            "a slice cannot be registered to a volume; give two slices or two volumes."
        )
    if fixed.channels != moving.channels:
        raise InputError(
            f"The numbers of channels differ: {fixed.name} has {fixed.channels}, {moving.name} has {moving.channels}; "
            "give the same number for both images."
        )
    return Scene(make_side(fixed, fixed_mask, device, ops), make_side(moving, moving_mask, device, ops))


def make_side(image: Image, mask: Image | None, device: str | torch.device, ops: Ops) -> Side:
    """The image with mean 0 and SD 1 per channel over its valid voxels, and the mask of these.

    Voxels do not count that are NaN or infinite, outside the mask, or without one in a frame around the image.
    """
    _check_size(image)
    data = image.data.to(device=device, dtype=torch.float32, copy=True)
    valid, nonfinite = None, 0
    if not all(math.isfinite(end) for end in data.aminmax()):  # NaN passes through
        valid, nonfinite = torch.isfinite(data).all(0), image.nonfinite_count
    frame = frame_of(data) if mask is None else None  # whoever gave a mask knows better
    if frame is not None:
        valid = ~frame if valid is None else valid & ~frame
    if mask is not None:
        chosen = (mask.on_grid(image.grid).data[0] > 0).to(device)
        valid = chosen if valid is None else chosen & valid
    if valid is not None and not bool(valid.any()):
        where, what = ("", "all are NaN or infinite") if mask is None else (" inside its mask", "check the mask")
        raise InputError(f"{image.name}: there is no voxel with a finite value{where}; {what}.")
    names = [image.name] if len(data) == 1 else [f"Channel {c} of {image.name}" for c in range(1, len(data) + 1)]
    scale = tuple(_standardize(channel, valid, name, ops) for channel, name in zip(data, names, strict=True))
    if valid is not None:
        fill(data, valid, ops)
    return Side(data, None if valid is None else valid.to(torch.uint8), image.grid, scale, nonfinite=nonfinite)


def _check_size(image: Image) -> None:
    """InputError if the image is too small, or a slice that does not lie in x and y."""
    depth, *plane = image.grid.shape
    has = f"{image.name} has {image.grid.shape} voxels (z, y, x)"
    if depth > 1 and 1 in plane and max(plane) > 1:
        raise InputError(f"{has}: a slice must lie in x and y; reorder its axes, or save it as a 2-D image.")
    if min(plane) < 4 or 1 < depth < 4:
        raise InputError(f"{has}: an image needs at least 4 along every axis, or one along z if it is a slice.")


def _standardize(channel: Tensor, valid: Tensor | None, name: str, ops: Ops) -> tuple[float, float]:
    """Standardise one channel in place over its valid voxels; returns the mean and SD that were taken.

    Values far outside the bulk (metal, spikes) are clipped first: one voxel must not set the scale of an image. All
    sums are of numbers around one, whatever the units of the image.
    """
    ends = ops.tally(channel, mask=valid)
    unit = max(abs(ends.minimum), abs(ends.maximum)) or 1.0
    values = sampled(channel, valid, QUANTILE_SAMPLES) / unit
    low, high = ops.percentiles(values, (100 * TAILS, 100 * (1 - TAILS)))
    width = high - low
    channel.div_(unit)
    if width > 0:
        channel.clamp_(low - width, high + width)
    found = ops.tally(channel, mask=valid)
    mean = found.total / found.count
    sd = math.sqrt(max(0.0, found.squares / found.count - mean * mean))
    if not sd > 1e-6 * abs(mean):
        raise InputError(
            f"{name} is constant ({mean * unit:g}) in the region to be registered, so there is nothing to align."
        )
    channel.sub_(mean).div_(sd)
    return mean * unit, sd * unit


def fill(data: Tensor, valid: Tensor, ops: Ops) -> None:
    """Continue the image smoothly into the voxels that do not count, in place.

    Blurs, pyramids and interpolation at the edge of a mask then see nothing of what lies beyond it.
    """
    data.masked_fill_(~valid, 0.0)
    sigma = (FILL_VOX,) * 3
    share = ops.smooth_gaussian(valid[None].to(data.dtype), sigma)
    near = ops.smooth_gaussian(data.clone(), sigma) / share.clamp(min=1e-3)
    data.copy_(torch.where(valid, data, near))


def masked(side: Side, lost: Tensor, ops: Ops) -> Side:
    """The side with some more voxels masked, (D, H, W) bool, and its image continued into them."""
    image = in_own_memory(side)
    valid = ~lost if side.mask is None else ~lost & (side.mask > 0)
    fill(image, valid, ops)
    if side.units is not None:
        image /= torch.tensor(side.units, device=image.device).reshape(-1, 1, 1, 1)
        image = image.round_().to(side.data.dtype)
    return replace(side, data=image, mask=valid.to(torch.uint8))


def in_own_memory(side: Side) -> Tensor:
    """The standardised intensities in a tensor of their own."""
    image = side.single().data
    return image.clone() if image is side.data else image


def stored(scene: Scene, storage: str) -> Scene:
    """The scene with its images held as "float32", "int16" or "float16"; itself if they are."""
    if storage == "float32":
        return scene.single()
    if scene.fixed.units is not None:
        return scene
    store = _in_half if storage == "float16" else _in_16_bits
    return Scene(store(scene.fixed), store(scene.moving))


def _in_half(side: Side) -> Side:
    """The side in half precision; intensities beyond its range, which no standardised image has, are cut."""
    most = torch.finfo(torch.float16).max
    numbers = torch.empty_like(side.data, dtype=torch.float16)
    for channel, half in zip(side.data, numbers, strict=True):
        for planes in slabs(channel.shape):
            half[planes] = channel[planes].clamp(-most, most)
    return replace(side, data=numbers, units=(1.0,) * len(side.data))


def _in_16_bits(side: Side) -> Side:
    """The side as 16-bit numbers, with what one of them stands for per channel; zero stays zero."""
    most = torch.iinfo(torch.int16).max
    units = tuple(max(abs(float(end)) for end in channel.aminmax()) / most for channel in side.data)
    numbers = torch.empty_like(side.data, dtype=torch.int16)
    for channel, whole, unit in zip(side.data, numbers, units, strict=True):
        for planes in slabs(channel.shape):
            whole[planes] = (channel[planes] / unit).round_()
    return replace(side, data=numbers, units=units)

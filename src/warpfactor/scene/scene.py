"""Two images on their way into a registration: checked, standardised, masked, brought to a level's resolution."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from types import ModuleType

import torch
from torch import Tensor

from warpfactor import kernels
from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid, slabs
from warpfactor.geometry.image import Image
from warpfactor.terms.base import Pair, sampled

MIN_SIZE = 16  # voxels: no axis is shrunk below this
BLUR = 0.75  # SD of the blur before shrinking by a factor f, in units of f; measured best on brains
TAILS = 0.001  # fraction of intensities at each end that do not belong to the bulk
QUANTILE_SAMPLES = 1_000_000  # enough for percentiles to a thousandth of the range
FILL_VOX = 2.0  # SD of the smoothing that continues an image into voxels that do not count


@dataclass(frozen=True)
class Scene:
    """A pair with the grids its voxels live on.

    Attributes:
        pair: the images and masks.
        fixed_grid, moving_grid: their voxel grids.
        nonfinite: how many NaN or infinite voxels the fixed and the moving image had; they are masked.
    """

    pair: Pair
    fixed_grid: Grid
    moving_grid: Grid
    nonfinite: tuple[int, int] = (0, 0)

    @property
    def device(self) -> torch.device:
        return self.pair.fixed.device


def make_scene(
    fixed: Image,
    moving: Image,
    *,
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
            "give as many of one as of the other."
        )
    f_data, f_valid, f_scale, f_nonfinite = _standardize(fixed, fixed_mask, device)
    m_data, m_valid, m_scale, m_nonfinite = _standardize(moving, moving_mask, device)
    pair = Pair(f_data, m_data, f_valid, m_valid, f_scale, m_scale)
    return Scene(pair, fixed.grid, moving.grid, (f_nonfinite, m_nonfinite))


def _check_size(image: Image) -> None:
    """InputError if the image is too small, or a slice that does not lie in x and y."""
    depth, *plane = image.grid.shape
    has = f"{image.name} has {image.grid.shape} voxels (z, y, x)"
    if depth > 1 and 1 in plane and max(plane) > 1:
        raise InputError(f"{has}: a slice must lie in x and y; reorder its axes, or save it as a 2-D image.")
    if min(plane) < 4 or 1 < depth < 4:
        raise InputError(f"{has}: an image needs at least 4 along every axis, or one along z if it is a slice.")


def _standardize(
    image: Image, mask: Image | None, device: str | torch.device
) -> tuple[Tensor, Tensor | None, tuple[tuple[float, float], ...], int]:
    """Image with mean 0 and SD 1 per channel over its valid voxels, the mask of these, and the (mean, SD) taken.

    And how many values are NaN or infinite.
    """
    _check_size(image)
    data = image.data.to(device=device, dtype=torch.float32, copy=True)
    valid, nonfinite = None, 0
    if not all(math.isfinite(end) for end in data.aminmax()):  # NaN passes through
        valid, nonfinite = torch.isfinite(data).all(0), image.nonfinite_count
    if mask is not None:
        chosen = (mask.on_grid(image.grid).data[0] > 0).to(device)
        valid = chosen if valid is None else chosen & valid
    if valid is not None and not bool(valid.any()):
        where, what = ("", "all are NaN or infinite") if mask is None else (" inside its mask", "check the mask")
        raise InputError(f"{image.name}: no voxel is left{where} with a finite value; {what}.")
    names = [image.name] if len(data) == 1 else [f"Channel {c} of {image.name}" for c in range(1, len(data) + 1)]
    scales = tuple(_scale(channel, valid, name) for channel, name in zip(data, names, strict=True))
    if valid is not None:
        fill(data, valid)
    return data, None if valid is None else valid.to(torch.uint8), scales, nonfinite


def _scale(channel: Tensor, valid: Tensor | None, name: str) -> tuple[float, float]:
    """Standardise one channel in place over its valid voxels; the mean and SD taken.

    Values far outside the bulk (metal, spikes) are clipped first: one voxel must not set the scale of an image. All
    sums are of numbers around one, whatever the units of the image.
    """
    ops = kernels.select(channel.device)
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
        raise InputError(f"{name} is constant ({mean * unit:g}) where it counts; there is nothing to register.")
    channel.sub_(mean).div_(sd)
    return mean * unit, sd * unit


def fill(data: Tensor, valid: Tensor) -> None:
    """Continue the image smoothly into the voxels that do not count, in place.

    Blurs, pyramids and interpolation at the edge of a mask then see nothing of what lies beyond it.
    """
    ops = kernels.select(data.device)
    data.masked_fill_(~valid, 0.0)
    sigma = (FILL_VOX,) * 3
    share = ops.smooth_gaussian(valid[None].to(data.dtype), sigma)
    near = ops.smooth_gaussian(data.clone(), sigma) / share.clamp(min=1e-3)
    data.copy_(torch.where(valid, data, near))


def stored(scene: Scene, storage: str) -> Scene:
    """The scene with its images held as "float32" or "int16"; itself if they are."""
    pair = scene.pair
    if storage == "float32":
        return scene if pair.single() is pair else replace(scene, pair=pair.single())
    if pair.fixed_units is not None:
        return scene
    (fixed, fixed_units), (moving, moving_units) = _whole_numbers(pair.fixed), _whole_numbers(pair.moving)
    pair = replace(pair, fixed=fixed, moving=moving, fixed_units=fixed_units, moving_units=moving_units)
    return replace(scene, pair=pair)


def _whole_numbers(images: Tensor) -> tuple[Tensor, tuple[float, ...]]:
    """Images as 16-bit numbers, and what one of them stands for, per channel; zero stays zero."""
    most = torch.iinfo(torch.int16).max
    units = tuple(max(abs(float(end)) for end in channel.aminmax()) / most for channel in images)
    numbers = torch.empty_like(images, dtype=torch.int16)
    for channel, whole, unit in zip(images, numbers, units, strict=True):
        for planes in slabs(channel.shape):
            whole[planes] = (channel[planes] / unit).round_()
    return numbers, units


def level_scene(scene: Scene, factor: float, ops: ModuleType, *, blur: float = BLUR) -> Scene:
    """The scene at `factor` times the fixed image's finest spacing.

    Every axis of both images is shrunk towards that spacing, none below it is blown up and none is shrunk below
    MIN_SIZE voxels: thick slices stay as they are until the other axes have caught up. `blur` is the SD of the Gaussian
    before shrinking by f, in units of f.
    """
    if factor <= 1:
        return scene
    spacing = factor * finest_spacing(scene.fixed_grid)
    full = scene.pair
    fixed, fixed_mask, fixed_grid = _shrink(full.fixed, full.fixed_mask, scene.fixed_grid, spacing, ops, blur)
    moving, moving_mask, moving_grid = _shrink(full.moving, full.moving_mask, scene.moving_grid, spacing, ops, blur)
    pair = replace(full, fixed=fixed, moving=moving, fixed_mask=fixed_mask, moving_mask=moving_mask)
    return Scene(pair.single(), fixed_grid, moving_grid, scene.nonfinite)


def finest_spacing(grid: Grid) -> float:
    """Smallest spacing in mm along the axes that have more than one voxel."""
    return min(s for s, n in zip(grid.spacing_mm, grid.shape, strict=True) if n > 1)


def level_shape(grid: Grid, spacing_mm: float) -> tuple[int, int, int]:
    """Shape of a grid of about the given spacing over the same field of view."""
    sizes = []
    for n, s in zip(grid.shape, grid.spacing_mm, strict=True):
        wanted = math.ceil(n * s / spacing_mm - 1e-6) if spacing_mm > s else n
        sizes.append(min(n, max(wanted, MIN_SIZE)))
    return sizes[0], sizes[1], sizes[2]


def _shrink(
    data: Tensor, mask: Tensor | None, grid: Grid, spacing_mm: float, ops: ModuleType, blur: float
) -> tuple[Tensor, Tensor | None, Grid]:
    """Image, mask and grid at a coarser spacing; the blur keeps aliases out."""
    shape = level_shape(grid, spacing_mm)
    coarse = grid.scaled(shape=shape)
    sigma = [blur * n / m if n > m else 0.0 for n, m in zip(grid.shape, shape, strict=True)]
    small = ops.shrink(data, shape, sigma)
    small_mask = None
    if mask is not None:
        share = ops.shrink(mask[None], shape, sigma)[0]
        small_mask = (share >= 0.5).to(torch.uint8)
        if not bool(small_mask.any()):
            small_mask = (share >= share.max() / 2).to(torch.uint8)
    return small, small_mask, coarse

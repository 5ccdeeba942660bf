"""Registration of images that are not held as they were read: at half their resolution, then the finest level by slabs.

The warp stays on the grid of half the resolution, and so do the inverse, the figures and the images of the result. The
full images are read from their files as 16-bit numbers for the finest level, and whenever the coarse ones are made,
unless the files hold such: before that level and again after it, since they are not held beside the full ones. The
warped image is computed while it is written; see streaming.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.geometry import itk
from warpfactor.geometry.grid import Grid, Matrix, slabs
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Affine
from warpfactor.io.lazy import LazyImage, open_lazily, whole_planes
from warpfactor.kernels.ops import Ops
from warpfactor.recipebook.recipe import Recipe
from warpfactor.registration.inputs import Channels, Images, Spacing, load_mask
from warpfactor.registration.plan import Beside, MemoryPlan, make_plan, planes_beside, without_finest
from warpfactor.registration.resources import limited_threads
from warpfactor.registration.result import FullImages, Registration
from warpfactor.scene.prepare import TAILS
from warpfactor.scene.scene import Scene, Side
from warpfactor.stages.deform import working_grid
from warpfactor.stages.finest import run_finest, warp_grid
from warpfactor.stages.found import Found
from warpfactor.stages.settings import Deformable
from warpfactor.stages.stage import Watch

MOST = torch.iinfo(torch.int16).max
SAMPLED_PLANES = 48  # of an image, from which its scale follows
SAMPLES = 2_000_000  # voxels of them
BLUR = 0.5  # SD of the Gaussian before an image is shrunk, in voxels of the coarse one
NEAR = 0.1  # relative distance of a stored level's spacing from half the resolution
SAME_PLACE_VOX = 0.02  # distance up to which a stored level lies on the coarse grid


@dataclass(frozen=True)
class Scale:
    """What intensities of a channel are kept, and the mean and SD of these.

    Attributes:
        low, high: values beyond are clipped.
    """

    low: float
    high: float
    mean: float
    sd: float

    @property
    def unit(self) -> float:
        """What a 16-bit number stands for, in standardised intensities."""
        return max(self.high - self.mean, self.mean - self.low) / self.sd / MOST


@dataclass(frozen=True)
class Opened:
    """Two images of which parts are read, and the plan for them.

    Attributes:
        fixed, moving: the images at full resolution.
        plan: what is held in memory.
        full_recipe: for the full images.
        masks: of the two at full resolution, (D, H, W) uint8, once they are read.
    """

    fixed: LazyImage
    moving: LazyImage
    plan: MemoryPlan
    full_recipe: Recipe
    masks: list[Tensor | None] = field(default_factory=lambda: [None, None])

    @property
    def recipe(self) -> Recipe:
        """For the images that `read` returns."""
        if self.plan.coarser:
            return without_finest(self.full_recipe)
        if self.full_recipe.deformable is None:
            return self.full_recipe
        return self.full_recipe.replace({"deformable.storage": self.plan.images})

    def read(self, ops: Ops, threads: int | None, fixed_mask: Any, moving_mask: Any) -> Images:
        """The images that are registered: the full ones, or those of half the resolution."""
        if not self.plan.coarser:
            fixed, moving = self.fixed.image(), self.moving.image()
            masks = [load_mask(mask, image) for mask, image in ((fixed_mask, fixed), (moving_mask, moving))]
            return Images(fixed, moving, *masks)
        self.masks[:] = [
            read_mask(fixed_mask, self.fixed, "fixed mask"),
            read_mask(moving_mask, self.moving, "moving mask"),
        ]
        with limited_threads(threads):
            images = self.coarse_images(ops)
            found = [
                None if mask is None else _coarse_mask(mask, image, side.grid, ops)
                for mask, image, side in zip(
                    self.masks, (images.fixed, images.moving), (self.fixed, self.moving), strict=True
                )
            ]
            return replace(images, fixed_mask=found[0], moving_mask=found[1])

    def described(self, result: Registration) -> Registration:
        """The result with its plan, and with the full images if its own are coarse."""
        planned = replace(result, run=replace(result.run, plan=self.plan))
        if not self.plan.coarser:
            return planned
        return replace(planned, full=FullImages(self.fixed, self.moving), recipe=self.full(result.recipe))

    def full(self, recipe: Recipe) -> Recipe:
        """The recipe for the full images, with what was chosen in `recipe` at half the resolution."""
        same = recipe.deformable == self.recipe.deformable
        return self.full_recipe.for_contrasts(same=same).for_motion(broad=False)

    def coarse_images(self, ops: Ops) -> Images:
        """Both images at half their resolution; the fixed one lies on the grid of the warp."""
        fixed, moving = coarse_image(self.fixed, ops), coarse_image(self.moving, ops)
        fixed = in_place(fixed, warp_grid(self.fixed.grid), ops)
        return Images(fixed, moving)

    def read_again(self, images: Images, ops: Ops) -> Images:
        """The coarse images that `without_voxels` has set aside."""
        again = self.coarse_images(ops)
        return replace(images, fixed=again.fixed, moving=again.moving)

    def refine(
        self,
        warped: Found,
        settings: Deformable,
        matrix: Matrix,
        masks: Sequence[Tensor | None],
        *,
        ops: Ops,
        watch: Watch,
    ) -> Found:
        """What the deformable stage found at half the resolution, after its finest level.

        Args:
            warped: on the grid of the warp.
            settings: of the stage, all levels included.
            matrix: 4x4, LPS mm, fixed to moving.
            masks: of the coarse images, for parts that turned out to be missing; None where nothing did.
        """
        planned = sum(mask.numel() for mask in self.masks if mask is not None)
        sides = [
            stored_side(image, _both(given, found, image.grid))
            for image, given, found in zip((self.fixed, self.moving), self.masks, masks, strict=True)
        ]
        unplanned = sum(side.mask.numel() for side in sides if side.mask is not None) - planned
        displacement, stage = run_finest(
            Scene(sides[0], sides[1]),
            settings,
            warped.displacement,
            before=warped.stage,
            ops=ops,
            affine=matrix,
            planes=planes_beside(self.plan, self.full_recipe, settings, self.fixed.grid, unplanned),
            watch=watch,
        )
        return replace(warped, displacement=displacement, stage=stage)


def without_voxels(images: Images) -> Images:
    """The images without the numbers of their voxels, which take no memory."""
    sides = [
        replace(image, data=torch.empty_like(image.data, device="meta")) for image in (images.fixed, images.moving)
    ]
    return replace(images, fixed=sides[0], moving=sides[1])


def open_planned(
    memory: str | float | MemoryPlan,
    sources: tuple[Any, Any],
    recipe: Recipe,
    *,
    spacings_mm: tuple[Spacing, Spacing],
    channels: tuple[Channels, Channels],
    device: torch.device,
    beside: Beside,
    before_planning: Callable[[], None] | None = None,
) -> Opened:
    """The fixed and the moving image, of which parts are read, and the plan for a limit of memory.

    Args:
        memory: the limit.
        sources: the fixed and the moving image.
        recipe: how they will be registered.
        spacings_mm, channels: of the two.
        device: where; a limit is for the CPU.
        beside: what there is besides the images.
        before_planning: called when both images have been found to be readable.
    """
    if device.type != "cpu":
        raise InputError(f"A limit of memory is for the CPU; leave it out on {device}.")
    pairs = zip(sources, ("fixed", "moving"), spacings_mm, channels, strict=True)
    fixed, moving = (_open(source, name, spacing, chosen) for source, name, spacing, chosen in pairs)
    fitted = recipe
    if recipe.deformable is not None:
        fitted = recipe.for_grid(working_grid(recipe.deformable, fixed.grid, moving.grid))
    if before_planning is not None:
        before_planning()
    plan = make_plan(memory, fixed, moving, fitted, beside)
    return Opened(fixed, moving, plan, fitted)


def _open(source: Any, name: str, spacing_mm: Spacing, channels: Channels) -> LazyImage:
    if isinstance(source, (list, tuple)):
        if len(source) != 1:
            raise InputError(
                f"A limit of memory is for images of one file each, and the {name} image is a list of {len(source)}; "
                "write its channels into one OME-Zarr, or leave the limit out."
            )
        source = source[0]
    found = open_lazily(source, spacing_mm=spacing_mm, name=name)
    return found if channels is None else found.with_channels(channels)


def read_mask(source: Any, image: LazyImage, name: str) -> Tensor | None:
    """(D, H, W) uint8: one where a mask is neither zero nor NaN; read in parts."""
    if source is None:
        return None
    if isinstance(source, (np.ndarray, Tensor)):
        source = Image.from_array(source, grid=image.grid, name=name)
    given = open_lazily(source, name=name)
    if given.channels != 1 or not given.grid.same_space(image.grid):
        raise InputError(f"{given.name} does not lie on the grid of its image; resample it to that image first.")
    mask = torch.empty(image.grid.shape, dtype=torch.uint8)
    for planes in given.slabs():
        values = itk.to_tensor(given.read(0, whole_planes(given.grid, planes)))
        mask[planes] = (values != 0) & (values == values)
    if not bool(mask.any()):
        raise InputError(f"{given.name}: the mask is empty; at least one voxel must be other than zero.")
    return mask


def coarse_image(image: LazyImage, ops: Ops) -> Image:
    """An image at half its resolution: a stored level if there is one, or made of the full image."""
    grid = warp_grid(image.grid)
    level = next((each for each in image.levels if _is_half(each.grid, grid)), None)
    if level is not None and level.channels == image.channels:
        return level.image()
    shape = [f * n for f, n in zip(_factors(image.grid, grid), grid.shape, strict=True)]
    sigma = [BLUR * f if f > 1 else 0.0 for f in _factors(image.grid, grid)]
    data = torch.empty((image.channels, *grid.shape), dtype=torch.float32)
    for channel in range(image.channels):
        scale = _scale(image, channel)
        full, valid = _in_16_bits(image, channel, scale, shape)
        data[channel] = ops.shrink(full[None], grid.shape, sigma)[0]
        data[channel].mul_(scale.unit * scale.sd).add_(scale.mean)
        if valid is not None:
            share = ops.shrink(valid[None], grid.shape, sigma)[0]
            data[channel].masked_fill_(share < 0.5, torch.nan)
    return Image(data, grid, image.name)


def stored_side(image: LazyImage, mask: Tensor | None) -> Side:
    """An image as 16-bit numbers, standardised, with the mask of the voxels that count."""
    scales = [_scale(image, channel) for channel in range(image.channels)]
    data = torch.empty((image.channels, *image.grid.shape), dtype=torch.int16)
    nonfinite = 0
    for channel, scale in enumerate(scales):
        _, valid = _in_16_bits(image, channel, scale, image.grid.shape, out=data[channel])
        if valid is not None:
            nonfinite += valid.numel() - int(torch.count_nonzero(valid))
            mask = valid if mask is None else mask.mul_(valid)
    return Side(
        data,
        mask,
        image.grid,
        tuple((scale.mean, scale.sd) for scale in scales),
        tuple(scale.unit for scale in scales),
        nonfinite,
    )


def _scale(image: LazyImage, channel: int) -> Scale:
    """The scale of a channel, from some of its planes."""
    depth = image.grid.shape[0]
    planes = np.unique(np.linspace(0, depth - 1, min(depth, SAMPLED_PLANES)).round().astype(int))
    parts = [image.read(channel, whole_planes(image.grid, slice(z, z + 1))).ravel() for z in planes.tolist()]
    every = max(1, sum(part.size for part in parts) // SAMPLES)
    values = np.concatenate([part[::every] for part in parts]).astype(np.float64)
    values = values[np.isfinite(values)]
    if not values.size:
        raise InputError(f"{image.name}: there is no voxel with a finite value; all are NaN or infinite.")
    low, high = np.quantile(values, [TAILS, 1 - TAILS])
    low, high = float(low - (high - low)), float(high + (high - low))
    kept = values.clip(low, high)
    mean, sd = float(kept.mean()), float(kept.std())
    if not sd > 1e-6 * abs(mean):
        raise InputError(
            f"{image.name} is constant ({mean:g}) in the region to be registered, so there is nothing to align."
        )
    return Scale(low, high, mean, sd)


def _in_16_bits(
    image: LazyImage, channel: int, scale: Scale, shape: Sequence[int], out: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """A channel as 16-bit numbers in an array of this shape, and where it is finite if it is not everywhere.

    Voxels beyond the image, if the shape is larger, repeat its last ones.
    """
    found = torch.empty(tuple(shape), dtype=torch.int16) if out is None else out
    valid: Tensor | None = None
    depth, height, width = image.grid.shape
    for planes in image.slabs():
        values = itk.to_tensor(image.read(channel, whole_planes(image.grid, planes))).to(torch.float32)
        finite = torch.isfinite(values)
        if not bool(finite.all()):
            valid = torch.ones_like(found, dtype=torch.uint8) if valid is None else valid
            valid[planes, :height, :width] = finite
            values.masked_fill_(~finite, scale.mean)
        values.clamp_(scale.low, scale.high).sub_(scale.mean).div_(scale.sd * scale.unit).round_()
        found[planes, :height, :width] = values.to(torch.int16)
    for volume in (found, *([] if valid is None else [valid])):
        volume[:, :, width:] = volume[:, :, width - 1 : width]
        volume[:, height:] = volume[:, height - 1 : height]
        volume[depth:] = volume[depth - 1 : depth]
    return found, valid


def _coarse_mask(mask: Tensor, image: Image, grid: Grid, ops: Ops) -> Image:
    """A mask at half the resolution, on the grid of the coarse image; never empty."""
    factors = [n / m for n, m in zip(grid.shape, image.grid.shape, strict=True)]
    share = ops.shrink(mask[None], image.grid.shape, [BLUR * f if f > 1 else 0.0 for f in factors])[0]
    inside = share >= min(0.5, float(share.max()) / 2)
    return Image(inside.to(torch.uint8)[None], image.grid, "mask")


def _both(given: Tensor | None, found: Tensor | None, grid: Grid) -> Tensor | None:
    """A mask at full resolution and one of half of it, put together at full resolution."""
    if found is None:
        return given
    mask = torch.empty(grid.shape, dtype=torch.uint8) if given is None else given
    rows, columns = (
        (torch.arange(n) * m // n).clamp(max=m - 1) for n, m in zip(grid.shape[1:], found.shape[1:], strict=True)
    )
    for planes in slabs(grid.shape):
        numbers = (torch.arange(planes.start, planes.stop) * found.shape[0] // grid.shape[0]).clamp(
            max=found.shape[0] - 1
        )
        fine = found[numbers][:, rows][:, :, columns]
        mask[planes] = fine if given is None else fine & mask[planes]
    return mask


def _is_half(level: Grid, wanted: Grid) -> bool:
    """Whether a stored level has about the spacing and the size of half the resolution."""
    pairs = zip(level.spacing_mm, wanted.spacing_mm, level.shape, wanted.shape, strict=True)
    return all(abs(a / b - 1) < NEAR and abs(n - m) <= 1 for a, b, n, m in pairs)


def in_place(image: Image, grid: Grid, ops: Ops) -> Image:
    """A coarse image on the grid of the warp; one that lies elsewhere is interpolated there."""
    if image.grid.same_space(grid, SAME_PLACE_VOX):
        return replace(image, grid=grid)
    edge = float(image.data.nan_to_num(0.0).min())
    return Affine(dimension=grid.ndim).resample(image, grid, outside=edge, ops=ops)


def _factors(fine: Grid, coarse: Grid) -> list[int]:
    return [round(c / f) for f, c in zip(fine.spacing_mm, coarse.spacing_mm, strict=True)]

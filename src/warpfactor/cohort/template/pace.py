"""What can be spared in an iteration of a template: detail in the early ones, a search from scratch in the late ones.

Early iterations move a blurred template a long way, so they register copies of the images at half the resolution. The
last iteration, and everybody's registration to the finished template, go on at full resolution from where the iteration
before ended, with what was found out about the images before: by two levels after an iteration at half the resolution,
and by the finest level alone after one at full resolution.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from warpfactor.cohort.table.row import CohortRow
from warpfactor.errors import WarpfactorError
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.image import Image
from warpfactor.io import read_image, read_mask, write_image
from warpfactor.kernels.ops import Ops
from warpfactor.recipebook.recipe import Recipe
from warpfactor.registration.record import grid_from_dict
from warpfactor.scene.levels import BLUR, finest_spacing, level_shape
from warpfactor.stages.deform import treats_alike
from warpfactor.stages.settings import Deformable, fitted

COARSER = 2.0  # spacing of early iterations in units of the finest one
FEWEST_LEVELS = 3  # of a recipe that still has two without its finest


def can_be_coarser(recipe: Recipe, grid: Grid) -> bool:
    """Whether images on this grid have levels to spare: so small ones as have only two are always taken in full."""
    warp = recipe.deformable
    return warp is not None and len(fitted(warp, grid).levels) >= FEWEST_LEVELS


def coarser_grid(grid: Grid, spacing_mm: float) -> Grid:
    """The grid over the same field of view with about this spacing, along axes whose spacing is finer."""
    return grid.scaled(shape=level_shape(grid, spacing_mm))


def coarser_spacing_mm(grid: Grid) -> float:
    """The spacing of early iterations for a template on a grid."""
    return COARSER * finest_spacing(grid)


def coarser(image: Image, grid: Grid, ops: Ops) -> Image:
    """An image on a coarser grid of the same field of view; voxels that mostly have no value have none."""
    if image.grid.shape == grid.shape:
        return image
    data = image.data.to(torch.float32)
    finite = torch.isfinite(data)
    shrunk = _shrunk(torch.nan_to_num(data, nan=0.0, posinf=0.0, neginf=0.0), grid, ops)
    if not bool(finite.all()):
        share = _shrunk(finite.to(torch.float32), grid, ops)
        shrunk = torch.where(share >= 0.5, shrunk / share.clamp_min(0.5), torch.nan)
    return Image(shrunk, grid, image.name)


def coarser_row(row: CohortRow, folder: Path, spacing_mm: float, ops: Ops) -> CohortRow:
    """A row of coarser copies of the moving images and their mask, which are written into a folder.

    The files of somebody whose images cannot be read stay as they are, so that the registration says what is wrong.
    """
    try:
        moving = tuple(
            _copied(path, folder / f"{row.name}_{number}.nii.gz", spacing_mm, ops)
            for number, path in enumerate(row.moving, 1)
        )
        mask = row.moving_mask
        if mask is not None:
            mask = _copied_mask(mask, folder / f"{row.name}_mask.nii.gz", spacing_mm, ops)
    except WarpfactorError:
        return row
    return replace(row, fixed=moving, moving=moving, moving_mask=mask)


def continued(asked: Recipe, ran: Mapping[str, Any]) -> Recipe | None:
    """The recipe that goes on from the result of an earlier run with it; None if it cannot go on from a warp.

    What was chosen then for the contrasts and the motion of the images is not looked for again.

    Args:
        asked: what both runs were asked for.
        ran: the content of result.json.
    """
    grid, found = grid_from_dict(ran["fixed"]), Recipe.from_dict(ran["recipe"]).deformable
    if found is None or treats_alike(found) or _missing(ran):
        return None
    for each in (asked.deformable, asked.broad, asked.across, asked.across_planar):
        if each is not None and _plain(fitted(each, grid)) == _plain(found):
            return replace(asked, deformable=_settled(each), broad=None, across=None, across_planar=None)
    return None


def at_finest(recipe: Recipe, grid: Grid, levels: int = 1) -> Recipe:
    """The recipe with so many of its finest levels, for images on a grid."""
    if recipe.deformable is None:
        return recipe
    warp = fitted(recipe.deformable, grid)
    return replace(
        recipe,
        deformable=replace(
            warp,
            levels=warp.levels[-levels:],
            iterations=warp.iterations[-levels:],
            metric=warp.metric.for_levels(levels),
        ),
    )


def _settled(warp: Deformable) -> Deformable:
    return replace(warp, broad_from=0.0)


def _plain(warp: Deformable) -> Deformable:
    """The settings that say which of a recipe's warps it is; those that are measured in levels aside."""
    return _settled(replace(warp, levels=(1.0,), iterations=(1,), metric=warp.metric.for_levels(1)))


def _missing(ran: Mapping[str, Any]) -> bool:
    """Whether parts of one image were missing from the other; only a run from scratch looks for those."""
    return any(ran[side].get("missing_share", 0.0) > 0 for side in ("fixed", "moving"))


def _shrunk(data: Tensor, grid: Grid, ops: Ops) -> Tensor:
    sigma = [BLUR * n / m if n > m else 0.0 for n, m in zip(data.shape[1:], grid.shape, strict=True)]
    return ops.shrink(data, grid.shape, sigma)


def _copied(path: Path, copy: Path, spacing_mm: float, ops: Ops) -> Path:
    image = read_image(path)
    write_image(coarser(image, coarser_grid(image.grid, spacing_mm), ops), copy, force=True)
    return copy


def _copied_mask(path: Path, copy: Path, spacing_mm: float, ops: Ops) -> Path:
    mask = read_mask(path)
    small = coarser(mask, coarser_grid(mask.grid, spacing_mm), ops)
    kept = small.data >= min(0.5, float(small.data.max()))  # a small mask does not vanish
    write_image(Image(kept.to(torch.uint8), small.grid, mask.name), copy, force=True)
    return copy

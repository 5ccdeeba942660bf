"""The memory that a registration needs, estimated before it begins."""

from __future__ import annotations

from warpfactor.memory import check_memory
from warpfactor.recipebook.recipe import Recipe
from warpfactor.registration.inputs import Images
from warpfactor.stages.deform import voxel_bytes

REMEDY = "crop the images to the region of interest, or resample them to a coarser spacing"
LEAST = 0.8  # of what was measured: the estimate is from below, so that nothing is refused that would fit
LINEAR_BYTES = 8  # per voxel of the fixed image, besides the images as they were read
CHANNEL_BYTES = 4  # of either image, in single precision


def check_room(images: Images, recipe: Recipe) -> None:
    """Raise an OutOfMemoryError if a registration of these images cannot fit into the memory that is left."""
    check_memory(needed_bytes(images, recipe), "This registration", remedy=REMEDY)


def needed_bytes(images: Images, recipe: Recipe) -> int:
    """What a registration will at least allocate besides its images."""
    fixed, moving = images.fixed, images.moving
    each = LINEAR_BYTES if recipe.deformable is None else round(LEAST * voxel_bytes(recipe.deformable))
    channels = CHANNEL_BYTES * (fixed.grid.voxel_count * fixed.channels + moving.grid.voxel_count * moving.channels)
    return each * fixed.grid.voxel_count + channels

"""The images where they meet: half-way between fixed and moving space."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from warpfactor.errors import InputError
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Affine, Chain, Warp
from warpfactor.stages.found import Halves

if TYPE_CHECKING:
    from warpfactor.registration.result import Registration

OF = ("mean", "fixed", "moving")


def midpoint(result: Registration, of: str) -> Image:
    """See Registration.midpoint."""
    if of not in OF:
        raise InputError(f"Unknown image of={of!r} for the midpoint; use one of {', '.join(OF)}.")
    if result.halves is None:
        raise InputError(
            f"The recipe {result.recipe.name!r} moves one image onto the other, so that there is no midpoint; "
            "register with the recipe 'symmetric', and keep its warp."
        )
    images = result.images.fixed, result.images.moving
    chosen = [k for k, name in enumerate(OF[1:]) if of in ("mean", name)]
    ways = ways_from_middle(result.halves, result.fixed_grid.ndim)
    grid, ops = result.halves.middle.grid, result.ops
    parts = [ways[k].resample(_single(images[k]), grid, outside=math.nan, ops=ops).data for k in chosen]
    return Image(torch.stack(parts).nanmean(dim=0).nan_to_num(0.0), grid, f"midpoint of {of}")


def ways_from_middle(halves: Halves, ndim: int) -> tuple[Chain, Chain]:
    """From the middle to fixed and to moving space: each a warp of the middle and half of the affine."""
    middle = halves.middle
    to_fixed = Affine(np.linalg.inv(middle.from_fixed), "middle", "fixed", ndim)
    to_moving = Affine(middle.to_moving, "middle", "moving", ndim)
    return (
        Chain((Warp(halves.to_fixed.cpu(), middle.grid, "middle", "middle"), to_fixed)),
        Chain((Warp(halves.to_moving.cpu(), middle.grid, "middle", "middle"), to_moving)),
    )


def _single(image: Image) -> Image:
    return Image(image.data.to(torch.float32), image.grid, image.name)

"""The inputs of a registration: images of one or several channels, masks, an initial transform."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warpfactor.checks.inputs import check_images, check_mask, length_mm, lengths_apart
from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid, Matrix
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Affine, Transform, Warp
from warpfactor.io import from_any, read_image, read_transform
from warpfactor.kernels.ops import Ops
from warpfactor.show.wording import warn_of
from warpfactor.terms.channels import normalized_weights

INCOMPARABLE = 100.0  # ratio of lengths from which images are refused: micrometres read as millimetres
Spacing = Sequence[float] | float | None
Channels = Sequence[int] | int | None


@dataclass(frozen=True)
class Images:
    """The images and masks of a registration, as they were read.

    Attributes:
        fixed, moving: images of one or several channels.
        fixed_mask, moving_mask: uint8 masks on the grids of their images, or None.
    """

    fixed: Image
    moving: Image
    fixed_mask: Image | None = None
    moving_mask: Image | None = None

    def __post_init__(self) -> None:
        if self.fixed.grid.ndim != self.moving.grid.ndim:
            raise InputError(
                f"{self.fixed.name} is {self.fixed.grid.ndim}-D and {self.moving.name} is {self.moving.grid.ndim}-D; "
                "save both in the same way."
            )


@dataclass(frozen=True)
class Initial:
    """The initial transform of a registration, y = matrix (x + displacement(x)).

    Attributes:
        matrix: 4x4, LPS mm, fixed to moving; None if the linear stages search for one.
        displacement: (3, *fixed shape) in voxels of the fixed grid, or None for zero.
    """

    matrix: Matrix | None = None
    displacement: Tensor | None = None


def load_image(source: Any, *, spacing_mm: Spacing = None, channels: Channels = None, name: str = "image") -> Image:
    """One image from anything that `io.from_any` accepts; a list or tuple contains channels on the same grid.

    `channels` are those that are used, counted from 1; all by default.
    """
    if channels is not None:
        return load_image(source, spacing_mm=spacing_mm, name=name).with_channels(channels)
    if not isinstance(source, (list, tuple)):
        return from_any(source, spacing_mm=spacing_mm, name=name if isinstance(source, (np.ndarray, Tensor)) else None)
    if not source:
        raise InputError(f"The list of {name} channels is empty; give at least one image.")
    first, *others = [load_image(channel, spacing_mm=spacing_mm, name=name) for channel in source]
    parts = [first.data, *(other.on_grid(first.grid).data for other in others)]
    return replace(first, data=torch.cat([part.to(torch.float32) for part in parts]))


def load_pair(
    fixed: Any,
    moving: Any,
    *,
    spacings_mm: tuple[Spacing, Spacing] = (None, None),
    channels: tuple[Channels, Channels] = (None, None),
    threads: int | None = None,
) -> tuple[Image, Image]:
    """The fixed and the moving image; two files are read in parallel unless `threads` is 1.

    Files that are probably not what was meant cause a warning.
    """
    read_fixed = partial(load_image, fixed, spacing_mm=spacings_mm[0], channels=channels[0], name="fixed")
    read_moving = partial(load_image, moving, spacing_mm=spacings_mm[1], channels=channels[1], name="moving")
    if not (_is_file(fixed) and _is_file(moving)):
        return read_fixed(), read_moving()
    if threads == 1:
        pair = read_fixed(), read_moving()
    else:
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(read_moving)
            pair = read_fixed(), other.result()
    warn_of(check_images(*pair))
    return pair


def _is_file(source: Any) -> bool:
    channels = source if isinstance(source, (list, tuple)) else (source,)
    return all(isinstance(channel, (str, Path)) for channel in channels)


def load_mask(source: Any, image: Image, *, name: str = "mask") -> Image | None:
    """The mask of an image, inside where it is neither zero nor NaN; an array is taken to lie on the image's grid."""
    if source is None:
        return None
    if isinstance(source, (str, Path)):
        mask = read_image(source)
    elif isinstance(source, (np.ndarray, Tensor)):
        mask = Image.from_array(source, grid=image.grid, name=name)
    else:
        mask = from_any(source)
    inside = (mask.data != 0) & (mask.data == mask.data)
    if mask.channels != 1:
        raise InputError(
            f"{mask.name}: a mask has one channel, this has {mask.channels}; save a picture with one number per pixel."
        )
    if not bool(inside.any()):
        raise InputError(f"{mask.name}: the mask is empty; at least one voxel must be other than zero.")
    warn_of(check_mask(mask.name, mask.data[0]))
    return replace(mask, data=inside.to(torch.uint8)).on_grid(image.grid)


def check_lengths(images: Images) -> None:
    """InputError if one image is so much longer than the other that no object can be in both."""
    found = lengths_apart(images.fixed, images.moving)
    if found is not None and found[0] > INCOMPARABLE * found[1]:
        long, short = (f"{length:.3g} mm" for length in found)
        names = [images.fixed.name, images.moving.name]
        large, small = names if length_mm(images.fixed.grid) > length_mm(images.moving.grid) else names[::-1]
        raise InputError(
            f"{large} is {long} long and {small} {short}: one of them has a wrong spacing. Correct it, for instance "
            "with --spacing FIXED/MOVING in mm (fixed_spacing_mm, moving_spacing_mm), or give an initial transform "
            "that brings them together."
        )


def check_weights(weights: tuple[float, ...] | None, images: Images) -> None:
    """InputError if there is not one weight per channel; called before the linear stages run."""
    normalized_weights(weights, images.fixed.channels)


def load_initial(source: Any, grid: Grid, ops: Ops) -> Initial:
    """The initial transform from a transform, a 4x4 matrix (LPS mm, fixed to moving), or one or several files."""
    if source is None:
        return Initial()
    transform = _transform(source)
    warps = any(isinstance(part, Warp) for part in transform.parts)
    place = transform.on_grid(grid, ops=ops)
    return Initial(place.affine, place.displacement if warps else None)


def _transform(source: Any) -> Transform:
    if isinstance(source, Transform):
        return source
    if isinstance(source, (str, Path)):
        return read_transform(source)
    if isinstance(source, (list, tuple)) and all(isinstance(part, (str, Path)) for part in source):
        return read_transform(list(source))
    try:
        return Affine(np.asarray(source, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise InputError(
            f"A {type(source).__name__} cannot be an initial transform; give a transform, a 4x4 matrix or a file."
        ) from error

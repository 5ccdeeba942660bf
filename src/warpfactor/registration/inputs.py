"""What a registration is given, in any form: images of one or several channels, masks, a transform to start from."""

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

from warpfactor.checks.inputs import warn_of_image_as_mask, warn_of_labels, warn_of_sizes
from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid, Matrix
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Affine, Transform, Warp
from warpfactor.io import from_any, read_image, read_landmarks, read_transform
from warpfactor.kernels.ops import Ops
from warpfactor.terms import LandmarkTerm, Weighted
from warpfactor.terms.channels import normalized_weights

Spacing = Sequence[float] | float | None


@dataclass(frozen=True)
class Inputs:
    """The images and masks of a registration.

    Attributes:
        fixed, moving: float images, one or several channels.
        fixed_mask, moving_mask: uint8, on the grid of their image, or None.
    """

    fixed: Image
    moving: Image
    fixed_mask: Image | None = None
    moving_mask: Image | None = None

    def __post_init__(self) -> None:
        if self.fixed.grid.ndim != self.moving.grid.ndim:
            raise InputError(
                f"{self.fixed.name} is a {self.fixed.grid.ndim}-D file and {self.moving.name} a "
                f"{self.moving.grid.ndim}-D one; save both in the same way."
            )


@dataclass(frozen=True)
class Initial:
    """Where a registration starts: y = matrix (x + displacement(x)).

    Attributes:
        matrix: 4x4, LPS mm, fixed to moving; None lets the linear stages search.
        displacement: (3, *fixed shape) in voxels of the fixed grid, or None for zero.
    """

    matrix: Matrix | None = None
    displacement: Tensor | None = None


def load_image(source: Any, *, spacing_mm: Spacing = None, name: str = "image") -> Image:
    """One image from anything `io.from_any` takes; a list or tuple holds the channels, all on one grid."""
    if not isinstance(source, (list, tuple)):
        return from_any(source, spacing_mm=spacing_mm, name=name if isinstance(source, (np.ndarray, Tensor)) else None)
    if not source:
        raise InputError(f"The list of {name} channels is empty; give at least one image.")
    first, *others = [load_image(channel, spacing_mm=spacing_mm, name=name) for channel in source]
    channels = [first.data, *(other.on_grid(first.grid).data for other in others)]
    return replace(first, data=torch.cat([channel.to(torch.float32) for channel in channels]))


def load_pair(
    fixed: Any, moving: Any, *, spacings_mm: tuple[Spacing, Spacing] = (None, None), threads: int | None = None
) -> tuple[Image, Image]:
    """The fixed and the moving image; files are read side by side unless there is to be one thread only.

    Files that are hardly what was meant are warned of.
    """
    read_fixed = partial(load_image, fixed, spacing_mm=spacings_mm[0], name="fixed")
    read_moving = partial(load_image, moving, spacing_mm=spacings_mm[1], name="moving")
    if not (_is_file(fixed) and _is_file(moving)):
        return read_fixed(), read_moving()
    if threads == 1:
        pair = read_fixed(), read_moving()
    else:
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(read_moving)
            pair = read_fixed(), other.result()
    warn_of_labels(*pair)
    warn_of_sizes(*pair)
    return pair


def _is_file(source: Any) -> bool:
    channels = source if isinstance(source, (list, tuple)) else (source,)
    return all(isinstance(channel, (str, Path)) for channel in channels)


def load_mask(source: Any, image: Image, *, name: str = "mask") -> Image | None:
    """A mask of `image`, true where it is neither zero nor NaN; an array lies on the image's grid."""
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
        raise InputError(f"{mask.name}: a mask has one channel, this has {mask.channels}.")
    if not bool(inside.any()):
        raise InputError(f"{mask.name}: the mask is empty; at least one voxel must be other than zero.")
    warn_of_image_as_mask(mask.name, mask.data[0])
    return replace(mask, data=inside.to(torch.uint8)).on_grid(image.grid)


def check_weights(weights: tuple[float, ...] | None, inputs: Inputs) -> None:
    """InputError if there is not one weight per channel; to be asked before the linear stages run."""
    normalized_weights(weights, inputs.fixed.channels)


def load_landmarks(source: Any, weight: float, inputs: Inputs) -> tuple[Weighted, ...]:
    """The term of landmarks that guide a registration, from a CSV file or a pair of arrays; none without any."""
    if source is None or weight == 0:
        return ()
    fixed, moving = read_landmarks(source) if isinstance(source, (str, Path)) else source
    term = LandmarkTerm.of(fixed, moving)
    term.check_inside(inputs.fixed.grid, inputs.moving.grid)
    return (Weighted(term, weight),)


def load_initial(source: Any, grid: Grid, ops: Ops) -> Initial:
    """Where to start from a transform, a 4x4 matrix (LPS mm, fixed to moving), a file or a list of files as ANTs'."""
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
            f"A {type(source).__name__} is no initial transform; give a transform, a 4x4 matrix or a file."
        ) from error

"""Images and points resampled or mapped from one space of a registration to the other."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike

from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid, Points
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Transform
from warpfactor.io import from_any
from warpfactor.kernels.ops import Ops
from warpfactor.scene.object import background

SPACES = ("fixed", "moving")
LABEL_MODES = ("nearest", "label")  # interpolations of labels, which have no background but 0


class TwoSpaces(Protocol):
    """What a registration and a saved result have in common."""

    @property
    def transform(self) -> Transform: ...

    @property
    def inverse(self) -> Transform: ...

    @property
    def fixed_grid(self) -> Grid: ...

    @property
    def moving_grid(self) -> Grid: ...

    @property
    def ops(self) -> Ops: ...


def apply_to_image(
    result: TwoSpaces, image: Any, *, to: str, mode: str, outside: float | None, grid: Grid | None
) -> Image:
    """An image resampled to the space `to`, by default onto the grid of the image of that space."""
    own = result.fixed_grid if to == "fixed" else result.moving_grid
    given = from_any(image)
    ops = result.ops if given.data.device.type == "cpu" else None  # the transform chooses one for another device
    beyond = outside_values(given, outside, mode=mode)
    return resample_channels(_towards(result, to), given, grid or own, mode=mode, outside=beyond, ops=ops)


def outside_values(image: Image, outside: float | None, *, mode: str = "linear") -> tuple[float, ...]:
    """What is outside an image, per channel: the given value, or its own background; 0 if labels are meant."""
    if outside is None and mode not in LABEL_MODES:
        return tuple(background(channel) for channel in image.data)
    return (float(outside or 0.0),) * image.channels


def resample_channels(
    transform: Transform,
    image: Image,
    grid: Grid,
    *,
    mode: str = "linear",
    outside: tuple[float, ...],
    ops: Ops | None = None,
) -> Image:
    """An image on another grid, each channel with its own value outside."""
    if len(set(outside)) == 1:
        return transform.resample(image, grid, mode=mode, outside=outside[0], ops=ops)
    parts = (Image(channel[None], image.grid, image.name) for channel in image.data)
    moved = [
        transform.resample(part, grid, mode=mode, outside=value, ops=ops)
        for part, value in zip(parts, outside, strict=True)
    ]
    return Image(torch.cat([part.data for part in moved]), grid, image.name)


def apply_to_points(result: TwoSpaces, points: ArrayLike, *, to: str) -> Points:
    """(N, 3) LPS mm points mapped to the space `to`; points of 2-D images may be (N, 2)."""
    _check_space(to)
    given = np.atleast_2d(np.asarray(points, dtype=np.float64))
    flat = result.fixed_grid.ndim == 2 and given.shape[-1] == 2
    other = "moving" if to == "fixed" else "fixed"
    mapped = _towards(result, other).map_points(np.c_[given, np.zeros(len(given))] if flat else given)
    return mapped[:, :2] if flat else mapped


def _towards(result: TwoSpaces, to: str) -> Transform:
    """The transform that resamples an image onto a grid of the space `to`."""
    _check_space(to)
    return result.transform if to == "fixed" else result.inverse


def _check_space(to: str) -> None:
    if to not in SPACES:
        raise InputError(f"Unknown space {to!r}; use 'fixed' or 'moving'.")

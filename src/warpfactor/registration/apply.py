"""Images and points resampled or mapped from one space of a registration to the other."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid, Points
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Transform
from warpfactor.io import from_any
from warpfactor.kernels.ops import Ops

SPACES = ("fixed", "moving")


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


def apply_to_image(result: TwoSpaces, image: Any, *, to: str, mode: str, outside: float, grid: Grid | None) -> Image:
    """An image resampled to the space `to`, by default onto the grid of the image of that space."""
    own = result.fixed_grid if to == "fixed" else result.moving_grid
    given = from_any(image)
    ops = result.ops if given.data.device.type == "cpu" else None  # the transform chooses one for another device
    return _towards(result, to).resample(given, grid or own, mode=mode, outside=outside, ops=ops)


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

"""Images and points carried from one space of a registration to the other."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid, Points
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Transform
from warpfactor.io import from_any

SPACES = ("fixed", "moving")


class Carrier(Protocol):
    """What a registration and a saved result have in common."""

    @property
    def transform(self) -> Transform: ...

    @property
    def inverse(self) -> Transform: ...

    @property
    def fixed_grid(self) -> Grid: ...

    @property
    def moving_grid(self) -> Grid: ...


def carry_image(carrier: Carrier, image: Any, *, to: str, mode: str, outside: float, grid: Grid | None) -> Image:
    """An image of one space on a grid of the other, `to`; that space's own grid without one."""
    own = carrier.fixed_grid if to == "fixed" else carrier.moving_grid
    return _towards(carrier, to).resample(from_any(image), grid or own, mode=mode, outside=outside)


def carry_points(carrier: Carrier, points: ArrayLike, *, to: str) -> Points:
    """(N, 3) LPS mm points of one space in the other, `to`; of 2-D images also (N, 2)."""
    _check_space(to)
    given = np.atleast_2d(np.asarray(points, dtype=np.float64))
    flat = carrier.fixed_grid.ndim == 2 and given.shape[-1] == 2
    other = "moving" if to == "fixed" else "fixed"
    moved = _towards(carrier, other).map_points(np.c_[given, np.zeros(len(given))] if flat else given)
    return moved[:, :2] if flat else moved


def _towards(carrier: Carrier, to: str) -> Transform:
    """The transform that resamples an image onto a grid of the space `to`."""
    _check_space(to)
    return carrier.transform if to == "fixed" else carrier.inverse


def _check_space(to: str) -> None:
    if to not in SPACES:
        raise InputError(f"Unknown space {to!r}; carry to 'fixed' or to 'moving'.")

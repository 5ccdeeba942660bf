"""Images on top of each other: are they alike, and where not?"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from warpfactor.errors import InputError
from warpfactor.geometry.image import Image
from warpfactor.geometry.planes import shown_range
from warpfactor.geometry.transform import Affine
from warpfactor.io import from_any
from warpfactor.show.plot.panels import Panels, gray
from warpfactor.show.plot.source import image_of, name_of

MODES = ("blend", "checkerboard", "contours")
SQUARES = 8  # of the checkerboard, along the longer edge
CONTOUR_SHARES = (0.25, 0.5, 0.75)  # of the shown intensities
CONTOUR_COLOUR = "#ffb000"


def overlay(fixed: Any, *others: Any, mode: str = "blend", at: ArrayLike | None = None) -> Figure:
    """Other images over the fixed one, a row for each.

    Args:
        fixed: the fixed image: a path, an Image, an array, or what else `register` takes.
        others: results, whose warped image is taken, or images; those on another grid are first resampled to the
            fixed one, so that `overlay(fixed, moving, result)` shows before and after.
        mode: "blend" (the fixed image in magenta, the other in green, gray where they agree), "checkerboard" (squares
            of the one and the other), or "contours" (lines of the other's intensities over the fixed image).
        at: world point (LPS mm) that the planes go through; the middle of the image without one.
    """
    if mode not in MODES:
        raise InputError(f"Unknown mode {mode!r}; use one of {', '.join(MODES)}.")
    if not others:
        raise InputError("There is nothing to lay over the fixed image; give a result or another image.")
    below = from_any(fixed)
    panels = Panels(below.grid, at, rows=len(others))
    under = gray(_volume(below), shown_range(_volume(below)))
    for row, other in enumerate(others):
        image = _on_grid_of(below, image_of(other))
        values = _volume(image)
        over = gray(values, shown_range(values))
        slices = [(panels.cut(under, plane), panels.cut(over, plane)) for plane in panels.planes]
        if mode == "contours":
            _draw_contours(panels, slices, row)
        else:
            mix = _blend if mode == "blend" else _checkerboard
            panels.draw([mix(a, b) for a, b in slices], row, vmin=0, vmax=1, cmap="gray")
        panels.title(f"{name_of(other, image)} over {below.name}", row)
    return panels.figure


def _volume(image: Image) -> NDArray[Any]:
    """(D, H, W) of the first channel."""
    values: NDArray[Any] = image.data[0].detach().cpu().numpy()
    return values


def _on_grid_of(fixed: Image, image: Image) -> Image:
    if image.grid.same_space(fixed.grid):
        return image
    return Affine(dimension=fixed.grid.ndim).resample(image, fixed.grid)


def _blend(under: NDArray[np.float32], over: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.stack([under, over, under], axis=-1)


def _checkerboard(under: NDArray[np.float32], over: NDArray[np.float32]) -> NDArray[np.float32]:
    edge = max(1, round(max(under.shape) / SQUARES))
    row, column = np.indices(under.shape) // edge
    return np.where((row + column) % 2, over, under)


def _draw_contours(panels: Panels, slices: list[tuple[NDArray[np.float32], NDArray[np.float32]]], row: int) -> None:
    panels.draw([under for under, _ in slices], row, vmin=0, vmax=1, cmap="gray")
    for axes, (_, over) in zip(panels.axes[row], slices, strict=True):
        levels = [share for share in CONTOUR_SHARES if over.min() < share < over.max()]
        if levels:
            axes.contour(over, levels=levels, colors=CONTOUR_COLOUR, linewidths=0.6)

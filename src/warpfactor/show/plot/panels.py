"""Figures with a panel for each plane of a grid."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colorbar import Colorbar
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import ArrayLike, NDArray

from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.planes import Plane, middle, planes

PANEL_INCHES = 3.2
TITLE_INCHES = 0.35
BAR_INCHES = 0.9
LETTER: dict[str, Any] = {"color": "#999999", "fontsize": 8, "ha": "center", "va": "center"}
INSET = 0.04  # of a panel's edge: where the letters are


class Picture(Figure):
    """A figure that notebooks show even if pyplot was never loaded."""

    def _repr_png_(self) -> bytes:
        stream = io.BytesIO()
        self.savefig(stream, format="png", dpi=100)
        return stream.getvalue()


class Panels:
    """Rows of panels, one panel for each plane through a point of a grid.

    Attributes:
        figure: they are in.
        planes: of the grid.
    """

    def __init__(self, grid: Grid, at: ArrayLike | None, *, rows: int = 1, bar: bool = False) -> None:
        self.planes = planes(grid)
        _check_inside(grid, at)
        self._place = middle(grid, at)
        sizes = [(grid.shape[p.rows] * p.spacing_mm[0], grid.shape[p.columns] * p.spacing_mm[1]) for p in self.planes]
        longest = max(max(size) for size in sizes)
        widths = [width / longest * PANEL_INCHES for _, width in sizes]
        height = max(size[0] for size in sizes) / longest * PANEL_INCHES + TITLE_INCHES
        inches = (sum(widths) + (BAR_INCHES if bar else 0.0), rows * height)
        self.figure: Figure = Picture(figsize=inches, layout="constrained", facecolor="white")
        self.axes: NDArray[Any] = self.figure.subplots(rows, len(widths), squeeze=False, width_ratios=widths)
        for axes in self.axes.ravel():
            axes.set_axis_off()

    def cut(self, volume: NDArray[Any], plane: Plane) -> NDArray[Any]:
        """The slice of a (D, H, W) volume that a plane's panel shows."""
        return plane.cut(volume, self._place[plane.normal])

    def show(self, volume: NDArray[Any], row: int = 0, **options: Any) -> AxesImage:
        """Draw a (D, H, W) volume into a row of panels, with `imshow`'s options; the last image, for a colour bar."""
        return self.draw([self.cut(volume, plane) for plane in self.planes], row, **options)

    def draw(self, slices: list[NDArray[Any]], row: int = 0, **options: Any) -> AxesImage:
        """Draw a (rows, columns) or (rows, columns, 3) slice into each panel of a row."""
        for plane, axes, flat in zip(self.planes, self.axes[row], slices, strict=True):
            drawn: AxesImage = axes.imshow(flat, aspect=plane.aspect, interpolation="nearest", **options)
            _letters(axes, plane)
        return drawn

    def title(self, text: str, row: int = 0) -> None:
        """A title above the first panel of a row."""
        self.axes[row][0].set_title(text, loc="left", fontsize=10)

    def bar(self, image: AxesImage, label: str, **options: Any) -> Colorbar:
        """A colour bar beside the panels."""
        return self.figure.colorbar(image, ax=list(self.axes.ravel()), label=label, shrink=0.8, pad=0.02, **options)


def _check_inside(grid: Grid, at: ArrayLike | None) -> None:
    """InputError if a world point is not in the image; a single slice has no thickness to miss."""
    if at is None:
        return
    try:
        given = np.asarray(at, dtype=np.float64).ravel()
    except (TypeError, ValueError):
        given = np.empty(0)
    if len(given) not in (grid.ndim, 3) or not np.isfinite(given).all():
        raise InputError(f"A view at={at!r} is not possible, that is no point; give {grid.ndim} numbers, LPS mm.")
    index = grid.world_to_index(np.r_[given, np.zeros(3 - len(given))])[0]
    shape = np.asarray(grid.shape)
    if ((abs(index - (shape - 1) / 2) > shape / 2) & (shape > 1)).any():
        place = ", ".join(f"{value:g}" for value in given)
        raise InputError(f"The point at=({place}) lies outside the image; give a point inside it, LPS mm.")


def gray(volume: NDArray[Any], limits: tuple[float, float]) -> NDArray[np.float32]:
    """Intensities as shares of a range, 0 to 1; what is no number is 0."""
    low, high = limits
    share: NDArray[np.float32] = np.nan_to_num((volume.astype(np.float32) - low) / (high - low)).clip(0, 1)
    return share


def _letters(axes: Axes, plane: Plane) -> None:
    places = ((INSET, 0.5), (1 - INSET, 0.5), (0.5, 1 - INSET), (0.5, INSET))
    for letter, (x, y) in zip(plane.sides, places, strict=False):
        axes.text(x, y, letter, transform=axes.transAxes, **LETTER)

"""Maps in the planes of a grid: an image, how a warp bends a square grid, its Jacobian, a statistic, and so on."""

from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from warpfactor.errors import InputError
from warpfactor.geometry.image import Image
from warpfactor.geometry.planes import shown_range
from warpfactor.geometry.transform import Warp
from warpfactor.measure import LOG_JACOBIAN_RANGE, jacobian_figures
from warpfactor.show.plot.panels import Panels, gray
from warpfactor.show.plot.source import Result, image_of, object_sd_log, warp_of

LINES = 24  # of a grid along the longest edge of a panel
LINE_COLOUR = "#ffb000"
DIVERGING, SEQUENTIAL = "PuOr_r", "viridis"  # both are told apart without colour vision
FOLD_COLOUR = "black"
SMALLEST_SCALE = 0.5  # of log2: colours never stand for less than a factor of 1.4


def image(source: Any, *, at: ArrayLike | None = None) -> Figure:
    """The three planes through an image, or through the warped image of a result.

    Args:
        source: a result, a path, an Image, an array, or what else `register` takes.
        at: world point (LPS mm) that the planes go through; the middle of the image without one.
    """
    shown = image_of(source)
    volume = shown.data[0].detach().cpu().numpy()
    panels = Panels(shown.grid, at)
    low, high = shown_range(volume)
    panels.show(np.nan_to_num(volume), cmap="gray", vmin=low, vmax=high)
    panels.title(shown.name)
    return panels.figure


def grid(result: Result | Warp, *, at: ArrayLike | None = None, lines: int = LINES) -> Figure:
    """A square grid that was drawn on the moving image, after the warp brought it onto the fixed one.

    The lines are where x + u(x), the place in the affinely aligned moving image, has a whole multiple of the grid's
    spacing as coordinate; what moves through a plane is therefore shown as well.

    Args:
        result: of `register` or `read_result`, drawn over the warped image; or a warp alone.
        at: world point (LPS mm) that the planes go through; the middle without one.
        lines: along the longest edge.
    """
    if lines < 1:
        raise InputError(f"A grid of {lines} lines cannot be drawn; give at least 1.")
    warp = warp_of(result)
    panels = Panels(warp.grid, at)
    if isinstance(result, Warp):
        panels.draw([np.ones((*_flat_shape(panels, warp, number), 3)) for number in range(len(panels.planes))])
    else:
        values = image_of(result).data[0].detach().cpu().numpy()
        panels.show(gray(values, shown_range(values)), cmap="gray", vmin=0, vmax=1)
    step_mm = max(n * s for n, s in zip(warp.grid.shape, warp.grid.spacing_mm, strict=True) if n > 1) / lines
    for plane, axes in zip(panels.planes, panels.axes[0], strict=True):
        for axis in (plane.rows, plane.columns):
            place = panels.cut(_place_mm(warp, axis), plane)
            levels = np.arange(np.floor(place.min() / step_mm) + 1, place.max() / step_mm) * step_mm
            if levels.size:
                axes.contour(place, levels=levels, colors=LINE_COLOUR, linewidths=0.6)
    panels.title("grid of the moving image, warped")
    return panels.figure


def jacobian(result: Result | Warp, *, at: ArrayLike | None = None) -> Figure:
    """Map of the warp's Jacobian determinant, on a logarithmic scale; folds are black.

    Above one, a piece of the fixed image is larger in the moving one.

    Args:
        result: of `register` or `read_result`, or a warp.
        at: world point (LPS mm) that the planes go through; the middle without one.
    """
    warp = warp_of(result)
    determinant = warp.jacobian().data[0].cpu().numpy()
    figures, inside = jacobian_figures(determinant), object_sd_log(result)
    spread = f"{figures.sd_log:.2f}, whole image" if inside is None else f"{inside:.2f} in the object"
    doublings = np.log2(determinant.clip(*LOG_JACOBIAN_RANGE))
    most = max(SMALLEST_SCALE, float(np.abs(np.percentile(doublings, (0.5, 99.5))).max()))
    colours = matplotlib.colormaps[DIVERGING].with_extremes(bad=FOLD_COLOUR)
    panels = Panels(warp.grid, at, bar=True)
    shown = panels.show(np.where(determinant > 0, doublings, np.nan), cmap=colours, vmin=-most, vmax=most)
    bar = panels.bar(shown, "Jacobian determinant", extend="both")
    ticks = [tick for tick in (-3, -2, -1, -0.5, 0, 0.5, 1, 2, 3) if abs(tick) <= most]
    bar.set_ticks(ticks, labels=[f"{2.0**tick:.3g}" for tick in ticks])
    panels.title(f"{figures.folded_count} folded voxels, SD of the logarithm {spread}")
    return panels.figure


def displacement(result: Result | Warp, *, at: ArrayLike | None = None) -> Figure:
    """Map of how far the warp moves each point, in mm; the affine is not part of it.

    Args:
        result: of `register` or `read_result`, or a warp.
        at: world point (LPS mm) that the planes go through; the middle without one.
    """
    warp = warp_of(result)
    length_mm = warp.grid.voxels_to_mm(warp.displacement).norm(dim=0).cpu().numpy()
    panels = Panels(warp.grid, at, bar=True)
    shown = panels.show(length_mm, cmap=SEQUENTIAL, vmin=0, vmax=max(float(np.percentile(length_mm, 99.5)), 1e-6))
    panels.bar(shown, "displacement (mm)", extend="max")
    panels.title(f"{length_mm.mean():.1f} mm on average, {length_mm.max():.1f} mm at most")
    return panels.figure


def statistic(
    values: Image,
    under: Image,
    *,
    where: NDArray[np.bool_] | None = None,
    at: ArrayLike | None = None,
    title: str = "",
) -> Figure:
    """Map of a statistic with both signs, such as t, over an image; where it is exactly 0 the image alone is shown.

    Args:
        values: the statistic, one channel.
        under: an image on the same grid.
        where: (D, H, W), what is outlined, such as the significant voxels.
        at: world point (LPS mm) that the planes go through; that of the largest value, of either sign, without one.
        title: above the panels.
    """
    volume, below = (each.data[0].detach().cpu().numpy() for each in (values, under))
    peak = np.unravel_index(np.abs(volume).argmax(), volume.shape)
    panels = Panels(values.grid, values.grid.index_to_world([peak])[0] if at is None else at, bar=True)
    panels.show(gray(below, shown_range(below)), cmap="gray", vmin=0, vmax=1)
    most = max(float(np.abs(volume).max()), 1e-6)
    shown = panels.show(np.where(volume == 0, np.nan, volume), cmap=DIVERGING, vmin=-most, vmax=most, alpha=0.75)
    panels.bar(shown, values.name)
    if where is not None:
        for plane, axes in zip(panels.planes, panels.axes[0], strict=True):
            flat = panels.cut(where.astype(np.float32), plane)
            if flat.min() < flat.max():
                axes.contour(flat, levels=[0.5], colors="black", linewidths=0.8)
    panels.title(title or values.name)
    return panels.figure


def _place_mm(warp: Warp, axis: int) -> NDArray[Any]:
    """(D, H, W) of the coordinate of x + u(x) along an array axis, in mm from the first voxel."""
    index = np.arange(warp.grid.shape[axis]).reshape([-1 if a == axis else 1 for a in range(3)])
    place: NDArray[Any] = (warp.displacement[axis].detach().cpu().numpy() + index) * warp.grid.spacing_mm[axis]
    return place


def _flat_shape(panels: Panels, warp: Warp, number: int) -> tuple[int, int]:
    plane = panels.planes[number]
    return warp.grid.shape[plane.rows], warp.grid.shape[plane.columns]

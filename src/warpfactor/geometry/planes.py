"""The three planes through a volume in radiological orientation, and a small picture of them.

Axial and coronal views show the left of the patient on the right; up is anterior or superior. A single slice is shown
as it is stored.
"""

from __future__ import annotations

import base64
import html
import io
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from warpfactor.geometry.grid import Grid

Array = NDArray[Any]

PIXELS = 240  # longest edge of a plane in a picture
GAP = 4
TAILS = (0.5, 99.5)  # percentiles between which intensities are shown
SAMPLES = 200_000
GOLDEN = 0.6180339887  # hues that differ by this share of the circle are easy to tell apart


@dataclass(frozen=True)
class Plane:
    """One orientation in which a grid is shown.

    Attributes:
        name: "axial", "coronal", "sagittal", or "slice" if there is only one.
        normal, rows, columns: array axes along the view, downwards and to the right.
        flips: whether rows and columns run against their axes.
        sides: letters of the left, right, top and bottom; empty for a single slice.
        spacing_mm: of rows and columns.
    """

    name: str
    normal: int
    rows: int
    columns: int
    flips: tuple[bool, bool]
    sides: str
    spacing_mm: tuple[float, float]

    def cut(self, volume: Array, index: int) -> Array:
        """(rows, columns) of a (D, H, W) volume at an index along the normal; a view."""
        flat = np.take(volume, index, axis=self.normal)
        if self.rows > self.columns:
            flat = flat.T
        steps = tuple(slice(None, None, -1 if flip else 1) for flip in self.flips)
        turned: Array = flat[steps]
        return turned

    @property
    def aspect(self) -> float:
        """Height of a pixel over its width."""
        return self.spacing_mm[0] / self.spacing_mm[1]


def planes(grid: Grid) -> tuple[Plane, ...]:
    """The planes of a grid, along the world axes that are closest to its own axes."""
    spacing = grid.spacing_mm
    if grid.shape[0] == 1:
        return (Plane("slice", 0, 1, 2, (False, False), "", (spacing[1], spacing[2])),)
    left, posterior, superior = nearest_axes(grid)
    down = {axis: grid.matrix[world, axis] < 0 for world, axis in enumerate((left, posterior, superior))}
    views = (
        ("axial", superior, posterior, left, "RLAP"),
        ("coronal", posterior, superior, left, "RLSI"),
        ("sagittal", left, superior, posterior, "APSI"),
    )
    return tuple(
        Plane(
            name,
            normal,
            rows,
            columns,
            (bool(down[rows]) != (rows == superior), bool(down[columns])),
            sides,
            (spacing[rows], spacing[columns]),
        )
        for name, normal, rows, columns, sides in views
    )


def middle(grid: Grid, at: ArrayLike | None = None) -> tuple[int, int, int]:
    """The voxel closest to a world point (LPS mm; two numbers in 2-D), by default the centre of the grid."""
    if at is None:
        index = (np.asarray(grid.shape) - 1) / 2
    else:
        point = np.zeros(3)
        given = np.asarray(at, dtype=np.float64).ravel()
        point[: len(given)] = given
        index = grid.world_to_index(point)[0]
    z, y, x = np.clip(np.rint(index), 0, np.asarray(grid.shape) - 1).astype(int).tolist()
    return z, y, x


def shown_range(values: Array) -> tuple[float, float]:
    """The intensities that are shown as black and white: percentiles of a sample."""
    sample = values.reshape(-1)[:: 1 + values.size // SAMPLES]
    finite = sample[np.isfinite(sample)]
    if not finite.size:
        return 0.0, 1.0
    low, high = np.percentile(finite, TAILS).tolist()
    if high <= low:
        low, high = float(finite.min()), float(finite.max())
    return low, (high if high > low else low + 1.0)


def picture(data: Array, grid: Grid) -> bytes:
    """PNG of the three planes (or the single slice) through the centre of (C, D, H, W) data.

    Three channels are shown as red, green and blue; otherwise the first channel is shown. Each label of a 32-bit label
    map has its own colour.
    """
    place, found = middle(grid), planes(grid)
    shown = data if data.shape[0] == 3 else data[:1]
    limits = None if data.dtype == np.int32 else shown_range(shown)
    pixel_mm = max(_extent(plane, grid, side) for plane in found for side in (0, 1)) / PIXELS
    tiles = []
    for plane in found:
        flat = np.stack([plane.cut(channel, place[plane.normal]) for channel in shown], axis=-1)
        coloured = _label_colours(flat[..., 0]) if limits is None else _grays(flat, limits)
        tiles.append(_scaled(coloured, plane, pixel_mm))
    return _png(_side_by_side(tiles))


def html_picture(png: bytes, caption: str) -> str:
    """A PNG with its caption as self-contained HTML."""
    text = html.escape(caption)
    source = f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"
    return f'<figure style="margin:0"><img alt="{text}" src="{source}"><figcaption>{text}</figcaption></figure>'


def nearest_axes(grid: Grid) -> tuple[int, int, int]:
    """The array axes closest to the world axes x (left), y (posterior) and z (superior); each axis is used once."""
    share = np.abs(grid.matrix[:3, :3] / np.linalg.norm(grid.matrix[:3, :3], axis=0))
    x, y, z = max(itertools.permutations(range(3)), key=lambda axes: float(share[range(3), axes].sum()))
    return x, y, z


def _extent(plane: Plane, grid: Grid, side: int) -> float:
    """Height (side 0) or width (side 1) in mm."""
    return grid.shape[(plane.rows, plane.columns)[side]] * plane.spacing_mm[side]


def _grays(flat: Array, limits: tuple[float, float]) -> Array:
    """(h, w, 3) uint8 of (h, w, 1) or (h, w, 3) intensities; NaN is black, infinity black or white."""
    low, high = limits
    share = np.nan_to_num((flat.astype(np.float32) - low) / (high - low), nan=0.0, posinf=1.0, neginf=0.0)
    return np.broadcast_to((255 * share.clip(0, 1)).astype(np.uint8), (*flat.shape[:2], 3))


def _label_colours(labels: Array) -> Array:
    """(h, w, 3) uint8: a hue for every label, black for the background."""
    hue = labels[..., None] * GOLDEN + np.array([0, 2 / 3, 1 / 3])
    strength = (np.abs(hue % 1.0 * 6 - 3) - 1).clip(0, 1)
    coloured: Array = ((80 + 175 * strength) * (labels != 0)[..., None]).astype(np.uint8)
    return coloured


def _scaled(pixels: Array, plane: Plane, pixel_mm: float) -> Array:
    """(h, w, 3) at square pixels of a given size, by nearest neighbour."""
    picks = []
    for count, spacing in zip(pixels.shape[:2], plane.spacing_mm, strict=True):
        size = max(1, round(count * spacing / pixel_mm))
        picks.append(((np.arange(size) + 0.5) * count / size).astype(int))
    scaled: Array = pixels[np.ix_(*picks)]
    return scaled


def _side_by_side(tiles: Sequence[Array]) -> Array:
    height = max(tile.shape[0] for tile in tiles)
    width = sum(tile.shape[1] for tile in tiles) + GAP * (len(tiles) - 1)
    canvas = np.zeros((height, width, 3), np.uint8)
    left = 0
    for tile in tiles:
        top = (height - tile.shape[0]) // 2
        canvas[top : top + tile.shape[0], left : left + tile.shape[1]] = tile
        left += tile.shape[1] + GAP
    return canvas


def _png(pixels: Array) -> bytes:
    """(h, w, 3) uint8 pixels as a PNG file."""
    from PIL import Image as Pillow  # loaded when a picture is made, since every image imports this module

    stream = io.BytesIO()
    Pillow.fromarray(pixels).save(stream, format="PNG")
    return stream.getvalue()

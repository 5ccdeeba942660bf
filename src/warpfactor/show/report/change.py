"""The page of a longitudinal run: what changed since the first scan, as maps and as a table."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import matplotlib
import numpy as np

from warpfactor import __version__
from warpfactor.geometry.image import Image
from warpfactor.geometry.planes import shown_range
from warpfactor.show.plot.maps import DIVERGING
from warpfactor.show.plot.panels import Panels, gray
from warpfactor.show.report.page import environment
from warpfactor.show.report.sheets import data_url

DPI = 110
FULL_SCALE = 0.1  # of the logarithm: colours stand for 10 % either way
LEAST = 0.005  # changes below this are not coloured


class StructureFigures(Protocol):
    """What a row of the table says of a structure."""

    @property
    def voxels(self) -> int: ...

    @property
    def percent(self) -> float: ...


@dataclass(frozen=True)
class ChangePage:
    """A scan on the page.

    Attributes:
        name: of the scan.
        scan: in the common space.
        log_change: map of its log Jacobian relative to the first.
        mean_absolute_log: its mean absolute value in the object.
        rows: name and figures of every structure.
    """

    name: str
    scan: Image
    log_change: Image
    mean_absolute_log: float
    rows: Sequence[tuple[str, StructureFigures]]


def render_change(first: Image, mean: Image, pages: Sequence[ChangePage], warnings: Sequence[str]) -> str:
    """The whole page as HTML; it loads nothing.

    Args:
        first: the first scan in the common space.
        mean: of all scans there.
    """
    shown = [
        {
            "name": page.name,
            "picture": data_url(_picture(first, mean, page), "png"),
            "spread": f"{100 * page.mean_absolute_log:.2f}",
            "rows": [(name, f"{found.voxels}", f"{found.percent:+.2f}") for name, found in page.rows],
        }
        for page in pages
    ]
    template = environment().get_template("change.html.jinja")
    return template.render(version=__version__, first=first.name, scans=shown, warnings=warnings, scale=10)


def _picture(first: Image, mean: Image, page: ChangePage) -> bytes:
    """Rows of planes: the first scan, the later one, and the change on the mean; a PNG file."""
    panels = Panels(mean.grid, None, rows=3, bar=True)
    for row, image in enumerate((first, page.scan)):
        volume = np.nan_to_num(image.data[0].numpy())
        panels.show(gray(volume, shown_range(volume)), row, cmap="gray", vmin=0, vmax=1)
        panels.title(image.name, row)
    volume = np.nan_to_num(mean.data[0].numpy())
    panels.show(gray(volume, shown_range(volume)), 2, cmap="gray", vmin=0, vmax=1)
    change = page.log_change.data[0].numpy()
    colours = matplotlib.colormaps[DIVERGING].with_extremes(bad=(0, 0, 0, 0))
    seen = np.where(np.abs(change) >= LEAST, change, np.nan)
    drawn = panels.show(seen, 2, cmap=colours, vmin=-FULL_SCALE, vmax=FULL_SCALE, alpha=0.7)
    panels.bar(drawn, "log Jacobian since the first scan", extend="both")
    panels.title("change, on the mean of all scans", 2)
    stream = io.BytesIO()
    panels.figure.savefig(stream, format="png", dpi=DPI)
    return stream.getvalue()

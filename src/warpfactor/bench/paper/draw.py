"""Building blocks of the experiments' plots: a grid of panels, curves with intervals, one legend."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from warpfactor.bench.score.plots import add_legend, save, style

PANEL = (4.4, 3.5)  # inches
WIDE = 30  # ratio of the ends of a logarithmic axis beyond which only powers of ten are labelled


class PanelGrid:
    """Panels in rows and columns; panels that are not used stay hidden."""

    def __init__(self, rows: int, columns: int, *, panel: tuple[float, float] = PANEL) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        self._figure = Figure(figsize=(panel[0] * columns, panel[1] * rows + 0.5), layout="constrained")
        FigureCanvasAgg(self._figure)
        self._grid = self._figure.subplots(rows, columns, squeeze=False)
        for axes in self._grid.flat:
            axes.set_visible(False)

    def axes(self, row: int, column: int, *, title: str, x: str, y: str) -> Any:
        """Make a panel visible and return its axes."""
        axes = self._grid[row][column]
        axes.set_visible(True)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.grid(alpha=0.25)
        axes.set_axisbelow(True)
        return axes

    def save(self, path: Path) -> Path:
        """Write the plot with one legend for all panels."""
        handles: dict[str, Any] = {}
        for axes in self._grid.flat:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
        add_legend(self._figure, handles)
        return save(self._figure, path)


def curve(
    axes: Any,
    number: int,
    label: str,
    points: Sequence[tuple[float, float]],
    *,
    band: Sequence[tuple[float, float]] | None = None,
    dashed: bool = False,
) -> None:
    """Draw a curve with markers in the n-th style.

    Args:
        axes: Panel.
        number: Number of the style.
        label: Name in the legend.
        points: Points (x, y).
        band: Lower and upper end of an interval at each point, drawn as a band.
        dashed: Whether the line is dashed, so that a line beneath it remains visible.
    """
    colour, marker = style(number)
    xs = [x for x, _ in points]
    line = "--" if dashed else "-"
    axes.plot(xs, [y for _, y in points], color=colour, marker=marker, markersize=4, ls=line, label=label)
    if band is not None:
        axes.fill_between(xs, [low for low, _ in band], [high for _, high in band], color=colour, alpha=0.15, lw=0)


def cloud(axes: Any, number: int, label: str, points: Sequence[tuple[float, float]]) -> None:
    """Draw points in the n-th style."""
    colour, marker = style(number)
    axes.scatter([x for x, _ in points], [y for _, y in points], s=26, color=colour, marker=marker, label=label)


def diagonal(axes: Any) -> None:
    """Draw the line y = x across the current limits."""
    low = min(axes.get_xlim()[0], axes.get_ylim()[0])
    high = max(axes.get_xlim()[1], axes.get_ylim()[1])
    axes.plot([low, high], [low, high], color="0.6", lw=1, zorder=0)


def reference(axes: Any, label: str, points: Sequence[tuple[float, float]]) -> None:
    """Draw a published curve in grey."""
    axes.plot([x for x, _ in points], [y for _, y in points], color="0.55", lw=1.2, ls=":", label=label, zorder=0)


def make_logarithmic(axes: Any) -> None:
    """Make the x axis logarithmic, with plain numbers at no more ticks than fit."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0,) if high / low > WIDE else (1.0, 2.0, 3.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())

"""What the figures of the experiments share: a grid of axes, curves with intervals, one legend below all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from warpfactor.bench.score.figures import add_legend, save, style
from warpfactor.bench.score.metric import Metric

PANEL = (4.4, 3.5)  # inches
WIDE = 30  # ratio of the ends of a logarithmic axis from which powers of ten are numbers enough


class Sheet:
    """Axes in rows and columns; those that nobody asks for stay hidden."""

    def __init__(self, rows: int, columns: int, *, panel: tuple[float, float] = PANEL) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        self._figure = Figure(figsize=(panel[0] * columns, panel[1] * rows + 0.5), layout="constrained")
        FigureCanvasAgg(self._figure)
        self._grid = self._figure.subplots(rows, columns, squeeze=False)
        for axes in self._grid.flat:
            axes.set_visible(False)

    def axes(self, row: int, column: int, *, title: str, x: str, y: str) -> Any:
        """One panel, ready to draw into."""
        axes = self._grid[row][column]
        axes.set_visible(True)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.grid(alpha=0.25)
        axes.set_axisbelow(True)
        return axes

    def save(self, path: Path) -> Path:
        """Write the picture, with the names of all panels below it once."""
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
    """A line with markers in the n-th style, and the band between two values at each point.

    Args:
        dashed: so that a line below it shows.
    """
    colour, marker = style(number)
    xs = [x for x, _ in points]
    line = "--" if dashed else "-"
    axes.plot(xs, [y for _, y in points], color=colour, marker=marker, markersize=4, ls=line, label=label)
    if band is not None:
        axes.fill_between(xs, [low for low, _ in band], [high for _, high in band], color=colour, alpha=0.15, lw=0)


def cloud(axes: Any, number: int, label: str, points: Sequence[tuple[float, float]]) -> None:
    """Points in the n-th style."""
    colour, marker = style(number)
    axes.scatter([x for x, _ in points], [y for _, y in points], s=26, color=colour, marker=marker, label=label)


def diagonal(axes: Any) -> None:
    """The line of equal values, across what is drawn so far."""
    low = min(axes.get_xlim()[0], axes.get_ylim()[0])
    high = max(axes.get_xlim()[1], axes.get_ylim()[1])
    axes.plot([low, high], [low, high], color="0.6", lw=1, zorder=0)


def named(metric: Metric) -> str:
    """A figure for an axis, with the direction that is better."""
    return metric.title + {True: " (higher is better)", False: " (lower is better)", None: ""}[metric.higher_is_better]


def reference(axes: Any, label: str, points: Sequence[tuple[float, float]]) -> None:
    """A line of somebody else's, in grey."""
    axes.plot([x for x, _ in points], [y for _, y in points], color="0.55", lw=1.2, ls=":", label=label, zorder=0)


def make_logarithmic(axes: Any) -> None:
    """A logarithmic x axis with plain numbers, no more of them than fit."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0,) if high / low > WIDE else (1.0, 2.0, 3.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())

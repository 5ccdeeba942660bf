"""Scatter plots of one measure against another by method, in colours that are safe for colour-blind readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpfactor.bench.score.measures import Measure
from warpfactor.io import atomic_path

# Palette of Okabe and Ito without yellow, which is too pale on white. Combined with the markers it gives 49 styles.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DPI = 150


@dataclass(frozen=True)
class Panel:
    """A scatter plot: one point per case and method, and a large marker for the mean of each method.

    Attributes:
        title: Title of the plot.
        x: Measure on the x axis.
        y: Measure on the y axis.
        points: By method, the values (x, y) of each case.
        log_x: Whether the x axis is logarithmic.
    """

    title: str
    x: Measure
    y: Measure
    points: Mapping[str, Sequence[tuple[float, float]]]
    log_x: bool = False


def style(number: int) -> tuple[str, str]:
    """Colour and marker of the n-th method."""
    return COLOURS[number % len(COLOURS)], MARKERS[(number // len(COLOURS) + number) % len(MARKERS)]


def draw_scatters(rows: Sequence[Sequence[Panel]], path: Path) -> Path:
    """Draw rows of panels into one file; the suffix of its name determines the format."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width = max(len(row) for row in rows)
    figure = Figure(figsize=(5.2 * width, 4.0 * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(rows), width, squeeze=False)
    methods = list(dict.fromkeys(method for row in rows for panel in row for method in panel.points))
    for axes_row, row in zip(grid, rows, strict=True):
        for axes, panel in zip(axes_row, row, strict=False):
            _draw(axes, panel, methods)
        for axes in axes_row[len(row) :]:
            axes.set_visible(False)
    legends = [axes.get_legend_handles_labels() for axes in grid.flat]
    named = {label: handle for handles, labels in legends for handle, label in zip(handles, labels, strict=True)}
    add_legend(figure, named, title="small markers: pairs; large markers: means")
    return save(figure, path)


def add_legend(figure: Any, named: Mapping[str, Any], *, title: str | None = None) -> None:
    """Add one legend below all panels, with as many columns as fit the width of the figure.

    Args:
        figure: The figure.
        named: Handles by label.
        title: Title of the legend.
    """
    renderer = figure.canvas.get_renderer()
    for columns in range(min(5, len(named)), 0, -1):
        legend = figure.legend(
            list(named.values()), list(named), loc="outside lower center", ncols=columns, frameon=False, title=title
        )
        if columns == 1 or legend.get_window_extent(renderer).width < figure.bbox.width:
            return
        legend.remove()


def save(figure: Any, path: Path) -> Path:
    """Write a figure atomically and return its path."""
    with atomic_path(path, force=True) as temporary:
        figure.savefig(temporary, dpi=DPI)
    return path


def _draw(axes: Any, panel: Panel, methods: Sequence[str]) -> None:
    for method, points in panel.points.items():
        colour, marker = style(methods.index(method))
        known = [(x, y) for x, y in points if x == x and y == y]
        xs, ys = [x for x, _ in known], [y for _, y in known]
        axes.scatter(xs, ys, s=14, color=colour, marker=marker, alpha=0.45, linewidths=0)
        middle = ([sum(xs) / len(xs)], [sum(ys) / len(ys)]) if known else ([], [])
        axes.scatter(*middle, s=90, color=colour, marker=marker, edgecolors="white", label=method, zorder=3)
    if panel.log_x and any(x > 0 for points in panel.points.values() for x, _ in points):  # times may be missing
        _make_logarithmic(axes.xaxis)
    axes.set_title(panel.title, fontsize=10)
    axes.set_xlabel(panel.x.axis_title)
    axes.set_ylabel(panel.y.axis_title)
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)


def _make_logarithmic(axis: Any) -> None:
    """Make the x axis logarithmic, with plain numbers at the ticks."""
    axis.axes.set_xscale("log")
    for place in (axis.set_major_formatter, axis.set_minor_formatter):
        place(lambda value, _: f"{value:g}")

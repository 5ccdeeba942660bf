"""Figures of benchmarks: one figure against another, method by method; colours that colour-blind people tell apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpfactor.bench.score.metric import Metric
from warpfactor.io import atomic_path

# Okabe and Ito's palette without its yellow, which is too pale on white; with the markers 49 methods differ.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DPI = 150


@dataclass(frozen=True)
class Panel:
    """One scatter plot: a cloud per method, its mean as a large marker.

    Attributes:
        title: above it.
        x, y: what the axes are.
        points: by method, (x, y) per case.
        log_x: whether the x axis is logarithmic.
    """

    title: str
    x: Metric
    y: Metric
    points: Mapping[str, Sequence[tuple[float, float]]]
    log_x: bool = False


def style(number: int) -> tuple[str, str]:
    """Colour and marker of the n-th method."""
    return COLOURS[number % len(COLOURS)], MARKERS[(number // len(COLOURS) + number) % len(MARKERS)]


def draw_scatters(rows: Sequence[Sequence[Panel]], path: Path) -> Path:
    """Draw rows of panels into one picture; the format follows from the name."""
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
    add_legend(figure, named, title="small marks: pairs; large marks: means")
    return save(figure, path)


def add_legend(figure: Any, named: Mapping[str, Any], *, title: str | None = None) -> None:
    """One legend below all panels, in as many columns as the figure is wide enough for.

    Args:
        named: handles by label.
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
    """Write a figure, whole or not at all."""
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
    if panel.log_x and any(x > 0 for points in panel.points.values() for x, _ in points):  # none if times are missing
        _make_logarithmic(axes.xaxis)
    axes.set_title(panel.title, fontsize=10)
    axes.set_xlabel(_with_direction(panel.x))
    axes.set_ylabel(_with_direction(panel.y))
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)


def _make_logarithmic(axis: Any) -> None:
    """Logarithmic, with plain numbers beside the ticks."""
    axis.axes.set_xscale("log")
    for place in (axis.set_major_formatter, axis.set_minor_formatter):
        place(lambda value, _: f"{value:g}")


def _with_direction(metric: Metric) -> str:
    arrow = {True: " (higher is better)", False: " (lower is better)", None: ""}[metric.higher_is_better]
    return metric.title + arrow

"""The picture of `bench speed`: time and memory of an iteration per voxel over the size of the images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from warpfactor.bench.score.figures import add_legend, save, style
from warpfactor.bench.speed.main import Measurement
from warpfactor.bench.speed.tables import NAMES, is_plain


def draw(measurements: Sequence[Measurement], path: Path) -> Path | None:
    """Two panels per metric; None if no cube was measured."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    cubes = [m for m in measurements if is_plain(m) and m.job.size and m.figures]
    metrics = list(dict.fromkeys(m.job.metric for m in cubes))
    if not metrics:
        return None
    figure = Figure(figsize=(4.6 * len(metrics), 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(2, len(metrics), squeeze=False)
    for column, metric in enumerate(metrics):
        chosen = [m for m in cubes if m.job.metric == metric]
        _draw(grid[0][column], chosen, "seconds", 1e9, f"{metric.upper()}: time", "ns per voxel and iteration")
        _draw(grid[1][column], chosen, "peak_bytes", 1.0, f"{metric.upper()}: memory", "peak bytes per voxel")
    handles, labels = grid[0][0].get_legend_handles_labels()
    add_legend(figure, dict(zip(labels, handles, strict=True)))
    return save(figure, path)


def _draw(axes: Any, chosen: Sequence[Measurement], name: str, factor: float, title: str, unit: str) -> None:
    optimizers = list(dict.fromkeys(m.job.optimizer for m in chosen))
    for number, optimizer in enumerate(optimizers):
        colour, marker = style(number)
        points = [
            (m.job.size, factor * m.figures[name] / m.figures["voxels"])
            for m in chosen
            if m.job.optimizer == optimizer and m.figures[name] is not None
        ]
        axes.plot([x for x, _ in points], [y for _, y in points], color=colour, marker=marker, label=NAMES[optimizer])
    sizes = sorted({m.job.size for m in chosen})
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    start_at_zero(axes)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("N of N x N x N voxels")
    axes.set_ylabel(unit)
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)


def start_at_zero(axes: Any) -> None:
    """A y axis from zero to a little above the highest point, so that no marker is cut."""
    axes.set_ylim(0, 1.08 * axes.dataLim.y1 if axes.dataLim.y1 > 0 else None)

"""Cost and damping over the iterations of every stage."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from warpfactor.errors import InputError
from warpfactor.show.plot.panels import Picture
from warpfactor.show.plot.source import Result, stages_of
from warpfactor.show.wording import metric_title

REJECTED = "rejected step"
STAGE_INCHES, HEIGHT_INCHES = 4.0, 4.2
COST_COLOUR, DAMPING_COLOUR, REJECTED_COLOUR, LEVEL_COLOUR = "#1f4e79", "#1b7837", "#c0392b", "#888888"


def curves(result: Result) -> Figure:
    """Cost (above) and damping (below) over all trial steps, one column per stage; lines separate the levels.

    Args:
        result: what `register` or `read_result` returned.
    """
    stages = [stage for stage in stages_of(result) if stage["history"].get("cost")]
    if not stages:
        raise InputError(
            "This result has no iterations to draw, because no stage ran; register with a recipe that has stages."
        )
    figure = Picture(figsize=(STAGE_INCHES * len(stages), HEIGHT_INCHES), layout="constrained", facecolor="white")
    axes = figure.subplots(2, len(stages), squeeze=False, sharex="col", height_ratios=(2, 1))
    for number, stage in enumerate(stages):
        _draw_stage(axes[0, number], axes[1, number], stage)
    crosses = [line for column in axes[0] for line in column.lines if line.get_label() == REJECTED]
    if crosses:
        figure.legend(handles=crosses[:1], loc="outside lower right", frameon=False, fontsize=8)
    axes[0, 0].set_ylabel("cost")
    axes[1, 0].set_ylabel("damping")
    return figure


def _draw_stage(above: Axes, below: Axes, stage: dict[str, Any]) -> None:
    history = {name: np.asarray(values) for name, values in stage["history"].items()}
    cost, damping = history["cost"].astype(float), history["damping"].astype(float)
    kept = history["accepted"].astype(bool)
    index = np.arange(len(cost))
    starts = np.flatnonzero(_changes(history)).tolist()
    for begin, end in zip(starts, [*starts[1:], len(cost)], strict=True):  # costs of two levels are not comparable
        part = np.arange(begin, end)
        above.plot(part[kept[part]], cost[part[kept[part]]], color=COST_COLOUR, linewidth=1.5)
        below.plot(part, damping[part], color=DAMPING_COLOUR, linewidth=1.5)
        for axes in (above, below):
            axes.axvline(begin, color=LEVEL_COLOUR, linewidth=0.6, linestyle=":")
        if begin == 0 or history["level"][begin] != history["level"][begin - 1]:
            text = f" level {history['level'][begin]:g}"
            above.annotate(text, (begin, 1.0), xycoords=("data", "axes fraction"), va="top", fontsize=7)
    if not kept.all():
        above.plot(index[~kept], cost[~kept], "x", color=REJECTED_COLOUR, markersize=4, label=REJECTED)
    if (damping[np.isfinite(damping)] > 0).all() and damping.max() > damping.min():
        below.set_yscale("log")
    above.margins(y=0.12)  # room for the names of the levels
    below.set_xlabel("trial steps")
    above.set_title(f"{stage['name']}, {metric_title(stage['metric'])}", fontsize=10)


def _changes(history: dict[str, Any]) -> Any:
    """Whether each iteration is the first of its level and group of motions."""
    first = np.zeros(len(history["level"]), bool)
    first[0] = True
    for name in ("level", "stage"):
        first[1:] |= history[name][1:] != history[name][:-1]
    return first

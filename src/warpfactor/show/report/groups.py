"""Figures of groups of results: how they are distributed, and how many have which verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from warpfactor.checks.limits import AMBER, GREEN, RED
from warpfactor.show.report import charts

if TYPE_CHECKING:
    from warpfactor.show.report.summary import SummaryColumn, SummaryRow

DRAWN = ("dice", "landmark_mm", "sd_log", "correlation")  # figures that have a chart


def group_figures(rows: Sequence[SummaryRow], columns: Sequence[SummaryColumn]) -> dict[str, Any]:
    """What the page shows of groups: a line per group with medians and quartiles, and a chart per figure."""
    names = sorted({row.group for row in rows})
    members = {name: [row for row in rows if row.group == name] for name in names}
    return {
        "lines": [_line(name, members[name], columns) for name in names],
        "charts": [
            {"title": column.title, "svg": Markup(_chart(column, members))}  # charts escape their text
            for column in columns
            if column.key in DRAWN
        ],
    }


def _line(name: str, rows: Sequence[SummaryRow], columns: Sequence[SummaryColumn]) -> dict[str, Any]:
    return {
        "name": name or "all",
        "counts": {level: sum(row.level == level for row in rows) for level in (GREEN, AMBER, RED)},
        "cells": [_quartiles(_values(column, rows), column.digits) for column in columns],
    }


def _values(column: SummaryColumn, rows: Sequence[SummaryRow]) -> list[float]:
    found = [row.figure(column.key) for row in rows]
    return [value for value in found if value is not None]


def _quartiles(values: Sequence[float], digits: int) -> tuple[str, str]:
    """Median, and lower and upper quartile."""
    if not values:
        return "–", ""
    low, middle, high = (float(v) for v in np.percentile(values, (25, 50, 75)))
    return f"{middle:.{digits}f}", f"{low:.{digits}f} to {high:.{digits}f}"


def _chart(column: SummaryColumn, members: Mapping[str, Sequence[SummaryRow]]) -> str:
    values = {name or "all": _values(column, rows) for name, rows in members.items()}
    unit = f"{column.title}, {column.unit}" if column.unit else column.title
    return charts.strips({name: each for name, each in values.items() if each}, unit)

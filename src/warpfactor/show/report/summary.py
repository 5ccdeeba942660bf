"""The summary: a table of many results on one page, the worst first, with thumbnails and links to the reports.

The figures are read from the reports, so that a summary of hundreds of results takes seconds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np

from warpfactor import __version__
from warpfactor.checks.limits import AMBER, GREEN, RED
from warpfactor.errors import FileError
from warpfactor.show.report.groups import group_figures
from warpfactor.show.report.page import FACTS_FORMAT, environment

REPORT, RESULT = "report.html", "result.json"
BEGIN, END = '<script type="application/json" id="facts">', "</script>"
FEWEST = 5  # number of results that is needed to find outliers
OUTLIER = 3.5  # robust standard deviations
FLOOR = 0.05  # of the median: smaller deviations are not outliers
_RANK = {RED: 0, AMBER: 1, GREEN: 2}


class SummaryColumn(NamedTuple):
    """A figure in the table.

    Attributes:
        key: in the facts of a report.
        title, unit, digits: as shown.
        bad: +1 if large values are bad, -1 if small values are, 0 if neither.
        floor: smaller deviations are not outliers; about a tenth of the amber limit of the check, if there is one.
        check: code of the check that judges this figure.
    """

    key: str
    title: str
    digits: int
    bad: int
    floor: float = 0.0
    unit: str = ""
    check: str = ""


COLUMNS = (
    SummaryColumn("correlation", "Local correlation", 2, -1, 0.03, check="similarity"),
    SummaryColumn("dice", "Dice", 3, -1, 0.01, check="labels"),
    SummaryColumn("landmark_mm", "Landmark error", 2, 1, 0.1, "mm", "landmarks"),
    SummaryColumn("coverage", "Overlap", 2, -1, 0.05, check="overlap"),
    SummaryColumn("sd_log", "SD log Jacobian", 2, 1, 0.07, "in the object", "regularity"),
    SummaryColumn("folded", "Folded voxels", 0, 1, 1.0, check="folds"),
    SummaryColumn("inverse_vox", "Inverse error", 2, 1, 0.05, "voxels, 95 %", "inverse"),
    SummaryColumn("displacement_mm", "Largest displacement", 1, 1, 1.0, "mm"),
    SummaryColumn("seconds", "Time", 1, 0, unit="s, registration"),
)


@dataclass(frozen=True)
class SummaryRow:
    """A result in the table.

    Attributes:
        folder: of the result.
        facts: the facts of its report, as `page.facts_of` wrote them.
        group: with which its figures are taken together; empty if there are no groups.
    """

    folder: Path
    facts: Mapping[str, Any]
    group: str = ""

    @property
    def level(self) -> str:
        """Level of the verdict."""
        return str(self.facts["verdict"]["level"])

    def doubtful(self, check: str) -> bool:
        """Whether the verdict has a check of that code that is amber or red."""
        checks = self.facts["verdict"].get("checks", ())
        return any(c["code"] == check and c["level"] in (AMBER, RED) for c in checks)

    def figure(self, key: str) -> float | None:
        """A figure by its key; None if the result does not have it."""
        value = self.facts["figures"].get(key)
        return None if value is None else float(value)


class FailedRow(NamedTuple):
    """A registration that failed.

    Attributes:
        name: of the row.
        reason: as a sentence.
    """

    name: str
    reason: str


def find_results(places: Sequence[str | Path]) -> list[Path]:
    """The given result folders, and the result folders inside the other given folders; FileError if there are none."""
    found = []
    for place in map(Path, places):
        inside = [place] if (place / RESULT).is_file() else sorted(p.parent for p in place.glob(f"*/{RESULT}"))
        if not inside:
            raise FileError(f"{place}: contains no result; give folders that `warpfactor register` wrote.")
        found += inside
    return list(dict.fromkeys(found))


def read_facts(folder: Path, *, any_format: bool = False) -> dict[str, Any] | None:
    """The facts of the report in a folder; None if there is no report, or (by default) one of another format."""
    path = folder / REPORT
    try:
        text = path.read_text(encoding="utf-8")
        block = text.split(BEGIN, 1)[1].split(END, 1)[0]
        facts: dict[str, Any] = json.loads(block)
    except (OSError, UnicodeDecodeError, IndexError, json.JSONDecodeError):
        return None
    return facts if any_format or facts.get("format") == FACTS_FORMAT else None


def render_summary(
    rows: Sequence[SummaryRow], output: str | Path, *, failed: Sequence[FailedRow] = (), table: str = ""
) -> str:
    """The page as HTML; its links are relative to `output`, where it will be written.

    Args:
        rows: the results.
        output: the page.
        failed: registrations that have no result.
        table: name of a file beside the page that has all figures as CSV.
    """
    standing = outliers(rows)
    columns = [column for column in COLUMNS if any(row.figure(column.key) is not None for row in rows)]
    order = sorted(range(len(rows)), key=lambda i: (_RANK[rows[i].level], -max(standing[i].values(), default=0.0)))
    counts = {level: sum(row.level == level for row in rows) for level in (GREEN, AMBER, RED)}
    shown = [_shown(rows[i], standing[i], columns, Path(output)) for i in order]
    template = environment().get_template("summary.html.jinja")
    return template.render(
        version=__version__,
        rows=shown,
        columns=columns,
        counts=counts,
        total=len(rows) + len(failed),
        failed=failed,
        table=table,
        groups=group_figures(rows, columns) if len(rows) >= FEWEST else None,
    )


def outliers(rows: Sequence[SummaryRow]) -> list[dict[str, float]]:
    """For each row the figures that are outliers on their bad side, with their distance in robust deviations."""
    found: list[dict[str, float]] = [{} for _ in rows]
    for column in COLUMNS:
        values = [row.figure(column.key) for row in rows]
        known = np.array([value for value in values if value is not None])
        if column.bad == 0 or known.size < FEWEST:
            continue
        middle = float(np.median(known))
        scale = max(1.4826 * float(np.median(np.abs(known - middle))), FLOOR * abs(middle), column.floor)
        for row, value in zip(found, values, strict=True):
            apart = 0.0 if value is None else column.bad * (value - middle) / scale
            if apart > OUTLIER:
                row[column.key] = apart
    return found


def _shown(
    row: SummaryRow, standing: Mapping[str, float], columns: Sequence[SummaryColumn], output: Path
) -> dict[str, Any]:
    facts = row.facts
    return {
        "name": row.folder.name,
        "link": _link(row.folder / REPORT, output) if (row.folder / REPORT).is_file() else "",
        "pair": f"{facts['moving']} → {facts['fixed']}",
        "level": row.level,
        "rank": _RANK[row.level],
        "headline": facts["verdict"]["headline"],
        "reasons": facts["verdict"]["reasons"],
        "thumbnail": facts.get("thumbnail", ""),
        "group": row.group,
        "cells": list(_cells(row, standing, columns)),
    }


def _cells(
    row: SummaryRow, standing: Mapping[str, float], columns: Sequence[SummaryColumn]
) -> Iterator[dict[str, Any]]:
    for column in columns:
        value = row.figure(column.key)
        yield {
            "value": "" if value is None else repr(value),
            "text": "–" if value is None else f"{value:.{column.digits}f}",
            "mark": _mark(row, column, standing),
        }


def _mark(row: SummaryRow, column: SummaryColumn, standing: Mapping[str, float]) -> str:
    """Why a figure is marked; empty if it is not."""
    if row.doubtful(column.check):
        return "its check is not green"
    return "outlier among these results" if column.key in standing else ""


def _link(target: Path, output: Path) -> str:
    """Link from one file to another."""
    try:
        relative = Path(os.path.relpath(target.absolute(), output.absolute().parent))
    except ValueError:  # another drive
        return target.absolute().as_uri()
    return quote(relative.as_posix())


def unreadable(folder: Path, why: str) -> SummaryRow:
    """The row of a result whose report cannot be made."""
    verdict = {"level": RED, "headline": "Cannot be read", "reasons": [why], "checks": []}
    figures = dict.fromkeys(column.key for column in COLUMNS)
    return SummaryRow(folder, {"fixed": "?", "moving": "?", "verdict": verdict, "figures": figures, "thumbnail": ""})

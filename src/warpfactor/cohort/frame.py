"""The results of a cohort as a pandas frame and as a CSV file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warpfactor.cohort.job import DONE, Outcome
from warpfactor.cohort.store import Store
from warpfactor.cohort.table.row import CohortRow
from warpfactor.io import atomic_path
from warpfactor.show.report.summary import COLUMNS, read_facts

if TYPE_CHECKING:
    import pandas


def frame_of(rows: Sequence[CohortRow], outcomes: Sequence[Outcome], store: Store) -> pandas.DataFrame:
    """One line per row: name, group, state, reason, verdict and every figure of its report."""
    import pandas

    lines = [_line(row, outcome, store) for row, outcome in zip(rows, outcomes, strict=True)]
    return pandas.DataFrame(lines, columns=list(lines[0]))


def write_frame(frame: pandas.DataFrame, path: Path) -> None:
    """Write the frame as CSV."""
    with atomic_path(path, force=True) as temporary:
        frame.to_csv(temporary, index=False)


def _line(row: CohortRow, outcome: Outcome, store: Store) -> dict[str, Any]:
    folder = store.result(row.name)
    facts = (read_facts(folder) if outcome.state == DONE else None) or {}
    figures = facts.get("figures", {})
    return {
        "name": row.name,
        "group": row.group,
        "state": outcome.state,
        "reason": outcome.reason,
        "verdict": outcome.verdict,
        "headline": facts.get("verdict", {}).get("headline", ""),
        **{column.key: figures.get(column.key) for column in COLUMNS},
        "fixed": ";".join(str(path) for path in row.fixed),
        "moving": ";".join(str(path) for path in row.moving),
        "folder": str(folder),
    }

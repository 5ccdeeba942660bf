"""The page of a cohort: the summary of its results, with group figures and the rows that failed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from warpfactor.cohort.job import DONE, FAILED, Outcome
from warpfactor.cohort.store import Store
from warpfactor.cohort.table.row import CohortRow
from warpfactor.io import atomic_path
from warpfactor.registration.report import summary_row
from warpfactor.show.report.summary import FailedRow, render_summary


def write_page(
    rows: Sequence[CohortRow], outcomes: Sequence[Outcome], store: Store, output: Path, *, table: str = ""
) -> None:
    """Write the page; it replaces that of an earlier run.

    Args:
        rows, outcomes: of all rows.
        store: where their results are.
        output: the page.
        table: name of a CSV file beside the page that it leads to.
    """
    pairs = list(zip(rows, outcomes, strict=True))
    done = [summary_row(store.result(row.name), group=row.group) for row, outcome in pairs if outcome.state == DONE]
    failed = [FailedRow(row.name, outcome.reason) for row, outcome in pairs if outcome.state == FAILED]
    with atomic_path(output, force=True) as temporary:
        temporary.write_text(render_summary(done, output, failed=failed, table=table), encoding="utf-8")

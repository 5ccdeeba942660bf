"""`run`: a whole cohort, from a table to result folders, a frame, a CSV file and a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warpfactor.cohort.engine.engine import engine_problems, open_engine
from warpfactor.cohort.engine.settings import EngineSettings
from warpfactor.cohort.events import CohortWatcher
from warpfactor.cohort.frame import frame_of, write_frame
from warpfactor.cohort.job import JobOptions, Outcome, option_problems
from warpfactor.cohort.memory import memory_problems
from warpfactor.cohort.page import write_page
from warpfactor.cohort.rows import make_jobs, needed_bytes, plan_jobs, run_jobs
from warpfactor.cohort.store import Store
from warpfactor.cohort.table.check import row_problems
from warpfactor.cohort.table.gather import gather
from warpfactor.cohort.table.row import CohortError, CohortRow
from warpfactor.cohort.table.template import BidsFilter, Template
from warpfactor.errors import WarpfactorError
from warpfactor.io import check_folder
from warpfactor.recipebook.recipe import Recipe

if TYPE_CHECKING:
    import pandas

RESULTS, SUMMARY = "results.csv", "summary.html"


def run(  # noqa: PLR0913 - the entry point takes every choice; all but the table and the folder have defaults
    table: Any,
    output: str | Path,
    *,
    template: str | Path | Template | None = None,
    bids: BidsFilter | None = None,
    recipe: str | Recipe = "default",
    overrides: Mapping[str, Any] | None = None,
    options: JobOptions | None = None,
    engine: EngineSettings | None = None,
    retry_failed: bool = False,
    watch: CohortWatcher | None = None,
) -> pandas.DataFrame:
    """Register every row of a table and return a frame of results.

    The output folder has a result folder for every row, `results.csv` and `summary.html`. A second run does only what
    is missing or has changed. A row that fails is recorded with its reason, and the others go on.

    In a script, call this under `if __name__ == "__main__":`, because workers are processes that import the script.

    Args:
        table: a table (.csv, .tsv), a pandas frame or a list of dictionaries with the columns of such a table; or
            images, patterns of images or the folder of a BIDS dataset, which are registered to the template.
        output: folder of the results.
        template: the fixed image of all rows, or a Template with its mask, labels and so on.
        bids: which images of a BIDS dataset to take.
        recipe, overrides: as for `register`; a row may name its own recipe and change settings.
        options: further choices for all registrations.
        engine: where to run; by default on processes of this machine.
        retry_failed: whether to try rows again that failed before.
        watch: called with a CohortEvent at the start and after every row.
    """
    how, place = options or JobOptions(), engine or EngineSettings()
    rows = checked_rows(
        table, output, template=template, bids=bids, recipe=recipe, overrides=overrides, options=how, engine=place
    )
    store = Store(Path(output))
    outcomes = run_rows(rows, store, recipe, overrides or {}, how, place, retry_failed=retry_failed, watch=watch)
    return conclude(rows, outcomes, store, page=how.report)


def run_rows(
    rows: Sequence[CohortRow],
    store: Store,
    recipe: str | Recipe,
    overrides: Mapping[str, Any],
    options: JobOptions,
    engine: EngineSettings,
    *,
    retry_failed: bool = False,
    watch: CohortWatcher | None = None,
) -> list[Outcome]:
    """Do what is missing or changed of rows that were checked, on an engine of their own; all outcomes, in order."""
    store.prepare()
    plans = plan_jobs(make_jobs(rows, store.folder, recipe, overrides, options), retry_failed=retry_failed)
    jobs = [plan.job for plan in plans if plan.shown.needed]
    if not jobs:
        return run_jobs(plans, None, watch)
    with open_engine(engine, need_bytes=needed_bytes(jobs), jobs=len(jobs)) as opened:
        return run_jobs(plans, opened, watch)


def conclude(rows: Sequence[CohortRow], outcomes: Sequence[Outcome], store: Store, *, page: bool) -> pandas.DataFrame:
    """Write the table and, if there are reports, the page of rows that were run; return the table as a frame."""
    frame = frame_of(rows, outcomes, store)
    write_frame(frame, store.folder / RESULTS)
    if page:
        write_page(rows, outcomes, store, store.folder / SUMMARY, table=RESULTS)
    return frame


def checked_rows(
    table: Any,
    output: str | Path,
    *,
    template: str | Path | Template | None,
    bids: BidsFilter | None,
    recipe: str | Recipe,
    overrides: Mapping[str, Any] | None,
    options: JobOptions,
    engine: EngineSettings,
) -> tuple[CohortRow, ...]:
    """The rows of a cohort; CohortError with everything that is wrong with them, with the engine and the folder."""
    wanted = _template(template)
    found = gather(table, wanted, bids)
    problems = [*found.problems, *row_problems(found.rows, recipe, overrides or {})]
    if not found.rows:  # that would name the template
        problems += [f"{path} does not exist." for path in (wanted.image if wanted else ()) if not path.exists()]
    if not problems and not found.rows:
        problems.append("The cohort has no rows; give a table with at least one line, or images.")
    refuse([*problems, *run_problems(found.rows, Path(output), options, engine)])
    return found.rows


def run_problems(rows: Sequence[CohortRow], output: Path, options: JobOptions, engine: EngineSettings) -> Iterator[str]:
    """What keeps rows from being run besides themselves: options, the engine, its memory, the output folder."""
    yield from option_problems(options, here=engine.local)
    yield from engine_problems(engine)
    yield from memory_problems(rows, engine)
    try:
        check_folder(output, force=True)
    except WarpfactorError as error:
        yield str(error)


def refuse(problems: Sequence[str]) -> None:
    """Raise a CohortError if there are problems."""
    if problems:
        raise CohortError(tuple(dict.fromkeys(problems)))


def _template(given: str | Path | Template | None) -> Template | None:
    return Template((Path(given),)) if isinstance(given, (str, Path)) else given

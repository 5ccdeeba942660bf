"""Run rows on an engine: decide what is missing or changed, send that to workers, and tell how it goes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from warpfactor.cohort.engine.engine import DIED, Crash, Engine
from warpfactor.cohort.events import CohortEvent, CohortWatcher, PlannedRow
from warpfactor.cohort.identity import Identity, differences
from warpfactor.cohort.job import (
    DONE,
    FAILED,
    MOST_DEATHS,
    POSTPONED,
    JobOptions,
    Outcome,
    RowJob,
    do_row,
    record_failure,
    verdict_of,
)
from warpfactor.cohort.memory import row_bytes
from warpfactor.cohort.store import ENTRY, Store
from warpfactor.cohort.table.check import row_recipe
from warpfactor.cohort.table.row import SEVERAL, SINGLE, CohortRow
from warpfactor.recipebook.recipe import Recipe

UP_TO_DATE = "up to date"
FRUITLESS_ROUNDS = 3  # after which jobs are given up whose workers die


@dataclass(frozen=True)
class RowPlan:
    """What is to be done about a row, with its job and what is known of it.

    Attributes:
        job: to send, if it is needed.
        shown: the decision.
        outcome: of an earlier run, if nothing is to be done.
    """

    job: RowJob
    shown: PlannedRow
    outcome: Outcome | None


def make_jobs(
    rows: Sequence[CohortRow], output: Path, recipe: str | Recipe, overrides: Mapping[str, Any], options: JobOptions
) -> list[RowJob]:
    """The jobs of rows; paths are absolute in them, as workers have other working directories."""
    place = output.absolute()
    return [RowJob(_absolute(row), row_recipe(row, recipe, overrides), options, place) for row in rows]


def plan_jobs(jobs: Sequence[RowJob], *, retry_failed: bool = False) -> list[RowPlan]:
    """Which jobs are needed, and why."""
    return [_plan(job, retry_failed=retry_failed) for job in jobs]


def needed_bytes(jobs: Sequence[RowJob]) -> int:
    """The most memory that one of the jobs needs."""
    return max((row_bytes(job.row) for job in jobs), default=0)


def run_jobs(plans: Sequence[RowPlan], engine: Engine | None, watch: CohortWatcher | None = None) -> list[Outcome]:
    """Do what is planned; the outcomes of all rows, in their order.

    Args:
        plans: of all rows.
        engine: that does it; not needed if nothing is to be done.
        watch: called with the plan and after every row.
    """
    tell = watch or (lambda _: None)
    jobs = [plan.job for plan in plans if plan.shown.needed]
    for job in jobs:
        Store(job.output).forget_deaths(job.name)
    known = {plan.job.name: plan.outcome for plan in plans if plan.outcome is not None}
    began, ended, failed = time.perf_counter(), 0, 0
    shown = tuple(plan.shown for plan in plans)
    workers = 0 if engine is None else engine.workers()
    tell(CohortEvent(0, len(jobs), 0, 0.0, workers, shown, "" if engine is None else engine.address))
    for outcome in iter(()) if engine is None else _outcomes(engine, jobs):
        known[outcome.name] = outcome
        ended += outcome.state != POSTPONED
        failed += outcome.state == FAILED
        workers = 0 if engine is None else engine.workers()
        tell(CohortEvent(ended, len(jobs), failed, time.perf_counter() - began, workers, outcome=outcome))
    return [known[plan.job.name] for plan in plans]


def _outcomes(engine: Engine, jobs: Sequence[RowJob]) -> Iterator[Outcome]:
    """The outcomes of jobs; those that found the disk full are tried once more, after all others."""
    postponed = []
    for job, outcome in _tried(engine, jobs):
        if outcome.state == POSTPONED:
            postponed.append(job)
        yield outcome
    for _, outcome in _tried(engine, postponed):
        yield replace(outcome, state=FAILED) if outcome.state == POSTPONED else outcome


def _tried(engine: Engine, jobs: Sequence[RowJob]) -> Iterator[tuple[RowJob, Outcome]]:
    """Every job with its outcome.

    Dask gives up a job when several workers have died that had it, even if it only waited there for its turn. Such a
    job is sent again, until workers have died at work on it, or until nothing has ended in several rounds.
    """
    rounds = FRUITLESS_ROUNDS
    while jobs:
        crashed, ended = list[RowJob](), False
        for job, result in engine.finished(do_row, jobs):
            if isinstance(result, Crash):
                crashed.append(job)
            else:
                ended = True
                yield job, result
        rounds = FRUITLESS_ROUNDS if ended else rounds - 1
        jobs = []
        for job in crashed:
            if rounds > 0 and Store(job.output).deaths(job.name) < MOST_DEATHS:
                jobs.append(job)
            else:
                record_failure(job, DIED)
                yield job, Outcome(job.name, FAILED, DIED)


def _plan(job: RowJob, *, retry_failed: bool) -> RowPlan:
    store = Store(job.output)
    known = store.finished(job.name)
    if known is not None:
        why = ", ".join(differences(known, job.identity(known)))
        if not why:
            done = Outcome(job.name, DONE, verdict=verdict_of(store.result(job.name)))
            return RowPlan(job, PlannedRow(job.name, False, UP_TO_DATE), done)
        return RowPlan(job, PlannedRow(job.name, True, why), None)
    failure = store.failure(job.name)
    if failure is None:
        exists = store.result(job.name).exists()
        return RowPlan(job, PlannedRow(job.name, True, "not from a cohort" if exists else "new"), None)
    return _plan_failed(job, failure, retry_failed=retry_failed)


def _plan_failed(job: RowJob, failure: Mapping[str, Any], *, retry_failed: bool) -> RowPlan:
    """A row that failed is tried again on request, or if something about it has changed."""
    reason = str(failure.get("reason", ""))
    known = Identity.from_dict(failure.get(ENTRY) or {})
    why = "unknown before" if known is None else ", ".join(differences(known, job.identity(known)))
    if retry_failed or why:
        return RowPlan(job, PlannedRow(job.name, True, why or f"failed before: {reason}"), None)
    return RowPlan(job, PlannedRow(job.name, False, f"failed before: {reason}"), Outcome(job.name, FAILED, reason))


def _absolute(row: CohortRow) -> CohortRow:
    several = {column: tuple(path.absolute() for path in getattr(row, column)) for column in SEVERAL}
    single = {column: getattr(row, column) for column in SINGLE if getattr(row, column) is not None}
    return replace(row, **several, **{column: path.absolute() for column, path in single.items()})  # type: ignore[arg-type]

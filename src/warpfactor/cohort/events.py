"""What a run of a cohort tells while it goes on, as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from warpfactor.cohort.job import Outcome


@dataclass(frozen=True)
class PlannedRow:
    """What is to be done about a row.

    Attributes:
        name: of the row.
        needed: whether it is registered in this run.
        why: the reason: "new", "moving changed", "up to date", "failed before: ...".
    """

    name: str
    needed: bool
    why: str


@dataclass(frozen=True)
class CohortEvent:
    """A step of a run: its plan (the first event), or a row that has ended.

    Attributes:
        ended: rows that have ended in this run.
        needed: rows that are to be registered in this run.
        failed: rows of `ended` that failed.
        seconds: since the rows were sent.
        workers: number of workers now.
        plan: of all rows; in the first event only.
        address: of Dask's dashboard; in the first event only.
        outcome: the row that has ended; None in the first event.
    """

    ended: int
    needed: int
    failed: int
    seconds: float
    workers: int
    plan: tuple[PlannedRow, ...] = ()
    address: str = ""
    outcome: Outcome | None = None

    @property
    def remaining_s(self) -> float | None:
        """Estimated time to the end; None while it is not known."""
        return None if self.ended == 0 else self.seconds / self.ended * (self.needed - self.ended)


CohortWatcher = Callable[[CohortEvent], None]

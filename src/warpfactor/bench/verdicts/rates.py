"""How often verdicts are wrong: false green and false alarm with their intervals, in two halves of the pairs.

A result is good or failing by its score alone. Scores of one kind are compared with the median of that kind's
registrations; what lies between good and failing is not counted. A warp of zero fails if it loses much of what the
registration of the same pair reached. All results of a pair are in the same half: limits are chosen by the first half,
and the rates of the second one are those that are quoted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from warpfactor.bench.score.tables import Table, TableColumn
from warpfactor.bench.verdicts.again import HALF_NOISE, STRONG_NOISE
from warpfactor.bench.verdicts.results import GIVEN_LANDMARKS, REGISTERED, SPOILT, no_warp
from warpfactor.checks.limits import GREEN

GOOD, FAILING, BETWEEN = "good", "failing", "between"
GOOD_OVERLAP, FAILING_OVERLAP = 0.9, 0.78  # of the median Dice of the kind
GOOD_ERROR, FAILING_ERROR = (1.6, 0.004), (2.5, 0.012)  # times the median landmark error, plus a share of the side
GOOD_MAP, FAILING_MAP = 0.02, 0.04  # error against a known map, as a share of the side
LOST_OVERLAP, LOST_ERROR = 0.9, (1.5, 0.004)  # against the registration of the same pair, without its warp
NEVER_GOOD = {HALF_NOISE, STRONG_NOISE, *(way.__name__ for way in SPOILT)}
KNOWN_MAP = ("hard", "bent")  # kinds whose truth is a map
Z = 1.959964  # of a 95 % interval


@dataclass(frozen=True)
class TrialRecord:
    """A result as it is kept: how it was made, its score, and what the verdict says.

    Attributes:
        pair, kind, how, score, better, meant: as in results.MadeResult.
        half: as in trial.PairSource.
        level: of the verdict.
        problems: codes of the checks that are not green.
        figures: of the checks.
    """

    pair: str
    kind: str
    how: str
    score: float | None
    better: int
    meant: str
    level: str
    problems: tuple[str, ...]
    figures: dict[str, Any]
    half: int = 1


@dataclass(frozen=True)
class ErrorRate:
    """A share of results with its 95 % interval (Wilson)."""

    wrong: int
    count: int

    @property
    def share(self) -> float:
        return self.wrong / self.count if self.count else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        if not self.count:
            return 0.0, 1.0
        n, p = self.count, self.share
        middle, spread = p + Z * Z / (2 * n), Z * math.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
        return max(0.0, (middle - spread) / (1 + Z * Z / n)), min(1.0, (middle + spread) / (1 + Z * Z / n))

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.wrong} of {self.count} ({self.share:.1%}, {low:.1%} to {high:.1%})"


def truths(records: Sequence[TrialRecord]) -> list[str]:
    """For every record whether it is good, failing or between, by its score and the scores of its kind and pair."""
    usual = [record for record in records if record.how == REGISTERED and record.score is not None]
    typical = {kind: float(np.median([r.score for r in usual if r.kind == kind])) for kind in {r.kind for r in usual}}
    own = {record.pair: record for record in usual}
    return [_truth(record, typical.get(record.kind, math.nan), own.get(record.pair)) for record in records]


def _loses_warp(record: TrialRecord, own: TrialRecord | None) -> bool:
    """Whether a result without its warp is much worse than the registration of the same pair."""
    if record.how != no_warp.__name__ or own is None or own.score is None or record.score is None:
        return False
    if record.better > 0:
        return record.score <= LOST_OVERLAP * own.score
    return record.score >= LOST_ERROR[0] * own.score + LOST_ERROR[1]


def _truth(record: TrialRecord, typical: float, own: TrialRecord | None) -> str:
    if record.meant:
        return record.meant
    if _loses_warp(record, own):
        return FAILING
    score = record.score
    if score is None or not math.isfinite(typical):
        return BETWEEN
    if record.kind in KNOWN_MAP:
        good, failing = GOOD_MAP, FAILING_MAP
    elif record.better > 0:
        good, failing = -GOOD_OVERLAP * typical, -FAILING_OVERLAP * typical
    else:
        good, failing = (times * typical + more for times, more in (GOOD_ERROR, FAILING_ERROR))
    loss = -score if record.better > 0 else score
    if record.how in NEVER_GOOD and loss < failing:  # harmless, but nobody would call it good
        return BETWEEN
    return GOOD if loss <= good else FAILING if loss >= failing else BETWEEN


def rates(records: Iterable[tuple[TrialRecord, str]]) -> tuple[ErrorRate, ErrorRate]:
    """False green, of the failing results; and false alarm, of the good ones."""
    found = list(records)
    failing = [record for record, truth in found if truth == FAILING]
    good = [record for record, truth in found if truth == GOOD]
    return (
        ErrorRate(sum(record.level == GREEN for record in failing), len(failing)),
        ErrorRate(sum(record.level != GREEN for record in good), len(good)),
    )


def rate_tables(records: Sequence[TrialRecord]) -> list[Table]:
    """Rates by half, by kind and by the way a result was spoilt."""
    judged = list(zip(records, truths(records), strict=True))
    halves = [("both", judged)] + [(str(h), [j for j in judged if j[0].half == h]) for h in (1, 2)]
    kinds = sorted({record.kind for record in records})
    ways = sorted({record.how for record in records} - {REGISTERED, GIVEN_LANDMARKS})
    by_half = [_row(name, chosen) for name, chosen in halves]
    by_kind = [_row(kind, [j for j in judged if j[0].kind == kind]) for kind in kinds]
    by_way = [_row(way, [j for j in judged if j[0].how == way]) for way in (REGISTERED, GIVEN_LANDMARKS, *ways)]
    return [
        _table("halves", "Rates by half", "half", by_half),
        _table("kinds", "Rates by kind", "kind", by_kind),
        _table("ways", "Rates by how a result was made", "made by", by_way),
    ]


def _row(name: str, judged: Sequence[tuple[TrialRecord, str]]) -> dict[str, Any]:
    green, alarm = rates(judged)
    between = sum(truth == BETWEEN for _, truth in judged)
    return {
        "name": name,
        "green": str(green) if green.count else "",
        "alarm": str(alarm) if alarm.count else "",
        "between": between,
    }


def _table(name: str, title: str, what: str, rows: Sequence[dict[str, Any]]) -> Table:
    columns = (
        TableColumn("name", what),
        TableColumn("green", "failing that are green"),
        TableColumn("alarm", "good that are not green"),
        TableColumn("between", "neither"),
    )
    return Table(name, title, columns, tuple(rows))

"""Comparison of methods over several kinds of images: one row per kind, and wins and losses against each method."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from warpfactor.bench.run.record import Run
from warpfactor.bench.score.accuracy import BEFORE, accuracy_of, by_case, values
from warpfactor.bench.score.measures import REGULARITY, Measure
from warpfactor.bench.score.stats import summarize
from warpfactor.bench.score.tables import Table, TableColumn, Value

DIGITS = 4


class WinCount(NamedTuple):
    """Wins and losses of a method against another one.

    Attributes:
        won: Number of comparisons in which the method is better, or in which only the other one failed.
        lost: Number of comparisons in which the method is worse, or in which only the method itself failed.
        tied: Number of comparisons with equal values.
    """

    won: int
    lost: int
    tied: int

    def __str__(self) -> str:
        return f"{self.won} / {self.lost}" + (f" / {self.tied}" if self.tied else "")


class _Kind(NamedTuple):
    """The runs of one kind: its measure of accuracy, and by method all runs and the accuracy by case."""

    name: str
    measure: Measure
    runs: Mapping[str, Sequence[Run]]
    accuracy: Mapping[str, Mapping[str, float]]


def kind_table(runs: Sequence[Run]) -> Table:
    """One row per kind: mean accuracy and regularity of every method, wins and losses, and worst cases.

    The first method is compared with the others. "Worst pair" is its worst pair. "Largest loss" is the pair on which it
    is furthest behind the best of the other methods, or least ahead of it.
    """
    methods = _methods(runs)
    rows = [_row(kind, methods) for kind in _kinds(runs)]
    columns = [
        TableColumn("kind", "kind"),
        TableColumn("count", "pairs"),
        TableColumn("measure", "measure"),
        TableColumn("before", "before", DIGITS),
    ]
    for method in methods:
        columns.append(TableColumn(method, method, DIGITS))
        columns += [TableColumn(f"{method} {each.key}", each.title, each.digits) for each in REGULARITY]
    columns += [TableColumn(f"won {other}", f"won / lost against {other}") for other in methods[1:]]
    columns += [TableColumn("worst_pair", "worst pair"), TableColumn("largest_loss", "largest loss")]
    return Table("kinds", "Kinds of images", tuple(columns), tuple(rows)).without_empty_columns()


def win_table(runs: Sequence[Run]) -> Table:
    """One row per other method: over how many kinds and over how many pairs the first method is better or worse."""
    methods, kinds = _methods(runs), _kinds(runs)
    rows: list[dict[str, Value]] = []
    for other in methods[1:]:
        by_kind, by_pair = count_wins(kinds, methods[0], other)
        row: dict[str, Value] = {"method": methods[0], "other": other}
        row |= {f"kinds_{name}": number for name, number in by_kind._asdict().items()}
        row |= {f"pairs_{name}": number for name, number in by_pair._asdict().items()}
        rows.append(row)
    titles = {f"{what}_{name}": f"{what} {name}" for what in ("kinds", "pairs") for name in WinCount._fields}
    columns = (
        TableColumn("method", "method"),
        TableColumn("other", "against"),
        *(TableColumn(key, title) for key, title in titles.items()),
    )
    return Table("wins", "Wins and losses", columns, tuple(rows))


def count_wins(kinds: Sequence[_Kind], method: str, other: str) -> tuple[WinCount, WinCount]:
    """Wins and losses over kinds, by mean accuracy on the pairs that both have, and over pairs."""
    by_kind: list[float] = []
    by_pair: list[float] = []
    for kind in kinds:
        gains = _gains(kind, method, other)
        by_pair += gains
        by_kind += [_mean(gains)] if gains else []
    return _count(by_kind), _count(by_pair)


def _row(kind: _Kind, methods: Sequence[str]) -> dict[str, Value]:
    ours = methods[0]
    row: dict[str, Value] = {"kind": kind.name, "measure": kind.measure.title}
    row["count"] = len({run.case for own in kind.runs.values() for run in own})
    everything = [run for own in kind.runs.values() for run in own]
    row["before"] = summarize([run.scores.get(BEFORE[kind.measure.key], math.nan) for run in everything]).mean
    for method in methods:
        own = [run for run in kind.runs.get(method, ()) if run.done]
        row[method] = summarize(values(own, kind.measure)).mean
        row |= {f"{method} {each.key}": summarize(values(own, each)).mean for each in REGULARITY}
    row |= {f"won {other}": str(_count(_gains(kind, ours, other))) for other in methods[1:]}
    row |= {"worst_pair": _worst_pair(kind, ours), "largest_loss": _largest_loss(kind, methods)}
    return row


def _worst_pair(kind: _Kind, method: str) -> str | None:
    failed = [run.case for run in kind.runs.get(method, ()) if not run.done]
    if failed:
        return f"{failed[0]}: failed"
    found = kind.accuracy[method]
    if not found:
        return None
    case = (min if kind.measure.higher_is_better else max)(found, key=lambda name: found[name])
    return f"{case}: {found[case]:.{DIGITS}f}"


def _largest_loss(kind: _Kind, methods: Sequence[str]) -> str | None:
    """The pair on which the first method is furthest behind the best other one, with both values."""
    sign = 1.0 if kind.measure.higher_is_better else -1.0
    losses: dict[str, tuple[float, str]] = {}
    for case, value in kind.accuracy[methods[0]].items():
        others = {other: kind.accuracy[other][case] for other in methods[1:] if case in kind.accuracy[other]}
        if others:
            best = max(others, key=lambda other: sign * others[other])
            losses[case] = sign * (others[best] - value), best
    if not losses:
        return None
    case = max(losses, key=lambda name: losses[name][0])
    loss, best = losses[case]
    ours, theirs = kind.accuracy[methods[0]][case], kind.accuracy[best][case]
    text = f"{case}: {ours:.{DIGITS}f}, {best} {theirs:.{DIGITS}f}"
    return text if loss > 0 else f"none (nearest {text})"


def _gains(kind: _Kind, method: str, other: str) -> list[float]:
    """Advantage of a method over another one by pair; infinite where only one of the two finished."""
    sign = 1.0 if kind.measure.higher_is_better else -1.0
    ours, theirs = kind.accuracy[method], kind.accuracy[other]
    tried = [{run.case for run in kind.runs.get(name, ())} for name in (method, other)]
    gains = []
    for case in dict.fromkeys([*ours, *theirs]):
        if case in ours and case in theirs:
            gains.append(sign * (ours[case] - theirs[case]))
        elif case in tried[0] & tried[1]:
            gains.append(math.inf if case in ours else -math.inf)
    return gains


def _mean(gains: Sequence[float]) -> float:
    """Mean advantage; more failures of one method than of the other decide before any value does."""
    failures = sum(math.copysign(1, gain) for gain in gains if math.isinf(gain))
    finite = [gain for gain in gains if math.isfinite(gain)]
    return failures or (sum(finite) / len(finite) if finite else 0.0)


def _count(gains: Sequence[float]) -> WinCount:
    won, lost = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    return WinCount(won, lost, len(gains) - won - lost)


def _methods(runs: Sequence[Run]) -> list[str]:
    return list(dict.fromkeys(run.method for run in runs))


def _kinds(runs: Sequence[Run]) -> list[_Kind]:
    """The kinds in which at least one run finished."""
    found = []
    for name in dict.fromkeys(run.group for run in runs):
        own = [run for run in runs if run.group == name]
        measure = accuracy_of([run for run in own if run.done])
        if measure is None:
            continue
        by_method = {method: [run for run in own if run.method == method] for method in _methods(runs)}
        accuracy = {
            method: {
                case: value
                for case, value in by_case([run for run in mine if run.done], measure).items()
                if not math.isnan(value)
            }
            for method, mine in by_method.items()
        }
        found.append(_Kind(name, measure, by_method, accuracy))
    return found

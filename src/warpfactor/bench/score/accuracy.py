"""Tables and plots of `warpfactor bench accuracy`: pairs, means, differences between methods, and failures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from warpfactor.bench.run import machine
from warpfactor.bench.run.record import Run
from warpfactor.bench.run.runner import cautions
from warpfactor.bench.score.measures import (
    ACCURACY,
    DICE,
    FOLDED,
    HD95,
    REGULARITY,
    SD_LOG_J,
    SHOWN,
    TRE_MEDIAN,
    WALL,
    Measure,
)
from warpfactor.bench.score.plots import Panel, draw_scatters
from warpfactor.bench.score.stats import ENOUGH, compare, summarize
from warpfactor.bench.score.tables import Table, TableColumn, Value, write_tables

NAME = "accuracy"
COMPARED = (*ACCURACY, HD95, TRE_MEDIAN, *REGULARITY, FOLDED, WALL)
BEFORE = {"dice": "dice_before", "tre_mean_mm": "tre_mean_before_mm", "mi_nats": "mi_before_nats"}


def tables(runs: Sequence[Run], *, detailed: bool = True) -> list[Table]:
    """All tables that have rows: pairs, means, differences from the first method (if `detailed`), and failures."""
    made = [pair_table(runs), mean_table(runs), difference_table(runs)] if detailed else []
    return [table for table in (*made, failure_table(runs)) if table.rows or table.name == "pairs"]


def write(
    runs: Sequence[Run], folder: Path, *, name: str = NAME, title: str = "Accuracy", summaries: Sequence[Table] = ()
) -> list[Path]:
    """Write NAME.csv, .json, .md and .png into a folder and return their paths.

    Args:
        runs: The runs.
        folder: Folder of the files.
        name: Common name of the files.
        title: Heading of the page.
        summaries: Further tables, which come first on the page.
    """
    pairs, *others = tables(runs)
    notes, extra = _notes(runs, title), {"machine": machine.describe()}
    written = write_tables([pairs, *summaries, *others], folder, name, notes=notes, extra=extra)
    panels = scatters(runs)
    return [*written, draw_scatters(panels, folder / f"{name}.png")] if panels else written


def pair_table(runs: Sequence[Run]) -> Table:
    """One row per case and method with all measures."""
    columns = (
        TableColumn("group", "data"),
        TableColumn("case", "pair"),
        TableColumn("method", "method"),
        *(column for measure in SHOWN for column in _columns(measure)),
    )
    rows: list[dict[str, Value]] = [
        {"group": r.group, "case": r.case, "method": r.method, **r.scores} for r in sorted_runs(runs) if r.done
    ]
    return Table("pairs", "Per pair", columns, tuple(rows)).without_empty_columns()


def mean_table(runs: Sequence[Run]) -> Table:
    """One row per group and method: means of all measures, for accuracy also standard deviation and worst pair."""
    rows = []
    for (group, method), own in by_group_and_method(runs).items():
        row: dict[str, Value] = {"group": group, "method": method, "count": len(own)}
        row |= {measure.key: summarize(values(own, measure)).mean for measure in SHOWN}
        for measure in ACCURACY:
            found = summarize(values(own, measure), higher_is_better=bool(measure.higher_is_better))
            row |= {f"{measure.key}_sd": found.sd, f"{measure.key}_worst": found.worst}
        rows.append(row)
    head = (TableColumn("group", "data"), TableColumn("method", "method"), TableColumn("count", "pairs"))
    scores = [column for measure in SHOWN for column in _mean_columns(measure)]
    return Table("means", "Means", (*head, *scores), tuple(rows)).without_empty_columns()


def difference_table(runs: Sequence[Run]) -> Table:
    """Differences between each method and the first one on the same pairs, with 95 % bootstrap intervals.

    With fewer than `stats.ENOUGH` pairs an interval means little, and the last column says "too few".
    """
    rows = []
    groups = by_group_and_method(runs)
    first = next(iter(runs)).method if runs else ""
    for (group, method), own in groups.items():
        other = groups.get((group, first))
        if method == first or other is None:
            continue
        for measure in COMPARED:
            found = compare(
                by_case(own, measure), by_case(other, measure), higher_is_better=bool(measure.higher_is_better)
            )
            if found.count:
                ends: dict[str, Value] = {"mean": found.mean, "low": found.low, "high": found.high}
                counts: dict[str, Value] = {"won": f"{found.won} / {found.count}", "clear": found.verdict}
                rows.append({"group": group, "method": method, "measure": measure.title, **ends, **counts})
    columns = (
        TableColumn("group", "data"),
        TableColumn("method", "method"),
        TableColumn("measure", "measure"),
        TableColumn("mean", f"minus {first}", 4),
        TableColumn("low", "95 % from", 4),
        TableColumn("high", "to", 4),
        TableColumn("won", "pairs won"),
        TableColumn("clear", "clear"),
    )
    return Table("differences", f"Differences from {first}", columns, tuple(rows))


def failure_table(runs: Sequence[Run]) -> Table:
    """The runs that failed, with their reasons."""
    titles = {"group": "data", "case": "pair", "method": "method", "reason": "reason"}
    columns = tuple(TableColumn(key, title) for key, title in titles.items())
    rows = [{"group": r.group, "case": r.case, "method": r.method, "reason": r.reason} for r in runs if not r.done]
    return Table("failures", "Failed", columns, tuple(rows))


def scatters(runs: Sequence[Run]) -> list[list[Panel]]:
    """Rows of panels: for each group, accuracy against regularity and against time."""
    rows = []
    for group in dict.fromkeys(run.group for run in runs if run.done):
        own = [run for run in runs if run.group == group and run.done]
        methods = {m: [r for r in own if r.method == m] for m in dict.fromkeys(run.method for run in own)}
        rows += [[_panel(group, x, accuracy, methods) for x in (SD_LOG_J, WALL)] for accuracy in _accuracies(own)]
    return rows


def accuracy_of(runs: Iterable[Run]) -> Measure | None:
    """Measure by which runs are judged: Dice if there are labels, else landmark error, else mutual information."""
    return next(iter(_accuracies(runs)), None)


def by_group_and_method(runs: Sequence[Run]) -> dict[tuple[str, str], list[Run]]:
    """The finished runs by group and method, both in the order of their first run."""
    groups, methods = dict.fromkeys(r.group for r in runs), dict.fromkeys(r.method for r in runs)
    split = {(g, m): [r for r in runs if r.done and (r.group, r.method) == (g, m)] for g in groups for m in methods}
    return {key: own for key, own in split.items() if own}


def by_case(runs: Iterable[Run], measure: Measure) -> dict[str, float]:
    """Values of a measure by case."""
    return {run.case: run.scores[measure.key] for run in runs if measure.key in run.scores}


def values(runs: Iterable[Run], measure: Measure) -> list[float]:
    """Values of a measure over all runs that have it."""
    return list(by_case(runs, measure).values())


def sorted_runs(runs: Sequence[Run]) -> list[Run]:
    """The runs sorted by case, so that the methods of a case follow each other."""
    cases = {key: n for n, key in enumerate(dict.fromkeys((run.group, run.case) for run in runs))}
    return sorted(runs, key=lambda run: cases[run.group, run.case])


def _accuracies(runs: Iterable[Run]) -> list[Measure]:
    known = {key for run in runs for key, value in run.scores.items() if value == value}
    return [measure for measure in ACCURACY if measure.key in known]


def _columns(measure: Measure) -> list[TableColumn]:
    """Columns of a measure; accuracy has a column for the value before registration too."""
    own = TableColumn(measure.key, measure.title, measure.digits)
    if measure.key not in BEFORE:
        return [own]
    return [TableColumn(BEFORE[measure.key], f"{measure.title} before", measure.digits), own]


def _mean_columns(measure: Measure) -> list[TableColumn]:
    """Columns of a mean; accuracy has columns for standard deviation and worst pair too."""
    own = TableColumn(measure.key, measure.title, measure.digits)
    if measure not in ACCURACY:
        return [own]
    titles = {"sd": "SD", "worst": "worst"}
    return [
        own,
        *(TableColumn(f"{measure.key}_{k}", f"{measure.title} {t}", measure.digits) for k, t in titles.items()),
    ]


def _panel(group: str, x: Measure, y: Measure, methods: Mapping[str, Sequence[Run]]) -> Panel:
    points = {
        method: [(r.scores.get(x.key, float("nan")), r.scores.get(y.key, float("nan"))) for r in own]
        for method, own in methods.items()
    }
    return Panel(group, x, y, points, log_x=x is WALL)


def _notes(runs: Sequence[Run], title: str) -> str:
    """Text above the tables: machine, protocol and definitions."""
    threads = sorted({str(run.entries.get("threads", "?")) for run in runs if run.done})
    crowded = any(int(run.entries.get("jobs", 1)) > 1 for run in runs if run.done)
    lines = [
        f"## {title}",
        "",
        f"Machine: {machine.sentence()}. Threads per run: {', '.join(threads) or '-'}.",
        "Every run is a process of its own and starts from the native files; times reach from reading the files to the "
        f"transform. {DICE.title} is the mean over the labels that both native maps have, resampled once with nearest-"
        f"neighbour interpolation. {SD_LOG_J.title} and {FOLDED.title} (a fraction) are those of the warp: inside the "
        "fixed mask if there is one, else where the fixed image differs from its constant border, else in the whole "
        "image.",
        f"A difference is clear if its interval excludes zero and it is based on at least {ENOUGH} pairs.",
    ]
    start = summarize([run.scores.get("start_memory_mb", float("nan")) for run in runs if run.done])
    if start.count:
        lines.append(
            f"Memory is the peak memory of the process; {start.mean:.0f} MB of it were in use before images were read."
        )
    if crowded:
        lines.append("Several runs shared the machine, so times are approximate.")
    return "\n".join([*lines, *cautions(runs)]) + "\n"

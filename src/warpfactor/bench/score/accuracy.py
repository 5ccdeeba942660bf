"""What `warpfactor bench accuracy` reports of its runs: per pair, means, differences, failures, and scatter plots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from warpfactor.bench.run import machine
from warpfactor.bench.run.run import Run
from warpfactor.bench.run.runner import cautions
from warpfactor.bench.score.figures import Panel, draw_scatters
from warpfactor.bench.score.metric import ACCURACY, DICE, FOLDED, HD95, SD_LOG_J, SHOWN, TRE_MEDIAN, WALL, Metric
from warpfactor.bench.score.stats import ENOUGH, compare, summarize
from warpfactor.bench.score.tables import Column, Table, Value, write_tables

NAME = "accuracy"
COMPARED = (*ACCURACY, HD95, TRE_MEDIAN, SD_LOG_J, FOLDED, WALL)
BEFORE = {"dice": "dice_before", "tre_mean_mm": "tre_mean_before_mm", "mi_nats": "mi_before_nats"}


def tables(runs: Sequence[Run]) -> list[Table]:
    """Per pair; means and spreads per group and method; differences from the first method; failures, if any."""
    made = [pair_table(runs), mean_table(runs), difference_table(runs), failure_table(runs)]
    return [table for table in made if table.rows or table.name == "pairs"]


def write(runs: Sequence[Run], folder: Path, *, name: str = NAME, title: str = "Accuracy") -> list[Path]:
    """Write NAME.csv, .json, .md and .png into a folder and return them."""
    written = write_tables(tables(runs), folder, name, notes=_notes(runs, title), extra={"machine": machine.describe()})
    panels = scatters(runs)
    return [*written, draw_scatters(panels, folder / f"{name}.png")] if panels else written


def pair_table(runs: Sequence[Run]) -> Table:
    """One row per case and method: every figure that was measured."""
    columns = (
        Column("group", "data"),
        Column("case", "pair"),
        Column("method", "method"),
        *(column for metric in SHOWN for column in _columns(metric)),
    )
    rows: list[dict[str, Value]] = [
        {"group": r.group, "case": r.case, "method": r.method, **r.figures} for r in sorted_runs(runs) if r.done
    ]
    return Table("pairs", "Per pair", columns, tuple(rows)).without_empty_columns()


def mean_table(runs: Sequence[Run]) -> Table:
    """One row per group and method: means, and of every accuracy also SD and worst, right after it."""
    rows = []
    for (group, method), own in by_group_and_method(runs).items():
        row: dict[str, Value] = {"group": group, "method": method, "count": len(own)}
        row |= {metric.key: summarize(values(own, metric)).mean for metric in SHOWN}
        for metric in ACCURACY:
            found = summarize(values(own, metric), higher_is_better=bool(metric.higher_is_better))
            row |= {f"{metric.key}_sd": found.sd, f"{metric.key}_worst": found.worst}
        rows.append(row)
    head = (Column("group", "data"), Column("method", "method"), Column("count", "pairs"))
    figures = [column for metric in SHOWN for column in _mean_columns(metric)]
    return Table("means", "Means", (*head, *figures), tuple(rows)).without_empty_columns()


def difference_table(runs: Sequence[Run]) -> Table:
    """Each method against the first, on the pairs that both have, with 95 % bootstrap intervals.

    Below `stats.ENOUGH` pairs an interval is hardly more than the range of the pairs; the last column says so.
    """
    rows = []
    groups = by_group_and_method(runs)
    first = next(iter(runs)).method if runs else ""
    for (group, method), own in groups.items():
        other = groups.get((group, first))
        if method == first or other is None:
            continue
        for metric in COMPARED:
            found = compare(
                by_case(own, metric), by_case(other, metric), higher_is_better=bool(metric.higher_is_better)
            )
            if found.count:
                ends: dict[str, Value] = {"mean": found.mean, "low": found.low, "high": found.high}
                counts: dict[str, Value] = {"won": f"{found.won} / {found.count}", "clear": found.verdict}
                rows.append({"group": group, "method": method, "figure": metric.title, **ends, **counts})
    columns = (
        Column("group", "data"),
        Column("method", "method"),
        Column("figure", "figure"),
        Column("mean", f"minus {first}", 4),
        Column("low", "95 % from", 4),
        Column("high", "to", 4),
        Column("won", "pairs won"),
        Column("clear", "clear"),
    )
    return Table("differences", f"Differences from {first}", columns, tuple(rows))


def failure_table(runs: Sequence[Run]) -> Table:
    """What failed, and why."""
    titles = {"group": "data", "case": "pair", "method": "method", "reason": "reason"}
    columns = tuple(Column(key, title) for key, title in titles.items())
    rows = [{"group": r.group, "case": r.case, "method": r.method, "reason": r.reason} for r in runs if not r.done]
    return Table("failures", "Failed", columns, tuple(rows))


def scatters(runs: Sequence[Run]) -> list[list[Panel]]:
    """Per group: each accuracy that it has against regularity, and against time."""
    rows = []
    for group in dict.fromkeys(run.group for run in runs if run.done):
        own = [run for run in runs if run.group == group and run.done]
        methods = {m: [r for r in own if r.method == m] for m in dict.fromkeys(run.method for run in own)}
        rows += [[_panel(group, x, accuracy, methods) for x in (SD_LOG_J, WALL)] for accuracy in _accuracies(own)]
    return rows


def accuracy_of(runs: Iterable[Run]) -> Metric | None:
    """What these runs are judged by: Dice if there are labels, else landmark error, else mutual information."""
    return next(iter(_accuracies(runs)), None)


def by_group_and_method(runs: Sequence[Run]) -> dict[tuple[str, str], list[Run]]:
    """The runs that were done, group by group and then method by method, each in the order of their first run."""
    groups, methods = dict.fromkeys(r.group for r in runs), dict.fromkeys(r.method for r in runs)
    split = {(g, m): [r for r in runs if r.done and (r.group, r.method) == (g, m)] for g in groups for m in methods}
    return {key: own for key, own in split.items() if own}


def by_case(runs: Iterable[Run], metric: Metric) -> dict[str, float]:
    """A figure by case."""
    return {run.case: run.figures[metric.key] for run in runs if metric.key in run.figures}


def values(runs: Iterable[Run], metric: Metric) -> list[float]:
    """A figure of every run that has it."""
    return list(by_case(runs, metric).values())


def sorted_runs(runs: Sequence[Run]) -> list[Run]:
    """Case by case, the methods of a case together, each in the order of their first run."""
    cases = {key: n for n, key in enumerate(dict.fromkeys((run.group, run.case) for run in runs))}
    return sorted(runs, key=lambda run: cases[run.group, run.case])


def _accuracies(runs: Iterable[Run]) -> list[Metric]:
    known = {key for run in runs for key, value in run.figures.items() if value == value}
    return [metric for metric in ACCURACY if metric.key in known]


def _columns(metric: Metric) -> list[Column]:
    """Of a figure; of the accuracy also what it was before registration."""
    own = Column(metric.key, metric.title, metric.digits)
    if metric.key not in BEFORE:
        return [own]
    return [Column(BEFORE[metric.key], f"{metric.title} before", metric.digits), own]


def _mean_columns(metric: Metric) -> list[Column]:
    """Of the mean of a figure; of the accuracy also how far the pairs spread."""
    own = Column(metric.key, metric.title, metric.digits)
    if metric not in ACCURACY:
        return [own]
    titles = {"sd": "SD", "worst": "worst"}
    return [own, *(Column(f"{metric.key}_{k}", f"{metric.title} {t}", metric.digits) for k, t in titles.items())]


def _panel(group: str, x: Metric, y: Metric, methods: Mapping[str, Sequence[Run]]) -> Panel:
    points = {
        method: [(r.figures.get(x.key, float("nan")), r.figures.get(y.key, float("nan"))) for r in own]
        for method, own in methods.items()
    }
    return Panel(group, x, y, points, log_x=x is WALL)


def _notes(runs: Sequence[Run], title: str) -> str:
    """What a reader must know to trust the numbers."""
    threads = sorted({str(run.entries.get("threads", "?")) for run in runs if run.done})
    crowded = any(int(run.entries.get("jobs", 1)) > 1 for run in runs if run.done)
    lines = [
        f"## {title}",
        "",
        f"Machine: {machine.sentence()}. Threads of a run: {', '.join(threads) or '-'}.",
        "Every run is a process of its own, from native files; times are from reading the files to the transform. "
        f"{DICE.title} is the mean over the labels that both native maps have, moved once by nearest neighbour. "
        f"{SD_LOG_J.title} and {FOLDED.title} (a fraction) are of the warp, inside the fixed mask, or where the fixed "
        "image differs from a constant border, or in the whole image.",
        f"A difference is clear if its interval leaves out zero and at least {ENOUGH} pairs are behind it.",
    ]
    start = summarize([run.figures.get("start_memory_mb", float("nan")) for run in runs if run.done])
    if start.count:
        lines.append(
            f"Memory is the high-water mark of the process, {start.mean:.0f} MB of it before anything was read."
        )
    if crowded:
        lines.append("Several runs shared the machine, so compare times with care.")
    return "\n".join([*lines, *cautions(runs)]) + "\n"

"""Comparisons of methods that several experiments share: means, worst pairs, and paired differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from warpfactor.bench.run.record import Run
from warpfactor.bench.score.accuracy import accuracy_of, by_case, by_group_and_method, failure_table, values
from warpfactor.bench.score.measures import CPU, FOLDED, SD_LOG_J, Measure
from warpfactor.bench.score.stats import PairedDifference, compare, summarize
from warpfactor.bench.score.tables import Table, TableColumn, Value

Groups = Mapping[tuple[str, str], Sequence[Run]]
DIGITS = 4  # of accuracy measures


def measure_of(runs: Sequence[Run], group: str) -> Measure | None:
    """Measure by which a group is judged; None if none of its runs finished."""
    return accuracy_of([run for run in runs if run.group == group and run.done])


def worst_case(runs: Sequence[Run], measure: Measure) -> str:
    """Name of the worst pair; empty if there are no runs."""
    scores = {case: value for case, value in by_case(runs, measure).items() if value == value}
    if not scores:
        return ""
    return (min if measure.higher_is_better else max)(scores, key=lambda case: scores[case])


def paired(runs: Sequence[Run], others: Sequence[Run], measure: Measure) -> PairedDifference:
    """Paired difference of two methods in a measure."""
    better = bool(measure.higher_is_better)
    return compare(by_case(runs, measure), by_case(others, measure), higher_is_better=better)


def summary_table(runs: Sequence[Run], *, baseline: str, outliers_of: str) -> Table:
    """Mean, SD, worst pair, mean without the outlier, and pairs won over the baseline, by group and method.

    Args:
        runs: The runs.
        baseline: Method over which pairs are won.
        outliers_of: Method whose worst pair is the outlier; the same pair is left out for every method.
    """
    groups = by_group_and_method(runs)
    columns = (
        TableColumn("group", "data"),
        TableColumn("measure", "measure"),
        TableColumn("method", "method"),
        TableColumn("count", "pairs"),
        TableColumn("mean", "mean", DIGITS),
        TableColumn("sd", "SD", DIGITS),
        TableColumn("won", f"won over {baseline}"),
        TableColumn("worst", "worst", DIGITS),
        TableColumn("worst_pair", "worst pair"),
        TableColumn("mean_without", "mean without outlier", DIGITS),
        TableColumn("outlier", f"outlier (worst of {outliers_of})"),
        *(TableColumn(measure.key, measure.title, measure.digits) for measure in (SD_LOG_J, FOLDED, CPU)),
    )
    rows = [row for key in groups if (row := _summary_row(groups, key, baseline, outliers_of)) is not None]
    return Table("summary", "Mean, spread and worst pair", columns, tuple(rows)).without_empty_columns()


def _summary_row(groups: Groups, key: tuple[str, str], baseline: str, outliers_of: str) -> dict[str, Value] | None:
    group, method = key
    own = groups[key]
    measure = measure_of(own, group)
    if measure is None:
        return None
    found = summarize(values(own, measure), higher_is_better=bool(measure.higher_is_better))
    judged = groups.get((group, outliers_of), ())
    outlier = worst_case(judged, measure) if len(judged) > 1 else ""
    rest = [run for run in own if run.case != outlier]
    won = paired(own, groups.get((group, baseline), ()), measure)
    return {
        "group": group,
        "measure": measure.title,
        "method": method,
        "count": found.count,
        "mean": found.mean,
        "sd": found.sd,
        "won": f"{won.won} / {won.count}" if won.count and method != baseline else None,
        "worst": found.worst,
        "worst_pair": worst_case(own, measure),
        "mean_without": summarize(values(rest, measure)).mean if outlier else None,
        "outlier": outlier,
        **{other.key: summarize(values(own, other)).mean for other in (SD_LOG_J, FOLDED, CPU)},
    }


def difference_table(
    runs: Sequence[Run], comparisons: Sequence[tuple[str, str]], *, title: str = "Paired differences"
) -> Table:
    """Paired differences (method minus other) with 95 % bootstrap intervals, for each comparison (method, other)."""
    groups = by_group_and_method(runs)
    rows = []
    for group in dict.fromkeys(group for group, _ in groups):
        accuracy = measure_of(runs, group)
        for method, other in comparisons:
            own, others = groups.get((group, method), ()), groups.get((group, other), ())
            for measure in (accuracy, SD_LOG_J):
                found = paired(own, others, measure) if measure else None
                if measure and found and found.count:
                    place = {"group": group, "method": method, "other": other, "measure": measure.title}
                    rows.append({**place, **difference(found)})
    head = (
        TableColumn("group", "data"),
        TableColumn("method", "method"),
        TableColumn("other", "minus"),
        TableColumn("measure", "measure"),
    )
    return Table("differences", title, (*head, *DIFFERENCE), tuple(rows))


DIFFERENCE = (
    TableColumn("difference", "difference", DIGITS),
    TableColumn("low", "95 % from", DIGITS),
    TableColumn("high", "to", DIGITS),
    TableColumn("better", "pairs better"),
    TableColumn("worse", "worse"),
    TableColumn("clear", "clear"),
)


def difference(found: PairedDifference) -> dict[str, Value]:
    """Values for the columns DIFFERENCE."""
    return {
        "difference": found.mean,
        "low": found.low,
        "high": found.high,
        "better": found.won,
        "worse": found.lost,
        "clear": found.verdict,
    }


def failures(runs: Sequence[Run]) -> list[Table]:
    """The table of failed runs, if there are any."""
    table = failure_table(runs)
    return [table] if table.rows else []


def deformable_stage(run: Run) -> Mapping[str, Any]:
    """Details of the deformable stage: iterations, rejected, last_damping; empty if there was none."""
    stages = run.entries.get("details", {}).get("stages", [])
    return next((stage for stage in stages if stage["name"] == "deformable"), {})

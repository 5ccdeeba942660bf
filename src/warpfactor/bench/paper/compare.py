"""What the experiments say of methods on pairs: means with and without the worst pair, and paired differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from warpfactor.bench.run.run import Run
from warpfactor.bench.score.accuracy import accuracy_of, by_case, by_group_and_method, failure_table, values
from warpfactor.bench.score.metric import CPU, FOLDED, SD_LOG_J, Metric
from warpfactor.bench.score.stats import Paired, compare, summarize
from warpfactor.bench.score.tables import Column, Table, Value

Groups = Mapping[tuple[str, str], Sequence[Run]]
DIGITS = 4  # of accuracies


def metric_of(runs: Sequence[Run], group: str) -> Metric | None:
    """What a group is judged by; None if nothing was done in it."""
    return accuracy_of([run for run in runs if run.group == group and run.done])


def worst_case(runs: Sequence[Run], metric: Metric) -> str:
    """The pair with the worst figure; empty without runs."""
    figures = {case: value for case, value in by_case(runs, metric).items() if value == value}
    if not figures:
        return ""
    return (min if metric.higher_is_better else max)(figures, key=lambda case: figures[case])


def paired(runs: Sequence[Run], others: Sequence[Run], metric: Metric) -> Paired:
    """Differences of two methods in a figure."""
    better = bool(metric.higher_is_better)
    return compare(by_case(runs, metric), by_case(others, metric), higher_is_better=better)


def summary_table(runs: Sequence[Run], *, baseline: str, outliers_of: str) -> Table:
    """Per group and method: mean, SD, worst pair, mean without the outlier, pairs won over the baseline.

    Args:
        outliers_of: method whose worst pair is left out, the same pair for every method.
    """
    groups = by_group_and_method(runs)
    columns = (
        Column("group", "data"),
        Column("figure", "figure"),
        Column("method", "method"),
        Column("count", "pairs"),
        Column("mean", "mean", DIGITS),
        Column("sd", "SD", DIGITS),
        Column("won", f"won over {baseline}"),
        Column("worst", "worst", DIGITS),
        Column("worst_pair", "worst pair"),
        Column("mean_without", "mean without outlier", DIGITS),
        Column("outlier", f"outlier (worst of {outliers_of})"),
        *(Column(metric.key, metric.title, metric.digits) for metric in (SD_LOG_J, FOLDED, CPU)),
    )
    rows = [row for key in groups if (row := _summary_row(groups, key, baseline, outliers_of)) is not None]
    return Table("summary", "Mean, spread and worst pair", columns, tuple(rows)).without_empty_columns()


def _summary_row(groups: Groups, key: tuple[str, str], baseline: str, outliers_of: str) -> dict[str, Value] | None:
    group, method = key
    own = groups[key]
    metric = metric_of(own, group)
    if metric is None:
        return None
    found = summarize(values(own, metric), higher_is_better=bool(metric.higher_is_better))
    judged = groups.get((group, outliers_of), ())
    outlier = worst_case(judged, metric) if len(judged) > 1 else ""
    rest = [run for run in own if run.case != outlier]
    won = paired(own, groups.get((group, baseline), ()), metric)
    return {
        "group": group,
        "figure": metric.title,
        "method": method,
        "count": found.count,
        "mean": found.mean,
        "sd": found.sd,
        "won": f"{won.won} / {won.count}" if won.count and method != baseline else None,
        "worst": found.worst,
        "worst_pair": worst_case(own, metric),
        "mean_without": summarize(values(rest, metric)).mean if outlier else None,
        "outlier": outlier,
        **{other.key: summarize(values(own, other)).mean for other in (SD_LOG_J, FOLDED, CPU)},
    }


def difference_table(
    runs: Sequence[Run], comparisons: Sequence[tuple[str, str]], *, title: str = "Paired differences"
) -> Table:
    """Each comparison (method, other) on the pairs that both have, with 95 % bootstrap intervals."""
    groups = by_group_and_method(runs)
    rows = []
    for group in dict.fromkeys(group for group, _ in groups):
        accuracy = metric_of(runs, group)
        for method, other in comparisons:
            own, others = groups.get((group, method), ()), groups.get((group, other), ())
            for metric in (accuracy, SD_LOG_J):
                found = paired(own, others, metric) if metric else None
                if metric and found and found.count:
                    place = {"group": group, "method": method, "other": other, "figure": metric.title}
                    rows.append({**place, **difference(found)})
    head = (Column("group", "data"), Column("method", "method"), Column("other", "minus"), Column("figure", "figure"))
    return Table("differences", title, (*head, *DIFFERENCE), tuple(rows))


DIFFERENCE = (
    Column("difference", "difference", DIGITS),
    Column("low", "95 % from", DIGITS),
    Column("high", "to", DIGITS),
    Column("better", "pairs better"),
    Column("worse", "worse"),
    Column("clear", "clear"),
)


def difference(found: Paired) -> dict[str, Value]:
    """Values of the columns DIFFERENCE."""
    return {
        "difference": found.mean,
        "low": found.low,
        "high": found.high,
        "better": found.won,
        "worse": found.lost,
        "clear": found.verdict,
    }


def failures(runs: Sequence[Run]) -> list[Table]:
    """The table of what failed, if anything did."""
    table = failure_table(runs)
    return [table] if table.rows else []


def deformable_stage(run: Run) -> Mapping[str, Any]:
    """What the warp's stage said of itself: iterations, rejected, last_damping; empty if there was none."""
    stages = run.entries.get("details", {}).get("stages", [])
    return next((stage for stage in stages if stage["name"] == "deformable"), {})

"""Table 4: LM without rejection of steps, with it, and with it and a cap on λ; and which pairs make the difference.

All three with the host's rule that ends a level when the cost rises, and without it: the rule ends a level before λ can
run away, and hides what the cap is for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from warpfactor.bench.paper import compare, draw, published
from warpfactor.bench.paper.experiment import Experiment, Plan, Report
from warpfactor.bench.paper.modes import NO_STOP, RULE, lm
from warpfactor.bench.paper.study import Study
from warpfactor.bench.run.method import Method
from warpfactor.bench.run.run import Run
from warpfactor.bench.score.accuracy import by_case, by_group_and_method, sorted_runs, values
from warpfactor.bench.score.metric import SD_LOG_J, Metric
from warpfactor.bench.score.stats import summarize
from warpfactor.bench.score.tables import Column, Table, Value

NONE, UNCAPPED, CAPPED = "no rejection", "rejection, no cap", "rejection, cap 1"
CONDITIONS: Mapping[str, Mapping[str, Any]] = {
    NONE: {},
    UNCAPPED: {f"{RULE}tolerance": 1.0},
    CAPPED: {f"{RULE}tolerance": 1.0, f"{RULE}cap": 1.0},
}
RULES: Mapping[str, Mapping[str, Any]] = {"on": {}, "off": NO_STOP}
SPREAD = 1.5  # quartile ranges beyond the quartiles from which a pair is an outlier, as in box plots


def methods_of(plan: Plan) -> dict[tuple[str, str], Method]:
    """LM by stop rule (on, off) and condition."""
    return {
        (rule, name): lm(plan, f"{name}, stop rule {rule}", {**extra, **changes})
        for rule, extra in RULES.items()
        for name, changes in CONDITIONS.items()
    }


def _run(study: Study) -> Report:
    methods = methods_of(study.plan)
    runs = study.run(list(methods.values()), what="three conditions, with and without the stop rule")
    groups = by_group_and_method(runs)
    rows = [
        row
        for group in dict.fromkeys(group for group, _ in groups)
        for (rule, name), method in methods.items()
        if (row := _row(groups, (group, rule, name), method, methods[rule, NONE])) is not None
    ]
    tables = [
        _pair_table(runs, methods),
        _condition_table(rows),
        _outlier_table(rows),
        published.REJECTION,
        *compare.failures([*study.lost, *runs]),
    ]
    notes = [
        "τ = 1 where steps are rejected. The stop rule is that of the paper's host package: a level ends when the cost "
        f"rises. Differences are from `{NONE}` with the same stop rule. A pair is an outlier if it is worse than the "
        f"quartile by more than {SPREAD:g} quartile ranges. The mean without it leaves out the pair that is worst with "
        f"`{NONE}`, under every condition; rejected steps are a mean over pairs."
    ]
    return Report(tables, notes, lambda path: _draw(runs, methods, path), [*study.lost, *runs])


def outliers(figures: Mapping[str, float], metric: Metric) -> list[str]:
    """Pairs that are worse than the others by Tukey's rule; none among fewer than four."""
    known = {case: value for case, value in figures.items() if not math.isnan(value)}
    if len(known) < 4:
        return []
    import numpy as np

    low, high = np.quantile(list(known.values()), [0.25, 0.75]).tolist()
    reach = SPREAD * (high - low)
    if metric.higher_is_better:
        return [case for case, value in known.items() if value < low - reach]
    return [case for case, value in known.items() if value > high + reach]


def _row(groups: compare.Groups, place: tuple[str, str, str], method: Method, base: Method) -> dict[str, Value] | None:
    group, rule, name = place
    own, other = groups.get((group, method.label), ()), groups.get((group, base.label), ())
    metric = compare.metric_of(own, group)
    if metric is None:
        return None
    found = summarize(values(own, metric), higher_is_better=bool(metric.higher_is_better))
    figures, before = by_case(own, metric), by_case(other, metric)
    worst = compare.worst_case(other, metric)
    rest = summarize([value for case, value in figures.items() if case != worst])
    stages = [compare.deformable_stage(run) for run in own]
    row: dict[str, Value] = {"group": group, "figure": metric.title, "rule": rule, "condition": name}
    row |= {"count": found.count, "mean": found.mean, "sd": found.sd, "worst": found.worst}
    row |= {"outliers": ", ".join(outliers(figures, metric)) or None, "mean_without": rest.mean}
    row |= {SD_LOG_J.key: summarize(values(own, SD_LOG_J)).mean}
    row |= {"rejected": summarize([float(stage.get("rejected", math.nan)) for stage in stages]).mean}
    row["last_damping"] = f"{max(float(stage.get('last_damping') or 0) for stage in stages):.2g}"
    if name != NONE:
        row |= compare.difference(compare.paired(own, other, metric)) | _extremes(figures, before, metric)
    return row


def _extremes(figures: Mapping[str, float], before: Mapping[str, float], metric: Metric) -> dict[str, Value]:
    """The pair that gains most and the one that loses most."""
    sign = 1.0 if metric.higher_is_better else -1.0
    gains = {case: sign * (value - before[case]) for case, value in figures.items() if case in before}
    gains = {case: gain for case, gain in gains.items() if not math.isnan(gain)}
    if not gains:
        return {}
    most, least = max(gains, key=lambda case: gains[case]), min(gains, key=lambda case: gains[case])
    texts = {"gains_most": most, "loses_most": least}
    return {key: f"{case}: {before[case]:.4f} to {figures[case]:.4f}" for key, case in texts.items()}


_HEAD = (
    Column("group", "data"),
    Column("figure", "figure"),
    Column("rule", "stop rule"),
    Column("condition", "condition"),
)


def _condition_table(rows: Sequence[Mapping[str, Value]]) -> Table:
    columns = (
        *_HEAD,
        Column("count", "pairs"),
        Column("mean", "mean", compare.DIGITS),
        Column("sd", "SD", compare.DIGITS),
        *compare.DIFFERENCE,
        Column(SD_LOG_J.key, SD_LOG_J.title, SD_LOG_J.digits),
    )
    return Table("conditions", "Rejection and cap", columns, tuple(rows)).without_empty_columns()


def _outlier_table(rows: Sequence[Mapping[str, Value]]) -> Table:
    """Which pairs make the means, and what became of λ."""
    columns = (
        *_HEAD,
        Column("worst", "worst", compare.DIGITS),
        Column("mean_without", "mean without it", compare.DIGITS),
        Column("outliers", "outliers"),
        Column("gains_most", "best change"),
        Column("loses_most", "worst change"),
        Column("rejected", "rejected", 1),
        Column("last_damping", "largest last λ"),
    )
    return Table("outliers", "Outliers", columns, tuple(rows)).without_empty_columns()


def _pair_table(runs: Sequence[Run], methods: Mapping[tuple[str, str], Method]) -> Table:
    """Every pair with every condition: figure, change from no rejection, rejected steps, last λ."""
    names = {method.label: key for key, method in methods.items()}
    done = [run for run in sorted_runs(runs) if run.done]
    known = {(run.case, run.method): run for run in done}
    rows: list[dict[str, Value]] = []
    for run in done:
        rule, name = names[run.method]
        metric, base = compare.metric_of(done, run.group), known.get((run.case, methods[rule, NONE].label))
        if metric is None:
            continue
        value, stage = run.figures.get(metric.key, math.nan), compare.deformable_stage(run)
        last = stage.get("last_damping")
        change = None if base is None or name == NONE else value - base.figures.get(metric.key, math.nan)
        row: dict[str, Value] = {"group": run.group, "case": run.case, "rule": rule, "condition": name}
        row |= {"figure": metric.title, "value": value, "change": change}
        row |= {"rejected": stage.get("rejected"), "iterations": stage.get("iterations")}
        rows.append({**row, "last_damping": None if last is None else f"{last:.2g}"})
    columns = (
        *(Column(k, t) for k, t in (("group", "data"), ("case", "pair"), ("rule", "stop rule"))),
        Column("condition", "condition"),
        Column("figure", "figure"),
        Column("value", "value", compare.DIGITS),
        Column("change", "change", compare.DIGITS),
        *(Column(k, k) for k in ("rejected", "iterations")),
        Column("last_damping", "last damping"),
    )
    return Table("pairs", "Per pair", columns, tuple(rows)).without_empty_columns()


def _draw(runs: Sequence[Run], methods: Mapping[tuple[str, str], Method], path: Path) -> Path:
    """Per group and stop rule: figure of every pair, one line of marks a condition, sorted by no rejection."""
    groups = list(dict.fromkeys(run.group for run in runs if run.done))
    sheet = draw.Sheet(max(1, len(groups)), len(RULES))
    for line, group in enumerate(groups):
        metric = compare.metric_of(runs, group)
        if metric is None:
            continue
        for column, rule in enumerate(RULES):
            axes = sheet.axes(
                line, column, title=f"{group}, stop rule {rule}", x=f"pair, sorted by {NONE}", y=draw.named(metric)
            )
            own = {name: _figures(runs, group, methods[rule, name], metric) for name in CONDITIONS}
            order = sorted(own[NONE], key=lambda case: own[NONE][case])
            for number, (name, figures) in enumerate(own.items()):
                draw.cloud(axes, number, name, [(x, figures[case]) for x, case in enumerate(order) if case in figures])
            axes.set_xticks([])
    return sheet.save(path)


def _figures(runs: Sequence[Run], group: str, method: Method, metric: Metric) -> dict[str, float]:
    return by_case([r for r in runs if (r.group, r.method) == (group, method.label) and r.done], metric)


EXPERIMENT = Experiment(
    name="rejection",
    title="Rejection of steps, and the cap on damping",
    question="Does it help to undo steps that raise the cost, does the cap matter, and which pairs decide?",
    paper="table 4",
    run=_run,
    check=lambda study: study.check(list(methods_of(study.plan).values())),
)

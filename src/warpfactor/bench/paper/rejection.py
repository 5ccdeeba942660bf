"""Table 4 of the paper: LM without rejection of steps, with rejection, and with rejection and an upper limit on λ.

Each is run with and without the stopping rule of the paper's software, which ends a level when the cost rises. The rule
ends a level before λ can grow without bound, and so conceals the purpose of the limit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from warpfactor.bench.paper import compare, draw, published
from warpfactor.bench.paper.methods import NO_STOP, RULE, lm
from warpfactor.bench.paper.study import Experiment, Findings, Study, StudyPlan
from warpfactor.bench.run.method import Method
from warpfactor.bench.run.record import Run
from warpfactor.bench.score.accuracy import by_case, by_group_and_method, sorted_runs, values
from warpfactor.bench.score.measures import SD_LOG_J, Measure
from warpfactor.bench.score.stats import summarize
from warpfactor.bench.score.tables import Table, TableColumn, Value

NONE, UNCAPPED, CAPPED = "no rejection", "rejection, no cap", "rejection, cap 1"
CONDITIONS: Mapping[str, Mapping[str, Any]] = {
    NONE: {},
    UNCAPPED: {f"{RULE}tolerance": 1.0},
    CAPPED: {f"{RULE}tolerance": 1.0, f"{RULE}cap": 1.0},
}
RULES: Mapping[str, Mapping[str, Any]] = {"on": {}, "off": NO_STOP}
SPREAD = 1.5  # interquartile ranges beyond a quartile from which a pair is an outlier, as in box plots


def methods_of(plan: StudyPlan) -> dict[tuple[str, str], Method]:
    """LM by stopping rule (on, off) and condition."""
    return {
        (rule, name): lm(plan, f"{name}, stopping rule {rule}", {**extra, **changes})
        for rule, extra in RULES.items()
        for name, changes in CONDITIONS.items()
    }


def _run(study: Study) -> Findings:
    methods = methods_of(study.plan)
    runs = study.run(list(methods.values()), what="three conditions, with and without the stopping rule")
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
        "τ = 1 where steps are rejected. The stopping rule is that of the paper's software: a level ends when the cost "
        f"rises. Differences are relative to `{NONE}` with the same stopping rule. A pair is an outlier if it is worse "
        f"than the quartile by more than {SPREAD:g} interquartile ranges. The mean without the worst pair leaves out "
        f"the pair that is worst with `{NONE}`, under every condition. Rejected steps are averaged over pairs."
    ]
    return Findings(tables, notes, lambda path: _draw(runs, methods, path), [*study.lost, *runs])


def outliers(scores: Mapping[str, float], measure: Measure) -> list[str]:
    """Names of the pairs that are worse than the others by Tukey's rule; none among fewer than four pairs."""
    known = {case: value for case, value in scores.items() if not math.isnan(value)}
    if len(known) < 4:
        return []
    import numpy as np

    low, high = np.quantile(list(known.values()), [0.25, 0.75]).tolist()
    reach = SPREAD * (high - low)
    if measure.higher_is_better:
        return [case for case, value in known.items() if value < low - reach]
    return [case for case, value in known.items() if value > high + reach]


def _row(groups: compare.Groups, place: tuple[str, str, str], method: Method, base: Method) -> dict[str, Value] | None:
    group, rule, name = place
    own, other = groups.get((group, method.label), ()), groups.get((group, base.label), ())
    measure = compare.measure_of(own, group)
    if measure is None:
        return None
    found = summarize(values(own, measure), higher_is_better=bool(measure.higher_is_better))
    scores, before = by_case(own, measure), by_case(other, measure)
    worst = compare.worst_case(other, measure)
    rest = summarize([value for case, value in scores.items() if case != worst])
    stages = [compare.deformable_stage(run) for run in own]
    row: dict[str, Value] = {"group": group, "measure": measure.title, "rule": rule, "condition": name}
    row |= {"count": found.count, "mean": found.mean, "sd": found.sd, "worst": found.worst}
    row |= {"outliers": ", ".join(outliers(scores, measure)) or None, "mean_without": rest.mean}
    row |= {SD_LOG_J.key: summarize(values(own, SD_LOG_J)).mean}
    row |= {"rejected": summarize([float(stage.get("rejected", math.nan)) for stage in stages]).mean}
    row["last_damping"] = f"{max(float(stage.get('last_damping') or 0) for stage in stages):.2g}"
    if name != NONE:
        row |= compare.difference(compare.paired(own, other, measure)) | _extremes(scores, before, measure)
    return row


def _extremes(scores: Mapping[str, float], before: Mapping[str, float], measure: Measure) -> dict[str, Value]:
    """The pair that gains most and the pair that loses most."""
    sign = 1.0 if measure.higher_is_better else -1.0
    gains = {case: sign * (value - before[case]) for case, value in scores.items() if case in before}
    gains = {case: gain for case, gain in gains.items() if not math.isnan(gain)}
    if not gains:
        return {}
    most, least = max(gains, key=lambda case: gains[case]), min(gains, key=lambda case: gains[case])
    texts = {"gains_most": most, "loses_most": least}
    return {key: f"{case}: {before[case]:.4f} to {scores[case]:.4f}" for key, case in texts.items()}


_HEAD = (
    TableColumn("group", "data"),
    TableColumn("measure", "measure"),
    TableColumn("rule", "stopping rule"),
    TableColumn("condition", "condition"),
)


def _condition_table(rows: Sequence[Mapping[str, Value]]) -> Table:
    columns = (
        *_HEAD,
        TableColumn("count", "pairs"),
        TableColumn("mean", "mean", compare.DIGITS),
        TableColumn("sd", "SD", compare.DIGITS),
        *compare.DIFFERENCE,
        TableColumn(SD_LOG_J.key, SD_LOG_J.title, SD_LOG_J.digits),
    )
    return Table("conditions", "Rejection and cap", columns, tuple(rows)).without_empty_columns()


def _outlier_table(rows: Sequence[Mapping[str, Value]]) -> Table:
    """Worst pairs, largest changes, rejected steps, and final λ."""
    columns = (
        *_HEAD,
        TableColumn("worst", "worst", compare.DIGITS),
        TableColumn("mean_without", "mean without it", compare.DIGITS),
        TableColumn("outliers", "outliers"),
        TableColumn("gains_most", "best change"),
        TableColumn("loses_most", "worst change"),
        TableColumn("rejected", "rejected", 1),
        TableColumn("last_damping", "largest last λ"),
    )
    return Table("outliers", "Outliers", columns, tuple(rows)).without_empty_columns()


def _pair_table(runs: Sequence[Run], methods: Mapping[tuple[str, str], Method]) -> Table:
    """One row per pair and condition: accuracy, change, rejected steps, and final λ."""
    names = {method.label: key for key, method in methods.items()}
    done = [run for run in sorted_runs(runs) if run.done]
    known = {(run.case, run.method): run for run in done}
    rows: list[dict[str, Value]] = []
    for run in done:
        rule, name = names[run.method]
        measure, base = compare.measure_of(done, run.group), known.get((run.case, methods[rule, NONE].label))
        if measure is None:
            continue
        value, stage = run.scores.get(measure.key, math.nan), compare.deformable_stage(run)
        last = stage.get("last_damping")
        change = None if base is None or name == NONE else value - base.scores.get(measure.key, math.nan)
        row: dict[str, Value] = {"group": run.group, "case": run.case, "rule": rule, "condition": name}
        row |= {"measure": measure.title, "value": value, "change": change}
        row |= {"rejected": stage.get("rejected"), "iterations": stage.get("iterations")}
        rows.append({**row, "last_damping": None if last is None else f"{last:.2g}"})
    columns = (
        *(TableColumn(k, t) for k, t in (("group", "data"), ("case", "pair"), ("rule", "stopping rule"))),
        TableColumn("condition", "condition"),
        TableColumn("measure", "measure"),
        TableColumn("value", "value", compare.DIGITS),
        TableColumn("change", "change", compare.DIGITS),
        *(TableColumn(k, k) for k in ("rejected", "iterations")),
        TableColumn("last_damping", "last damping"),
    )
    return Table("pairs", "Per pair", columns, tuple(rows)).without_empty_columns()


def _draw(runs: Sequence[Run], methods: Mapping[tuple[str, str], Method], path: Path) -> Path:
    """For each group and stopping rule, plot the accuracy of every pair under each condition."""
    groups = list(dict.fromkeys(run.group for run in runs if run.done))
    sheet = draw.PanelGrid(max(1, len(groups)), len(RULES))
    for line, group in enumerate(groups):
        measure = compare.measure_of(runs, group)
        if measure is None:
            continue
        for column, rule in enumerate(RULES):
            axes = sheet.axes(
                line, column, title=f"{group}, stopping rule {rule}", x=f"pair, sorted by {NONE}", y=measure.axis_title
            )
            own = {name: _scores(runs, group, methods[rule, name], measure) for name in CONDITIONS}
            order = sorted(own[NONE], key=lambda case: own[NONE][case])
            for number, (name, scores) in enumerate(own.items()):
                draw.cloud(axes, number, name, [(x, scores[case]) for x, case in enumerate(order) if case in scores])
            axes.set_xticks([])
    return sheet.save(path)


def _scores(runs: Sequence[Run], group: str, method: Method, measure: Measure) -> dict[str, float]:
    return by_case([r for r in runs if (r.group, r.method) == (group, method.label) and r.done], measure)


EXPERIMENT = Experiment(
    name="rejection",
    title="Rejection of steps, and an upper limit on the damping",
    question="Does it help to reject steps that raise the cost, does an upper limit on λ matter, and for which pairs?",
    paper="table 4",
    run=_run,
    check=lambda study: study.check(list(methods_of(study.plan).values())),
)

"""Table 3: settings that were searched on one dataset, on the others, against a search of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from warpfactor.bench.paper import compare, draw, published
from warpfactor.bench.paper.experiment import Experiment, Report
from warpfactor.bench.paper.modes import ADAM, DEFAULT, LM, adam, lm, ours
from warpfactor.bench.paper.search import Search, method_with
from warpfactor.bench.paper.study import Study
from warpfactor.bench.paper.tune import best_table, check, run_searches
from warpfactor.bench.run.run import Run
from warpfactor.bench.score.accuracy import by_case, by_group_and_method, pair_table, values
from warpfactor.bench.score.stats import summarize
from warpfactor.bench.score.tables import Column, Table, Value
from warpfactor.errors import InputError
from warpfactor.recipebook.plain import unknown

TRANSFER, TUNED = "LM-transfer", "LM-tuned"
METHODS = (ADAM, LM, TRANSFER, TUNED, DEFAULT)
COMPARISONS = ((TRANSFER, TUNED), (TRANSFER, LM), (TRANSFER, ADAM), (TUNED, ADAM), (DEFAULT, TUNED))


def source_of(study: Study) -> str:
    """The group whose settings are transferred."""
    groups = study.pairs.groups
    if study.plan.source is None:
        return groups[0]
    if study.plan.source not in groups:
        raise unknown("dataset", study.plan.source, groups)
    return study.plan.source


def _check(study: Study) -> None:
    if len(study.pairs.groups) < 2:
        raise InputError(
            f"The data has one dataset, {study.pairs.groups[0]}; a transfer needs two. Give --data several times."
        )
    source_of(study)
    check(study)
    study.check([adam(study.plan), ours(study.plan)])


def _run(study: Study) -> Report:
    searches = {found.group: found for found in run_searches(study)}
    source = searches[source_of(study)]
    if not source.trials:
        raise InputError(f"No pair of {source.group} could be registered, so there is nothing to transfer.")
    runs = [run for found in searches.values() if found.trials for run in _runs(study, found, source)]
    lost = [run for found in searches.values() for run in found.runs if not run.done]
    everything = [*study.lost, *lost, *runs]
    tables = [
        pair_table(runs),
        _table(runs, source.group),
        compare.difference_table(_transferred(runs, source.group), COMPARISONS),
        best_table(list(searches.values())),
        published.TRANSFER,
        *compare.failures(everything),
    ]
    notes = [
        f"`{TRANSFER}` has the settings that were best on {source.group}, `{TUNED}` those that were best on the data "
        f"itself, judged on the same pairs, so it is a ceiling; `{LM}` has the paper's numbers."
    ]
    return Report(tables, notes, lambda path: _draw(runs, source.group, path), everything)


def _runs(study: Study, found: Search, source: Search) -> list[Run]:
    """All methods on the pairs of a search; where settings coincide nothing is run twice."""
    methods = [
        adam(study.plan),
        lm(study.plan),
        method_with(study, source.best.settings, TRANSFER),
        method_with(study, found.best.settings, TUNED),
        ours(study.plan),
    ]
    return study.run(methods, found.cases, what=f"{found.group}: transferred and tuned settings")


def _transferred(runs: Sequence[Run], source: str) -> list[Run]:
    """Without the source's own settings on the source, which are its tuned ones."""
    return [run for run in runs if (run.group, run.method) != (source, TRANSFER)]


def _table(runs: Sequence[Run], source: str) -> Table:
    """One row per dataset, one column per method, as in the paper."""
    groups = by_group_and_method(runs)
    rows: list[dict[str, Value]] = []
    for group in dict.fromkeys(group for group, _ in groups):
        metric = compare.metric_of(runs, group)
        if metric is None:
            continue
        row: dict[str, Value] = {"group": group, "figure": metric.title}
        row["count"] = max(len(own) for (name, _), own in groups.items() if name == group)
        row |= {method: summarize(values(groups.get((group, method), ()), metric)).mean for method in METHODS}
        rows.append({**row, TRANSFER: None} if group == source else row)
    head = (Column("group", "data"), Column("figure", "figure"), Column("count", "pairs"))
    columns = (*head, *(Column(method, method, compare.DIGITS) for method in METHODS))
    return Table("transfer", f"Settings of {source} on other data", columns, tuple(rows))


def _draw(runs: Sequence[Run], source: str, path: Path) -> Path:
    """Per target: each method against Adam, pair by pair."""
    groups = [group for group in dict.fromkeys(run.group for run in runs if run.done) if group != source]
    sheet = draw.Sheet(1, max(1, len(groups)))
    for column, group in enumerate(groups):
        metric = compare.metric_of(runs, group)
        if metric is None:
            continue
        own = {m: by_case([r for r in runs if (r.group, r.method) == (group, m) and r.done], metric) for m in METHODS}
        axes = sheet.axes(0, column, title=group, x=f"{ADAM}, {metric.title}", y=f"other, {draw.named(metric)}")
        for number, method in enumerate(METHODS[1:], start=1):
            both = [case for case in own[method] if case in own[ADAM]]
            draw.cloud(axes, number, method, [(own[ADAM][case], own[method][case]) for case in both])
        draw.diagonal(axes)
    return sheet.save(path)


EXPERIMENT = Experiment(
    name="transfer",
    title="Transfer of settings between datasets",
    question="Do settings that were searched on one dataset serve the others as well as a search of their own?",
    paper="table 3",
    run=_run,
    options=frozenset({"iterations", "start", "trials", "seed", "source"}),
    check=_check,
)

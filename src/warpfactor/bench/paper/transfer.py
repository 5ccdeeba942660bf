"""Table 3 of the paper: settings found on one dataset, applied to the others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from warpfactor.bench.paper import compare, draw, published
from warpfactor.bench.paper.methods import ADAM, DEFAULT, LM, adam, lm, ours
from warpfactor.bench.paper.search import SearchResult, method_with
from warpfactor.bench.paper.study import Experiment, Findings, Study
from warpfactor.bench.paper.tune import best_table, check, run_searches
from warpfactor.bench.run.record import Run
from warpfactor.bench.score.accuracy import by_case, by_group_and_method, pair_table, values
from warpfactor.bench.score.stats import summarize
from warpfactor.bench.score.tables import Table, TableColumn, Value
from warpfactor.errors import InputError
from warpfactor.recipebook.plain import unknown

TRANSFER, TUNED = "LM-transfer", "LM-tuned"
METHODS = (ADAM, LM, TRANSFER, TUNED, DEFAULT)
COMPARISONS = ((TRANSFER, TUNED), (TRANSFER, LM), (TRANSFER, ADAM), (TUNED, ADAM), (DEFAULT, TUNED))


def source_of(study: Study) -> str:
    """Name of the group whose settings are transferred."""
    groups = study.pairs.groups
    if study.plan.source is None:
        return groups[0]
    if study.plan.source not in groups:
        raise unknown("dataset", study.plan.source, groups)
    return study.plan.source


def _check(study: Study) -> None:
    if len(study.pairs.groups) < 2:
        raise InputError(
            f"A transfer needs two datasets, but there is only {study.pairs.groups[0]}; give --data several times."
        )
    source_of(study)
    check(study)
    study.check([adam(study.plan), ours(study.plan)])


def _run(study: Study) -> Findings:
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
        f"`{TRANSFER}` has the settings that were best on {source.group}. `{TUNED}` has those that were best on the "
        f"same pairs, which is an upper bound. `{LM}` has the paper's settings."
    ]
    return Findings(tables, notes, lambda path: _draw(runs, source.group, path), everything)


def _runs(study: Study, found: SearchResult, source: SearchResult) -> list[Run]:
    """Run all methods on the pairs of a search; methods with equal settings share a run."""
    methods = [
        adam(study.plan),
        lm(study.plan),
        method_with(study, source.best.settings, TRANSFER),
        method_with(study, found.best.settings, TUNED),
        ours(study.plan),
    ]
    return study.run(methods, found.cases, what=f"{found.group}: transferred and tuned settings")


def _transferred(runs: Sequence[Run], source: str) -> list[Run]:
    """Leave out the transfer from the source to itself, which equals its tuned settings."""
    return [run for run in runs if (run.group, run.method) != (source, TRANSFER)]


def _table(runs: Sequence[Run], source: str) -> Table:
    """One row per dataset, one column per method, as in the paper."""
    groups = by_group_and_method(runs)
    rows: list[dict[str, Value]] = []
    for group in dict.fromkeys(group for group, _ in groups):
        measure = compare.measure_of(runs, group)
        if measure is None:
            continue
        row: dict[str, Value] = {"group": group, "measure": measure.title}
        row["count"] = max(len(own) for (name, _), own in groups.items() if name == group)
        row |= {method: summarize(values(groups.get((group, method), ()), measure)).mean for method in METHODS}
        rows.append({**row, TRANSFER: None} if group == source else row)
    head = (TableColumn("group", "data"), TableColumn("measure", "measure"), TableColumn("count", "pairs"))
    columns = (*head, *(TableColumn(method, method, compare.DIGITS) for method in METHODS))
    return Table("transfer", f"Settings of {source} on other data", columns, tuple(rows))


def _draw(runs: Sequence[Run], source: str, path: Path) -> Path:
    """For each target dataset, plot the methods against Adam, pair by pair."""
    groups = [group for group in dict.fromkeys(run.group for run in runs if run.done) if group != source]
    sheet = draw.PanelGrid(1, max(1, len(groups)))
    for column, group in enumerate(groups):
        measure = compare.measure_of(runs, group)
        if measure is None:
            continue
        own = {m: by_case([r for r in runs if (r.group, r.method) == (group, m) and r.done], measure) for m in METHODS}
        axes = sheet.axes(0, column, title=group, x=f"{ADAM}, {measure.title}", y=f"other, {measure.axis_title}")
        for number, method in enumerate(METHODS[1:], start=1):
            both = [case for case in own[method] if case in own[ADAM]]
            draw.cloud(axes, number, method, [(own[ADAM][case], own[method][case]) for case in both])
        draw.diagonal(axes)
    return sheet.save(path)


EXPERIMENT = Experiment(
    name="transfer",
    title="Transfer of settings between datasets",
    question="Are settings found on one dataset as good for another dataset as settings found on that dataset itself?",
    paper="table 3",
    run=_run,
    options=frozenset({"iterations", "start", "trials", "seed", "source"}),
    check=_check,
)

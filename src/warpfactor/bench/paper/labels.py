"""Table 2 of the paper: Dice per label for Adam, LM and our default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from warpfactor.bench.paper import compare, draw, published
from warpfactor.bench.paper.main import methods_of
from warpfactor.bench.paper.methods import ADAM, DEFAULT, LM
from warpfactor.bench.paper.study import Experiment, Findings, Study
from warpfactor.bench.run.record import Run
from warpfactor.bench.score.measures import DICE
from warpfactor.bench.score.stats import compare as compare_pairs
from warpfactor.bench.score.stats import summarize
from warpfactor.bench.score.tables import Table, TableColumn, Value
from warpfactor.errors import InputError

METHODS = (ADAM, LM, DEFAULT)
COMPARISONS = ((LM, ADAM), (DEFAULT, ADAM))
NAMED = 40  # maximum number of labels whose names are shown in the plot


def _check(study: Study) -> None:
    if not any(case.fixed_labels for case in study.pairs.cases):
        raise InputError(
            "No pair has labels, which this experiment needs; add the columns fixed_labels and moving_labels."
        )
    study.check(methods_of(study))


def _run(study: Study) -> Findings:
    cases = [case for case in study.cases if case.fixed_labels]
    runs = study.run(methods_of(study), cases, what="Adam, LM and default")
    rows = [row for group in study.pairs.groups for row in _rows(runs, group, study.pairs.label_names.get(group, {}))]
    tables = [_table(rows), _overview(rows), published.LABELS, *compare.failures([*study.lost, *runs])]
    notes = ["A label counts for a pair if both native maps have it; a label that disappears counts 0."]
    return Findings(tables, notes, lambda path: _draw(rows, path), [*study.lost, *runs])


def per_label(runs: Sequence[Run], method: str) -> dict[int, dict[str, float]]:
    """Dice by label and case."""
    found: dict[int, dict[str, float]] = {}
    for run in runs:
        if run.method == method and run.done:
            for label, value in run.per_label.get(DICE.key, {}).items():
                found.setdefault(label, {})[run.case] = value
    return found


def _rows(runs: Sequence[Run], group: str, names: Mapping[int, str]) -> list[dict[str, Value]]:
    own = [run for run in runs if run.group == group]
    scores = {method: per_label(own, method) for method in METHODS}
    rows = []
    for label in sorted({label for found in scores.values() for label in found}):
        by_method = {method: scores[method].get(label, {}) for method in METHODS}
        row: dict[str, Value] = {"group": group, "label": label, "name": names.get(label, "")}
        row["count"] = max(len(found) for found in by_method.values())
        row |= {method: summarize(list(found.values())).mean for method, found in by_method.items()}
        for method, other in COMPARISONS:
            found = compare_pairs(by_method[method], by_method[other], higher_is_better=True)
            row |= {_key(method, "difference"): found.mean, _key(method, "low"): found.low}
            row |= {_key(method, "high"): found.high, _key(method, "clear"): found.verdict}
        rows.append(row)
    return rows


def _key(method: str, what: str) -> str:
    """Key of a column about the difference of a method."""
    return f"{method.lower()}_{what}"


def _table(rows: Sequence[Mapping[str, Value]]) -> Table:
    columns = (
        TableColumn("group", "data"),
        TableColumn("label", "label"),
        TableColumn("name", "name"),
        TableColumn("count", "pairs"),
        *(TableColumn(method, method, 4) for method in METHODS),
        *(
            column
            for method, other in COMPARISONS
            for column in (
                TableColumn(_key(method, "difference"), f"{method} minus {other}", 4),
                TableColumn(_key(method, "low"), "95 % from", 4),
                TableColumn(_key(method, "high"), "to", 4),
                TableColumn(_key(method, "clear"), "clear"),
            )
        ),
    )
    return Table("labels", "Dice per label", columns, tuple(rows)).without_empty_columns()


def _overview(rows: Sequence[Mapping[str, Value]]) -> Table:
    """Number of labels on which a method is better and clearly better, unless there are too few pairs."""
    found: list[dict[str, Value]] = []
    for group in dict.fromkeys(str(row["group"]) for row in rows):
        own = [row for row in rows if row["group"] == group]
        for method, other in COMPARISONS:
            gains = [(float(row[_key(method, "difference")] or 0), str(row[_key(method, "clear")])) for row in own]
            known = any(verdict != "too few" for _, verdict in gains)
            found.append(
                {
                    "group": group,
                    "method": method,
                    "other": other,
                    "labels": len(own),
                    "better": sum(gain > 0 for gain, _ in gains),
                    "clearly_better": sum(g > 0 and v == "yes" for g, v in gains) if known else "too few",
                    "clearly_worse": sum(g < 0 and v == "yes" for g, v in gains) if known else "too few",
                }
            )
    titles = {"group": "data", "other": "against", "clearly_better": "clearly better", "clearly_worse": "clearly worse"}
    keys = ("group", "method", "other", "labels", "better", "clearly_better", "clearly_worse")
    columns = tuple(TableColumn(key, titles.get(key, key)) for key in keys)
    return Table("overview", "Labels on which a method is better", columns, tuple(found))


def _draw(rows: Sequence[Mapping[str, Value]], path: Path) -> Path:
    """For each group, plot the Dice of every label, sorted by that of Adam."""
    groups = list(dict.fromkeys(str(row["group"]) for row in rows))
    sheet = draw.PanelGrid(len(groups), 1, panel=(9.0, 3.6))
    for line, group in enumerate(groups):
        own = sorted((row for row in rows if row["group"] == group), key=lambda row: float(row[ADAM] or 0))
        axes = sheet.axes(line, 0, title=group, x="label, sorted by Adam's Dice", y=DICE.axis_title)
        for number, method in enumerate(METHODS):
            draw.cloud(axes, number, method, [(x, float(row[method] or 0)) for x, row in enumerate(own)])
        if len(own) <= NAMED:
            ticks = [str(row["name"] or row["label"]) for row in own]
            axes.set_xticks(range(len(own)), ticks, rotation=60, ha="right", fontsize=7)
        else:
            axes.set_xticks([])
    return sheet.save(path)


EXPERIMENT = Experiment(
    name="labels",
    title="Dice per label",
    question="Is the gain in all structures, or in a few?",
    paper="table 2",
    run=_run,
    check=_check,
)

"""The paper's search for λ₀, μ⁺ and μ⁻, on each dataset by itself: the best settings, and how flat it is there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from warpfactor.bench.paper import compare, draw
from warpfactor.bench.paper.experiment import Experiment, Report
from warpfactor.bench.paper.modes import DAMPING
from warpfactor.bench.paper.search import SPACE, Search, check_optuna, method_with, search
from warpfactor.bench.paper.study import Study
from warpfactor.bench.run.run import Run
from warpfactor.bench.score.tables import Column, Table, Value

SYMBOLS = {"initial": "λ₀", "increase": "μ⁺", "decrease": "μ⁻"}
BEST, FIRST = "best of the search", "paper's numbers"
LEADERS = 5  # trials whose settings show how flat the optimum is


def run_searches(study: Study) -> list[Search]:
    """A search on every group."""
    return [search(study, group) for group in study.pairs.groups]


def check(study: Study) -> None:
    """InputError if there is no Optuna, or LM cannot run here."""
    check_optuna()
    study.check([method_with(study, DAMPING, FIRST)])


def _run(study: Study) -> Report:
    searches = run_searches(study)
    runs = [run for found in searches if found.trials for run in _best_runs(study, found)]
    lost = [run for found in searches for run in found.runs if not run.done]
    everything = [*study.lost, *lost, *runs]
    tables = [
        trial_table(searches),
        best_table(searches),
        compare.difference_table(runs, [(BEST, FIRST)], title="The best settings against the paper's, same pairs"),
        *compare.failures(everything),
    ]
    ranges = ", ".join(f"{SYMBOLS[name]} {low:g} to {high:g}" for name, (low, high, _) in SPACE.items())
    notes = [
        f"Optuna's TPE within {ranges}; the first trial has the paper's numbers. A search is judged on the pairs it "
        "was made on, as in the paper, so its best mean is too good. The settings of the best trials, at most "
        f"{LEADERS}, show how flat the optimum is. The paper finds μ⁺ of 1.5 to 2.0 and μ⁻ of about 0.97 to 0.98 on "
        "all four of its datasets."
    ]
    return Report([table for table in tables if table.rows], notes, lambda path: _draw(searches, path), everything)


def _best_runs(study: Study, found: Search) -> list[Run]:
    methods = [method_with(study, DAMPING, FIRST), method_with(study, found.best.settings, BEST)]
    return study.run(methods, found.cases)


def trial_table(searches: Sequence[Search]) -> Table:
    """Every trial."""
    columns = (
        Column("group", "data"),
        Column("trial", "trial"),
        *(Column(name, symbol, 5) for name, symbol in SYMBOLS.items()),
        Column("figure", "figure"),
        Column("mean", "mean", compare.DIGITS),
        Column("reason", "failed"),
    )
    rows: list[dict[str, Value]] = []
    for found in searches:
        for trial in found.trials:
            row: dict[str, Value] = {"group": found.group, "trial": trial.number, **trial.settings}
            row |= {"figure": found.metric.title if found.metric else None, "mean": trial.mean, "reason": trial.reason}
            rows.append(row)
    return Table("trials", "Every trial", columns, tuple(rows)).without_empty_columns()


def best_table(searches: Sequence[Search]) -> Table:
    """Per group: the best settings, what they gain on the same pairs, and what the next best look like."""
    rows: list[dict[str, Value]] = []
    most = 0  # leaders of any search: fewer than LEADERS if there were fewer trials
    for found in searches:
        if found.metric is None or not found.trials:
            continue
        best, leaders = found.best, found.ranked[:LEADERS]
        most = max(most, len(leaders))
        row: dict[str, Value] = {"group": found.group, "figure": found.metric.title, "count": len(found.cases)}
        row |= {"trials": len(found.trials), "trial": best.number, **best.settings}
        row |= {"mean": best.mean, "first": found.trials[0].mean}
        for name in SYMBOLS:
            near = [trial.settings[name] for trial in leaders]
            row[f"{name}_leaders"] = f"{min(near):.3g} to {max(near):.3g}"
        rows.append(row)
    columns = (
        Column("group", "data"),
        Column("figure", "figure"),
        Column("count", "pairs"),
        Column("trials", "trials"),
        Column("trial", "best trial"),
        *(Column(name, symbol, 4) for name, symbol in SYMBOLS.items()),
        Column("mean", "its mean", compare.DIGITS),
        Column("first", "mean with the paper's numbers", compare.DIGITS),
        *(Column(f"{name}_leaders", f"{symbol} of the best {most}") for name, symbol in SYMBOLS.items()),
    )
    return Table("best", "Best settings", columns, tuple(rows))


def _draw(searches: Sequence[Search], path: Path) -> Path:
    """Per group a row of panels: the mean of each trial over each setting."""
    shown = [found for found in searches if found.metric is not None and found.trials]
    sheet = draw.Sheet(max(1, len(shown)), len(SYMBOLS))
    for line, found in enumerate(shown):
        if found.metric is None:
            continue
        for column, (name, symbol) in enumerate(SYMBOLS.items()):
            axes = sheet.axes(line, column, title=f"{found.group}: {symbol}", x=symbol, y=draw.named(found.metric))
            done = [trial for trial in found.trials if not trial.reason]
            draw.cloud(axes, 0, "trial", [(t.settings[name], t.mean) for t in done])
            draw.cloud(axes, 1, FIRST, [(t.settings[name], t.mean) for t in done if t.number == 0])
            draw.cloud(axes, 2, BEST, [(found.best.settings[name], found.best.mean)])
            low, high, logarithmic = SPACE[name]
            axes.set_xlim(low / 1.05, high * 1.05)
            if logarithmic:
                draw.make_logarithmic(axes)
    return sheet.save(path)


EXPERIMENT = Experiment(
    name="tune",
    title="Search for the damping's settings",
    question="Which settings are best on each dataset, and how much better than the paper's are they?",
    paper="section 3.2",
    run=_run,
    options=frozenset({"iterations", "start", "trials", "seed"}),
    check=check,
)

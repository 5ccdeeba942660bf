"""Section 3.2 of the paper: search of λ₀, μ⁺ and μ⁻ on each dataset separately."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from warpfactor.bench.paper import compare, draw
from warpfactor.bench.paper.methods import DAMPING
from warpfactor.bench.paper.search import SPACE, SearchResult, check_optuna, method_with, search
from warpfactor.bench.paper.study import Experiment, Findings, Study
from warpfactor.bench.run.record import Run
from warpfactor.bench.score.tables import Table, TableColumn, Value

SYMBOLS = {"initial": "λ₀", "increase": "μ⁺", "decrease": "μ⁻"}
BEST, FIRST = "best of the search", "paper's settings"
LEADERS = 5  # best trials whose settings show how flat the optimum is


def run_searches(study: Study) -> list[SearchResult]:
    """Search on every group."""
    return [search(study, group) for group in study.pairs.groups]


def check(study: Study) -> None:
    """Raise an InputError if Optuna is not installed or LM cannot run."""
    check_optuna()
    study.check([method_with(study, DAMPING, FIRST)])


def _run(study: Study) -> Findings:
    searches = run_searches(study)
    runs = [run for found in searches if found.trials for run in _best_runs(study, found)]
    lost = [run for found in searches for run in found.runs if not run.done]
    everything = [*study.lost, *lost, *runs]
    tables = [
        trial_table(searches),
        best_table(searches),
        compare.difference_table(runs, [(BEST, FIRST)], title="Best settings minus the paper's, on the same pairs"),
        *compare.failures(everything),
    ]
    ranges = ", ".join(f"{SYMBOLS[name]} {low:g} to {high:g}" for name, (low, high, _) in SPACE.items())
    notes = [
        f"Search by Optuna's TPE sampler within {ranges}; the first trial has the paper's settings. As in the paper, a "
        "search is evaluated on the same pairs that it was made on, so its best mean is optimistic. The ranges of the "
        f"best trials (at most {LEADERS}) show how flat the optimum is. The paper finds μ⁺ of 1.5 to 2.0 and μ⁻ of "
        "about 0.97 to 0.98 on all four of its datasets."
    ]
    return Findings([table for table in tables if table.rows], notes, lambda path: _draw(searches, path), everything)


def _best_runs(study: Study, found: SearchResult) -> list[Run]:
    methods = [method_with(study, DAMPING, FIRST), method_with(study, found.best.settings, BEST)]
    return study.run(methods, found.cases)


def trial_table(searches: Sequence[SearchResult]) -> Table:
    """Every trial."""
    columns = (
        TableColumn("group", "data"),
        TableColumn("trial", "trial"),
        *(TableColumn(name, symbol, 5) for name, symbol in SYMBOLS.items()),
        TableColumn("measure", "measure"),
        TableColumn("mean", "mean", compare.DIGITS),
        TableColumn("reason", "failed"),
    )
    rows: list[dict[str, Value]] = []
    for found in searches:
        for trial in found.trials:
            row: dict[str, Value] = {"group": found.group, "trial": trial.number, **trial.settings}
            row |= {
                "measure": found.measure.title if found.measure else None,
                "mean": trial.mean,
                "reason": trial.reason,
            }
            rows.append(row)
    return Table("trials", "Every trial", columns, tuple(rows)).without_empty_columns()


def best_table(searches: Sequence[SearchResult]) -> Table:
    """Best settings by group, their gain on the same pairs, and the range of the next best settings."""
    rows: list[dict[str, Value]] = []
    most = 0  # number of best trials that are shown; fewer than LEADERS if there were fewer trials
    for found in searches:
        if found.measure is None or not found.trials:
            continue
        best, leaders = found.best, found.ranked[:LEADERS]
        most = max(most, len(leaders))
        row: dict[str, Value] = {"group": found.group, "measure": found.measure.title, "count": len(found.cases)}
        row |= {"trials": len(found.trials), "trial": best.number, **best.settings}
        row |= {"mean": best.mean, "first": found.trials[0].mean}
        for name in SYMBOLS:
            near = [trial.settings[name] for trial in leaders]
            row[f"{name}_leaders"] = f"{min(near):.3g} to {max(near):.3g}"
        rows.append(row)
    columns = (
        TableColumn("group", "data"),
        TableColumn("measure", "measure"),
        TableColumn("count", "pairs"),
        TableColumn("trials", "trials"),
        TableColumn("trial", "best trial"),
        *(TableColumn(name, symbol, 4) for name, symbol in SYMBOLS.items()),
        TableColumn("mean", "its mean", compare.DIGITS),
        TableColumn("first", "mean with the paper's settings", compare.DIGITS),
        *(TableColumn(f"{name}_leaders", f"{symbol} of the best {most}") for name, symbol in SYMBOLS.items()),
    )
    return Table("best", "Best settings", columns, tuple(rows))


def _draw(searches: Sequence[SearchResult], path: Path) -> Path:
    """For each group, plot the mean of each trial over each setting."""
    shown = [found for found in searches if found.measure is not None and found.trials]
    sheet = draw.PanelGrid(max(1, len(shown)), len(SYMBOLS))
    for line, found in enumerate(shown):
        if found.measure is None:
            continue
        for column, (name, symbol) in enumerate(SYMBOLS.items()):
            axes = sheet.axes(line, column, title=f"{found.group}: {symbol}", x=symbol, y=found.measure.axis_title)
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
    title="Search of the damping settings",
    question="Which settings are best on each dataset, and how much better than the paper's are they?",
    paper="section 3.2",
    run=_run,
    options=frozenset({"iterations", "start", "trials", "seed"}),
    check=check,
)

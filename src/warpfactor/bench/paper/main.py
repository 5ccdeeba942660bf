"""Table 1 of the paper: Adam, LM and our own recipes, compared pair by pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from warpfactor.bench.paper import compare, draw, published
from warpfactor.bench.paper.methods import ADAM, DEFAULT, LM, adam, lm, ours
from warpfactor.bench.paper.study import Experiment, Findings, Study
from warpfactor.bench.run.method import Method
from warpfactor.bench.run.record import Run
from warpfactor.bench.score.accuracy import by_case, pair_table
from warpfactor.bench.score.measures import SD_LOG_J


def methods_of(study: Study) -> tuple[Method, ...]:
    """The methods that are run on every pair."""
    return adam(study.plan), lm(study.plan), ours(study.plan)


def own_recipes(study: Study) -> dict[str, Method]:
    """By recipe, the methods that the dataset names for its pairs if they are not the default."""
    named = dict.fromkeys(case.recipe for case in study.pairs.cases if case.recipe != DEFAULT)
    return {recipe: ours(study.plan, recipe) for recipe in named}


def run_main(study: Study) -> list[Run]:
    """Run Adam, LM and default on every pair, and the recipe that the dataset names for a pair."""
    runs = study.run(methods_of(study), what="Adam, LM and default")
    for recipe, method in own_recipes(study).items():
        cases = [case for case in study.cases if case.recipe == recipe]
        if cases:
            runs += study.run([method], cases, what=f"recipe {method.label}")
    return runs


def _run(study: Study) -> Findings:
    runs = run_main(study)
    own = [(method.label, DEFAULT) for method in own_recipes(study).values()]
    tables = [
        replace(pair_table(runs), name="pairs"),
        compare.summary_table(runs, baseline=ADAM, outliers_of=LM),
        compare.difference_table(runs, [(LM, ADAM), (DEFAULT, ADAM), (DEFAULT, LM), *own]),
        published.MAIN,
        *compare.failures([*study.lost, *runs]),
    ]
    notes = [
        "The outlier is the pair on which LM is worst; the same pair is left out for every method. CPU seconds are "
        "those of the deformable stage, summed over all threads."
    ]
    return Findings(tables, notes, lambda path: _draw(runs, path), [*study.lost, *runs])


def _draw(runs: Sequence[Run], path: Path) -> Path:
    """For each group, plot the methods against Adam pair by pair, and accuracy against regularity."""
    groups = list(dict.fromkeys(run.group for run in runs if run.done))
    sheet = draw.PanelGrid(len(groups), 2)
    names = list(dict.fromkeys(run.method for run in runs))
    for row, group in enumerate(groups):
        measure = compare.measure_of(runs, group)
        if measure is None:
            continue
        title = f"{group}: {measure.title}"
        pairs = sheet.axes(row, 0, title=title, x=f"{ADAM}, {measure.title}", y=f"other, {measure.axis_title}")
        cost = sheet.axes(row, 1, title=f"{group}: accuracy and regularity", x=SD_LOG_J.title, y=measure.axis_title)
        yardstick = by_case([r for r in runs if (r.group, r.method) == (group, ADAM) and r.done], measure)
        for number, name in enumerate(names):
            own = [run for run in runs if (run.group, run.method) == (group, name) and run.done]
            scores = by_case(own, measure)
            if name != ADAM and scores:
                draw.cloud(pairs, number, name, [(yardstick[c], v) for c, v in scores.items() if c in yardstick])
            smooth = by_case(own, SD_LOG_J)
            if scores:
                draw.cloud(cost, number, name, [(smooth[case], value) for case, value in scores.items()])
        draw.diagonal(pairs)
    return sheet.save(path)


EXPERIMENT = Experiment(
    name="main",
    title="Adam against LM",
    question="Is the paper's optimizer better than Adam, pair by pair, and is our default better than both?",
    paper="table 1",
    run=_run,
    check=lambda study: study.check([*methods_of(study), *own_recipes(study).values()]),
)

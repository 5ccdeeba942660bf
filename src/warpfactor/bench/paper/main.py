"""Table 1: Adam against LM and against our own recipes, pair by pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from warpfactor.bench.paper import compare, draw, published
from warpfactor.bench.paper.experiment import Experiment, Report
from warpfactor.bench.paper.modes import ADAM, DEFAULT, LM, adam, lm, ours
from warpfactor.bench.paper.study import Study
from warpfactor.bench.run.method import Method
from warpfactor.bench.run.run import Run
from warpfactor.bench.score.accuracy import by_case, pair_table
from warpfactor.bench.score.metric import SD_LOG_J


def methods_of(study: Study) -> tuple[Method, ...]:
    """The optimizers that every pair is registered with."""
    return adam(study.plan), lm(study.plan), ours(study.plan)


def own_recipes(study: Study) -> dict[str, Method]:
    """Methods by the recipes that the dataset names for its pairs, where they are not the default."""
    named = dict.fromkeys(case.recipe for case in study.pairs.cases if case.recipe != DEFAULT)
    return {recipe: ours(study.plan, recipe) for recipe in named}


def run_main(study: Study) -> list[Run]:
    """Adam, LM and default on every pair, and the recipe of its own where a pair has one."""
    runs = study.run(methods_of(study), what="Adam, LM and default")
    for recipe, method in own_recipes(study).items():
        cases = [case for case in study.cases if case.recipe == recipe]
        if cases:
            runs += study.run([method], cases, what=f"recipe {method.label}")
    return runs


def _run(study: Study) -> Report:
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
        "The outlier is the pair on which LM is worst; it is left out for every method alike. CPU seconds are of the "
        "warp, all threads together, the affine not included."
    ]
    return Report(tables, notes, lambda path: _draw(runs, path), [*study.lost, *runs])


def _draw(runs: Sequence[Run], path: Path) -> Path:
    """Per group: each method against Adam, pair by pair; and accuracy against regularity."""
    groups = list(dict.fromkeys(run.group for run in runs if run.done))
    sheet = draw.Sheet(len(groups), 2)
    names = list(dict.fromkeys(run.method for run in runs))
    for row, group in enumerate(groups):
        metric = compare.metric_of(runs, group)
        if metric is None:
            continue
        title = f"{group}: {metric.title}"
        pairs = sheet.axes(row, 0, title=title, x=f"{ADAM}, {metric.title}", y=f"other, {draw.named(metric)}")
        cost = sheet.axes(row, 1, title=f"{group}: accuracy and regularity", x=SD_LOG_J.title, y=draw.named(metric))
        yardstick = by_case([r for r in runs if (r.group, r.method) == (group, ADAM) and r.done], metric)
        for number, name in enumerate(names):
            own = [run for run in runs if (run.group, run.method) == (group, name) and run.done]
            figures = by_case(own, metric)
            if name != ADAM and figures:
                draw.cloud(pairs, number, name, [(yardstick[c], v) for c, v in figures.items() if c in yardstick])
            smooth = by_case(own, SD_LOG_J)
            if figures:
                draw.cloud(cost, number, name, [(smooth[case], value) for case, value in figures.items()])
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

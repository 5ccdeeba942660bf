"""The files of an experiment: tables as CSV and JSON, the figure, and a page of Markdown that can go into the docs."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from warpfactor.bench.paper.data import as_typed
from warpfactor.bench.paper.experiment import Experiment, Plan, Report
from warpfactor.bench.paper.modes import DAMPING, PAPER
from warpfactor.bench.paper.study import Study
from warpfactor.bench.run import machine
from warpfactor.bench.run.run import Run
from warpfactor.bench.run.runner import cautions
from warpfactor.bench.score.stats import ENOUGH
from warpfactor.bench.score.tables import write_tables
from warpfactor.errors import WarpfactorError
from warpfactor.recipebook.files import recipe as find_recipe

WIDTH = 120


def write(experiment: Experiment, report: Report, study: Study) -> list[Path]:
    """Write FOLDER/NAME/NAME.csv, .json, .md and .png; return them."""
    folder, name = study.folder / experiment.name, experiment.name
    picture = None if report.draw is None else report.draw(folder / f"{name}.png")
    notes = "\n\n".join(_wrapped(part) for part in _page(experiment, report, study, picture)) + "\n"
    extra = {"experiment": name, "machine": machine.describe()}
    written = write_tables(report.tables, folder, name, notes=notes, extra=extra)
    return [*written, *([picture] if picture is not None else [])]


def _page(experiment: Experiment, report: Report, study: Study, picture: Path | None) -> list[str]:
    """Paragraphs above the tables."""
    parts = [
        f"## {experiment.title}",
        f"{experiment.question} In the paper: {experiment.paper}.",
        f"`{_command(experiment, study)}`",
        f"{machine.sentence()}.",
    ]
    if experiment.needs_data:
        parts += [_pairs(study), _protocol(study, report.runs)]
    parts += report.notes
    parts += cautions(report.runs)
    if picture is not None:
        parts.append(f"![{experiment.title}]({picture.name})")
    return parts


def _wrapped(paragraph: str) -> str:
    """As lines of the length that our own pages have; commands stay whole."""
    return paragraph if paragraph.startswith("`") else textwrap.fill(paragraph, WIDTH, break_on_hyphens=False)


def _command(experiment: Experiment, study: Study) -> str:
    """What makes this page again, or goes on with it."""
    how = study.options
    parts = ["warpfactor bench paper", experiment.name, study.pairs.command, *_options(study.plan)]
    parts += [f"--jobs {how.jobs}"] if how.jobs > 1 else []
    parts += [f"--threads {how.threads}"] if how.threads is not None else []
    parts += ["--masks"] if how.masks else []
    parts += [f"--limit-minutes {how.timeout_s / 60:g}"] if how.timeout_s is not None else []
    return " ".join(part for part in [*parts, f"-o {as_typed(study.folder)}"] if part)


def _options(plan: Plan) -> list[str]:
    """The plan as it was written on the command line."""
    given = {name: value for name, value in vars(plan).items() if value is not None}
    texts = {name: ",".join(map(str, value)) if isinstance(value, tuple) else value for name, value in given.items()}
    return [f"--{name} {as_typed(str(text))}" for name, text in texts.items()]


def _pairs(study: Study) -> str:
    counts = ", ".join(f"{group} ({len(study.pairs.of(group))})" for group in study.pairs.groups)
    return f"Pairs: {counts}."


def _protocol(study: Study, runs: Sequence[Run]) -> str:
    """What all methods have in common."""
    found = find_recipe(PAPER).deformable
    if found is None:
        raise WarpfactorError("The recipe `paper` has no deformable stage.")
    limits = study.plan.iterations or found.iterations
    levels, numbers = (", ".join(f"{n:g}" for n in each) for each in (found.levels, limits))
    crowded = any(int(run.entries.get("jobs", 1)) > 1 for run in runs if run.done)
    text = (
        "All methods start from the same affine of a pair, found once. LM and Adam are the recipe `paper`: levels "
        f"{levels} with at most {numbers} iterations, LNCC window 7, sigma {found.sigma_grad:g} on the gradient and "
        f"{found.sigma_warp:g} on the warp, each level ended when the cost rises; LM with λ₀ = {DAMPING['initial']:g}, "
        f"μ⁺ = {DAMPING['increase']:g}, μ⁻ = {DAMPING['decrease']:g}, Adam with learning rate 0.5. Names of recipes "
        "(`default`, ...) are ours. SD is over pairs, with n - 1. Differences are paired, with 95 % bootstrap "
        "intervals over pairs; one is clear if its interval leaves out zero and at least "
        f"{ENOUGH} pairs are behind it."
    )
    return text + (" Several runs shared the machine, so compare times with care." if crowded else "")

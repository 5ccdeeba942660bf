"""Files of an experiment: tables as CSV and JSON, a plot, and a page in Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from warpfactor.bench.paper.methods import DAMPING, PAPER
from warpfactor.bench.paper.pairs import as_typed
from warpfactor.bench.paper.study import Experiment, Findings, Study, StudyPlan
from warpfactor.bench.run import machine
from warpfactor.bench.run.record import Run
from warpfactor.bench.run.runner import cautions
from warpfactor.bench.score.stats import ENOUGH
from warpfactor.bench.score.tables import write_tables
from warpfactor.errors import WarpfactorError
from warpfactor.recipebook.files import recipe as find_recipe

WIDTH = 120


def write(experiment: Experiment, findings: Findings, study: Study) -> list[Path]:
    """Write FOLDER/NAME/NAME.csv, .json, .md and .png, and return their paths."""
    folder, name = study.folder / experiment.name, experiment.name
    picture = None if findings.draw is None else findings.draw(folder / f"{name}.png")
    notes = "\n\n".join(_wrapped(part) for part in _page(experiment, findings, study, picture)) + "\n"
    extra = {"experiment": name, "machine": machine.describe()}
    written = write_tables(findings.tables, folder, name, notes=notes, extra=extra)
    return [*written, *([picture] if picture is not None else [])]


def _page(experiment: Experiment, findings: Findings, study: Study, picture: Path | None) -> list[str]:
    """Paragraphs above the tables."""
    parts = [
        f"## {experiment.title}",
        f"{experiment.question} In the paper: {experiment.paper}.",
        f"`{_command(experiment, study)}`",
        f"{machine.sentence()}.",
    ]
    if experiment.needs_data:
        parts += [_pairs(study), _protocol(study, findings.runs)]
    parts += findings.notes
    parts += cautions(findings.runs)
    if picture is not None:
        parts.append(f"![{experiment.title}]({picture.name})")
    return parts


def _wrapped(paragraph: str) -> str:
    """Wrap a paragraph at the line length of our documentation; commands are not wrapped."""
    return paragraph if paragraph.startswith("`") else textwrap.fill(paragraph, WIDTH, break_on_hyphens=False)


def _command(experiment: Experiment, study: Study) -> str:
    """The command that creates this page, or resumes it."""
    how = study.options
    parts = ["warpfactor bench paper", experiment.name, study.pairs.command, *_options(study.plan)]
    parts += [f"--jobs {how.jobs}"] if how.jobs > 1 else []
    parts += [f"--threads {how.threads}"] if how.threads is not None else []
    parts += ["--masks"] if how.masks else []
    parts += [f"--limit-minutes {how.timeout_s / 60:g}"] if how.timeout_s is not None else []
    return " ".join(part for part in [*parts, f"-o {as_typed(study.folder)}"] if part)


def _options(plan: StudyPlan) -> list[str]:
    """The plan as command-line options."""
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
        "All methods start from the same affine of a pair. LM and Adam are the recipe `paper`: levels "
        f"{levels} with at most {numbers} iterations, LNCC with window 7, Gaussian smoothing with sigma "
        f"{found.sigma_grad:g} for the gradient and {found.sigma_warp:g} for the warp; a level ends when the cost "
        f"rises. LM has λ₀ = {DAMPING['initial']:g}, μ⁺ = {DAMPING['increase']:g} and μ⁻ = {DAMPING['decrease']:g}, "
        "Adam has learning rate 0.5. The other methods are our own recipes. SD is the standard deviation over pairs "
        "(n - 1). Differences are paired and have 95 % bootstrap intervals over pairs; a difference is clear if its "
        f"interval excludes zero and it is based on at least {ENOUGH} pairs."
    )
    return text + (" Several runs shared the machine, so times are approximate." if crowded else "")

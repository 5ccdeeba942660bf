"""`warpfactor template`: an unbiased template of a group of images."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from warpfactor.cli import wording
from warpfactor.cli.cohort_view import cohort_progress
from warpfactor.cli.engine_options import Recipe, cohort_errors, engine_command
from warpfactor.cli.options import Json, OutputFolder, Quiet, Settings, parse_settings
from warpfactor.cli.terminal import print_json

if TYPE_CHECKING:
    from warpfactor.cohort import EngineSettings
    from warpfactor.cohort.template import TemplateIteration


@engine_command
def command(  # noqa: PLR0913 - one argument per option
    images: Annotated[
        list[str],
        typer.Argument(
            metavar="IMAGES",
            help="Image files or patterns, or a table with the columns image, labels, mask and name.",
        ),
    ],
    output: OutputFolder,
    *,
    iterations: Annotated[
        int, typer.Option(metavar="COUNT", help="Maximum number of rounds of registering and averaging.")
    ] = 4,
    tolerance: Annotated[
        float,
        typer.Option(
            metavar="SHARE", help="Stop when a round changes the template by less than this share of its contrast."
        ),
    ] = 0.01,
    sharpen: Annotated[
        float, typer.Option(metavar="NUMBER", help="How strongly each average is sharpened; 0 leaves it as it is.")
    ] = 0.5,
    symmetric: Annotated[
        bool, typer.Option("--symmetric", help="Make a template whose left and right halves mirror each other.")
    ] = False,
    start: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Image to start from (default: the mean after linear alignment). Repeat it for further channels.",
        ),
    ] = None,
    channel: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN", help="Further channels: a path in which {name} stands for the name of an image."
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(metavar="PATTERN", help="Label maps of the images: a path with {name}, as for channels."),
    ] = None,
    mask: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Masks of the images: a path with {name}, as for channels.")
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Also write a probability map for every label.")
    ] = False,
    recipe: Recipe = "default",
    settings: Settings = None,
    engine: EngineSettings,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make an unbiased template of IMAGES.

    The output folder has template.nii.gz, the registration of everybody to it in subjects/, template.html with its
    history, and a label map and a mask if the images have them. A second run continues where the first stopped.
    """
    from warpfactor import cohort
    from warpfactor.cohort.template import TemplateSettings, build

    with cohort_errors(), cohort_progress(quiet=quiet, as_json=as_json) as watch:
        found = build(
            images if len(images) > 1 else images[0],
            output,
            settings=TemplateSettings(iterations, tolerance, sharpen, symmetric, tuple(start or ())),
            channels=tuple(channel or ()),
            labels=labels,
            masks=mask,
            probabilities=probabilities,
            recipe=recipe,
            overrides=parse_settings(settings),
            options=cohort.JobOptions(threads=engine.threads_per_worker),
            engine=engine,
            watch=watch,
            on_iteration=_teller(quiet=quiet, as_json=as_json),
        )
    last = found.iterations[-1]
    if as_json:
        print_json({"event": "result", "output": str(output), **dataclasses.asdict(last)})
    elif not quiet:
        count = wording.count(len(found.iterations) - 1, "iteration")
        typer.echo(f"{output / 'template.nii.gz'}: {len(found.subjects)} images, {count}; {_line(last)}")


def _teller(*, quiet: bool, as_json: bool) -> Callable[[TemplateIteration], None]:
    def tell(record: TemplateIteration) -> None:
        if as_json:
            print_json({"event": "iteration", **dataclasses.asdict(record)})
        elif not quiet:
            name = "start" if record.number == 0 else f"iteration {record.number}"
            typer.echo(f"{name}: {_line(record)}", err=True)

    return tell


def _line(record: TemplateIteration) -> str:
    change = "" if record.change is None else f"change {100 * record.change:.1f} %, "
    shift = "" if record.shift_mm is None else f"mean shift {record.shift_mm:.2f} mm, "
    return f"{change}{shift}sharpness {record.sharpness_per_mm:.3f} per mm at {record.spacing_mm:.3g} mm"

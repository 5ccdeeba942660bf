"""`warpfactor cohort`: many registrations, on the processes of this machine or on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from warpfactor.cli import wording
from warpfactor.cli.cohort_view import cohort_progress
from warpfactor.cli.engine_options import cohort_errors, engine_command
from warpfactor.cli.options import BACKENDS, Json, OutputFolder, Quiet, parse_settings
from warpfactor.cli.terminal import print_json
from warpfactor.errors import InputError

if TYPE_CHECKING:
    import pandas

    from warpfactor.cohort import EngineSettings

FAILED_ROWS = 3  # exit code
LEVELS = ("green", "amber", "red")


@engine_command
def command(  # noqa: PLR0913 - one argument per option
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="TABLE|IMAGES",
            help="A table of pairs (.csv, .tsv; `warpfactor datasets` explains the columns), or images, patterns or a "
            "BIDS folder, with --template.",
        ),
    ],
    output: OutputFolder,
    *,
    template: Annotated[
        list[Path] | None,
        typer.Option("--template", metavar="FILE", help="Fixed image of all rows. Repeat it for further channels."),
    ] = None,
    template_mask: Annotated[Path | None, typer.Option(metavar="FILE", help="Mask of the template.")] = None,
    template_labels: Annotated[Path | None, typer.Option(metavar="FILE", help="Label map of the template.")] = None,
    template_name: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Name of the template's space in BIDS file names (default: the name of its file)."
        ),
    ] = "",
    moving_mask: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN", help="Masks of the images: a path in which {name} stands for the name of the row."
        ),
    ] = None,
    moving_labels: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Label maps of the images: a path with {name}, as for masks.")
    ] = None,
    moving_channel: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Further channels of the images: a path with {name}. Can be repeated."),
    ] = None,
    carry: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN", help="Other images to resample onto the template: a path with {name}. Can be repeated."
        ),
    ] = None,
    suffix: Annotated[str, typer.Option(metavar="NAME", help="Suffix of the images to use in a BIDS dataset.")] = "T1w",
    entity: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Use only those images of a BIDS dataset that have this entity, for instance ses=01. Can be repeated.",
        ),
    ] = None,
    recipe: Annotated[
        str, typer.Option("--recipe", metavar="RECIPE", help="Recipe for rows that do not name their own.")
    ] = "default",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Change a setting in the recipe of every row. Can be repeated."
        ),
    ] = None,
    landmarks_weight: Annotated[
        float,
        typer.Option(metavar="NUMBER", help="Weight of landmarks in the cost; with 0 their error is only measured."),
    ] = 0.0,
    device: Annotated[str, typer.Option(metavar="NAME", help="Device to compute on: cpu or cuda.")] = "cpu",
    backend: Annotated[
        str, typer.Option(metavar="NAME", help=f"Implementation of the computations: {', '.join(BACKENDS)}.")
    ] = "auto",
    engine: EngineSettings,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Try rows that failed before again.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Register many images: every row of a table, or all images to a template.

    The output folder holds one folder per row, with the files that `register` writes, summary.html and results.csv. A
    second run computes only what is missing or has changed. A failing row is recorded and does not stop the others; the
    exit code is then 3.
    """
    from warpfactor import cohort

    with cohort_errors(), cohort_progress(quiet=quiet, as_json=as_json) as watch:
        frame = cohort.run(
            inputs if len(inputs) > 1 else inputs[0],
            output,
            template=None
            if template is None
            else cohort.Template(
                tuple(template),
                mask=template_mask,
                labels=template_labels,
                moving_mask=moving_mask,
                moving_labels=moving_labels,
                moving_channels=tuple(moving_channel or ()),
                carry=tuple(carry or ()),
                name=template_name,
            ),
            bids=cohort.BidsFilter(suffix, tuple(_entity(text) for text in entity or ())),
            recipe=recipe,
            overrides=parse_settings(settings),
            options=cohort.JobOptions(device, backend, landmarks_weight, engine.threads_per_worker),
            engine=engine,
            retry_failed=retry_failed,
            watch=watch,
        )
    _conclude(frame, output, quiet=quiet, as_json=as_json)


def _entity(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key or not value:
        raise InputError(f"--entity {text}: write KEY=VALUE, for instance ses=01.")
    return key, value


def _conclude(frame: pandas.DataFrame, output: Path, *, quiet: bool, as_json: bool) -> None:
    failed = int((frame["state"] == "failed").sum())
    verdicts = {level: int((frame["verdict"] == level).sum()) for level in LEVELS}
    if as_json:
        print_json({"event": "result", "output": str(output), "rows": len(frame), "failed": failed, **verdicts})
    elif not quiet:
        counts = ", ".join(f"{count} {level}" for level, count in verdicts.items())
        typer.echo(f"{output / 'summary.html'}: {wording.count(len(frame), 'row')}, {counts}, {failed} failed")
        for _, row in frame[frame["state"] == "failed"].iterrows():
            typer.echo(f"  {row['name']}: {row['reason']}")
    if failed:
        raise typer.Exit(FAILED_ROWS)

"""`warpfactor segment`: labels of an image from several atlases."""

from __future__ import annotations

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


@engine_command
def command(  # noqa: PLR0913 - one argument per option
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="Image to segment.")],
    atlases: Annotated[
        Path,
        typer.Option(
            "--atlases", metavar="TABLE", help="CSV or TSV file with the columns image and labels, one atlas per line."
        ),
    ],
    output: OutputFolder,
    *,
    fusion: Annotated[
        str,
        typer.Option(
            "--fusion",
            metavar="NAME",
            help="How labels are fused: weighted (by local correlation), joint or majority.",
        ),
    ] = "weighted",
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Also write a probability map for every label.")
    ] = False,
    mask: Annotated[Path | None, typer.Option("--mask", metavar="FILE", help="Mask of the image.")] = None,
    recipe: Recipe = "default",
    settings: Settings = None,
    engine: EngineSettings,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Segment IMAGE: register labelled atlases to it and fuse their labels.

    The output folder holds labels.nii.gz, probability.nii.gz, segmentation.json with the volume of every label, and the
    registration of each atlas in atlases/. A second run registers only what is missing or changed.
    """
    from warpfactor import cohort

    with cohort_errors(), cohort_progress(quiet=quiet, as_json=as_json) as watch:
        found = cohort.segment(
            image,
            atlases,
            output,
            fusion=fusion,
            probabilities=probabilities,
            mask=mask,
            recipe=recipe,
            overrides=parse_settings(settings),
            options=cohort.JobOptions(threads=engine.threads_per_worker),
            engine=engine,
            watch=watch,
        )
    if as_json:
        facts = {"atlases": list(found.atlases), "failed": dict(found.failed), "volumes_mm3": dict(found.volumes_mm3)}
        print_json({"event": "result", "output": str(output), "fusion": found.fusion, **facts})
    elif not quiet:
        used = "1 atlas" if len(found.atlases) == 1 else f"{len(found.atlases)} atlases"
        labels = len(found.volumes_mm3)
        typer.echo(f"{output / 'labels.nii.gz'}: {wording.count(labels, 'label')} from {used}, {found.fusion} fusion")
        for name, reason in found.failed.items():
            typer.echo(f"  {name} failed: {reason}")

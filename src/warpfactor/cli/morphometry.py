"""`warpfactor morphometry`: where volumes differ between groups, as a t map of log Jacobians."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from warpfactor.cli import wording
from warpfactor.cli.engine_options import cohort_errors
from warpfactor.cli.options import Force, Json, OutputFolder, Quiet, Threads
from warpfactor.cli.terminal import print_json

if TYPE_CHECKING:
    from warpfactor.cohort.morphometry import Comparison


def command(  # noqa: PLR0913 - one argument per option
    results: Annotated[
        Path, typer.Argument(metavar="RESULTS", help="Folder that `template` wrote, or `cohort` with --template.")
    ],
    table: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE",
            help="CSV or TSV file with one line per person: the column name, the effect and the covariates.",
        ),
    ],
    output: OutputFolder,
    effect: Annotated[
        str,
        typer.Option(
            "--effect", metavar="COLUMN", help="Column to test: two groups, or numbers, whose slope is tested."
        ),
    ],
    covariate: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Column to include in the model as a covariate. Can be repeated."),
    ] = None,
    mask: Annotated[
        Path | None,
        typer.Option(
            "--mask", metavar="FILE", help="Mask of the voxels to test (default: the foreground of the mean image)."
        ),
    ] = None,
    smooth: Annotated[
        float | None,
        typer.Option(
            metavar="MM", help="Full width at half maximum of the Gaussian that smooths the maps (default: two voxels)."
        ),
    ] = None,
    total: Annotated[
        bool, typer.Option("--total", help="Include the affines: compare absolute volumes, not relative ones.")
    ] = False,
    q: Annotated[float, typer.Option("--q", metavar="SHARE", help="False discovery rate to allow.")] = 0.05,
    force: Force = False,
    threads: Threads = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Compare the volumes of people who were registered to one template, voxel by voxel.

    The logarithm of the Jacobian determinant is explained by the effect and the covariates in a linear model. The
    output folder has t.nii.gz, effect.nii.gz, q.nii.gz (false discovery rate), the mean image, the mask, and t.png.
    """
    from warpfactor.cohort.morphometry import MorphometrySettings, compare

    with cohort_errors():
        found = compare(
            results,
            table,
            output,
            effect=effect,
            covariates=tuple(covariate or ()),
            mask=mask,
            settings=MorphometrySettings(total=total, smooth_mm=smooth, q=q),
            force=force,
        )
    larger, smaller = found.significant_voxels
    if as_json:
        facts = {"people": found.people, "groups": dict(found.groups), "degrees_of_freedom": found.degrees}
        counts = {"larger_voxels": larger, "smaller_voxels": smaller}
        print_json({"event": "result", "output": str(output), "contrast": found.contrast, **facts, **counts})
    elif not quiet:
        typer.echo(f"{output / 't.nii.gz'}: {_line(found)}")
        typer.echo(f"  q < {q:g}: larger in {wording.count(larger, 'voxel')}, smaller in {smaller}")


def _line(found: Comparison) -> str:
    low, high = float(found.t.data.min()), float(found.t.data.max())
    groups = "".join(f", {count} {name}" for name, count in found.groups.items())
    return f"{found.contrast}, {found.people} people{groups}; t from {low:.1f} to {high:.1f}, {found.degrees} df"

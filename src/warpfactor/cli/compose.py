"""`warpfactor compose`: several transforms as one."""

from __future__ import annotations

import typer

import warpfactor as wf
from warpfactor.cli.given import read_given, write_transform
from warpfactor.cli.options import Force, Output, Quiet, Reference, ResultFolder, Threads, TransformFiles
from warpfactor.cli.wording import count


def command(
    output: Output,
    result: ResultFolder = None,
    transforms: TransformFiles = None,
    reference: Reference = None,
    force: Force = False,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Compose several transforms into one file.

    A .h5 file keeps the parts; a .nii.gz file holds one displacement field.
    """
    wf.io.check_free(output, force=force)
    given = read_given(result, transforms)
    write_transform(given.transform, output, reference, given.fixed_grid, force=force)
    if not quiet:
        typer.echo(f"{count(len(given.transform.parts), 'transform')}, fixed to moving, written to {output}.")

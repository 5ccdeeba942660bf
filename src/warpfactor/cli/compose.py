"""`warpfactor compose`: several transforms as one."""

from __future__ import annotations

import typer

import warpfactor as wf
from warpfactor.cli.given import read_given, write_transform
from warpfactor.cli.options import Force, Memory, Output, Quiet, Reference, ResultFolder, Threads, TransformFiles
from warpfactor.cli.streamed import check_reading, compose_in_slabs, spent
from warpfactor.cli.wording import count


def command(
    output: Output,
    result: ResultFolder = None,
    transforms: TransformFiles = None,
    reference: Reference = None,
    memory: Memory = None,
    force: Force = False,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Compose several transforms into one file.

    A .h5 file keeps the parts; a .nii.gz file holds one displacement field.
    """
    wf.io.check_free(output, force=force)
    check_reading(memory, result, transforms)
    given = read_given(result, transforms, single=memory is not None)
    if memory is None or not compose_in_slabs(given, output, memory, reference, force=force):
        write_transform(given.transform, output, reference, given.fixed_grid, force=force)
    if not quiet:
        parts = count(len(given.transform.parts), "transform")
        typer.echo(f"{parts}{spent(memory)}, fixed to moving, written to {output}.")

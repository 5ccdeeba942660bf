"""`warpfactor jacobian`: map of the Jacobian determinant."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import warpfactor as wf
from warpfactor.cli.given import GivenTransform, read_given
from warpfactor.cli.options import Force, Memory, Output, Quiet, Reference, ResultFolder, Threads, TransformFiles
from warpfactor.cli.streamed import check_reading, jacobian_in_slabs, spent
from warpfactor.cli.wording import count
from warpfactor.errors import InputError


def command(  # noqa: PLR0913 - one argument per option
    output: Output,
    result: ResultFolder = None,
    transforms: TransformFiles = None,
    reference: Reference = None,
    total: Annotated[bool, typer.Option("--total", help="Include the affine part of the transform.")] = False,
    log: Annotated[
        bool, typer.Option("--log", help="Write the natural logarithm; determinants below 0.001 count as 0.001.")
    ] = False,
    memory: Memory = None,
    force: Force = False,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Write the Jacobian determinant of a warp as an image on the fixed grid.

    Where it exceeds 1, the moving image is larger than the fixed image; where it is 0 or negative, the warp folds.
    """
    wf.io.check_free(output, force=force)
    check_reading(memory, result, transforms)
    given = read_given(result, transforms, single=memory is not None)
    if memory is not None:
        whole = total or reference is not None
        folded, least = jacobian_in_slabs(given, output, memory, reference, total=whole, log=log, force=force)
        if not quiet:
            folds = count(folded, "folded voxel")
            where = f"written slab by slab to {output}{spent(memory)}"
            typer.echo(f"Jacobian determinant {least:.3f} at least, {folds}; {where}.")
        return
    image = _warp(given, reference, total=total).jacobian()
    figures = wf.measure.jacobian_figures(image.data[0])
    if log:
        image = wf.Image(image.data.clamp(*wf.measure.LOG_JACOBIAN_RANGE).log(), image.grid, image.name)
    wf.write_image(image, output, force=force)
    if not quiet:
        spread = f"{figures.percentiles[1]:.3f} to {figures.percentiles[99]:.3f} (1st to 99th percentile)"
        typer.echo(
            f"Jacobian determinant {spread}, {count(figures.folded_count, 'folded voxel')}; written to {output}."
        )


def _warp(given: GivenTransform, reference: Path | None, *, total: bool) -> wf.Warp:
    warps = [part for part in given.transform.parts if isinstance(part, wf.Warp)]
    if total or len(warps) > 1 or reference is not None:
        return given.transform.to_warp(given.output_grid("fixed", reference))
    if not warps:
        raise InputError("There is no warp in this transform; an affine has one determinant everywhere (--total).")
    return warps[0]

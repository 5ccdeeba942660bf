"""`warpfactor invert`: the inverse of a transform."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

import warpfactor as wf
from warpfactor.cli.given import read_given, write_transform
from warpfactor.cli.options import Force, Memory, Output, Quiet, Reference, ResultFolder, Threads, TransformFiles
from warpfactor.cli.streamed import check_reading, invert_in_slabs, spent

if TYPE_CHECKING:
    from warpfactor.geometry.transform import Transform


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
    """Invert a transform.

    Affine transforms are written as .mat, any transform as .h5, and a single displacement field as .nii.gz.
    """
    wf.io.check_free(output, force=force)
    check_reading(memory, result, transforms, inverse=True)
    given = read_given(result, transforms, single=memory is not None)
    if memory is not None and invert_in_slabs(given, output, memory, reference, force=force):
        if not quiet:
            typer.echo(f"Inverse transform{spent(memory)}, moving to fixed, written slab by slab to {output}.")
        return
    inverse = given.towards("moving")
    write_transform(inverse, output, reference, given.moving_grid, force=force)
    if not quiet:
        for line in _inverse_errors(given.transform, inverse):
            typer.echo(line)
        typer.echo(f"Inverse transform{spent(memory)}, moving to fixed, written to {output}.")


def _inverse_errors(forward: Transform, inverse: Transform) -> Iterator[str]:
    """How closely each warp and its inverse compose to the identity, in both directions."""
    from warpfactor import kernels
    from warpfactor.measure.displacement import round_trip

    theres = [part for part in forward.parts if isinstance(part, wf.Warp)]
    backs = [part for part in reversed(inverse.parts) if isinstance(part, wf.Warp)]
    for there, back in zip(theres, backs, strict=True):
        ops = kernels.select(there.displacement.device)
        for way, first, second in (("fixed to moving", there, back), ("moving to fixed", back, there)):
            vox, mm = round_trip(first.displacement.float(), second.displacement.float(), there.grid, ops)
            yield (
                f"Inverse error, {way} and back: {vox.mean:.3f} voxels ({mm.mean:.3f} mm) on average, "
                f"{vox.max:.2g} voxels ({mm.max:.2g} mm) at most."
            )

"""`warpfactor invert`, `compose` and `jacobian`: transform files in, transform files or maps out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import warpfactor as wf
from warpfactor.cli.options import Force, Output, Quiet, Reference, Result, Source, Threads, Transforms, read_source
from warpfactor.errors import InputError

if TYPE_CHECKING:
    from warpfactor.geometry.transform import Transform


def invert(
    output: Output,
    result: Result = None,
    transforms: Transforms = None,
    reference: Reference = None,
    force: Force = False,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Write the inverse of a transform: .mat for affines, .h5 for anything, .nii.gz for one displacement field."""
    wf.io.check_free(output, force=force)
    source = read_source(result, transforms)
    inverse = source.towards("moving")
    _write(inverse, output, reference, source.moving_grid, force=force)
    if not quiet:
        for line in _inverse_errors(source.transform, inverse):
            typer.echo(line)
        typer.echo(f"inverse, moving to fixed, written to {output}")


def compose(
    output: Output,
    result: Result = None,
    transforms: Transforms = None,
    reference: Reference = None,
    force: Force = False,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Write several transforms as one: .h5 keeps the parts, .nii.gz makes one displacement field of them."""
    wf.io.check_free(output, force=force)
    source = read_source(result, transforms)
    _write(source.transform, output, reference, source.fixed_grid, force=force)
    if not quiet:
        typer.echo(f"{len(source.transform.parts)} transforms, fixed to moving, written to {output}")


def jacobian(  # noqa: PLR0913 - one argument per option
    output: Output,
    result: Result = None,
    transforms: Transforms = None,
    reference: Reference = None,
    total: Annotated[bool, typer.Option("--total", help="Of the whole transform, affine included.")] = False,
    log: Annotated[bool, typer.Option("--log", help="Natural logarithm; folds get that of 0.001.")] = False,
    force: Force = False,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Write the Jacobian determinant of the warp: above 1 the moving image is larger there, at or below 0 it folds."""
    wf.io.check_free(output, force=force)
    source = read_source(result, transforms)
    warp = _warp(source, reference, total=total)
    image = warp.jacobian()
    figures = wf.quality.jacobian_figures(image.data[0])
    if log:
        image = wf.Image(image.data.clamp(*wf.quality.LOG_JACOBIAN_RANGE).log(), image.grid, image.name)
    wf.write_image(image, output, force=force)
    if not quiet:
        spread = f"{figures.percentiles[1]:.3f} to {figures.percentiles[99]:.3f} (1st to 99th percentile)"
        typer.echo(f"{figures.folded_count} folded voxels, determinant {spread}; written to {output}")


def _warp(source: Source, reference: Path | None, *, total: bool) -> wf.Warp:
    warps = [part for part in source.transform.parts if isinstance(part, wf.Warp)]
    if total or len(warps) > 1 or reference is not None:
        return source.transform.to_warp(source.grid("fixed", reference))
    if not warps:
        raise InputError("There is no warp in this transform; an affine has one determinant everywhere (--total).")
    return warps[0]


def _write(transform: Transform, output: Path, reference: Path | None, grid: wf.Grid | None, *, force: bool) -> None:
    """Write a transform; as a displacement image it lies on the reference's grid, or on the one that is known."""
    from warpfactor.io.transforms import is_field_file

    if reference is not None:
        grid = wf.read_image(reference).grid
    alone = isinstance(transform, wf.Warp) and reference is None
    if grid is not None and not alone and is_field_file(output):
        transform = transform.to_warp(grid)
    wf.write_transform(transform, output, force=force)


def _inverse_errors(forward: Transform, inverse: Transform) -> Iterator[str]:
    """How well each warp and its inverse undo each other, in both directions."""
    from warpfactor import kernels
    from warpfactor.measure.regularity import round_trip

    theres = [part for part in forward.parts if isinstance(part, wf.Warp)]
    backs = [part for part in reversed(inverse.parts) if isinstance(part, wf.Warp)]
    for there, back in zip(theres, backs, strict=True):
        ops = kernels.select(there.displacement.device)
        for way, first, second in (("fixed to moving", there, back), ("moving to fixed", back, there)):
            vox, mm = round_trip(first.displacement.float(), second.displacement.float(), there.grid, ops)
            yield (
                f"inverse error, {way} and back: {vox.mean:.3f} voxels ({mm.mean:.3f} mm) on average, "
                f"{vox.max:.2g} ({mm.max:.2g} mm) at most"
            )

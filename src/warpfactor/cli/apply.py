"""`warpfactor apply`: carry images, labels, 4-D series and points from one space to the other."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

import warpfactor as wf
from warpfactor.cli.options import Force, Output, Quiet, Reference, Result, Source, Transforms, read_source
from warpfactor.errors import InputError

if TYPE_CHECKING:
    from warpfactor.transform import Transform

MANY_LABELS = 200  # whole-brain parcellations have fewer, 8-bit pictures usually more
SAMPLES = 100_000


def command(  # noqa: PLR0913 - one argument per option
    source: Annotated[Path, typer.Argument(metavar="INPUT", help="Image, label map, 4-D series, or points (.csv).")],
    output: Output,
    result: Result = None,
    transforms: Transforms = None,
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="SPACE", help="Space of the output: `fixed` (INPUT is of moving space) or `moving`."
        ),
    ] = "fixed",
    reference: Reference = None,
    interpolation: Annotated[
        str | None, typer.Option("--interpolation", "-n", metavar="NAME", help="linear, nearest, label or bspline.")
    ] = None,
    labels: Annotated[bool, typer.Option("--labels", help="INPUT is a label map: labels never mix.")] = False,
    outside: Annotated[float, typer.Option(metavar="NUMBER", help="Value where there is no image.")] = 0.0,
    ras: Annotated[bool, typer.Option("--ras", help="The points are RAS (nibabel, FSL), not LPS.")] = False,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Carry an image, labels, a 4-D series or points from one space to the other.

    Points go with their image: with the same options, a landmark of the input lands on its anatomy in the output.
    """
    wf.io.check_free(output, force=force)
    transform = read_source(result, transforms)
    if source.suffix.lower() == ".csv":
        count = _points(source, output, transform, to, ras=ras, force=force)
        done = f"{count} points"
    else:
        mode = interpolation or ("label" if labels else "linear")
        grid = transform.grid(to, reference)
        done = _images(source, output, transform.towards(to), grid, mode, outside, labels=labels, force=force)
    if not quiet:
        where = f" in {to} space" if transform.saved else ""  # only a result folder tells what its spaces are
        typer.echo(f"{done}{where} written to {output}")


def _points(source: Path, output: Path, transform: Source, to: str, *, ras: bool, force: bool) -> int:
    table = wf.io.read_points(source, ras=ras)
    other = {"fixed": "moving", "moving": "fixed"}.get(to, to)
    moved = transform.towards(other).map_points(table.points)
    wf.io.write_points(table, moved, output, ras=ras, force=force)
    return len(moved)


def _images(
    source: Path,
    output: Path,
    transform: Transform,
    grid: wf.Grid,
    mode: str,
    outside: float,
    *,
    labels: bool,
    force: bool,
) -> str:
    from warpfactor.io.probe import count_volumes, integer_type

    if count_volumes(source) > 1:
        if labels:
            raise InputError(f"{source}: is a series; --labels is for one label map.")
        series = wf.io.read_series(source)
        moved = [transform.resample(volume, grid, mode=mode, outside=outside) for volume in series]
        wf.io.write_series(moved, output, step=series.step, force=force)
        return f"{len(moved)} volumes"
    if labels:
        carried = transform.resample(wf.read_labels(source), grid, mode=mode, outside=outside)
        wf.io.write_labels(carried, output, like=source, force=force)
        return "label map"
    image = wf.read_image(source)
    if mode == "linear" and integer_type(source) is not None and _has_few_values(image):
        message = f"{source}: looks like a label map, and linear interpolation mixes labels; use --labels if it is one."
        warnings.warn(message, stacklevel=1)
    wf.write_image(transform.resample(image, grid, mode=mode, outside=outside), output, force=force)
    return "image"


def _has_few_values(image: wf.Image) -> bool:
    """Whether there are no more different values than a label map has; a sample decides for most pictures."""
    values = image.data.numpy().ravel()
    samples = (values[:: 1 + values.size // SAMPLES], values)
    return all(np.unique(part).size <= MANY_LABELS for part in samples)

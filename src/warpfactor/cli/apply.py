"""`warpfactor apply`: carry images, labels, 4-D series and points from one space to the other."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

import warpfactor as wf
from warpfactor.cli.mixups import warn_of_points_outside, warn_of_wrong_space
from warpfactor.cli.options import (
    Force,
    Output,
    Quiet,
    Ras,
    Reference,
    Result,
    Source,
    Threads,
    Transforms,
    read_source,
)
from warpfactor.errors import InputError

MIXING = ("linear", "bspline")  # interpolations that make values which no voxel had


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
    ras: Ras = False,
    force: Force = False,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Carry an image, labels, a 4-D series or points from one space to the other.

    Points go with their image: with the same options, a landmark of the input lands on its anatomy in the output.
    """
    wf.io.check_free(output, force=force)
    labels = labels or interpolation == "label"
    points = source.suffix.lower() == ".csv"
    _check_options(source, output, points=points, resampling=labels or interpolation is not None, ras=ras)
    if labels and interpolation in MIXING:
        raise InputError(f"-n {interpolation} mixes labels; with --labels leave it out, or use label or nearest.")
    transform = read_source(result, transforms)
    if points:
        count = _points(source, output, transform, to, ras=ras, force=force)
        done = f"{count} points"
    else:
        mode = interpolation or ("label" if labels else "linear")
        grid = transform.grid(to, reference)
        done = _images(source, output, transform, to, grid, mode, outside, labels=labels, force=force)
    if not quiet:
        where = f" in {to} space" if transform.saved else ""  # only a result folder tells what its spaces are
        typer.echo(f"{done}{where} written to {output}")


def _check_options(source: Path, output: Path, *, points: bool, resampling: bool, ras: bool) -> None:
    """InputError for options that would have no effect, and for points in a file that is named as an image."""
    if points and resampling:
        raise InputError(f"{source}: holds points; --labels and --interpolation are for images, leave them out.")
    if points and output.suffix.lower() != ".csv":
        raise InputError(f"{output}: points are written as CSV; give a name that ends in .csv.")
    if ras and not points:
        raise InputError(f"{source}: is an image, which has its place in its header; --ras is for points (.csv).")


def _points(source: Path, output: Path, transform: Source, to: str, *, ras: bool, force: bool) -> int:
    table = wf.io.read_points(source, ras=ras)
    other = {"fixed": "moving", "moving": "fixed"}.get(to, to)
    _check_dimension(source, table, transform.fixed_grid)
    if transform.saved:
        grid = transform.fixed_grid if other == "fixed" else transform.moving_grid
        warn_of_points_outside(source, table.points, grid, other, ras=ras)
    moved = transform.towards(other).map_points(table.points)
    wf.io.write_points(table, moved, output, ras=ras, force=force)
    return len(moved)


def _check_dimension(path: Path, table: wf.io.PointTable, grid: wf.Grid | None) -> None:
    """InputError for points of a plane where images are volumes, and the other way round."""
    if grid is None:
        return
    if grid.ndim == 3 and table.planar:
        found = ", ".join(table.header)
        raise InputError(f"{path}: needs columns named x, y and z, since the images are 3-D; it has {found}.")
    if grid.ndim == 2 and bool(table.points[:, 2].any()):
        raise InputError(f"{path}: has points with a z other than 0, but the images are 2-D; give x and y.")


def _images(  # noqa: PLR0913 - what the options say
    path: Path,
    output: Path,
    source: Source,
    to: str,
    grid: wf.Grid,
    mode: str,
    outside: float,
    *,
    labels: bool,
    force: bool,
) -> str:
    from warpfactor.io import count_volumes, is_picture

    resample = partial(source.towards(to).resample, grid=grid, mode=mode, outside=outside)
    if count_volumes(path) > 1:
        if labels:
            raise InputError(f"{path}: is a series; --labels is for one label map.")
        series = wf.io.read_series(path)
        warn_of_wrong_space(path, series[0].grid, source, to)
        moved = [resample(volume) for volume in series]
        wf.io.write_series(moved, output, step=series.step, force=force)
        return f"{len(moved)} volumes"
    image = wf.read_labels(path) if labels else wf.read_image(path)
    warn_of_wrong_space(path, image.grid, source, to)
    if labels:
        wf.io.write_labels(resample(image), output, like=path, force=force)
        return "label map"
    _warn_of_mixing(path, image, mode)
    carried = resample(image)
    if is_picture(output):  # a spline overshoots, and a picture of 8 bits is to stay one
        low, high = (float(end) for end in image.data.nan_to_num(0.0).aminmax())
        carried.data.clamp_(min(low, outside, 0.0), max(high, outside, 255.0))
    wf.write_image(carried, output, force=force)
    return "image"


def _warn_of_mixing(path: Path, image: wf.Image, mode: str) -> None:
    """A warning if labels are about to be averaged."""
    from warpfactor.checks.inputs import looks_like_labels

    if mode in MIXING and looks_like_labels(image):
        message = f"{path}: looks like a label map, and {mode} interpolation mixes labels; use --labels if it is one."
        warnings.warn(message, stacklevel=1)

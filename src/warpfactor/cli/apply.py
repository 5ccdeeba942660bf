"""`warpfactor apply`: resample images, labels and 4-D series, and map points, from one space to the other."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

import warpfactor as wf
from warpfactor.cli.engine_options import Scheduler, Workers
from warpfactor.cli.given import GivenTransform, other_space, read_given
from warpfactor.cli.options import (
    Channel,
    Force,
    Memory,
    Output,
    Quiet,
    Ras,
    Reference,
    ResultFolder,
    Spacing,
    Threads,
    TransformFiles,
    parse_channels,
    parse_spacing,
)
from warpfactor.cli.streamed import check_reading, stream
from warpfactor.cli.wording import count
from warpfactor.errors import InputError

MIXING = ("linear", "bspline")  # interpolations that create values which no voxel had


def command(  # noqa: PLR0913 - one argument per option
    source: Annotated[
        Path, typer.Argument(metavar="INPUT", help="Image, label map, 4-D series, or points as a .csv file.")
    ],
    output: Output,
    result: ResultFolder = None,
    transforms: TransformFiles = None,
    to: Annotated[
        str,
        typer.Option("--to", metavar="SPACE", help="Space of the output: fixed (INPUT is in moving space) or moving."),
    ] = "fixed",
    reference: Reference = None,
    interpolation: Annotated[
        str | None,
        typer.Option(
            "--interpolation", "-n", metavar="NAME", help="linear, nearest, label or bspline (default: linear)."
        ),
    ] = None,
    labels: Annotated[
        bool, typer.Option("--labels", help="INPUT is a label map; use label interpolation and keep its data type.")
    ] = False,
    outside: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            help="Value of the output where it lies outside the input (default: the input's own background, 0 for "
            "labels).",
        ),
    ] = None,
    channel: Channel = None,
    spacing: Spacing = None,
    ras: Ras = False,
    memory: Memory = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    force: Force = False,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Apply a transform to an image, a label map, a 4-D series or points.

    Points move with their image: with the same options, a landmark of the input image keeps its anatomical position in
    the output image.
    """
    wf.io.check_free(output, force=force)
    other_space(to)
    labels = labels or interpolation == "label"
    points = source.suffix.lower() == ".csv"
    chosen = _Chosen(parse_spacing(spacing), parse_channels(channel))
    resampling = labels or interpolation is not None
    _check_options(source, output, chosen, points=points, resampling=resampling, ras=ras)
    if labels and interpolation in MIXING:
        raise InputError(f"-n {interpolation} mixes labels; with --labels leave it out, or use label or nearest.")
    streamed = memory is not None or workers is not None or scheduler is not None
    if points and streamed:
        raise InputError(f"{source}: holds points; --memory, --workers and --scheduler are for images.")
    if streamed:
        check_reading(memory, result, transforms, inverse=to == "moving")
    given = read_given(result, transforms, single=streamed)
    _warn_of_change(source, given)
    if points:
        written = _map_points(source, output, given, to, ras=ras, force=force)
    else:
        mode = interpolation or ("label" if labels else "linear")
        grid = given.lazy_grid(to, reference) if streamed else given.output_grid(to, reference)
        job = _Resampling(source, output, given, to, grid, mode, outside, chosen, force)
        if streamed:
            from warpfactor.registration.orders import Order

            order = Order(
                source, result, tuple(transforms or ()), to, job.grid, mode, outside, chosen.spacing_mm, chosen.channels
            )
            engine = None
            if workers is not None or scheduler is not None:
                from warpfactor.cohort import EngineSettings

                engine = EngineSettings(workers=workers, scheduler=scheduler)
            written = stream(order, given.towards(to), output, memory, engine, force=force)
        else:
            written = job.labels() if labels else job.images()
    if not quiet:
        where = f" in {to} space" if given.saved else ""  # transform files do not name their spaces
        typer.echo(f"{written}{where} written to {output}.")


def _warn_of_change(source: Path, given: GivenTransform) -> None:
    """Warn if INPUT lies where an image of the registration was, or a transform where its own was, and is another."""
    from warpfactor.registration.provenance import change_of, input_paths, replaced_transforms
    from warpfactor.show.wording import warn_of

    if given.saved is None:
        return
    warn_of(replaced_transforms(given.saved.entries, given.saved.folder))
    for name in ("fixed", "moving"):
        places = input_paths(given.saved.entries, given.saved.folder, name)
        if any(path.exists() and path.samefile(source) for path in places if source.exists()):
            notice = change_of(given.saved.entries, name, source)
            warn_of([] if notice is None else [notice])


class _Chosen(NamedTuple):
    """Spacing along (z, y, x) in mm and channels of INPUT that are used instead of all that the file says."""

    spacing_mm: tuple[float, ...] | None
    channels: tuple[int, ...] | None

    def of(self, image: wf.Image) -> wf.Image:
        image = image if self.spacing_mm is None else image.with_spacing(self.spacing_mm)
        return image if self.channels is None else image.with_channels(self.channels)


def _check_options(source: Path, output: Path, chosen: _Chosen, *, points: bool, resampling: bool, ras: bool) -> None:
    """InputError for options that would have no effect, and for points in a file that is named as an image."""
    if points and resampling:
        raise InputError(f"{source}: holds points; --labels and --interpolation are for images, leave them out.")
    if points and any(chosen):
        raise InputError(f"{source}: holds points; --spacing and --channel are for images, leave them out.")
    if points and output.suffix.lower() != ".csv":
        raise InputError(f"{output}: points are written as CSV; give a name that ends in .csv.")
    if ras and not points:
        raise InputError(f"{source}: is an image, whose header defines its coordinates; --ras is for points (.csv).")


def _map_points(source: Path, output: Path, given: GivenTransform, to: str, *, ras: bool, force: bool) -> str:
    from warpfactor.checks.inputs import check_points
    from warpfactor.show.wording import warn_of

    table = wf.io.read_points(source, ras=ras)
    own = other_space(to)
    _check_dimension(source, table, given.fixed_grid)
    if given.saved:
        warn_of(check_points(str(source), table.points, given.grid_of(own), own, ras=ras))
    moved = given.towards(own).map_points(table.points)
    wf.io.write_points(table, moved, output, ras=ras, force=force)
    return count(len(moved), "point")


def _check_dimension(path: Path, table: wf.io.PointTable, grid: wf.Grid | None) -> None:
    """InputError for 2-D points where the images are 3-D, and the other way round."""
    if grid is None:
        return
    if grid.ndim == 3 and table.planar:
        found = ", ".join(table.header)
        raise InputError(f"{path}: needs columns named x, y and z, since the images are 3-D; it has {found}.")
    if grid.ndim == 2 and bool(table.points[:, 2].any()):
        raise InputError(f"{path}: has points with a z other than 0, but the images are 2-D; give x and y.")


@dataclass(frozen=True)
class _Resampling:
    """One file to resample: what, by which transform, onto which grid, and where to write it."""

    source: Path
    output: Path
    given: GivenTransform
    to: str
    grid: wf.Grid
    mode: str
    outside: float | None
    chosen: _Chosen
    force: bool

    def labels(self) -> str:
        """Resample a label map; returns what was written."""
        if wf.io.count_volumes(self.source) > 1:
            raise InputError(f"{self.source}: is a 4-D series; --labels is for one label map.")
        image = self.chosen.of(wf.read_labels(self.source))
        wf.io.write_labels(self._resample(image), self.output, like=self.source, force=self.force)
        return "Label map"

    def images(self) -> str:
        """Resample an image or every volume of a series; returns what was written."""
        if wf.io.count_volumes(self.source) > 1:
            if any(self.chosen):
                raise InputError(f"{self.source}: is a 4-D series; --spacing and --channel are for one image.")
            series = wf.io.read_series(self.source)
            volumes = self._resample_all(series)
            wf.io.write_series(volumes, self.output, step=series.step, force=self.force)
            return count(len(volumes), "volume")
        image = self.chosen.of(wf.read_image(self.source))
        _warn_of_mixing(self.source, image, self.mode)
        moved = self._resample(image)
        if wf.io.is_picture(self.output):  # splines overshoot, and an 8-bit picture should stay one
            low, high = (float(end) for end in image.data.nan_to_num(0.0).aminmax())
            beyond = self._outside_values(image)
            moved.data.clamp_(min(low, *beyond, 0.0), max(high, *beyond, 255.0))
        wf.write_image(moved, self.output, force=self.force)
        return "Image"

    def _resample(self, image: wf.Image) -> wf.Image:
        return self._resample_all([image])[0]

    def _resample_all(self, images: wf.io.Series | list[wf.Image]) -> list[wf.Image]:
        from warpfactor.checks.inputs import check_space
        from warpfactor.registration.apply import resample_channels
        from warpfactor.show.wording import warn_of

        if self.given.saved:
            own, target = (self.given.grid_of(space) for space in (other_space(self.to), self.to))
            warn_of(check_space(str(self.source), images[0].grid, own, target, self.to))
        transform = self.given.towards(self.to)
        return [
            resample_channels(transform, each, self.grid, mode=self.mode, outside=self._outside_values(each))
            for each in images
        ]

    def _outside_values(self, image: wf.Image) -> tuple[float, ...]:
        from warpfactor.registration.apply import outside_values

        return outside_values(image, self.outside, mode=self.mode)


def _warn_of_mixing(path: Path, image: wf.Image, mode: str) -> None:
    """Warn if labels are about to be averaged."""
    from warpfactor.checks.inputs import looks_like_labels

    if mode in MIXING and looks_like_labels(image):
        message = f"{path}: looks like a label map, and {mode} interpolation mixes labels; use --labels if it is one."
        warnings.warn(message, stacklevel=1)

"""Options that several commands share, how their help reads, and what they stand for."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

import warpfactor as wf
from warpfactor.errors import InputError

if TYPE_CHECKING:
    from warpfactor.geometry.transform import Transform
    from warpfactor.registration.folder import SavedResult

Output = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="File to write.", show_default=False)]
Force = Annotated[bool, typer.Option("--force", "-f", help="Overwrite what is there.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs, one object a line.")]
Result = Annotated[
    Path | None,
    typer.Option("--result", metavar="FOLDER", help="Folder that `register` wrote; instead of --transform."),
]
Transforms = Annotated[
    list[str] | None,
    typer.Option(
        "--transform",
        "-t",
        metavar="FILE",
        help="Transform, fixed to moving; several as in antsApplyTransforms -t; [file,1] is the inverse.",
    ),
]
Reference = Annotated[
    Path | None,
    typer.Option(
        "--reference", "-r", metavar="FILE", help="Image whose grid the output has; known for a result folder."
    ),
]

Landmarks = Annotated[
    Path | None,
    typer.Option(
        "--landmarks", metavar="FILE", help="CSV with columns fixed_x ... moving_z or fix_x_lps ... mov_z_lps, LPS mm."
    ),
]


def _limit_threads(context: typer.Context, threads: int | None) -> int | None:
    """Until the command ends."""
    if threads is not None:
        from warpfactor.registration.resources import limited_threads

        context.with_resource(limited_threads(threads))
    return threads


Threads = Annotated[  # commands need not look at it
    int | None,
    typer.Option(
        "--threads",
        metavar="COUNT",
        help="At most so many; all without.",
        callback=_limit_threads,
    ),
]

Ras = Annotated[bool, typer.Option("--ras", help="The points are RAS (nibabel, FSL), not LPS.")]


class Command(TyperCommand):
    """A command whose usage line has no braces around the names of arguments, and whose help names no list types."""

    def get_help(self, ctx: Any) -> str:
        return re.sub(r" <list\[\w+\]>", "", super().get_help(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [re.sub(r"[{}]", "", piece) for piece in super().collect_usage_pieces(ctx)]


@dataclass(frozen=True)
class Source:
    """A transform named on the command line: points of fixed space to moving space.

    Attributes:
        transform: fixed to moving.
        fixed_grid, moving_grid: where known.
        saved: the result folder it comes from, whose spaces are known by name and which has the inverse; or None.
    """

    transform: Transform
    fixed_grid: wf.Grid | None
    moving_grid: wf.Grid | None
    saved: SavedResult | None = None

    def towards(self, space: str) -> Transform:
        """What resamples images onto grids of `space`, and maps points of `space` to the other one."""
        if space not in ("fixed", "moving"):
            raise InputError(f"Unknown space {space!r}; carry to 'fixed' or to 'moving'.")
        if space == "fixed":
            return self.transform
        return self.transform.inverse() if self.saved is None else self.saved.inverse

    def grid(self, space: str, reference: Path | None) -> wf.Grid:
        """The grid of a reference image, or without one that of the space."""
        if reference is not None:
            return wf.read_image(reference).grid
        known = self.fixed_grid if space == "fixed" else self.moving_grid
        if known is None:
            raise InputError(f"The grid of the {space} image is not known; give an image of that space as --reference.")
        return known


def read_source(result: Path | None, transforms: list[str] | None) -> Source:
    """The transform of a result folder or of a list of files."""
    if (result is None) == (not transforms):
        raise InputError("Give either a folder with --result or files with --transform, one of the two.")
    if result is not None:
        saved = wf.read_result(result)
        return Source(saved.transform, saved.fixed_grid, saved.moving_grid, saved)
    transform = wf.read_transform(list(transforms or ()))
    first = transform.parts[0]
    return Source(transform, first.grid if isinstance(first, wf.Warp) else None, None)


def parse_settings(entries: list[str] | None) -> dict[str, Any]:
    """Values by dotted name from texts NAME=VALUE; the recipe converts and checks them."""
    changes = {}
    for entry in entries or ():
        name, sign, text = entry.partition("=")
        if not sign or not name.strip():
            raise InputError(f"--set {entry}: write NAME=VALUE, for instance deformable.sigma_grad=1.0.")
        if re.fullmatch(r"[\d.]+(x[\d.]+)+", text.strip()):
            raise InputError(f"--set {entry}: separate numbers by commas, --set {name}={text.replace('x', ',')}.")
        changes[name.strip()] = _value(text.strip())
    return changes


def parse_numbers(text: str | None, option: str) -> tuple[float, ...] | None:
    """Numbers separated by commas."""
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{option} {text}: numbers separated by commas are meant.") from None


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return [_value(part.strip()) for part in text.split(",")] if "," in text else text

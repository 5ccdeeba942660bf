"""Options that several commands share, and the values they stand for."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from warpfactor.errors import InputError

_T = TypeVar("_T")
PAIR = "--pair"  # the one option that takes two values
# As in kernels.BACKENDS, which --help must not import: it needs PyTorch.
BACKENDS = ("auto", "numba", "triton", "reference")


def _limit_threads(context: typer.Context, threads: int | None) -> int | None:
    """Limit the number of threads until the command ends."""
    if threads is not None:
        from warpfactor.registration.resources import limited_threads

        context.with_resource(limited_threads(threads))
    return threads


Output = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="File to write.", show_default=False)]
OutputFolder = Annotated[
    Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder to write.", show_default=False)
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Change a setting of the recipe. Can be repeated."),
]
Force = Annotated[bool, typer.Option("--force", "-f", help="Overwrite existing files.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors and warnings only.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]
Threads = Annotated[  # the callback applies it; commands need not look at it
    int | None,
    typer.Option(
        "--threads",
        metavar="COUNT",
        help="Maximum number of threads (default: all cores).",
        callback=_limit_threads,
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        help="Memory limit, for instance 8GB (default: none). Large images are then processed in parts.",
    ),
]
Report = Annotated[bool, typer.Option("--report/--no-report", help="Also write report.html, to check the result.")]

ResultFolder = Annotated[
    Path | None,
    typer.Option("--result", metavar="FOLDER", help="Result folder written by `register`; replaces --transform."),
]
TransformFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--transform",
        "-t",
        metavar="FILE",
        help="Transform from fixed to moving space. Repeat to compose several, in the order of antsApplyTransforms; "
        "[FILE,1] is the inverse of a file.",
    ),
]
Reference = Annotated[
    Path | None,
    typer.Option(
        "--reference",
        "-r",
        metavar="FILE",
        help="Image that defines the output grid (default: the grid stored in the result folder).",
    ),
]
LandmarkFile = Annotated[
    Path | None,
    typer.Option(
        "--landmarks",
        metavar="FILE",
        help="CSV file of corresponding points in LPS mm, with columns fixed_x ... moving_z or fix_x_lps ... "
        "mov_z_lps.",
    ),
]
Ras = Annotated[
    bool, typer.Option("--ras", help="The points are in RAS coordinates, as in nibabel and FSL, instead of LPS.")
]
PairSpacing = Annotated[
    str | None,
    typer.Option(
        "--spacing",
        metavar="MM",
        help="Spacing in mm, instead of what the files say: one number or x,y,z; FIXED/MOVING if they differ.",
    ),
]
PairChannel = Annotated[
    str | None,
    typer.Option(
        "--channel",
        metavar="NUMBERS",
        help="Channels to register, counted from 1, for instance 2 or 1,3; FIXED/MOVING if they differ.",
    ),
]
Spacing = Annotated[
    str | None,
    typer.Option("--spacing", metavar="MM", help="Spacing of INPUT in mm instead of its own: one number or x,y,z."),
]
Channel = Annotated[
    str | None,
    typer.Option("--channel", metavar="NUMBERS", help="Channels of INPUT to resample, counted from 1: 2 or 1,3."),
]


class Command(TyperCommand):
    """A command whose help shows the names of values, without braces and without Python's list types."""

    def get_help(self, ctx: Any) -> str:
        return re.sub(r" <list\[\w+\]>", "", super().get_help(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As Typer does, once `--pair A B` is written as `--pair A --pair B`, which is how Typer can read it."""
        parsed: list[str] = super().parse_args(ctx, split_pairs(args))
        return parsed

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [re.sub(r"[{}]", "", piece) for piece in super().collect_usage_pieces(ctx)]


def split_pairs(arguments: list[str]) -> list[str]:
    """The arguments with the option `--pair` before each of its two values."""
    found, rest = list[str](), list(arguments)
    while rest:
        found.append(rest.pop(0))
        if found[-1] == PAIR:
            values = rest[:2]
            if len(values) < 2 or any(value.startswith("-") for value in values):
                raise InputError(f"{PAIR} needs two files, the fixed and the moving image: {PAIR} FIXED MOVING.")
            found += [values[0], PAIR, values[1]]
            del rest[:2]
    return found


def parse_settings(entries: list[str] | None) -> dict[str, Any]:
    """Values by dotted name from texts NAME=VALUE; the recipe converts and checks them."""
    from warpfactor.recipebook.plain import parse_value

    changes = {}
    for entry in entries or ():
        name, sign, text = entry.partition("=")
        if not sign or not name.strip():
            raise InputError(f"--set {entry}: write NAME=VALUE, for instance deformable.sigma_grad=1.0.")
        if re.fullmatch(r"[\d.]+(x[\d.]+)+", text.strip()):
            raise InputError(f"--set {entry}: separate numbers by commas, --set {name}={text.replace('x', ',')}.")
        changes[name.strip()] = parse_value(text.strip())
    return changes


def parse_numbers(text: str | None, option: str) -> tuple[float, ...] | None:
    """Numbers separated by commas."""
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{option} {text}: give numbers separated by commas.") from None


def parse_whole_numbers(text: str | None, option: str) -> tuple[int, ...] | None:
    """Whole numbers separated by commas."""
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{option} {text}: give whole numbers separated by commas.") from None


def parse_spacing(text: str | None) -> tuple[float, ...] | None:
    """Spacing along array axes (z, y, x) from numbers along x, y, z, separated by commas or by the letter x."""
    if text is None:
        return None
    numbers = parse_numbers(re.sub(r"(?<=\d)\s*x\s*(?=[\d.])", ",", text), "--spacing") or ()
    if len(numbers) > 3 or not all(0 < number < math.inf for number in numbers):
        raise InputError(f"--spacing {text}: give one number above 0, in mm, or one each along x, y, z.")
    return tuple(reversed(numbers))


def parse_channels(text: str | None) -> tuple[int, ...] | None:
    """Channel numbers separated by commas."""
    if text is None:
        return None
    if not re.fullmatch(r"\s*[1-9]\d*(\s*,\s*[1-9]\d*)*\s*", text):
        raise InputError(f"--channel {text}: give numbers from 1 on, separated by commas.")
    return tuple(int(part) for part in text.split(","))


def parse_pair(text: str | None, option: str, parse: Callable[[str | None], _T]) -> tuple[_T, _T]:
    """What is meant for the fixed and for the moving image by FIXED/MOVING, or by one text for both."""
    parts = [None] if text is None else text.split("/")
    if len(parts) > 2:
        raise InputError(f"{option} {text}: give one value for both images, or two with a slash, FIXED/MOVING.")
    return parse(parts[0]), parse(parts[-1])

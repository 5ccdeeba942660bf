"""`warpfactor report`: the page of a result folder, made again; and what `register` and `demo` need to make it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import warpfactor as wf
from warpfactor.cli import show
from warpfactor.cli.options import Json, Quiet, Threads
from warpfactor.errors import FileError, InputError, WarpfactorError

if TYPE_CHECKING:
    from warpfactor.show.report import Report

NO_REPORT = typer.Option("--report/--no-report", help="Write report.html, a page to look at, into the folder.")


def command(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER", help="Folders that `register` wrote.")],
    fixed: Annotated[Path | None, typer.Option(metavar="FILE", help="Fixed image, if it is not where it was.")] = None,
    moving: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Moving image, if it is not where it was.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", "-f", help="Replace a page even if images it shows are no longer found.")
    ] = False,
    threads: Threads = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make report.html of a result folder again, write its verdict into result.json, and print it."""
    if len(folders) > 1 and (fixed is not None or moving is not None):
        raise InputError("--fixed and --moving belong to one result; give one folder with them.")
    failed = 0
    for folder in folders:
        try:
            page = _refreshed(folder, fixed, moving, force=force)
        except Exception as error:  # whatever it is, the other folders have their turn
            if len(folders) == 1:
                raise
            typer.echo(f"warpfactor: {failure(folder, error)}", err=True)
            failed += 1
            continue
        if as_json:
            path = str(folder / wf.report.REPORT)
            show.print_json({"event": "report", "report": path, "verdict": page.verdict.to_dict()})
        elif not quiet:
            typer.echo("\n".join([str(folder / wf.report.REPORT), *show.verdict_lines(page.verdict.to_dict())]))
    if failed:
        raise FileError(f"{failed} of {len(folders)} reports could not be made.")


def _refreshed(folder: Path, fixed: Path | None, moving: Path | None, *, force: bool) -> Report:
    try:
        return wf.report.refresh(folder, fixed=fixed, moving=moving, force=force)
    except FileError as error:
        raise _other_grid(folder, fixed=fixed, moving=moving) or error from error


def _other_grid(folder: Path, **given: Path | None) -> FileError | None:
    """The error for an image that was given and has another grid than the result; None if there is none."""
    from warpfactor.registration.folder import read_entries
    from warpfactor.registration.result import grid_from_dict

    for side, path in given.items():
        if path is None or not path.exists():
            continue
        own, grid = wf.read_image(path).grid, grid_from_dict(read_entries(folder)[side])
        if not own.same_space(grid):
            text = f"{path}: is not the {side} image of {folder}: it has {own.summary}, the result {grid.summary}"
            hint = "; if its spacing was given in Python, make the page there, with wf.report.build"
            return FileError(f"{text}{hint if own.shape == grid.shape else ''}.")
    return None


def failure(folder: Path, error: Exception) -> str:
    """Why there is no report of a folder, in a sentence."""
    if isinstance(error, WarpfactorError):
        return str(error)
    return f"{folder}: The report could not be made ({type(error).__name__}: {error})."


def draw(found: wf.Registration, *, extra: Mapping[str, Any], **images: Any) -> Report | None:
    """The report of a registration that just ran; a failure is a warning, for the result must not be lost by it.

    Args:
        extra: more entries of its result.json.
        images: fixed, moving and their masks, as `report.build` takes them.
    """
    try:
        return wf.report.build(found, **images, extra=extra)
    except Exception as error:  # whatever it is
        text = f"The report could not be made ({type(error).__name__}: {error}); the result is complete without it."
        warnings.warn(text, stacklevel=2)
        return None


def write_with_page(
    found: wf.Registration, place: Path, page: Report | None, *, extra: Mapping[str, Any]
) -> wf.Registration:
    """Write a result and its page into an existing folder; the result with the time that took."""
    if page is None:
        return found.write_into(place, extra=extra)
    (place / wf.report.REPORT).write_text(page.html, encoding="utf-8")
    files = {**extra.get("files", {}), "report": wf.report.REPORT}
    entries = {**extra, "files": files, "verdict": page.verdict.to_dict()}
    return found.write_into(place, extra=entries)

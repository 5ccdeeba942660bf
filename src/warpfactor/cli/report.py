"""`warpfactor report`: the page of a result folder, made again; and what `register` and `demo` need to make it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import warpfactor as wf
from warpfactor.cli import show
from warpfactor.cli.options import Json, Quiet
from warpfactor.errors import InputError

if TYPE_CHECKING:
    from warpfactor.report import Report

NO_REPORT = typer.Option("--report/--no-report", help="Write report.html, a page to look at, into the folder.")


def command(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER", help="Folders that `register` wrote.")],
    fixed: Annotated[Path | None, typer.Option(metavar="FILE", help="Fixed image, if it is not where it was.")] = None,
    moving: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Moving image, if it is not where it was.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make report.html of a result folder again, and print its verdict."""
    if len(folders) > 1 and (fixed is not None or moving is not None):
        raise InputError("--fixed and --moving belong to one result; give one folder with them.")
    for folder in folders:
        page = wf.report.rebuild(folder, fixed=fixed, moving=moving)
        path = page.save(folder / wf.report.REPORT, force=True)
        if as_json:
            show.print_json({"event": "report", "report": str(path), "verdict": page.verdict.to_dict()})
        elif not quiet:
            typer.echo(f"{path}\n{words(page.verdict.to_dict())}")


def draw(
    found: wf.Registration, *, fixed: Any, moving: Any, fixed_mask: Any, extra: Mapping[str, Any]
) -> Report | None:
    """The report of a registration that just ran; a failure is a warning, for the result must not be lost by it."""
    try:
        return wf.report.build(found, fixed=fixed, moving=moving, fixed_mask=fixed_mask, extra=extra)
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
    return found.write_into(place, extra={**extra, "files": files, "verdict": page.verdict.to_dict()})


def words(verdict: Mapping[str, Any]) -> str:
    """A verdict in lines: the headline, and what is not as it should be with what to do."""
    problems = [check for check in verdict["checks"] if check["reason"] and check["level"] != "grey"]
    return "\n".join([f"{verdict['headline']}.", *(f"- {check['reason']} {check['advice']}" for check in problems)])

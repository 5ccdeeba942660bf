"""`warpfactor longitudinal`: scans of one person in, maps of what changed out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import warpfactor as wf
from warpfactor.cli import terminal, wording
from warpfactor.cli.options import Force, Json, OutputFolder, Quiet, Report, Settings, Threads, parse_settings


def command(  # noqa: PLR0913 - one argument per option
    scans: Annotated[
        list[Path],
        typer.Argument(
            metavar="SCAN SCAN", help="Two or more scans of one person, in the order in which they were taken."
        ),
    ],
    output: OutputFolder,
    labels: Annotated[
        Path | None,
        typer.Option(
            "--labels",
            "--mask",
            metavar="FILE",
            help="Label map or mask of the first scan; the change of every structure in it is measured.",
        ),
    ] = None,
    scan_mask: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Mask of a scan, such as its brain mask. Give one for each scan, in their order."
        ),
    ] = None,
    recipe: Annotated[
        str,
        typer.Option(
            "--recipe", metavar="RECIPE", help="Name or file of a recipe whose deformable stage is symmetric."
        ),
    ] = "longitudinal",
    settings: Settings = None,
    report: Report = True,
    threads: Threads = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Map what changed between scans of one person.

    The output folder holds the scans in a space between them, their mean, maps of the log Jacobian since the first
    scan, the transforms, a table (changes.csv) and report.html.
    """
    wf.io.check_folder(output, force=force)
    with terminal.progress(quiet=quiet, as_json=as_json) as view:
        found = wf.longitudinal(
            scans,
            labels=labels,
            masks=scan_mask,
            recipe=recipe,
            overrides=parse_settings(settings),
            threads=threads,
            progress=view.callback,
        )
        view.phase(wording.WRITING_REPORT if report else wording.WRITING)
        found.save(output, force=force, report=report)
    if as_json:
        terminal.print_json({"event": "result", "output": str(output), **found.to_dict()})
    elif not quiet:
        typer.echo(_summary(found, output))


def _summary(found: wf.Longitudinal, output: Path) -> str:
    """What changed, a line for each structure of each scan."""
    lines = []
    for change in found.changes:
        lines.append(f"{change.name}: {change.whole.percent:+.2f} % as a whole since {found.scans[0].name}")
        lines += [f"  label {value}: {each.percent:+.2f} %" for value, each in change.labels.items()]
    return "\n".join([*lines, f"Output    {output}, {wording.duration(found.seconds)}"])

"""`warpfactor register`: two files in; transform, inverse and warped image out."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import warpfactor as wf
from warpfactor.cli import report as reporting
from warpfactor.cli import show
from warpfactor.cli.options import Force, Json, Landmarks, Quiet, Ras, Threads, parse_numbers, parse_settings
from warpfactor.cli.scores import Companions
from warpfactor.cli.stopping import Stop, stoppable

if TYPE_CHECKING:
    from warpfactor.show.report import Report

INTERRUPTED = 130


def command(  # noqa: PLR0913 - one argument per option
    fixed: Annotated[
        Path, typer.Argument(metavar="FIXED", help="Fixed image: a file, or a folder with one DICOM series.")
    ],
    moving: Annotated[
        Path, typer.Argument(metavar="MOVING", help="Moving image, which is carried onto the fixed one.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder to write.", show_default=False)
    ],
    recipe: Annotated[
        str,
        typer.Option(
            "--recipe", metavar="RECIPE", help="Name (see `warpfactor recipes`), .toml, .json, or a result.json."
        ),
    ] = "default",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Change a setting, e.g. deformable.sigma_grad=1.0; repeatable."
        ),
    ] = None,
    fixed_mask: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the fixed image counts (not zero).")
    ] = None,
    moving_mask: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the moving image counts (not zero).")
    ] = None,
    moving_labels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Label map to carry along, onto the fixed grid.")
    ] = None,
    fixed_labels: Annotated[
        Path | None,
        typer.Option("--fixed-labels", "--labels", metavar="FILE", help="Label map to score the carried one against."),
    ] = None,
    landmarks: Landmarks = None,
    ras: Ras = False,
    initial: Annotated[
        list[str] | None,
        typer.Option("--initial", metavar="FILE", help="Transform to start from, fixed to moving; as apply's -t."),
    ] = None,
    fixed_channel: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Another channel of the fixed image.")
    ] = None,
    moving_channel: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Another channel of the moving image.")
    ] = None,
    channel_weights: Annotated[str | None, typer.Option(metavar="NUMBERS", help="One per channel, e.g. 1,0.5.")] = None,
    outside: Annotated[
        float, typer.Option(metavar="NUMBER", help="Value of the warped image where there is no moving image.")
    ] = 0.0,
    device: Annotated[str, typer.Option(metavar="NAME", help="cpu or cuda.")] = "cpu",
    backend: Annotated[str, typer.Option(metavar="NAME", help="Kernels: auto, cpu or reference.")] = "auto",
    threads: Threads = None,
    seed: Annotated[int, typer.Option(metavar="NUMBER", help="Of random numbers.")] = 0,
    report: Annotated[bool, reporting.NO_REPORT] = True,
    keep_interrupted: Annotated[
        bool, typer.Option("--keep-interrupted", help="On Ctrl-C or SIGTERM write the best so far, not nothing.")
    ] = False,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Register MOVING to FIXED; write transform, inverse, warped image, result.json and report.html into a folder."""
    from warpfactor.io.folder import check_folder
    from warpfactor.registration.inputs import load_mask, load_pair
    from warpfactor.show.report import inputs_entry

    began = time.perf_counter()
    check_folder(output, force=force)
    changes, weights = parse_settings(settings), parse_numbers(channel_weights, "--channel-weights")
    fixed_image, moving_image = load_pair(
        [fixed, *fixed_channel] if fixed_channel else fixed,
        [moving, *moving_channel] if moving_channel else moving,
        threads=threads,
    )
    companions = Companions.read(
        fixed_labels, moving_labels, landmarks, ras=ras, fixed=fixed_image, moving=moving_image
    )
    masks: dict[str, Any] = {
        "fixed_mask": load_mask(fixed_mask, fixed_image),
        "moving_mask": load_mask(moving_mask, moving_image),
    }
    read = time.perf_counter() - began
    show.announce_compilation(quiet=quiet or as_json)
    chosen = wf.recipe(recipe).replace(changes)
    with show.progress(quiet=quiet, as_json=as_json) as view, stoppable(view.note, keep=keep_interrupted) as stop:
        found = wf.register(
            fixed_image,
            moving_image,
            recipe=chosen,
            **masks,
            initial=initial or None,
            channel_weights=weights,
            outside=outside,
            device=device,
            backend=backend,
            threads=threads,
            seed=seed,
            progress=stop.watched(view.callback),
            keep_interrupted=keep_interrupted,
        )
        view.phase("report and writing" if report else "writing")
        draw = partial(reporting.draw, fixed=fixed_image, moving=moving_image, **masks)
        paths = {"fixed": fixed, "moving": moving, "fixed_mask": fixed_mask, "moving_mask": moving_mask}
        extra = {"inputs": inputs_entry(output, **paths)}
        timed = found.with_seconds("read", read)
        found, scores = _save(timed, companions, output, extra=extra, draw=draw if report else None, force=force)
    _report(found, scores, output, time.perf_counter() - began, quiet=quiet, as_json=as_json)
    _end(found, stop)


def _save(
    found: wf.Registration,
    companions: Companions,
    output: Path,
    *,
    extra: dict[str, Any],
    draw: Callable[..., Report | None] | None,
    force: bool,
) -> tuple[wf.Registration, dict[str, Any]]:
    """Write the result with what was carried along; the result with the time that took, and the scores."""
    from warpfactor.io.folder import atomic_folder
    from warpfactor.registration.result import OWN, WARPED_LABELS

    began = time.perf_counter()
    carried = companions.carry(found)
    scores = companions.scores(found, carried)
    extra = {"command": sys.argv[1:], **extra, **scores}
    with atomic_folder(output, force=force, own=OWN) as place:
        if carried is not None:
            wf.io.write_labels(carried, place / WARPED_LABELS, like=companions.moving_labels_path)
            extra["files"] = {"warped_moving_labels_on_fixed_grid": WARPED_LABELS}
        scored = found.with_seconds("labels and landmarks", time.perf_counter() - began)
        began = time.perf_counter()
        page = None if draw is None else draw(scored, extra=extra)
        drawn = scored.with_seconds("report", time.perf_counter() - began)
        written = reporting.write_with_page(drawn, place, page, extra=extra)
    return written, scores if page is None else {**scores, "verdict": page.verdict.to_dict()}


def _report(
    found: wf.Registration, scores: dict[str, Any], output: Path, seconds: float, *, quiet: bool, as_json: bool
) -> None:
    if as_json:
        entries = found.to_dict()
        kept = ("status", "interrupted", "warnings", "figures", "seconds", "peak_memory_mb")
        show.print_json({"event": "result", "output": str(output), **{key: entries[key] for key in kept}, **scores})
    elif not quiet:
        typer.echo(show.summary(found, output, scores, seconds))


def _end(found: wf.Registration, stop: Stop) -> None:
    """End with the exit code of the signal, if there was one."""
    if stop.number is not None and not found.interrupted:
        typer.echo("warpfactor: The registration was done when it was to stop; all of it is written.", err=True)
    if stop.number is not None or found.interrupted:
        raise typer.Exit(INTERRUPTED if stop.number is None else 128 + stop.number)

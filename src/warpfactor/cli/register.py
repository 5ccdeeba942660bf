"""`warpfactor register`: two images in; transform, inverse and warped image out."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import warpfactor as wf
from warpfactor.cli import terminal, wording
from warpfactor.cli.guides import (
    LabelsWeight,
    LabelValues,
    PairFiles,
    PairMetric,
    PairWeight,
    TermWeights,
    parse_labels,
    parse_pairs,
    parse_terms,
)
from warpfactor.cli.options import (
    BACKENDS,
    Force,
    Json,
    LandmarkFile,
    Memory,
    PairChannel,
    PairSpacing,
    Quiet,
    Ras,
    Report,
    Threads,
    parse_channels,
    parse_numbers,
    parse_pair,
    parse_settings,
    parse_spacing,
)
from warpfactor.cli.sharing import RankCount
from warpfactor.cli.stopping import StopRequest, stop_on_signal
from warpfactor.errors import InputError

if TYPE_CHECKING:
    from warpfactor.registration.inputs import Images
    from warpfactor.registration.plan import MemoryPlan

JSON_ENTRIES = ("status", "interrupted", "warnings", "figures", "seconds", "peak_memory_mb")  # always there
JSON_SCORES = ("labels", "landmarks", "verdict", "memory")  # where there are any


def command(  # noqa: PLR0913 - one argument per option
    fixed: Annotated[
        Path, typer.Argument(metavar="FIXED", help="Fixed image: a file, or a folder with one DICOM series.")
    ],
    moving: Annotated[
        Path, typer.Argument(metavar="MOVING", help="Moving image, which is warped onto the fixed image.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder to write.", show_default=False)
    ],
    recipe: Annotated[
        str,
        typer.Option(
            "--recipe",
            metavar="RECIPE",
            help="Name of a recipe (see `warpfactor recipes`), or a .toml, .json or result.json file.",
        ),
    ] = "default",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Change a setting of the recipe, for instance deformable.sigma_grad=1.0. Can be repeated.",
        ),
    ] = None,
    smoothness: Annotated[
        float,
        typer.Option(
            metavar="NUMBER",
            help="Smoothness of the warp: 1 is that of the recipe, 2 is smoother, 0.5 follows the images more closely.",
        ),
    ] = 1.0,
    fixed_mask: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Mask of the fixed image; only voxels other than zero are used.")
    ] = None,
    moving_mask: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Mask of the moving image; only voxels other than zero are used."),
    ] = None,
    moving_labels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Label map of the moving image, to warp onto the fixed grid.")
    ] = None,
    fixed_labels: Annotated[
        Path | None,
        typer.Option(
            "--fixed-labels",
            "--labels",
            metavar="FILE",
            help="Label map of the fixed image, to compare with the warped labels.",
        ),
    ] = None,
    labels_weight: LabelsWeight = 0.0,
    label_values: LabelValues = None,
    landmarks: LandmarkFile = None,
    landmarks_weight: Annotated[
        float,
        typer.Option(
            metavar="NUMBER",
            help="Weight of the landmarks in the cost of the deformable stage. With 0 the error is only measured; "
            "with 1 they pull as strongly as the images do around them.",
        ),
    ] = 0.0,
    ras: Ras = False,
    pair: PairFiles = None,
    metric: PairMetric = None,
    weight: PairWeight = None,
    term: TermWeights = None,
    initial: Annotated[
        list[str] | None,
        typer.Option(
            "--initial",
            metavar="FILE",
            help="Initial transform from fixed to moving space. Repeat to compose several, as `apply --transform`.",
        ),
    ] = None,
    fixed_channel: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Additional channel of the fixed image. Can be repeated."),
    ] = None,
    moving_channel: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Additional channel of the moving image. Can be repeated."),
    ] = None,
    channel: PairChannel = None,
    spacing: PairSpacing = None,
    channel_weights: Annotated[
        str | None, typer.Option(metavar="NUMBERS", help="Weight of each channel, for instance 1,0.5 (default: equal).")
    ] = None,
    outside: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            help="Value of the warped image outside the moving image (default: the moving image's own background).",
        ),
    ] = None,
    device: Annotated[str, typer.Option(metavar="NAME", help="Device to compute on: cpu or cuda.")] = "cpu",
    backend: Annotated[
        str, typer.Option(metavar="NAME", help=f"Implementation of the computations: {', '.join(BACKENDS)}.")
    ] = "auto",
    threads: Threads = None,
    ranks: RankCount = None,
    seed: Annotated[int, typer.Option(metavar="NUMBER", help="Seed of the random number generator.")] = 0,
    memory: Memory = None,
    report: Report = True,
    keep_interrupted: Annotated[
        bool,
        typer.Option("--keep-interrupted", help="On Ctrl-C or SIGTERM, write the best result so far before ending."),
    ] = False,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Register MOVING to FIXED.

    The output folder holds the transform and its inverse (named as by ANTs), the warped image, result.json with all
    settings and quality measures, and report.html.
    """
    from warpfactor.registration.folder import read_entries

    began = time.perf_counter()
    images = ([fixed, *(fixed_channel or ())], [moving, *(moving_channel or ())])
    companions = _CompanionReader(fixed_labels, moving_labels, landmarks, ras)
    guides = _guides(landmarks, landmarks_weight, ras=ras)
    pairs = parse_pairs(pair, metric, weight)
    labels = parse_labels(fixed_labels, moving_labels, labels_weight, label_values)
    changes = {**_smoother(smoothness), **_metric(pairs.metric), **parse_settings(settings)}
    spacings_mm = parse_pair(spacing, "--spacing", parse_spacing)
    channels = parse_pair(channel, "--channel", parse_channels)
    with (
        wf.io.reserved_folder(output, force=force),
        terminal.progress(quiet=quiet, as_json=as_json) as view,
        stop_on_signal(view.note, keep=keep_interrupted) as stop,
    ):
        found = wf.register(
            *(files if len(files) > 1 else files[0] for files in images),
            recipe=recipe,
            overrides=changes,
            fixed_mask=fixed_mask,
            moving_mask=moving_mask,
            initial=initial or None,
            fixed_spacing_mm=spacings_mm[0],
            moving_spacing_mm=spacings_mm[1],
            fixed_channels=channels[0],
            moving_channels=channels[1],
            channel_weights=parse_numbers(channel_weights, "--channel-weights"),
            terms=(*guides, *pairs.further, *labels, *parse_terms(term)),
            metric_weight=pairs.weight,
            outside=outside,
            device=device,
            backend=backend,
            threads=threads,
            ranks=ranks or 1,
            seed=seed,
            memory=memory,
            on_plan=lambda plan: view.note(_planned(plan, fixed_labels, moving_labels)),
            on_read=companions.read,
            progress=view.callback,
            stop=stop.event,
        )
        view.phase(wording.WRITING_REPORT if report else wording.WRITING)
        extra = {"command": sys.argv[1:]}
        found.save(output, force=force, report=report, companions=companions.found, extra=extra)
    entries = read_entries(output)
    if as_json:
        kept = {key: entries[key] for key in (*JSON_ENTRIES, *JSON_SCORES) if key in entries}
        terminal.print_json({"event": "result", "output": str(output), **kept})
    elif not quiet:
        typer.echo(wording.summary(found, entries, output, time.perf_counter() - began))
    _exit(stop, interrupted=found.interrupted)


def _planned(plan: MemoryPlan, *labels: Path | None) -> str:
    """What is said of the plan before the run; InputError if label maps are to be carried at full resolution."""
    if plan.coarser and any(path is not None for path in labels):
        raise InputError(
            f"{plan.sentence} Label maps are not carried along then; leave them out here, and carry them afterwards "
            "with `warpfactor apply --labels --memory`."
        )
    return plan.sentence


def _smoother(smoothness: float) -> dict[str, float]:
    """The setting that makes the warp smoother; none if it is to be as the recipe says."""
    if not 0 < smoothness < math.inf:
        raise InputError(f"--smoothness {smoothness:g} must be a number above 0; 1 is as smooth as the recipe says.")
    return {} if smoothness == 1 else {"deformable.smoothness": smoothness}


def _metric(name: str | None) -> dict[str, str]:
    """The setting of the metric of FIXED and MOVING; none if it is that of the recipe."""
    return {} if name is None else {"deformable.metric": name}


def _guides(landmarks: Path | None, weight: float, *, ras: bool) -> tuple[wf.LandmarkPair, ...]:
    """The landmarks that guide the registration; none if they are only scored."""
    if weight == 0:
        return ()
    if landmarks is None:
        raise InputError(f"--landmarks-weight {weight:g} needs the landmarks themselves; give --landmarks FILE.")
    return (wf.LandmarkPair(landmarks, weight=weight, ras=ras),)


@dataclass
class _CompanionReader:
    """Reads label maps and landmarks when the images are known, so that wrong ones end the command at once."""

    fixed_labels: Path | None
    moving_labels: Path | None
    landmarks: Path | None
    ras: bool
    found: wf.Companions | None = None

    def read(self, images: Images) -> None:
        given = (self.fixed_labels, self.moving_labels, self.landmarks)
        if any(path is not None for path in given):
            self.found = wf.Companions.read(*given, ras=self.ras, fixed=images.fixed, moving=images.moving)


def _exit(stop: StopRequest, *, interrupted: bool) -> None:
    """Exit with the code of the signal, if there was one."""
    if stop.signal is None:
        return
    if not interrupted:
        typer.echo(f"warpfactor: {wording.COMPLETE}", err=True)
    raise typer.Exit(128 + stop.signal)

"""`warpfactor evaluate`: overlap of labels, surface distances, landmark errors, folds; as a table, JSON or CSV."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

import warpfactor as wf
from warpfactor.cli import terminal, wording
from warpfactor.cli.given import GivenTransform, read_given
from warpfactor.cli.options import Force, LandmarkFile, Ras, ResultFolder, Threads, TransformFiles
from warpfactor.errors import InputError

FORMATS = ("table", "json", "csv")
PER_LABEL = ("dice_before", "dice", "hausdorff95_mm")  # columns of the table, in order


@dataclass(frozen=True)
class Score:
    """One number.

    Attributes:
        name: of the measure, with its unit.
        label: that it belongs to, if any.
        value: the number.
    """

    name: str
    label: int | None
    value: float


def command(  # noqa: PLR0913 - one argument per option
    result: ResultFolder = None,
    transforms: TransformFiles = None,
    fixed_labels: Annotated[Path | None, typer.Option(metavar="FILE", help="Label map of the fixed image.")] = None,
    moving_labels: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Label map of the moving image; on the fixed grid if no transform is given."),
    ] = None,
    landmarks: LandmarkFile = None,
    ras: Ras = False,
    form: Annotated[
        str | None,
        typer.Option("--format", metavar="FORMAT", help="table, json or csv (default: by the suffix of --output)."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="File to write instead of printing.")
    ] = None,
    threads: Threads = None,
    force: Force = False,
) -> None:
    """Evaluate a transform.

    Dice overlap and 95 % Hausdorff distance per label, landmark errors, and folds of the warp.
    """
    form = form or _form_of(output)
    if form not in FORMATS:
        raise InputError(f"Unknown format {form!r}; use one of {', '.join(FORMATS)}.")
    if output is not None:
        wf.io.check_free(output, force=force)
    given = read_given(result, transforms) if result is not None or transforms else None
    scores = [
        *_label_scores(given, fixed_labels, moving_labels),
        *_landmark_scores(given, landmarks, ras=ras),
        *_fold_scores(given),
    ]
    if not scores:
        raise InputError("There is nothing to evaluate; give a transform, two label maps or landmarks.")
    _emit(scores, form, output, force=force)


def _label_scores(given: GivenTransform | None, fixed: Path | None, moving: Path | None) -> list[Score]:
    from warpfactor.registration.companions import check_common, read_nonempty_labels

    if fixed is None and moving is None:
        return []
    if fixed is None or moving is None:
        raise InputError("Two label maps are compared; give both --fixed-labels and --moving-labels.")
    truth, labels = read_nonempty_labels(fixed), read_nonempty_labels(moving)
    check_common(truth, labels)
    if given is None:
        warped = labels.on_grid(truth.grid)
        compared = {"": warped}
    else:
        _check_labels(truth, labels, given)
        warped = given.transform.resample(labels, truth.grid, mode="label")
        compared = {"": warped, "_before": wf.Affine().resample(labels, truth.grid, mode="label")}
    scores = []
    for name, image in compared.items():
        dice = wf.measure.dice_figures(truth.data[0], image.data[0])
        scores += [Score(f"dice{name}", label, value) for label, value in dice.per_label.items()]
        scores.append(Score(f"dice_mean{name}", None, dice.mean))
    distance = wf.measure.hausdorff95(truth.data[0], warped.data[0], spacing_mm=truth.grid.spacing_mm)
    scores += [Score("hausdorff95_mm", label, value) for label, value in distance.items()]
    mean = sum(distance.values()) / len(distance) if distance else math.nan
    return [*scores, Score("hausdorff95_mean_mm", None, mean)]


def _check_labels(truth: wf.Image, labels: wf.Image, given: GivenTransform) -> None:
    """InputError if label maps do not lie where the images of a result folder do."""
    from warpfactor.registration.companions import check_same_space

    if given.saved is None:
        return
    fixed, moving = given.saved.fixed_grid, given.saved.moving_grid
    if not truth.grid.same_space(fixed) and truth.grid.same_space(moving):
        raise InputError(
            f"{truth.name} was given as --fixed-labels but lies on the grid of the moving image; "
            "check whether it belongs to --moving-labels."
        )
    truth.on_grid(fixed)
    check_same_space(labels, moving, "the moving image")


def _landmark_scores(given: GivenTransform | None, path: Path | None, *, ras: bool) -> list[Score]:
    if path is None:
        return []
    points = wf.io.read_landmarks(path, ras=ras)
    errors = {"before": wf.measure.target_registration_error(points.fixed, points.moving)}
    if given is not None:
        _warn_of_landmarks(path, points, given, ras=ras)
        mapped = given.transform.map_points(points.fixed)
        errors["after"] = wf.measure.target_registration_error(mapped, points.moving)
    return [
        Score(f"landmark_error_{when}_{name}_mm", None, getattr(found, name))
        for when, found in errors.items()
        for name in ("mean", "median", "p90", "max")
    ]


def _warn_of_landmarks(path: Path, points: wf.io.Landmarks, given: GivenTransform, *, ras: bool) -> None:
    """Warn of landmarks that lie outside their images, or that fit much better when read differently."""
    from warpfactor.checks.inputs import check_landmarks, check_points
    from warpfactor.show.wording import warn_of

    sides = {"fixed": points.fixed, "moving": points.moving} if given.saved else {}
    outside = [
        notice
        for space, side in sides.items()
        for notice in check_points(str(path), side, given.grid_of(space), space, ras=ras)
    ]
    warn_of(outside or check_landmarks(str(path), points, given.transform, ras=ras))


def _fold_scores(given: GivenTransform | None) -> list[Score]:
    warps = [] if given is None else [part for part in given.transform.parts if isinstance(part, wf.Warp)]
    if len(warps) != 1:
        return []
    found = wf.measure.jacobian_figures(warps[0].jacobian().data[0])
    return [
        Score("folded_voxels", None, found.folded_count),
        Score("folded_fraction", None, found.folded_fraction),
        Score("jacobian_minimum", None, found.minimum),
        Score("jacobian_sd_log", None, found.sd_log),
    ]


def _emit(scores: list[Score], form: str, output: Path | None, *, force: bool) -> None:
    text = {"table": _tables, "csv": _csv, "json": _json}[form](scores)
    if output is None:
        typer.echo(text, nl=False)
        return
    with wf.io.atomic_path(output, force=force) as temporary:
        temporary.write_text(text, encoding="utf-8")
    typer.echo(f"{wording.count(len(scores), 'score')} written to {output}.")


def _form_of(output: Path | None) -> str:
    """The format that the suffix of a file stands for."""
    suffix = "" if output is None else output.suffix.lower().removeprefix(".")
    return suffix if suffix in FORMATS else "table"


def _tables(scores: list[Score]) -> str:
    labels = sorted({score.label for score in scores if score.label is not None})
    columns = {name: found for name in PER_LABEL if (found := _by_label(scores, name))}
    per_label = [[str(label), *(_number(found.get(label)) for found in columns.values())] for label in labels]
    whole = [[score.name, _number(score.value)] for score in scores if score.label is None]
    first = terminal.table(("label", *columns), per_label) if labels else ""
    return first + terminal.table(("figure", "value"), whole)


def _by_label(scores: list[Score], name: str) -> dict[int, float]:
    return {score.label: score.value for score in scores if score.name == name and score.label is not None}


def _number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "-"
    return f"{value:g}" if float(value).is_integer() else f"{value:.4f}"


def _csv(scores: list[Score]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(("figure", "label", "value"))
    writer.writerows((f.name, "" if f.label is None else f.label, f.value) for f in scores)
    return stream.getvalue()


def _json(scores: list[Score]) -> str:
    from warpfactor.io.jsontext import json_text

    entries: dict[str, Any] = {score.name: score.value for score in scores if score.label is None}
    for name in PER_LABEL:
        if found := _by_label(scores, name):
            entries[f"{name}_per_label"] = found
    return json_text(entries)

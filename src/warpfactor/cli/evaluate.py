"""`warpfactor evaluate`: overlap of labels, distance of surfaces and landmarks, folds; as table, JSON or CSV."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

import warpfactor as wf
from warpfactor.cli import show
from warpfactor.cli.mixups import warn_of_landmarks_outside, warn_of_misread_landmarks
from warpfactor.cli.options import Force, Landmarks, Ras, Result, Source, Threads, Transforms, read_source
from warpfactor.registration.companions import check_same_space, read_nonempty_labels
from warpfactor.errors import InputError

FORMATS = ("table", "json", "csv")
PER_LABEL = ("dice_before", "dice", "hausdorff95_mm")  # columns of the table, in order


@dataclass(frozen=True)
class Figure:
    """One number: its name with the unit, the label it belongs to if any, its value."""

    name: str
    label: int | None
    value: float


def command(  # noqa: PLR0913 - one argument per option
    result: Result = None,
    transforms: Transforms = None,
    fixed_labels: Annotated[Path | None, typer.Option(metavar="FILE", help="Label map of the fixed image.")] = None,
    moving_labels: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Label map of the moving image; without a transform, one on the fixed grid."),
    ] = None,
    landmarks: Landmarks = None,
    ras: Ras = False,
    form: Annotated[
        str | None,
        typer.Option("--format", metavar="FORMAT", help="table, json or csv; without, by the name of --output."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="File to write instead of printing.")
    ] = None,
    threads: Threads = None,
    force: Force = False,
) -> None:
    """Score a transform: Dice and 95 % surface distance per label, landmark errors, folds."""
    form = form or _form_of(output)
    if form not in FORMATS:
        raise InputError(f"Unknown format {form!r}; use one of {', '.join(FORMATS)}.")
    if output is not None:
        wf.io.check_free(output, force=force)
    source = read_source(result, transforms) if result is not None or transforms else None
    figures = [
        *_label_figures(source, fixed_labels, moving_labels),
        *_landmark_figures(source, landmarks, ras=ras),
        *_fold_figures(source),
    ]
    if not figures:
        raise InputError("There is nothing to evaluate; give a transform, two label maps or landmarks.")
    _emit(figures, form, output, force=force)


def _label_figures(source: Source | None, fixed: Path | None, moving: Path | None) -> list[Figure]:
    if fixed is None and moving is None:
        return []
    if fixed is None or moving is None:
        raise InputError("Two label maps are compared; give both --fixed-labels and --moving-labels.")
    truth, given = read_nonempty_labels(fixed), read_nonempty_labels(moving)
    before: dict[str, wf.Image] = {}
    if source is None:
        carried = given.on_grid(truth.grid)
    else:
        _check_labels(truth, given, source)
        carried = source.towards("fixed").resample(given, truth.grid, mode="label")
        before["_before"] = wf.Affine().resample(given, truth.grid, mode="label")
    figures = []
    for name, labels in ({"": carried} | before).items():
        dice = wf.quality.dice_figures(truth.data[0], labels.data[0])
        figures += [Figure(f"dice{name}", label, value) for label, value in dice.per_label.items()]
        figures.append(Figure(f"dice_mean{name}", None, dice.mean))
    distance = wf.quality.hausdorff95(truth.data[0], carried.data[0], spacing_mm=truth.grid.spacing_mm)
    figures += [Figure("hausdorff95_mm", label, value) for label, value in distance.items()]
    mean = sum(distance.values()) / len(distance) if distance else math.nan
    return [*figures, Figure("hausdorff95_mean_mm", None, mean)]


def _check_labels(truth: wf.Image, given: wf.Image, source: Source) -> None:
    """InputError if label maps do not lie where the images of a result folder do."""
    if not source.saved or source.fixed_grid is None or source.moving_grid is None:
        return
    same = truth.grid.same_space(source.fixed_grid)
    if not same and truth.grid.same_space(source.moving_grid):
        raise InputError(
            f"{truth.name} was given as --fixed-labels and lies on the grid of the moving image; "
            "check whether it is that of --moving-labels."
        )
    truth.on_grid(source.fixed_grid)
    check_same_space(given, source.moving_grid, "the moving image")


def _landmark_figures(source: Source | None, path: Path | None, *, ras: bool) -> list[Figure]:
    if path is None:
        return []
    points = wf.io.read_landmarks(path, ras=ras)
    errors = {"before": wf.quality.target_registration_error(points.fixed, points.moving)}
    if source is not None:
        _warn_of_landmarks(path, points, source, ras=ras)
        mapped = source.transform.map_points(points.fixed)
        errors["after"] = wf.quality.target_registration_error(mapped, points.moving)
    return [
        Figure(f"landmark_error_{when}_{name}_mm", None, getattr(found, name))
        for when, found in errors.items()
        for name in ("mean", "median", "p90", "max")
    ]


def _warn_of_landmarks(path: Path, points: wf.io.Landmarks, source: Source, *, ras: bool) -> None:
    grids = (source.fixed_grid, source.moving_grid) if source.saved else (None, None)
    if not warn_of_landmarks_outside(path, points, *grids, ras=ras):
        warn_of_misread_landmarks(path, points, source.transform, ras=ras)


def _fold_figures(source: Source | None) -> list[Figure]:
    warps = [] if source is None else [part for part in source.transform.parts if isinstance(part, wf.Warp)]
    if len(warps) != 1:
        return []
    found = wf.quality.jacobian_figures(warps[0].jacobian().data[0])
    return [
        Figure("folded_voxels", None, found.folded_count),
        Figure("folded_fraction", None, found.folded_fraction),
        Figure("jacobian_minimum", None, found.minimum),
        Figure("jacobian_sd_log", None, found.sd_log),
    ]


def _emit(figures: list[Figure], form: str, output: Path | None, *, force: bool) -> None:
    text = {"table": _tables, "csv": _csv, "json": _json}[form](figures)
    if output is None:
        typer.echo(text, nl=False)
        return
    with wf.io.atomic_path(output, force=force) as temporary:
        temporary.write_text(text, encoding="utf-8")
    typer.echo(f"{len(figures)} figures written to {output}")


def _form_of(output: Path | None) -> str:
    """The format that the name of a file asks for."""
    suffix = "" if output is None else output.suffix.lower().removeprefix(".")
    return suffix if suffix in FORMATS else "table"


def _tables(figures: list[Figure]) -> str:
    labels = sorted({figure.label for figure in figures if figure.label is not None})
    columns = {name: found for name in PER_LABEL if (found := _by_label(figures, name))}
    per_label = [[str(label), *(_number(found.get(label)) for found in columns.values())] for label in labels]
    whole = [[figure.name, _number(figure.value)] for figure in figures if figure.label is None]
    first = show.table(("label", *columns), per_label) if labels else ""
    return first + show.table(("figure", "value"), whole)


def _by_label(figures: list[Figure], name: str) -> dict[int, float]:
    return {figure.label: figure.value for figure in figures if figure.name == name and figure.label is not None}


def _number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "-"
    return f"{value:g}" if float(value).is_integer() else f"{value:.4f}"


def _csv(figures: list[Figure]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(("figure", "label", "value"))
    writer.writerows((f.name, "" if f.label is None else f.label, f.value) for f in figures)
    return stream.getvalue()


def _json(figures: list[Figure]) -> str:
    from warpfactor.io.jsontext import json_text

    entries: dict[str, Any] = {figure.name: figure.value for figure in figures if figure.label is None}
    for name in PER_LABEL:
        if found := _by_label(figures, name):
            entries[f"{name}_per_label"] = found
    return json_text(entries)

"""`warpfactor demo`: a pair with known truth, registered through files, and how near the truth the result is."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import warpfactor as wf
from warpfactor.cli import report as reporting
from warpfactor.cli import show
from warpfactor.cli.options import Force, Quiet, Threads, parse_numbers
from warpfactor.errors import InputError

FIXED, MOVING, TRUTH = "fixed.nii.gz", "moving.nii.gz", "true_fixed_to_moving.h5"
FIXED_LABELS, MOVING_LABELS, RESULT = "fixed_labels.nii.gz", "moving_labels.nii.gz", "result"
OUTPUT = Path("demo-output")
SPACING_MM = 2.0
TURN_DEGREES = 10.0
SHIFT_MM = (12.0, -7.0, 5.0)


def command(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder to write.")] = OUTPUT,
    shape: Annotated[str, typer.Option(metavar="Z,Y,X", help="Voxels along z, y, x; 1,y,x is 2-D.")] = "80,96,80",
    recipe: Annotated[str, typer.Option(metavar="RECIPE", help="Name or file of the recipe.")] = "default",
    seed: Annotated[int, typer.Option(metavar="NUMBER", help="Of the anatomy and its warp.")] = 0,
    report: Annotated[bool, reporting.NO_REPORT] = True,
    force: Force = False,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Make a brain-like pair whose true transform is known, register it from files, and say how well that went."""
    from warpfactor.io.folder import atomic_folder, check_folder

    began = time.perf_counter()
    check_folder(output, force=force)
    chosen = wf.recipe(recipe)
    sizes = parse_numbers(shape, "--shape") or ()
    own = (FIXED, MOVING, TRUTH, FIXED_LABELS, MOVING_LABELS, RESULT)
    with atomic_folder(output, force=force, own=own) as place:
        truth = _make_pair(place, sizes, seed)
        show.announce_compilation(quiet=quiet)
        with show.progress(quiet=quiet, as_json=False) as view:
            found = wf.register(place / FIXED, place / MOVING, recipe=chosen, progress=view.callback)
            view.phase("report and writing" if report else "writing")
            verdict = _save(found, place, output, report=report)
            scores = _scores(place, truth, found)
    if not quiet:
        typer.echo(show.summary(found, output / RESULT, verdict, time.perf_counter() - began))
        typer.echo(scores)
        look = f"{RESULT}/report.html, or " if report else ""
        typer.echo(f"Look into {output}: {look}{RESULT}/warped.nii.gz beside {FIXED}.")


def _save(found: wf.Registration, place: Path, output: Path, *, report: bool) -> dict[str, Any]:
    """Write the result and its page, and return its verdict; the images will be beside it in `output`."""
    inputs = wf.report.inputs_entry(output / RESULT, fixed=output / FIXED, moving=output / MOVING)
    extra = {"command": sys.argv[1:], "inputs": inputs}
    images = {"fixed": place / FIXED, "moving": place / MOVING}
    page = reporting.draw(found, **images, extra=extra) if report else None
    (place / RESULT).mkdir()
    reporting.write_with_page(found, place / RESULT, page, extra=extra)
    return {} if page is None else {"verdict": page.verdict.to_dict()}


@dataclass(frozen=True)
class _Truth:
    """The true transform, fixed to moving, and (N, 3) world points all over the fixed object, LPS mm."""

    transform: wf.Chain
    points: np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def _make_pair(place: Path, sizes: tuple[float, ...], seed: int) -> _Truth:
    """Write the pair; the moving image's header is turned and shifted, so that an affine has to be found as well."""
    if len(sizes) != 3:
        raise InputError("--shape needs three numbers, z,y,x.")
    pair = wf.phantom.phantom([int(n) for n in sizes], seed=seed)
    depth, height, width = pair.fixed.shape
    fixed = wf.Grid.from_spacing((height, width) if depth == 1 else (depth, height, width), SPACING_MM)
    affine = wf.Affine(_turn(fixed), "fixed", "moving", fixed.ndim)
    moving = wf.Grid(fixed.shape, affine.matrix @ fixed.matrix, fixed.ndim)
    truth = wf.Chain((wf.Warp(pair.displacement, fixed, "fixed", "fixed"), affine), "fixed", "moving")
    for name, data, grid in (
        (FIXED, pair.fixed, fixed),
        (MOVING, pair.moving, moving),
        (FIXED_LABELS, pair.fixed_labels, fixed),
        (MOVING_LABELS, pair.moving_labels, moving),
    ):
        wf.write_image(wf.Image(data[None], grid, name), place / name)
    wf.write_transform(truth, place / TRUTH)
    inside = pair.mask.nonzero().numpy()
    return _Truth(truth, fixed.index_to_world(inside))


def _turn(grid: wf.Grid) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """4x4: a turn about the middle of the grid in its plane, and a shift."""
    angle = np.radians(TURN_DEGREES)
    matrix = np.eye(4)
    matrix[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    centre = grid.index_to_world([(np.asarray(grid.shape) - 1) / 2])[0]
    matrix[:3, 3] = centre - matrix[:3, :3] @ centre
    matrix[: grid.ndim, 3] += SHIFT_MM[: grid.ndim]
    return matrix


def _scores(place: Path, truth: _Truth, found: wf.Registration) -> str:
    """Known-truth error and label overlap before, after the affine and at the end."""
    goal = truth.transform.map_points(truth.points)
    fixed, moving = wf.read_labels(place / FIXED_LABELS), wf.read_labels(place / MOVING_LABELS)
    lines = []
    for name, transform in (("before", wf.Affine()), ("affine", found.affine), ("warp", found.transform)):
        error = wf.quality.target_registration_error(transform.map_points(truth.points), goal)
        carried = transform.resample(moving, fixed.grid, mode="label")
        overlap = wf.quality.dice_figures(fixed.data[0], carried.data[0]).mean
        lines.append(f"{name:<7} true error {error.mean:6.2f} mm (90 % below {error.p90:.2f} mm), Dice {overlap:.3f}")
    return "\n".join(lines)

"""`warpfactor demo`: register a pair of images whose true transform is known, and measure the error."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import warpfactor as wf
from warpfactor.cli import terminal, wording
from warpfactor.cli.options import Force, Quiet, Report, Threads, parse_numbers
from warpfactor.errors import InputError

if TYPE_CHECKING:
    from warpfactor.geometry.grid import Matrix, Points

FIXED, MOVING, TRUTH = "fixed.nii.gz", "moving.nii.gz", "true_fixed_to_moving.h5"
FIXED_LABELS, MOVING_LABELS, RESULT = "fixed_labels.nii.gz", "moving_labels.nii.gz", "result"
OUTPUT = Path("demo-output")
SPACING_MM = 2.0
ROTATION_DEGREES = 10.0
TRANSLATION_MM = (12.0, -7.0, 5.0)


def command(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder to write.")] = OUTPUT,
    shape: Annotated[
        str, typer.Option(metavar="Z,Y,X", help="Size of the images in voxels; 1,Y,X makes 2-D images.")
    ] = "80,96,80",
    recipe: Annotated[str, typer.Option(metavar="RECIPE", help="Name or file of the recipe.")] = "default",
    seed: Annotated[int, typer.Option(metavar="NUMBER", help="Seed of the anatomy and its deformation.")] = 0,
    report: Report = True,
    force: Force = False,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Make a brain-like pair of images whose true transform is known, register it, and print the error."""
    from warpfactor.registration.folder import read_entries

    began = time.perf_counter()
    wf.io.check_folder(output, force=force)
    chosen, sizes = wf.recipe(recipe), parse_numbers(shape, "--shape") or ()
    own = (FIXED, MOVING, TRUTH, FIXED_LABELS, MOVING_LABELS, RESULT)
    with wf.io.atomic_folder(output, force=force, own=own) as place:
        truth = _make_pair(place, sizes, seed)
        with terminal.progress(quiet=quiet, as_json=False) as view:
            found = wf.register(place / FIXED, place / MOVING, recipe=chosen, progress=view.callback)
            view.phase(wording.WRITING_REPORT if report else wording.WRITING)
            found.save(place / RESULT, report=report, extra=_extra(output))
        entries = read_entries(place / RESULT)
        errors = _errors(place, truth, found)
    if not quiet:
        typer.echo(wording.summary(found, entries, output / RESULT, time.perf_counter() - began))
        typer.echo(errors)
        look = "report.html" if report else "warped.nii.gz"
        typer.echo(f"See {output / RESULT / look}.")


@dataclass(frozen=True)
class _Truth:
    """The true transform, fixed to moving, and points throughout the fixed object, (N, 3) LPS mm."""

    transform: wf.Chain
    points: Points


def _extra(output: Path) -> dict[str, object]:
    """Entries of result.json: the command, and the images as they lie in the finished folder."""
    images = {"fixed": FIXED, "moving": MOVING}
    inputs = {
        side: {"path": str((output / name).absolute()), "path_from_result": f"../{name}"}
        for side, name in images.items()
    }
    return {"command": sys.argv[1:], "inputs": inputs}


def _make_pair(place: Path, sizes: tuple[float, ...], seed: int) -> _Truth:
    """Write the pair; the header of the moving image is rotated and translated, so that an affine has to be found."""
    if len(sizes) != 3:
        raise InputError("--shape needs three numbers, Z,Y,X.")
    pair = wf.phantom.phantom([int(n) for n in sizes], seed=seed)
    depth, height, width = pair.fixed.shape
    fixed = wf.Grid.from_spacing((height, width) if depth == 1 else (depth, height, width), SPACING_MM)
    affine = wf.Affine(_rotation(fixed), "fixed", "moving", fixed.ndim)
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


def _rotation(grid: wf.Grid) -> Matrix:
    """4x4: a rotation about the centre of the grid in the x-y plane, then a translation."""
    import numpy as np

    angle = np.radians(ROTATION_DEGREES)
    matrix = np.eye(4)
    matrix[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    centre = grid.index_to_world([[(n - 1) / 2 for n in grid.shape]])[0]
    matrix[:3, 3] = centre - matrix[:3, :3] @ centre
    matrix[: grid.ndim, 3] += TRANSLATION_MM[: grid.ndim]
    return matrix


def _errors(place: Path, truth: _Truth, found: wf.Registration) -> str:
    """Error against the true transform and overlap of labels: before, after the affine, and at the end."""
    goal = truth.transform.map_points(truth.points)
    fixed, moving = wf.read_labels(place / FIXED_LABELS), wf.read_labels(place / MOVING_LABELS)
    lines = []
    for name, transform in (("before", wf.Affine()), ("affine", found.affine), ("warp", found.transform)):
        error = wf.measure.target_registration_error(transform.map_points(truth.points), goal)
        warped = transform.resample(moving, fixed.grid, mode="label")
        overlap = wf.measure.dice_figures(fixed.data[0], warped.data[0]).mean
        distances = f"{error.mean:6.2f} mm on average, 90th percentile {error.p90:.2f} mm"
        lines.append(f"{name:<7} error {distances}; mean Dice {overlap:.3f}")
    return "\n".join(lines)

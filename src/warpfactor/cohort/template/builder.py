"""`build`: an unbiased template of a group of images.

The start is the mean after linear alignment. Then everybody is registered to the template, the images are averaged,
and the mean of the warps is undone, so that the template has the mean shape and does not lean towards anybody; until
it stops changing. Every registration is a row of a cohort, so a stopped run goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from warpfactor.cohort.engine.engine import Engine, open_engine
from warpfactor.cohort.engine.settings import EngineSettings
from warpfactor.cohort.events import CohortWatcher
from warpfactor.cohort.job import DONE, JobOptions, RowJob
from warpfactor.cohort.rows import make_jobs, needed_bytes, plan_jobs, run_jobs
from warpfactor.cohort.store import Store
from warpfactor.cohort.study import conclude, refuse, run_problems
from warpfactor.cohort.table.check import row_problems, row_recipe
from warpfactor.cohort.table.row import CohortRow
from warpfactor.cohort.table.template import Template
from warpfactor.cohort.template.average import Averager, Place, relative_change, sharpened, sharpness_per_mm
from warpfactor.cohort.template.iteration import IMAGE, TemplateIteration, key_of, read_iteration
from warpfactor.cohort.template.matrices import mean_matrix, mirror, square_root
from warpfactor.cohort.template.people import FEWEST, dimension_problems, gather_people, in_order
from warpfactor.cohort.template.settings import TemplateSettings
from warpfactor.cohort.template.shape import mean_map, split
from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid, Matrix
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Affine, Chain
from warpfactor.io import read_image, write_image, write_labels, write_transform
from warpfactor.io.transforms import ANTS_INVERSE_WARP, ANTS_WARP, VELOCITY
from warpfactor.kernels import select
from warpfactor.recipebook.recipe import Recipe
from warpfactor.registration.folder import SavedResult, read_result
from warpfactor.registration.inputs import load_image
from warpfactor.registration.record import WARPED
from warpfactor.registration.run import register
from warpfactor.scene.object import foreground
from warpfactor.show.report.template_page import write_template_page

if TYPE_CHECKING:
    import pandas

LINEAR, ITERATIONS, SUBJECTS, AFFINES = "linear", "iterations", "subjects", "affines"
PROBABILITIES = "template_labels_probabilities"
_LARGE = (ANTS_WARP, ANTS_INVERSE_WARP, VELOCITY, WARPED)  # files of finished iterations that are not needed any more


@dataclass(frozen=True)
class GroupTemplate:
    """The template of a group.

    Attributes:
        image: the template, with a channel for each file of a person.
        labels: what most people have at each voxel; None without labels.
        mask: where most masks are; None without masks.
        iterations: how it came about, the start first.
        subjects: frame of the registrations of everybody to the template.
        folder: where all of it was written.
    """

    image: Image
    labels: Image | None
    mask: Image | None
    iterations: tuple[TemplateIteration, ...]
    subjects: pandas.DataFrame
    folder: Path


def build(  # noqa: PLR0913 - the entry point takes every choice; all but two have defaults
    images: Any,
    output: str | Path,
    *,
    settings: TemplateSettings | None = None,
    channels: Sequence[str] = (),
    labels: str | None = None,
    masks: str | None = None,
    probabilities: bool = False,
    recipe: str | Recipe = "default",
    overrides: Mapping[str, Any] | None = None,
    options: JobOptions | None = None,
    engine: EngineSettings | None = None,
    watch: CohortWatcher | None = None,
    on_iteration: Callable[[TemplateIteration], None] | None = None,
) -> GroupTemplate:
    """Make an unbiased template of a group of images.

    The output folder has `template.nii.gz` (and `template_2.nii.gz` for a second channel, and so on), `subjects/` with
    the registration of everybody to it, `template.html` with how it came about, and `template_labels.nii.gz` and
    `template_mask.nii.gz` if there are labels and masks. A second run goes on where the first was stopped.

    Args:
        images: image files or patterns, a table (.csv, .tsv) with the columns image, labels, mask and name, or a list
            of dictionaries with these keys.
        output: folder to write.
        settings: how the template is made.
        channels, labels, masks: patterns of the paths of further channels, label maps and masks of image files, in
            which {name} is the name of a person.
        probabilities: whether to write a probability map for every label, too.
        recipe, overrides, options, engine, watch: as for `cohort.run`.
        on_iteration: called with the record of every iteration.
    """
    how, place, jobs = settings or TemplateSettings(), engine or EngineSettings(), options or JobOptions()
    patterns = Template((), moving_mask=masks, moving_labels=labels, moving_channels=tuple(channels))
    rows = _checked(images, patterns, Path(output), how, recipe, overrides or {}, jobs, place)
    first = make_jobs(rows, Path(output), recipe, overrides or {}, jobs)
    with open_engine(place, need_bytes=needed_bytes(first), jobs=len(rows)) as opened:
        builder = _Builder(rows, Path(output), how, recipe, dict(overrides or {}), jobs, opened, watch, probabilities)
        return builder.run(on_iteration or (lambda _: None))


def _checked(
    images: Any,
    patterns: Template,
    output: Path,
    settings: TemplateSettings,
    recipe: str | Recipe,
    overrides: Mapping[str, Any],
    options: JobOptions,
    engine: EngineSettings,
) -> tuple[CohortRow, ...]:
    found = gather_people(images, patterns)
    problems = [*found.problems, *settings.problems()]
    problems += row_problems(found.rows, recipe, overrides)
    problems += dimension_problems(found.rows, settings.start)
    if not problems and not all(row_recipe(row, recipe, overrides).linear for row in found.rows):
        problems.append("A template needs a recipe with a linear stage, to begin with everybody in one place.")
    refuse([*problems, *run_problems(found.rows, output, options, engine)])
    return in_order(found.rows)


@dataclass(frozen=True)
class _Current:
    """A template on its way: its files, and the affine of each person from it."""

    files: tuple[Path, ...]
    folder: Path

    def affine(self, row: CohortRow) -> tuple[Path, ...]:
        path = self.folder / AFFINES / f"{row.name}.mat"
        return (path,) if path.is_file() else ()

    def read(self) -> Image:
        return load_image(self.files[0] if len(self.files) == 1 else list(self.files))


@dataclass(frozen=True)
class _Builder:
    rows: tuple[CohortRow, ...]
    output: Path
    settings: TemplateSettings
    recipe: str | Recipe
    overrides: Mapping[str, Any]
    options: JobOptions
    engine: Engine
    watch: CohortWatcher | None
    probabilities: bool

    def run(self, tell: Callable[[TemplateIteration], None]) -> GroupTemplate:
        current, record = self._start()
        records = [record]
        tell(record)
        for number in range(1, self.settings.iterations + 1):
            current, record = self._iterate(current, number)
            records.append(record)
            tell(record)
            if record.change is not None and record.change < self.settings.tolerance:
                break
        return self._finish(current, records)

    def _register(self, jobs: Sequence[RowJob]) -> list[CohortRow]:
        """Do jobs that share a folder; the rows of those that succeeded."""
        Store(jobs[0].output).prepare()
        outcomes = run_jobs(plan_jobs(jobs), self.engine, self.watch)
        done = [job.row for job, outcome in zip(jobs, outcomes, strict=True) if outcome.state == DONE]
        if len(done) < FEWEST:
            reason = next((outcome.reason for outcome in outcomes if outcome.state != DONE), "")
            raise InputError(f"Too few images could be registered to make a template; one failed because: {reason}")
        return done

    def _jobs(self, rows: Sequence[CohortRow], folder: Path) -> list[RowJob]:
        return make_jobs(rows, folder, self.recipe, self.overrides, replace(self.options, report=False))

    def _key(self, jobs: Sequence[RowJob]) -> str:
        return key_of([job.identity().key for job in jobs] + [repr(self.settings)])

    def _start(self) -> tuple[_Current, TemplateIteration]:
        folder = self.output / ITERATIONS / "00"
        if self.settings.start:
            return self._write(_symmetric(load_image(list(self.settings.start)), self.settings), folder, {}, 0, "start")
        reference = _median_person(self.rows)
        rows = [replace(_plain(row), fixed=reference.moving, fixed_mask=reference.moving_mask) for row in self.rows]
        place = self.output / LINEAR
        jobs = [replace(job, recipe=job.recipe.replace({"deformable": None})) for job in self._jobs(rows, place)]
        key = self._key(jobs)
        known = read_iteration(folder, key)
        if known is not None:
            return _Current(_files(folder, len(reference.moving)), folder), known
        done = self._register(jobs)
        matrices = {row.name: split(read_result(place / row.name).transform)[0] for row in done}
        mean = mean_matrix(list(matrices.values()))
        grid = _moved(read_image(reference.moving[0]).grid, mean)
        found = {name: matrix @ np.linalg.inv(mean) for name, matrix in matrices.items()}
        image = self._average(done, _linear(found, grid.ndim), grid)
        if self.settings.symmetric:
            pose = _upright(image, self.options)
            found = {name: matrix @ pose for name, matrix in found.items()}
            image = self._average(done, _linear(found, grid.ndim), grid)
        return self._write(_symmetric(image, self.settings), folder, found, 0, key)

    def _iterate(self, last: _Current, number: int) -> tuple[_Current, TemplateIteration]:
        folder = self.output / ITERATIONS / f"{number:02d}"
        rows = [replace(_plain(row), fixed=last.files, initial=last.affine(row)) for row in self.rows]
        jobs = self._jobs(rows, folder)
        key = self._key(jobs)
        known = read_iteration(folder, key)
        if known is not None:
            return _Current(_files(folder, len(last.files)), folder), known
        done, before, ops = self._register(jobs), last.read(), select()
        grid = before.grid
        flows = all((folder / row.name / VELOCITY).is_file() for row in done)
        mean = mean_map((_map_of(read_result(folder / row.name), flows=flows) for row in done), grid, flows=flows)
        mean = mean.mirrored(ops) if self.settings.symmetric else mean
        back = mean.back(ops)
        image = self._average(
            done, lambda row: Chain((*back.parts, *read_result(folder / row.name).transform.parts)), grid
        )
        image = sharpened(_symmetric(image, self.settings), self.settings.sharpen, ops)
        inside = foreground(before.data, None)
        found, distances = {}, {}
        for row in done:
            matrix, warp = split(read_result(folder / row.name).transform)
            found[row.name] = matrix @ np.linalg.inv(mean.matrix)
            distances[row.name] = 0.0 if warp is None else _length_mm(warp, grid, inside)
        change, shift_mm = relative_change(image, before), mean.shift_mm(inside, ops)
        more = {"change": change, "shift_mm": shift_mm, "distances_mm": distances}
        made = self._write(image, folder, found, number, key, **more)
        for row in done:
            for name in _LARGE:
                (folder / row.name / name).unlink(missing_ok=True)
        return made

    def _average(self, rows: Sequence[CohortRow], place: Place, grid: Grid) -> Image:
        return Averager(rows, place, grid, select()).images()

    def _write(
        self, image: Image, folder: Path, affines: Mapping[str, Matrix], number: int, key: str, **more: Any
    ) -> tuple[_Current, TemplateIteration]:
        for name, matrix in affines.items():
            write_transform(Affine(matrix, dimension=image.grid.ndim), folder / AFFINES / f"{name}.mat", force=True)
        files = _write_channels(image, folder)
        record = TemplateIteration(number, key, sharpness_per_mm(image), **more)
        record.write(folder)
        return _Current(files, folder), record

    def _finish(self, current: _Current, records: Sequence[TemplateIteration]) -> GroupTemplate:
        """The template where users find it, everybody registered to it, labels and masks."""
        image = current.read()
        files = _write_channels(image, self.output)
        rows = [replace(row, fixed=files, initial=current.affine(row)) for row in self.rows]
        store = Store(self.output / SUBJECTS)
        store.prepare()
        jobs = make_jobs(rows, store.folder, self.recipe, self.overrides, self.options)
        outcomes = run_jobs(plan_jobs(jobs), self.engine, self.watch)
        frame = conclude(rows, outcomes, store, page=self.options.report)
        done = [row for row, outcome in zip(rows, outcomes, strict=True) if outcome.state == DONE]
        averager = Averager(done, lambda row: read_result(store.result(row.name)).transform, image.grid, select())
        mask, voted = averager.mask(), averager.labels(self._write_share if self.probabilities else None)
        if mask is not None:
            write_image(mask, self.output / "template_mask.nii.gz", force=True)
        if voted is not None:
            like = next(row.moving_labels for row in done if row.moving_labels is not None)
            write_labels(voted[0], self.output / "template_labels.nii.gz", like=like, force=True)
            write_image(voted[1], self.output / "template_labels_probability.nii.gz", force=True)
        pictures = [read_image(self.output / ITERATIONS / f"{r.number:02d}" / IMAGE)._repr_png_() for r in records]
        write_template_page(records, pictures, self.output / "template.html")
        return GroupTemplate(image, None if voted is None else voted[0], mask, tuple(records), frame, self.output)

    def _write_share(self, label: int, share: Image) -> None:
        if label != 0:
            write_image(share, self.output / PROBABILITIES / f"{label}.nii.gz", force=True)


def _map_of(result: SavedResult, *, flows: bool) -> tuple[Matrix, torch.Tensor | None]:
    """The matrix of a result, and the displacement before it or the velocity it comes from."""
    matrix, displacement = split(result.transform)
    return matrix, result.velocity.field if flows and result.velocity is not None else displacement


def _plain(row: CohortRow) -> CohortRow:
    """A row without what is only carried along."""
    return replace(row, moving_labels=None, fixed_labels=None, carry=())


def _median_person(rows: Sequence[CohortRow]) -> CohortRow:
    """The person whose object has the median volume."""
    sizes = []
    for row in rows:
        image = read_image(row.moving[0])
        voxel = abs(float(np.linalg.det(image.grid.matrix[:3, :3])))
        sizes.append(float(foreground(torch.nan_to_num(image.data), None).sum()) * voxel)
    order = sorted(range(len(rows)), key=sizes.__getitem__)
    return rows[order[(len(order) - 1) // 2]]


def _moved(grid: Grid, matrix: Matrix) -> Grid:
    """A grid whose middle lies where a matrix takes it."""
    centre = grid.index_to_world([[(n - 1) / 2 for n in grid.shape]])
    moved = grid.matrix.copy()
    moved[:3, 3] += (Affine(matrix, dimension=grid.ndim).map_points(centre) - centre)[0]
    return Grid(grid.shape, moved, grid.ndim)


def _linear(matrices: Mapping[str, Matrix], ndim: int) -> Place:
    return lambda row: Affine(matrices[row.name], dimension=ndim)


def _symmetric(image: Image, settings: TemplateSettings) -> Image:
    """The mean of an image and its mirror image, if that is asked for."""
    if not settings.symmetric:
        return image
    return replace(image, data=(image.data + _mirrored(image).data) / 2)


def _mirrored(image: Image) -> Image:
    flip = Affine(mirror(image.grid), dimension=image.grid.ndim)
    return flip.resample(image, image.grid, outside=float(image.data.amin()))


def _upright(image: Image, options: JobOptions) -> Matrix:
    """The rigid motion that puts the plane between left and right into the middle of the grid.

    If T takes the mirror image onto the image, its square root goes half of the way, to where the two agree.
    """
    rigid = {"linear.dof": "rigid", "deformable": None}
    found = register(_mirrored(image), image, recipe="affine", overrides=rigid, threads=options.threads)
    root = square_root(found.affine.matrix)
    return np.eye(4) if root is None else root


def _length_mm(displacement: torch.Tensor, grid: Grid, inside: torch.Tensor) -> float:
    lengths = grid.voxels_to_mm(displacement).norm(dim=0)[inside]
    return float(lengths.square().mean().sqrt())


def _files(folder: Path, channels: int) -> tuple[Path, ...]:
    return (folder / IMAGE, *(folder / f"template_{number}.nii.gz" for number in range(2, channels + 1)))


def _write_channels(image: Image, folder: Path) -> tuple[Path, ...]:
    files = _files(folder, image.channels)
    for number, path in enumerate(files):
        write_image(replace(image, data=image.data[number : number + 1]), path, force=True)
    return files

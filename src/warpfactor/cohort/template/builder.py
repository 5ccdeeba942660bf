"""`build`: an unbiased template of a group of images.

The start is the mean after linear alignment. Then everybody is registered to the template, the images are averaged,
and the mean of the warps is undone, so that the template has the mean shape and does not lean towards anybody; until
it stops changing. Every registration is a row of a cohort, so a stopped run goes on where it was.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
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
from warpfactor.cohort.template.current import (
    CurrentTemplate,
    channel_files,
    write_affines,
    write_back,
    write_channels,
)
from warpfactor.cohort.template.iteration import IMAGE, TemplateIteration, key_of, read_iteration
from warpfactor.cohort.template.matrices import mean_matrix
from warpfactor.cohort.template.pace import (
    can_be_coarser,
    coarser,
    coarser_grid,
    coarser_row,
    coarser_spacing_mm,
)
from warpfactor.cohort.template.people import FEWEST, dimension_problems, gather_people, in_order
from warpfactor.cohort.template.pose import linear, median_person, moved, symmetric, upright
from warpfactor.cohort.template.settings import TemplateSettings
from warpfactor.cohort.template.shape import mean_map, split
from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid, Matrix
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Chain
from warpfactor.io import read_image, write_image, write_labels
from warpfactor.io.transforms import ANTS_INVERSE_WARP, ANTS_WARP, VELOCITY
from warpfactor.kernels import select
from warpfactor.recipebook.recipe import Recipe
from warpfactor.registration.folder import read_result
from warpfactor.registration.inputs import load_image
from warpfactor.registration.record import WARPED
from warpfactor.scene.levels import finest_spacing
from warpfactor.scene.object import foreground
from warpfactor.show.report.template_page import write_template_page

if TYPE_CHECKING:
    import pandas

LINEAR, ITERATIONS, SUBJECTS = "linear", "iterations", "subjects"
FULL, COARSER = "full", "coarser"  # the template at full resolution, and copies of the images that are not
PROBABILITIES = "template_labels_probabilities"
_SPENT = (ANTS_INVERSE_WARP, VELOCITY, WARPED)  # large files of a finished iteration that nobody needs any more


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
            ended = current.full
            current, record = self._iterate(current, number)
            records.append(record)
            tell(record)
            if ended and self._still(record):
                break
        shutil.rmtree(self.output / COARSER, ignore_errors=True)
        return self._finish(current, records)

    @cached_property
    def _reference(self) -> CohortRow:
        return median_person(self.rows)

    @cached_property
    def _shape(self) -> tuple[int, int, int]:
        """Of the template at full resolution."""
        return read_image((self.settings.start or self._reference.moving)[0]).grid.shape

    @cached_property
    def _spacing_mm(self) -> float | None:
        """Of early iterations; None if all are at full resolution."""
        grid = read_image((self.settings.start or self._reference.moving)[0]).grid
        recipes = [row_recipe(row, self.recipe, self.overrides) for row in self.rows]
        spare = self.settings.iterations > 1 and all(can_be_coarser(each, grid) for each in recipes)
        return coarser_spacing_mm(grid) if spare else None

    @cached_property
    def _coarse_rows(self) -> tuple[CohortRow, ...]:
        """Everybody in copies at the resolution of early iterations."""
        spacing = self._spacing_mm
        if spacing is None:
            return self.rows
        return tuple(coarser_row(row, self.output / COARSER, spacing, select()) for row in self.rows)

    def _still(self, record: TemplateIteration) -> bool:
        return record.change is not None and record.change < self.settings.tolerance

    def _full_after(self, record: TemplateIteration) -> bool:
        """Whether the next iteration is at full resolution: the last one, or if nothing changes any more."""
        return self._spacing_mm is None or record.number + 1 >= self.settings.iterations or self._still(record)

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

    def _first_key(self) -> str:
        """A hash of everything that a template is made of."""
        rows = [replace(_plain(row), fixed=self.settings.start or row.moving) for row in self.rows]
        return key_of([job.identity().key for job in self._jobs(rows, self.output)] + [repr(self.settings)])

    def _start(self) -> tuple[CurrentTemplate, TemplateIteration]:
        folder, key = self.output / ITERATIONS / "00", self._first_key()
        known = read_iteration(folder, key)
        if known is not None:
            return self._after(folder, known)
        if self.settings.start:
            image = symmetric(load_image(list(self.settings.start)), self.settings)
            return self._begun(coarser(image, self._grid(image.grid), select()), folder, {}, key)
        people = self._coarse_rows
        reference = next(row for row in people if row.name == self._reference.name)
        rows = [replace(_plain(row), fixed=reference.moving, fixed_mask=reference.moving_mask) for row in people]
        place = self.output / LINEAR
        jobs = [replace(job, recipe=job.recipe.replace({"deformable": None})) for job in self._jobs(rows, place)]
        done = self._register(jobs)
        matrices = {row.name: split(read_result(place / row.name).transform)[0] for row in done}
        mean = mean_matrix(list(matrices.values()))
        grid = self._grid(moved(read_image(self._reference.moving[0]).grid, mean))
        found = {name: matrix @ np.linalg.inv(mean) for name, matrix in matrices.items()}
        image = self._average(done, linear(found, grid.ndim), grid)
        if self.settings.symmetric:
            pose = upright(image, self.options)
            found = {name: matrix @ pose for name, matrix in found.items()}
            image = self._average(done, linear(found, grid.ndim), grid)
        return self._begun(symmetric(image, self.settings), folder, found, key)

    def _begun(
        self, image: Image, folder: Path, affines: Mapping[str, Matrix], key: str
    ) -> tuple[CurrentTemplate, TemplateIteration]:
        record = TemplateIteration(0, key, sharpness_per_mm(image), finest_spacing(image.grid))
        self._write(image, folder, affines, record)
        return self._after(folder, record)

    def _grid(self, full: Grid) -> Grid:
        """The grid of early iterations of a template whose own grid is known."""
        return full if self._spacing_mm is None else coarser_grid(full, self._spacing_mm)

    def _after(
        self, folder: Path, record: TemplateIteration, *, was_full: bool = False
    ) -> tuple[CurrentTemplate, TemplateIteration]:
        """The template after an iteration that is finished; after one at full resolution all others are, too."""
        full = was_full or self._full_after(record)
        place = folder / FULL if (folder / FULL / IMAGE).is_file() else folder
        files = channel_files(place, len(self.rows[0].moving))
        return CurrentTemplate(files, folder, record.key, full, full and self._spacing_mm is not None), record

    def _iterate(self, last: CurrentTemplate, number: int) -> tuple[CurrentTemplate, TemplateIteration]:
        folder = self.output / ITERATIONS / f"{number:02d}"
        key = key_of([last.key, str(number)])
        known = read_iteration(folder, key)
        if known is not None:
            return self._after(folder, known, was_full=last.full)
        people = [_plain(row) for row in (self.rows if last.full else self._coarse_rows)]
        rows = [replace(row, fixed=last.files, initial=last.affine(row)) for row in people]
        jobs = [last.next_job(job) for job in self._jobs(rows, folder)]
        done, before, ops = self._register(jobs), last.read(), select()
        grid, inside = before.grid, foreground(before.data, None)
        found, distances = dict[str, Matrix](), dict[str, float]()
        flows = all((folder / row.name / VELOCITY).is_file() for row in done)

        def maps() -> Iterator[tuple[Matrix, torch.Tensor | None]]:
            for row in done:
                result = read_result(folder / row.name, single=True)
                matrix, warp = split(result.transform)
                found[row.name] = matrix
                distances[row.name] = 0.0 if warp is None else _length_mm(warp, grid, inside)
                yield matrix, result.velocity.field if flows and result.velocity is not None else warp

        mean = mean_map(maps(), grid, flows=flows)
        mean = mean.mirrored(ops) if self.settings.symmetric else mean
        back = mean.back(ops)

        def place(row: CohortRow) -> Chain:
            return Chain((*back.parts, *read_result(folder / row.name, single=True).transform.parts))

        def average(rows: Sequence[CohortRow], grid: Grid) -> Image:
            return sharpened(symmetric(self._average(rows, place, grid), self.settings), self.settings.sharpen, ops)

        image = average(done, grid)
        affines = {name: matrix @ np.linalg.inv(mean.matrix) for name, matrix in found.items()}
        record = TemplateIteration(
            number,
            key,
            sharpness_per_mm(image),
            finest_spacing(grid),
            change=relative_change(image, before),
            shift_mm=mean.shift_mm(inside, ops),
            distances_mm=distances,
        )
        if not last.full and self._full_after(record):
            names = {row.name for row in done}
            full = average([row for row in self.rows if row.name in names], grid.scaled(shape=self._shape))
            write_channels(full, folder / FULL)
        write_back(back, folder)
        self._write(image, folder, affines, record)
        made = self._after(folder, record, was_full=last.full)
        for row in done:
            spent = [folder / row.name / name for name in _SPENT]
            spent.append((last.folder if made[0].warm else folder) / row.name / ANTS_WARP)
            for path in spent:
                path.unlink(missing_ok=True)
        return made

    def _average(self, rows: Sequence[CohortRow], place: Place, grid: Grid) -> Image:
        return Averager(rows, place, grid, select()).images()

    def _write(self, image: Image, folder: Path, affines: Mapping[str, Matrix], record: TemplateIteration) -> None:
        write_affines(affines, folder, image.grid.ndim)
        write_channels(image, folder)
        record.write(folder)

    def _finish(self, current: CurrentTemplate, records: Sequence[TemplateIteration]) -> GroupTemplate:
        """The template where users find it, everybody registered to it, labels and masks."""
        image = current.read()
        files = write_channels(image, self.output)
        rows = [replace(row, fixed=files, initial=current.affine(row)) for row in self.rows]
        store = Store(self.output / SUBJECTS)
        store.prepare()
        jobs = make_jobs(rows, store.folder, self.recipe, self.overrides, self.options)
        jobs = [current.next_job(job) for job in jobs]
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


def _plain(row: CohortRow) -> CohortRow:
    """A row without what is only carried along."""
    return replace(row, moving_labels=None, fixed_labels=None, carry=())


def _length_mm(displacement: torch.Tensor, grid: Grid, inside: torch.Tensor) -> float:
    lengths = grid.voxels_to_mm(displacement).norm(dim=0)[inside]
    return float(lengths.square().mean().sqrt())

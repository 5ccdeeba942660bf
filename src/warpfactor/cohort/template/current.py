"""A template on its way: the files that an iteration leaves for the next one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from warpfactor.cohort.job import RowJob
from warpfactor.cohort.table.row import CohortRow
from warpfactor.cohort.template.iteration import IMAGE
from warpfactor.cohort.template.pace import at_finest, continued
from warpfactor.geometry.grid import Matrix
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Affine, Chain
from warpfactor.io import read_image, write_image, write_transform
from warpfactor.io.transforms import ANTS_AFFINE, ANTS_WARP
from warpfactor.registration.folder import read_entries
from warpfactor.registration.inputs import load_image
from warpfactor.registration.record import grid_from_dict

AFFINES, BACK = "affines", "back"  # of everybody, and the way back to the mean


@dataclass(frozen=True)
class CurrentTemplate:
    """A template on its way.

    Attributes:
        files: of the template that everybody is registered to next, one for each channel.
        folder: of the iteration that made it.
        key: hash of everything it was made of.
        full: whether the next registrations are at full resolution.
        warm: whether they go on from the maps of this iteration.
    """

    files: tuple[Path, ...]
    folder: Path
    key: str
    full: bool
    warm: bool

    def read(self) -> Image:
        """The template."""
        return load_image(self.files[0] if len(self.files) == 1 else list(self.files))

    def affine(self, row: CohortRow) -> tuple[Path, ...]:
        """The file of a person's affine from the template; none if it is not known."""
        path = self.folder / AFFINES / f"{row.name}.mat"
        return (path,) if path.is_file() else ()

    def next_job(self, job: RowJob) -> RowJob:
        """The job of a registration to this template, which goes on from this iteration's map where it can."""
        back, own = self.folder / BACK, self.folder / job.name
        parts = (back / ANTS_AFFINE, back / ANTS_WARP, own / ANTS_WARP, own / ANTS_AFFINE)
        if not self.warm or not all(path.is_file() for path in parts):
            return job
        entries = read_entries(own)
        recipe = continued(job.recipe, entries)
        if recipe is None:
            return job
        grid = read_image(job.row.fixed[0]).grid
        same = grid_from_dict(entries["fixed"]).shape == grid.shape
        recipe = at_finest(recipe, grid, 1 if same else 2)
        return replace(job, row=replace(job.row, initial=parts), recipe=recipe)


def write_affines(affines: Mapping[str, Matrix], folder: Path, ndim: int) -> None:
    """Write the affines of everybody from the template of an iteration."""
    for name, matrix in affines.items():
        write_transform(Affine(matrix, dimension=ndim), folder / AFFINES / f"{name}.mat", force=True)


def write_back(back: Chain, folder: Path) -> None:
    """Write the way from the new template to the last one."""
    for part, name in zip(back.parts, (ANTS_AFFINE, ANTS_WARP), strict=True):
        write_transform(part, folder / BACK / name, force=True)


def channel_files(folder: Path, channels: int) -> tuple[Path, ...]:
    """The files of a template in a folder."""
    return (folder / IMAGE, *(folder / f"template_{number}.nii.gz" for number in range(2, channels + 1)))


def write_channels(image: Image, folder: Path) -> tuple[Path, ...]:
    """Write a template, a file for each channel."""
    files = channel_files(folder, image.channels)
    for number, path in enumerate(files):
        write_image(replace(image, data=image.data[number : number + 1]), path, force=True)
    return files

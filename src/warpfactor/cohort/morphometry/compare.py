"""`compare`: a t map of log Jacobians from the results of people who were registered to one template."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warpfactor import __version__
from warpfactor.cohort.morphometry.design import (
    NAME,
    Design,
    design_problems,
    make_design,
    matrix_problems,
    read_records,
)
from warpfactor.cohort.morphometry.model import Array, VoxelModel, significance
from warpfactor.cohort.table.row import CohortError
from warpfactor.errors import FileError, WarpfactorError
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Warp
from warpfactor.io import atomic_folder, check_folder, read_image, read_mask, write_image
from warpfactor.io.jsontext import json_text
from warpfactor.kernels import select
from warpfactor.measure import LOG_JACOBIAN_RANGE
from warpfactor.registration.folder import SavedResult, read_entries, read_result
from warpfactor.registration.record import WARPED, grid_from_dict
from warpfactor.scene.object import foreground
from warpfactor.show.plot import statistic

SUBJECTS = "subjects"  # of the folder of a template
RECORD = "morphometry.json"
FILES = ("t.nii.gz", "effect.nii.gz", "q.nii.gz", "mean.nii.gz", "mask.nii.gz", "t.png", RECORD)
MISSING = "Morphometry needs SciPy; install it with pip install 'warpfactor[cohort]'."
_FWHM = math.sqrt(8 * math.log(2))  # standard deviations
_VOXELS = 2.0  # width of the smoothing without a choice


@dataclass(frozen=True)
class MorphometrySettings:
    """How volumes are compared.

    Attributes:
        total: whether the affine counts, so that absolute volumes are compared; without it those relative to the whole.
        smooth_mm: full width at half maximum of the Gaussian that smooths the maps; two voxels by default.
        q: false discovery rate below which a voxel counts as different.
    """

    total: bool = False
    smooth_mm: float | None = None
    q: float = 0.05

    def problems(self) -> Iterator[str]:
        """What is wrong with the settings, one sentence each."""
        if self.smooth_mm is not None and not 0 <= self.smooth_mm < math.inf:
            yield f"The smoothing of the maps must be 0 mm or more, not {self.smooth_mm:g} mm."
        if not 0 < self.q < 1:
            yield f"The false discovery rate {self.q:g} must lie between 0 and 1."

    def sigma_vox(self, grid: Grid) -> list[float]:
        """Standard deviations of the Gaussian along the axes of a grid."""
        spacing = zip(grid.shape, grid.spacing_mm, strict=True)
        wide = [_VOXELS if self.smooth_mm is None else self.smooth_mm / mm if n > 1 else 0.0 for n, mm in spacing]
        return [width / _FWHM if n > 1 else 0.0 for n, width in zip(grid.shape, wide, strict=True)]


@dataclass(frozen=True)
class Comparison:
    """Where volumes differ.

    Attributes:
        t: map of t; 0 outside the mask.
        effect: difference of the log Jacobian, or its slope; above 0 where the group that is named first is larger.
        q: the least false discovery rate at which a voxel counts as different; 1 outside the mask.
        mean: mean of everybody's warped image.
        mask: where volumes were compared.
        contrast: what was compared, "b - a" or "per unit of age".
        groups: people with each value of the effect; empty if it is a number.
        people: how many.
        degrees: of freedom.
        significant_voxels: with q below that of the settings, larger and smaller ones.
        folder: where all of it was written.
    """

    t: Image
    effect: Image
    q: Image
    mean: Image
    mask: Image
    contrast: str
    groups: Mapping[str, int]
    people: int
    degrees: int
    significant_voxels: tuple[int, int]
    folder: Path


def compare(
    results: str | Path,
    table: Any,
    output: str | Path,
    *,
    effect: str,
    covariates: Sequence[str] = (),
    mask: str | Path | None = None,
    settings: MorphometrySettings | None = None,
    force: bool = False,
) -> Comparison:
    """Compare the volumes of people who were registered to one template.

    At every voxel the logarithm of the Jacobian determinant is explained by the effect and the covariates in a linear
    model; t is the estimate of the effect over its standard error.

    Args:
        results: folder of a cohort or of a template.
        table: a table (.csv, .tsv), a pandas frame or a list of dictionaries with the column name, and those below.
        output: folder to write the maps and a figure to.
        effect: column with two groups, which are compared, or with numbers, along which the slope is taken.
        covariates: columns whose influence is removed; numbers, or texts for groups.
        mask: file of the voxels that count; by default the object in the mean image.
        settings: how volumes are compared.
        force: whether to replace an earlier output.
    """
    how, place = settings or MorphometrySettings(), Path(results)
    place = place / SUBJECTS if (place / SUBJECTS).is_dir() else place
    design, problems = _checked(place, table, effect, tuple(covariates), how)
    problems += [*_mask_problems(mask), *_folder_problems(output, force=force)]
    if design is None or problems:
        raise CohortError(tuple(problems))
    grid = grid_from_dict(read_entries(place / design.names[0])["fixed"])
    mean = _mean_image(place, design.names, grid)
    inside = _inside(mean, mask)
    estimate, t = _fitted(place, design, grid, inside, how)
    _, q = significance(t, design.degrees)
    below = q < how.q
    found = Comparison(
        t=_volume(t, inside, grid, "t"),
        effect=_volume(estimate, inside, grid, "effect"),
        q=_volume(q, inside, grid, "q", outside=1.0),
        mean=mean,
        mask=Image(inside[None].to(torch.uint8), grid, "mask"),
        contrast=design.contrast,
        groups=design.groups,
        people=len(design.names),
        degrees=design.degrees,
        significant_voxels=(int((below & (t > 0)).sum()), int((below & (t < 0)).sum())),
        folder=Path(output),
    )
    _write(found, how, effect, tuple(covariates), force=force)
    return found


def _checked(
    place: Path, table: Any, effect: str, covariates: tuple[str, ...], settings: MorphometrySettings
) -> tuple[Design | None, list[str]]:
    """The design of a table, None if it is not one; and what is wrong with it, the results and the settings."""
    problems = [*settings.problems()]
    if importlib.util.find_spec("scipy") is None:
        problems.append(MISSING)
    try:
        records = read_records(table)
    except FileError as error:
        return None, [*problems, str(error)]
    wrong = [*design_problems(records, effect, covariates)]
    design = None if wrong else make_design(records, effect, covariates)
    problems += wrong if design is None else matrix_problems(design)
    names = dict.fromkeys(name for record in records if (name := record.get(NAME)))
    return design, [*problems, *_result_problems(place, tuple(names))]


def _result_problems(place: Path, names: Sequence[str]) -> Iterator[str]:
    """Which people have no result, none with a warp, or one on another grid than the first."""
    if not place.is_dir():
        yield f"{place}: there is no such folder of results."
        return
    first: Grid | None = None
    for name in names:
        try:
            entries = read_entries(place / name)
        except WarpfactorError as error:
            yield str(error)
            continue
        grid = grid_from_dict(entries["fixed"])
        first = first or grid
        if entries["files"]["fixed_to_moving_warp_before_affine_lps_mm"] is None:
            yield f"{place / name}: the result has no warp; register with a recipe that has a deformable stage."
        elif not grid.same_space(first):
            yield f"{place / name}: was registered to another image than the first person; use one template for all."


def _mask_problems(mask: str | Path | None) -> Iterator[str]:
    if mask is not None and not Path(mask).exists():
        yield f"{mask} does not exist."


def _folder_problems(output: str | Path, *, force: bool) -> Iterator[str]:
    try:
        check_folder(output, force=force)
    except FileError as error:
        yield str(error)


def _mean_image(place: Path, names: Sequence[str], grid: Grid) -> Image:
    total = torch.zeros((1, *grid.shape), dtype=torch.float64)
    for name in names:
        total += torch.nan_to_num(read_image(place / name / WARPED).data[:1].double())
    return Image((total / len(names)).to(torch.float32), grid, "mean")


def _inside(mean: Image, mask: str | Path | None) -> Tensor:
    if mask is None:
        return foreground(mean.data, None).reshape(mean.grid.shape)
    given = read_mask(mask)
    if not given.grid.same_space(mean.grid):
        raise CohortError((f"{mask}: the mask lies on another grid than the template; resample it to the template.",))
    inside = given.data[0] > 0
    if not bool(inside.any()):
        raise CohortError((f"{mask}: the mask is empty; there is nothing to compare in it.",))
    return inside


def _fitted(
    place: Path, design: Design, grid: Grid, inside: Tensor, settings: MorphometrySettings
) -> tuple[Array, Array]:
    model = VoxelModel(design)
    for name in design.names:
        values = log_jacobian(read_result(place / name), settings)
        model.add(values[inside].double().numpy())
    return model.effect_and_t()


def log_jacobian(result: SavedResult, settings: MorphometrySettings) -> Tensor:
    """(D, H, W) smoothed logarithm of the volume in the moving image per volume of the fixed one."""
    ops, warp = select(), result.warp
    if warp is None:
        raise FileError(f"{result.folder}: the result has no warp.")
    volumes = warp.jacobian(ops=ops).data.clamp(*LOG_JACOBIAN_RANGE).log()
    volumes = ops.smooth_gaussian(volumes.contiguous(), settings.sigma_vox(warp.grid))[0]
    return volumes + _affine_log(result) if settings.total else volumes


def _affine_log(result: SavedResult) -> float:
    """Logarithm of the volume change of the affines."""
    parts = [part for part in result.transform.parts if not isinstance(part, Warp)]
    return float(sum(math.log(abs(np.linalg.det(part.matrix[:3, :3]))) for part in parts))


def _volume(values: Array, inside: Tensor, grid: Grid, name: str, outside: float = 0.0) -> Image:
    data = torch.full(grid.shape, outside)
    data[inside] = torch.from_numpy(values).to(torch.float32)
    return Image(data[None], grid, name)


def _write(
    found: Comparison, settings: MorphometrySettings, effect: str, covariates: tuple[str, ...], *, force: bool
) -> None:
    larger, smaller = found.significant_voxels
    entries = {
        "version": __version__,
        "effect": effect,
        "contrast": found.contrast,
        "groups": dict(found.groups),
        "covariates": list(covariates),
        "settings": asdict(settings),
        "people": found.people,
        "degrees_of_freedom": found.degrees,
        "voxels": int((found.mask.data > 0).sum()),
        "significant_voxels": {"larger": larger, "smaller": smaller},
        "t_range": [float(found.t.data.min()), float(found.t.data.max())],
    }
    with atomic_folder(found.folder, force=force, own=FILES) as folder:
        for name in ("t", "effect", "q", "mean", "mask"):
            write_image(getattr(found, name), folder / f"{name}.nii.gz")
        picture = statistic(
            found.t, found.mean, where=(found.q.data[0] < settings.q).numpy(), title=_title(found, settings)
        )
        picture.savefig(folder / "t.png", dpi=120)
        (folder / RECORD).write_text(json_text(entries), encoding="utf-8")


def _title(found: Comparison, settings: MorphometrySettings) -> str:
    return f"volume, {found.contrast}: t with {found.degrees} degrees of freedom; outlined: q < {settings.q:g}"

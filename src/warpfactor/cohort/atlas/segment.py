"""`segment`: several labelled atlases are registered to an image on the engine, and their labels fused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warpfactor import __version__
from warpfactor.cohort.atlas.fusion import FUSIONS, Fused, fuse, label_probability
from warpfactor.cohort.atlas.table import gather_atlases
from warpfactor.cohort.engine.settings import EngineSettings
from warpfactor.cohort.events import CohortWatcher
from warpfactor.cohort.job import DONE, JobOptions
from warpfactor.cohort.store import Store
from warpfactor.cohort.study import conclude, refuse, run_problems, run_rows
from warpfactor.cohort.table.check import row_problems
from warpfactor.cohort.table.row import Gathered
from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.image import Image
from warpfactor.io import atomic_path, read_image, read_labels, write_image, write_labels
from warpfactor.io.jsontext import json_text
from warpfactor.kernels import select
from warpfactor.recipebook.recipe import Recipe
from warpfactor.registration.record import WARPED, WARPED_LABELS

ATLASES, PROBABILITIES = "atlases", "probabilities"


@dataclass(frozen=True)
class Segmentation:
    """The segmentation of an image.

    Attributes:
        labels: label map on the grid of the image.
        probability: the share of the votes that each voxel's label got.
        volumes_mm3: by label.
        atlases: names of the atlases that took part.
        failed: why others did not, by name.
        fusion: how they were fused.
    """

    labels: Image
    probability: Image
    volumes_mm3: Mapping[int, float]
    atlases: tuple[str, ...]
    failed: Mapping[str, str]
    fusion: str


def segment(  # noqa: PLR0913 - the entry point takes every choice; all but three have defaults
    image: str | Path,
    atlases: Any,
    output: str | Path,
    *,
    fusion: str = "weighted",
    probabilities: bool = False,
    mask: str | Path | None = None,
    recipe: str | Recipe = "default",
    overrides: Mapping[str, Any] | None = None,
    options: JobOptions | None = None,
    engine: EngineSettings | None = None,
    watch: CohortWatcher | None = None,
) -> Segmentation:
    """Segment an image by several labelled atlases.

    The output folder has `labels.nii.gz`, `probability.nii.gz`, `segmentation.json` with the volume of every label,
    and `atlases/` with the registration of each atlas, which a second run does not repeat.

    Args:
        image: file of the image to segment.
        atlases: a table (.csv, .tsv) with the columns image and labels, or a list of dictionaries with these keys.
        output: folder to write.
        fusion: "weighted" (by local correlation), "joint" or "majority".
        probabilities: whether to write a probability map for every label, too.
        mask: where the image counts.
        recipe, overrides, options, engine, watch: as for `run`.
    """
    place, how, jobs, changes = Path(output), engine or EngineSettings(), options or JobOptions(), overrides or {}
    where = None if mask is None else Path(mask)
    found = gather_atlases(atlases, Path(image), where)
    wrong = _problems(found, Path(image), where, fusion, recipe, changes)
    refuse([*wrong, *run_problems(found.rows, place, jobs, how)])
    rows = found.rows
    store = Store(place / ATLASES)
    outcomes = run_rows(rows, store, recipe, changes, jobs, how, watch=watch)
    conclude(rows, outcomes, store, page=jobs.report)
    used = [outcome.name for outcome in outcomes if outcome.state == DONE]
    failed = {outcome.name: outcome.reason for outcome in outcomes if outcome.state != DONE}
    if not used:
        raise InputError(
            f"{image}: no atlas could be registered; the first failed because: {next(iter(failed.values()))}"
        )
    target = read_image(image)
    images, labels = _warped(store, used)
    fused, weights = fuse(target.data.mean(0), images, labels, fusion, select())
    del images
    result = _segmentation(fused, target.grid, used, failed, fusion)
    _write(result, place, like=rows[0].moving_labels)
    if probabilities:
        for label in result.volumes_mm3:
            share = Image(label_probability(labels, weights, label)[None], target.grid)
            write_image(share, place / PROBABILITIES / f"{label}.nii.gz", force=True)
    return result


def _problems(
    found: Gathered,
    image: Path,
    mask: Path | None,
    fusion: str,
    recipe: str | Recipe,
    overrides: Mapping[str, Any],
) -> Iterator[str]:
    yield from found.problems
    if fusion not in FUSIONS:
        yield f"The fusion {fusion!r} is not known; the known ones are {', '.join(FUSIONS)}."
    if not found.rows:  # that would name them
        yield from (f"{path} does not exist." for path in (image, mask) if path is not None and not path.exists())
    yield from row_problems(found.rows, recipe, overrides)


def _warped(store: Store, names: Sequence[str]) -> tuple[Tensor, Tensor]:
    """The warped images, averaged over their channels, and labels of atlases, (N, D, H, W) each."""
    images = torch.stack([read_image(store.result(name) / WARPED).data.mean(0) for name in names])
    labels = torch.stack([read_labels(store.result(name) / WARPED_LABELS).data[0] for name in names])
    return images, labels


def _segmentation(
    found: Fused, grid: Grid, used: Sequence[str], failed: Mapping[str, str], fusion: str
) -> Segmentation:
    values, counts = torch.unique(found.labels, return_counts=True)
    voxel = float(abs(np.linalg.det(grid.matrix[:3, :3])))
    volumes = {int(v): int(n) * voxel for v, n in zip(values.tolist(), counts.tolist(), strict=True) if v != 0}
    labels, share = Image(found.labels[None], grid, "labels"), Image(found.probability[None], grid, "probability")
    return Segmentation(labels, share, volumes, tuple(used), dict(failed), fusion)


def _write(result: Segmentation, place: Path, *, like: Path | None) -> None:
    write_labels(result.labels, place / "labels.nii.gz", like=like, force=True)
    write_image(result.probability, place / "probability.nii.gz", force=True)
    entries = {
        "version": __version__,
        "fusion": result.fusion,
        "atlases": list(result.atlases),
        "failed": dict(result.failed),
        "volumes_mm3": dict(result.volumes_mm3),
    }
    with atomic_path(place / "segmentation.json", force=True) as temporary:
        temporary.write_text(json_text(entries), encoding="utf-8")

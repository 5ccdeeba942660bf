"""Registration: what comes out of registering two images, how to use it, and the folder it is saved to."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from warpfactor.checks.alignment import find_doubts, find_missing
from warpfactor.geometry.grid import Grid, Points
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Affine, Chain, Transform, Warp
from warpfactor.io import write_image, write_transform
from warpfactor.io.atomic import atomic_folder
from warpfactor.io.parallel import run_together
from warpfactor.io.transforms import ANTS_AFFINE, ANTS_INVERSE_WARP, ANTS_WARP
from warpfactor.measure.regularity import Figures
from warpfactor.recipebook.recipe import Recipe
from warpfactor.registration.carrying import carry_image, carry_points
from warpfactor.registration.resources import peak_memory_mb
from warpfactor.registration.sources import inputs_entry
from warpfactor.show.notebook import to_html
from warpfactor.show.wording import ending_sentence
from warpfactor.stages.stage import Ending, Event, Stage

WARPED, RESULT, WARPED_LABELS = "warped.nii.gz", "result.json", "warped_labels.nii.gz"
FORMAT = 2
COLUMNS = ("stage", "level", "iteration", "cost", "residual", "damping", "accepted", "step_vox", "seconds")
# Everything a result folder may hold from an earlier run; result.json, by which a folder is known, comes last.
OWN = (WARPED, WARPED_LABELS, ANTS_AFFINE, ANTS_WARP, ANTS_INVERSE_WARP, "report.html", RESULT)


@dataclass(frozen=True)
class RunInfo:
    """Where and how a registration ran.

    Attributes:
        device, backend, threads, seed: as used.
        seconds: by part, in order, with "total".
        peak_memory_mb: high-water mark of the process; None where the system does not tell.
        versions: of everything that has a part in the numbers.
        nonfinite: voxels that were NaN or infinite and did not count, in the fixed and the moving image.
        missing: share of the inside of what the moving image shows that was missing from the fixed one and did not
            count, and the other way round; 0 most often.
        names: of the fixed and the moving image.
        sources: paths of the images and masks that were given as files, by name.
    """

    device: str
    backend: str
    threads: int
    seed: int
    seconds: Mapping[str, float]
    peak_memory_mb: float | None
    versions: Mapping[str, str]
    nonfinite: tuple[int, int]
    missing: tuple[float, float]
    names: tuple[str, str]
    sources: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Registration:
    """Two registered images: y = affine(x + warp(x)) takes points of fixed to moving space.

    Attributes:
        warped: the moving image on the fixed grid, in its own intensities, interpolated once.
        affine: fixed to moving, LPS mm.
        warp: of fixed space, before the affine; None if the recipe has no deformable stage or it did no good.
        inverse_warp: undoes the warp, on the same grid.
        moving_grid: of the moving image.
        history: how each stage went, with one record per iteration.
        ending: how it ended.
        figures: quality.
        recipe: with all its settings, as run.
        run: where and how.
    """

    warped: Image
    affine: Affine
    warp: Warp | None
    inverse_warp: Warp | None
    moving_grid: Grid
    history: tuple[Stage, ...]
    ending: Ending
    figures: Figures
    recipe: Recipe
    run: RunInfo

    def __repr__(self) -> str:
        costs = [f"{stage.name} {stage.change(4)}" for stage in self.history]
        return f"Registration({self.recipe.name}: {', '.join(costs)}; {self.status})"

    def _repr_html_(self) -> str:
        """For notebooks: figures and the warped image."""
        return to_html(self)

    def _repr_png_(self) -> bytes:
        """For notebooks that show pictures only: the warped image."""
        return self.warped._repr_png_()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What looks wrong with the result, in words; most often nothing."""
        return (*find_doubts(self.history, self.affine.matrix), *find_missing(self.run.missing))

    @property
    def interrupted(self) -> bool:
        """Whether it was stopped before its end; the result is then the best so far."""
        return self.ending is Ending.INTERRUPTED

    @property
    def status(self) -> str:
        """How it ended, in words."""
        return ending_sentence(self.ending, self.history[-1].name if self.history else "")

    @property
    def fixed_grid(self) -> Grid:
        return self.warped.grid

    @property
    def transform(self) -> Chain:
        """Points of fixed space to moving space; images of moving space onto fixed grids."""
        parts: tuple[Transform, ...] = (self.affine,) if self.warp is None else (self.warp, self.affine)
        return Chain(parts, "fixed", "moving")

    @property
    def inverse(self) -> Chain:
        """Points of moving space to fixed space; images of fixed space onto moving grids."""
        back = self.affine.inverse()
        parts: tuple[Transform, ...] = (back,) if self.inverse_warp is None else (back, self.inverse_warp)
        return Chain(parts, "moving", "fixed")

    def apply(
        self, image: Any, *, to: str = "fixed", mode: str = "linear", outside: float = 0.0, grid: Grid | None = None
    ) -> Image:
        """Another image of one space, carried to the other.

        Args:
            image: anything `register` takes as an image.
            to: space the result lives in, "fixed" (the image is then of moving space) or "moving".
            mode: "linear", "nearest", "label" (labels never mix) or "bspline".
            outside: value where there is no image.
            grid: to resample onto; that space's own without one.
        """
        return carry_image(self, image, to=to, mode=mode, outside=outside, grid=grid)

    def apply_points(self, points: ArrayLike, *, to: str = "fixed") -> Points:
        """(N, 3) LPS mm points of one space carried to the other, `to`: they land where their image does.

        Points of 2-D images may be (N, 2); they come back as they went in.
        """
        return carry_points(self, points, to=to)

    def with_seconds(self, part: str, seconds: float) -> Registration:
        """This with the time of one more part, which the total then includes."""
        parts = {name: value for name, value in self.run.seconds.items() if name != "total"}
        parts[part] = parts.get(part, 0.0) + seconds
        total = self.run.seconds["total"] + seconds
        return replace(self, run=replace(self.run, seconds={**parts, "total": total}))

    def save(self, folder: str | Path, *, force: bool = False, extra: Mapping[str, Any] | None = None) -> Path:
        """Write everything into a folder, which appears complete or not at all, and return its path.

        Written are warped.nii.gz; 0GenericAffine.mat, 1Warp.nii.gz and 1InverseWarp.nii.gz, named and meant as ANTs
        does; and result.json with the recipe, figures, history and where images that were given as files are.

        Args:
            force: replace an earlier result in that folder.
            extra: more entries for result.json; those of a part that is there already are added to it.
        """
        inputs = inputs_entry(folder, **self.run.sources)
        with atomic_folder(folder, force=force, own=OWN) as place:
            self.write_into(place, extra={**({"inputs": inputs} if inputs else {}), **(extra or {})})
        return Path(folder)

    def write_volumes(self, place: Path) -> None:
        """Write the image and the transforms of `save` into an existing folder."""
        jobs = [partial(write_image, self.warped, place / WARPED)]
        for transform, name in (
            (self.warp, ANTS_WARP),
            (self.inverse_warp, ANTS_INVERSE_WARP),
            (self.affine, ANTS_AFFINE),
        ):
            if transform is not None:
                jobs.append(partial(write_transform, transform, place / name))
        run_together(jobs, self.run.threads)

    def write_into(self, place: Path, *, extra: Mapping[str, Any] | None = None) -> Registration:
        """Write the files of `save` into an existing folder and return this with the time that took.

        result.json, which has that time too, comes last.
        """
        began = time.perf_counter()
        self.write_volumes(place)
        run = replace(self.run, peak_memory_mb=peak_memory_mb())
        written = replace(self, run=run).with_seconds("write", time.perf_counter() - began)
        entries = written.to_dict()
        for key, value in (extra or {}).items():
            known = entries.get(key)
            entries[key] = {**known, **value} if isinstance(known, dict) and isinstance(value, Mapping) else value
        (place / RESULT).write_text(json_text(entries), encoding="utf-8")
        return written

    def to_dict(self) -> dict[str, Any]:
        """What result.json holds: everything but images and fields, with directions and units in the names."""
        files = {
            "warped_moving_on_fixed_grid": WARPED,
            "warped_moving_labels_on_fixed_grid": None,
            "fixed_to_moving_affine": ANTS_AFFINE,
            "fixed_to_moving_warp_before_affine_lps_mm": None if self.warp is None else ANTS_WARP,
            "moving_to_fixed_warp_after_inverse_affine_lps_mm": None if self.warp is None else ANTS_INVERSE_WARP,
        }
        run = self.run
        return {
            "format": FORMAT,
            "ending": self.ending.value,
            "status": self.status,
            "interrupted": self.interrupted,
            "warnings": list(self.warnings),
            "fixed": self._image_to_dict(0, self.fixed_grid),
            "moving": self._image_to_dict(1, self.moving_grid),
            "files": files,
            "fixed_to_moving_affine_lps_mm": self.affine.matrix.tolist(),
            "figures": _figures_to_dict(self.figures),
            "seconds": dict(run.seconds),
            "peak_memory_mb": run.peak_memory_mb,
            "device": run.device,
            "backend": run.backend,
            "threads": run.threads,
            "seed": run.seed,
            "versions": dict(run.versions),
            "recipe": self.recipe.to_dict(),
            "stages": [_stage_to_dict(stage) for stage in self.history],
        }

    def _image_to_dict(self, number: int, grid: Grid) -> dict[str, Any]:
        run = self.run
        counts = {"nonfinite_voxels": run.nonfinite[number], "missing_share": run.missing[number]}
        return {"name": run.names[number], **counts, **grid_to_dict(grid)}


def bare_seconds(seconds: Mapping[str, float]) -> float:
    """Time of a registration without its report and without writing: these come after it and can be left out."""
    return sum(spent for part, spent in seconds.items() if part not in ("report", "write", "total"))


def grid_to_dict(grid: Grid) -> dict[str, Any]:
    """A grid for result.json."""
    return {
        "shape_zyx": list(grid.shape),
        "spacing_zyx_mm": list(grid.spacing_mm),
        "index_zyx_to_world_lps_mm": grid.matrix.tolist(),
        "dimension": grid.ndim,
    }


def grid_from_dict(data: Mapping[str, Any]) -> Grid:
    """The grid that `grid_to_dict` described, exactly."""
    return Grid(tuple(data["shape_zyx"]), data["index_zyx_to_world_lps_mm"], data["dimension"])


def json_text(data: Mapping[str, Any]) -> str:
    """Indented JSON with each list of plain values on one line; NaN and infinity, which JSON lacks, become null."""
    text = json.dumps(without_nan(data), indent=1, allow_nan=False)
    return re.sub(r"\[\n\s+([^\[\]{}]*?)\n\s+\]", lambda m: "[" + re.sub(r"\n\s+", " ", m[1]) + "]", text) + "\n"


def without_nan(value: Any) -> Any:
    """Plain data with None for NaN and infinity, which JSON lacks."""
    if isinstance(value, Mapping):
        return {str(key): without_nan(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _figures_to_dict(figures: Figures) -> dict[str, Any]:
    result: dict[str, Any] = {"affine_volume_ratio_moving_to_fixed": figures.affine_determinant}
    warp = figures.warp
    if warp is None:
        return result
    for name, jacobian in (("image", warp.jacobian), ("fixed_foreground", warp.jacobian_foreground)):
        plain = dataclasses.asdict(jacobian)
        plain["percentiles"] = {f"p{rank}": value for rank, value in jacobian.percentiles.items()}
        result[f"warp_jacobian_determinant_in_{name}"] = plain
    result |= {
        "warp_displacement_mm": warp.displacement_mm._asdict(),
        "inverse_consistency_fixed_to_moving_to_fixed_vox": warp.there_and_back_vox._asdict(),
        "inverse_consistency_fixed_to_moving_to_fixed_mm": warp.there_and_back_mm._asdict(),
        "inverse_consistency_moving_to_fixed_to_moving_vox": warp.back_and_there_vox._asdict(),
        "inverse_consistency_moving_to_fixed_to_moving_mm": warp.back_and_there_mm._asdict(),
    }
    return result


def _stage_to_dict(stage: Stage) -> dict[str, Any]:
    """A stage with its history turned into columns: a list per quantity is a third of a list of records."""
    return {
        "name": stage.name,
        "metric": stage.metric,
        "level": stage.level,
        "cost_before": stage.cost_before,
        "cost_after": stage.cost_after,
        "ending": stage.ending.value,
        "status": ending_sentence(stage.ending, stage.name),
        "kept": stage.kept,
        "seconds": stage.seconds,
        "levels": [[factor, ending.value] for factor, ending in stage.levels],
        "start": stage.start,
        "start_costs": dict(stage.start_costs),
        "history": _columns(stage.history),
    }


def _columns(events: Sequence[Event]) -> dict[str, list[Any]]:
    """The events as one list per quantity, and the costs of the terms if there are several."""
    columns: dict[str, list[Any]] = {name: [getattr(event, name) for event in events] for name in COLUMNS}
    names = [name for name, _ in events[0].parts] if events else []
    return columns | {f"cost of {name}": [dict(event.parts)[name] for event in events] for name in names}

"""What result.json holds: a registration as plain data, and folders of earlier versions brought up to date."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from warpfactor.checks.alignment import find_notices
from warpfactor.geometry.grid import Grid
from warpfactor.io import omezarr
from warpfactor.io.transforms import ANTS_AFFINE, ANTS_INVERSE_WARP, ANTS_WARP, VELOCITY
from warpfactor.measure.regularity import Figures
from warpfactor.show.wording import ending_sentence
from warpfactor.stages.stage import Ending, Event, Stage

if TYPE_CHECKING:
    from warpfactor.registration.result import Registration

FORMAT = 2
WARPED, WARPED_LABELS = "warped.nii.gz", "warped_labels.nii.gz"
WARPED_ZARR = "warped.ome.zarr"  # of large images that were given as OME-Zarr
COLUMNS = ("stage", "level", "iteration", "cost", "residual", "damping", "accepted", "step_vox", "seconds")

# How version 0.1 (format 1) said why a stage or a level ended.
_ENDINGS_OF_FORMAT_1 = {
    "Converged: at every level the cost had flattened.": Ending.CONVERGED,
    "Finished: every level ran to its iteration limit, or to where no step lowered the cost.": Ending.LIMIT,
    "Interrupted; this is the last warp that was found good.": Ending.INTERRUPTED,
    "Stopped where the cost began to rise, as the stop rule of the recipe says.": Ending.ROSE,
    "No step lowered the cost any more at the finest level.": Ending.STALLED,
    "The warp made the images less alike and was left out; the result is the transform it started from.": Ending.WORSE,
    "Converged: no step promises to lower the cost.": Ending.CONVERGED,
    "No step lowered the cost any more.": Ending.STALLED,
    "The finest level ran its full number of iterations.": Ending.LIMIT,
    "Interrupted; this is the best transform so far.": Ending.INTERRUPTED,
    "Nothing was asked for beyond the initial transform.": Ending.NOTHING,
    "iteration limit": Ending.LIMIT,
    "cost flattened": Ending.CONVERGED,
    "cost rose": Ending.ROSE,
    "no step lowered the cost": Ending.STALLED,
    "interrupted": Ending.INTERRUPTED,
}


def entries_of(result: Registration) -> dict[str, Any]:
    """Everything about a result but its images and fields, with directions and units in the names."""
    run, warp = result.run, result.warp is not None
    velocity = {"velocity_lps_mm": VELOCITY} if result.velocity is not None else {}
    return {
        "format": FORMAT,
        "ending": result.ending.value,
        "status": result.status,
        "interrupted": result.interrupted,
        "notices": [notice.to_dict() for notice in result.notices],
        "warnings": list(result.warnings),
        "fixed": _image_to_dict(result, 0, result.fixed_grid),
        "moving": {**_image_to_dict(result, 1, result.moving_grid), "outside_values": list(run.outside)},
        "files": {
            "warped_moving_on_fixed_grid": warped_name(result),
            "warped_moving_labels_on_fixed_grid": None,
            "fixed_to_moving_affine": ANTS_AFFINE,
            "fixed_to_moving_warp_before_affine_lps_mm": ANTS_WARP if warp else None,
            "moving_to_fixed_warp_after_inverse_affine_lps_mm": ANTS_INVERSE_WARP if warp else None,
            **velocity,
        },
        "fixed_to_moving_affine_lps_mm": result.affine.matrix.tolist(),
        "figures": _figures_to_dict(result.figures),
        "seconds": dict(run.seconds),
        "peak_memory_mb": run.peak_memory_mb,
        **({} if run.plan is None else {"memory": _memory_to_dict(result)}),
        "device": run.device,
        "backend": run.backend,
        "threads": run.threads,
        "ranks": run.ranks,
        **({"rank_peak_memory_mb": [peak / (1 << 20) for peak in run.rank_peaks]} if run.rank_peaks else {}),
        "seed": run.seed,
        "versions": dict(run.versions),
        "recipe": result.recipe.to_dict(),
        "stages": stages_to_dicts(result.history),
    }


def warped_name(result: Registration) -> str:
    """The file of the warped image: an OME-Zarr if that is what the large images are, and it can hold their place."""
    if result.full is None:
        return WARPED
    path = result.run.sources.get("fixed")
    return WARPED_ZARR if path is not None and omezarr.handles(path) else WARPED


def _memory_to_dict(result: Registration) -> dict[str, Any]:
    """The plan, the peak so far, of all ranks if there are several, and whether it is within the limit."""
    run = result.run
    assert run.plan is not None
    peak = None if run.peak_memory_mb is None else max(round(run.peak_memory_mb * (1 << 20)), *run.rank_peaks, 0)
    return {**run.plan.to_dict(), "peak_bytes": peak, "held": None if peak is None else peak <= run.plan.limit_bytes}


def upgraded(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Entries of any format in the current one; InputError or KeyError if they are not of a result."""
    if entries["format"] != 1:
        return dict(entries)
    stages = [_upgraded_stage(stage) for stage in entries["stages"]]
    shares = (entries["fixed"].get("missing_share", 0.0), entries["moving"].get("missing_share", 0.0))
    affine = np.asarray(entries["fixed_to_moving_affine_lps_mm"])
    ending = _ENDINGS_OF_FORMAT_1.get(entries["status"], Ending.LIMIT)
    return {
        **entries,
        "ending": (Ending.INTERRUPTED if entries["interrupted"] else ending).value,
        "notices": [notice.to_dict() for notice in find_notices(stages, affine, shares)],
        "stages": stages,
    }


def grid_from_dict(data: Mapping[str, Any]) -> Grid:
    """The grid of an image of result.json."""
    return Grid(tuple(data["shape_zyx"]), data["index_zyx_to_world_lps_mm"], data["dimension"])


def stages_to_dicts(stages: Sequence[Stage]) -> list[dict[str, Any]]:
    """The stages as plain data."""
    return [_stage_to_dict(stage) for stage in stages]


def _image_to_dict(result: Registration, number: int, grid: Grid) -> dict[str, Any]:
    run = result.run
    return {
        "name": run.names[number],
        "nonfinite_voxels": run.nonfinite[number],
        "missing_share": run.missing[number],
        "shape_zyx": list(grid.shape),
        "spacing_zyx_mm": list(grid.spacing_mm),
        "index_zyx_to_world_lps_mm": grid.matrix.tolist(),
        "dimension": grid.ndim,
    }


def _figures_to_dict(figures: Figures) -> dict[str, Any]:
    result: dict[str, Any] = {"affine_volume_ratio_moving_to_fixed": figures.affine_determinant}
    warp = figures.warp
    if warp is None:
        return result
    for name, jacobian in (("image", warp.jacobian), ("fixed_foreground", warp.jacobian_foreground)):
        plain = dataclasses.asdict(jacobian)
        plain["percentiles"] = {f"p{rank}": value for rank, value in jacobian.percentiles.items()}
        result[f"warp_jacobian_determinant_in_{name}"] = plain
    result["warp_jacobian_determinant_in_fixed_foreground"] |= warp.distortion_foreground._asdict()
    result |= {
        "warp_displacement_mm": warp.displacement_mm._asdict(),
        "inverse_consistency_fixed_to_moving_to_fixed_vox": warp.there_and_back_vox._asdict(),
        "inverse_consistency_fixed_to_moving_to_fixed_mm": warp.there_and_back_mm._asdict(),
        "inverse_consistency_moving_to_fixed_to_moving_vox": warp.back_and_there_vox._asdict(),
        "inverse_consistency_moving_to_fixed_to_moving_mm": warp.back_and_there_mm._asdict(),
    }
    return result


def _stage_to_dict(stage: Stage) -> dict[str, Any]:
    """A stage with its history as columns, which take a third of the space of a list of records."""
    return {
        "name": stage.name,
        "metric": stage.metric,
        "level": stage.level,
        "cost_before": _finite(stage.cost_before),
        "cost_after": _finite(stage.cost_after),
        "ending": stage.ending.value,
        "status": ending_sentence(stage.ending, stage.name),
        "kept": stage.kept,
        "seconds": stage.seconds,
        "levels": [[factor, ending.value] for factor, ending in stage.levels],
        "start": stage.start,
        "start_costs": dict(stage.start_costs),
        "evidence": stage.evidence,
        "terms": {name: {"cost_before": before, "cost_after": after} for name, before, after in stage.terms},
        "history": _columns(stage.history),
    }


def _finite(cost: Any) -> float | None:
    """A cost; None if it is not finite, because the images do not overlap (version 0.1 wrote the text "inf")."""
    return float(cost) if isinstance(cost, (int, float)) and math.isfinite(cost) else None


def _columns(events: Sequence[Event]) -> dict[str, list[Any]]:
    """The events as one list per quantity, and the costs of the terms if there are several."""
    columns: dict[str, list[Any]] = {name: [getattr(event, name) for event in events] for name in COLUMNS}
    names = [name for name, _ in events[0].parts] if events else []
    return columns | {f"cost of {name}": [dict(event.parts)[name] for event in events] for name in names}


def _upgraded_stage(stage: Mapping[str, Any]) -> dict[str, Any]:
    history = dict(stage["history"])
    if history:
        history["stage"] = history.pop("dof", [stage["name"]] * len(history["level"]))
    return {
        **stage,
        "cost_before": _finite(stage["cost_before"]),
        "cost_after": _finite(stage["cost_after"]),
        "ending": _ENDINGS_OF_FORMAT_1.get(stage["status"], Ending.LIMIT).value,
        "levels": [
            [factor, _ENDINGS_OF_FORMAT_1.get(how, Ending.LIMIT).value] for factor, how in stage.get("levels") or ()
        ],
        "history": history,
    }

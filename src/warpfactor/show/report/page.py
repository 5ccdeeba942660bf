"""The page: everything that was measured and drawn, put into one HTML file that needs nothing else."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from warpfactor import __version__
from warpfactor.checks.case import Case, registration_seconds
from warpfactor.checks.regularity import Regularity
from warpfactor.checks.similarity import Alignment
from warpfactor.io.jsontext import without_nan
from warpfactor.memory import shown_bytes
from warpfactor.recipebook import toml
from warpfactor.show.report import charts
from warpfactor.show.report.sheets import encode, jpeg_url, layout
from warpfactor.show.report.views import Views
from warpfactor.show.verdict import Verdict
from warpfactor.show.wording import metric_title

FACTS_FORMAT = 2
THUMBNAIL = 132  # pixels, height of the thumbnail in summaries
LOWEST = 8  # labels shown in the table
NAMES = {"fixed": "Fixed", "before": "Before", "affine": "Affine", "after": "After"}
SIDES = {"Axial": "IS", "Coronal": "AP", "Sagittal": "RL"}  # below and above zero of the world's axis
STACKS = ("before", "affine", "after")


@cache
def environment() -> Environment:
    """The templates of the report; all text is escaped."""
    loader = PackageLoader("warpfactor.show.report", "templates")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)


def render(
    case: Case, views: Views, alignment: Alignment | None, regularity: Regularity | None, verdict: Verdict
) -> str:
    """The whole page."""
    entries = case.entries
    pictures = _pictures(views)
    thumbnail = _thumbnail(views)
    facts = facts_of(case, alignment, regularity, verdict) | {"thumbnail": thumbnail}
    return (
        environment()
        .get_template("report.html.jinja")
        .render(
            version=__version__,
            verdict=verdict,
            sentence=_capital(verdict.sentence),
            fixed_name=entries["fixed"].get("name", "fixed"),
            moving_name=entries["moving"].get("name", "moving"),
            under=_under(entries),
            pictures=pictures,
            compare_words=_compare_words(case),
            warp_words=_warp_words(regularity),
            warp_facts=[] if regularity is None else _warp_facts(regularity),
            histogram=_chart(
                "" if regularity is None else charts.jacobian_histogram(regularity.counts, regularity.folded)
            ),
            status=entries["status"],
            stages=[_stage(stage, _limits(entries)) for stage in entries["stages"]],
            labels=_labels(entries.get("labels")),
            landmarks=_landmarks(entries.get("landmarks")),
            command=shlex.join(["warpfactor", *entries["command"]]) if entries.get("command") else "",
            facts=_facts_tables(entries),
            recipe_name=entries["recipe"].get("name", ""),
            recipe=toml.write(entries["recipe"]),
            affine="\n".join("  ".join(f"{v:12.6f}" for v in row) for row in entries["fixed_to_moving_affine_lps_mm"]),
            thumbnail=thumbnail,
            facts_json=script_json(facts),
            pictures_json=script_json(pictures),
        )
    )


def facts_of(
    case: Case, alignment: Alignment | None, regularity: Regularity | None, verdict: Verdict
) -> dict[str, Any]:
    """Facts for a summary of many results, which reads them from the page."""
    entries = case.entries
    labels, landmarks = entries.get("labels") or {}, entries.get("landmarks") or {}
    figures = {
        "correlation": None if alignment is None else alignment.after.correlation,
        "coverage": None if alignment is None else alignment.after.coverage,
        "dice": labels.get("dice_mean_after"),
        "landmark_mm": (landmarks.get("after_mm") or {}).get("mean"),
        "sd_log": None if regularity is None else regularity.sd_log,
        "folded": None if regularity is None else regularity.folded,
        "inverse_vox": None if regularity is None or regularity.inverse_vox is None else regularity.inverse_vox.p95,
        "displacement_mm": None if regularity is None else regularity.displacement_mm.max,
        "seconds": registration_seconds(entries["seconds"]),
    }
    return {
        "format": FACTS_FORMAT,
        "fixed": entries["fixed"].get("name", "fixed"),
        "moving": entries["moving"].get("name", "moving"),
        "recipe": entries["recipe"].get("name", ""),
        "verdict": verdict.to_dict(),
        "figures": figures,
    }


def script_json(data: Mapping[str, Any]) -> Markup:
    """JSON that is safe inside a script element."""
    text = json.dumps(without_nan(data), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c"))  # no tag can begin or end in it


def _pictures(views: Views) -> dict[str, Any]:
    """The data of the viewer script."""
    stacks = [*views.images, *(m.stack for m in views.maps.values()), *([views.folds] if views.folds else [])]
    present = [stack.name for stack in views.images]
    moving = [name for name in STACKS if name in present]
    first = "fixed" if "fixed" in present else (moving or [""])[-1]
    planes = []
    for number, plane in enumerate(views.planes):
        count, height, width = plane.grid.shape
        planes.append(
            {
                "name": plane.name,
                "slices": count,
                "height": height,
                "width": width,
                "positions": [_position(plane.name, position) for position in plane.positions_mm],
                "letters": list(plane.letters),
                "lines": views.lines[number].to_dict() if views.lines else None,
                **layout(count, height, width),
            }
        )
    return {
        "planes": planes,
        "columns": " ".join(f"{plane.pixel_mm * plane.grid.shape[2]:.0f}fr" for plane in views.planes),
        "sheets": encode(stacks),
        "names": {name: NAMES[name] for name in present},
        "choices": moving if "fixed" in present else [],
        "pair": {"fixed": first, "moving": moving[-1] if moving else first} if first else None,
        "under": "affine" if "affine" in present else moving[0] if moving else first,
        "maps": _maps(views),
    }


def _position(plane: str, position_mm: float) -> str:
    """Position of a slice along its normal (LPS mm), with the letter of its side instead of a sign."""
    sides = SIDES.get(plane, "  ")
    return f"{sides[round(position_mm) >= 0]} {abs(position_mm):.0f} mm".strip()


def _maps(views: Views) -> dict[str, dict[str, Any]]:
    """Name, colours and explanation of each map."""
    if not views.maps:
        return {}
    octaves = [(0.0, "¼"), (0.25, "½"), (0.5, "1"), (0.75, "2"), (1.0, "4")]
    known: dict[str, dict[str, Any]] = {
        "grid": {
            "label": "Deformed grid",
            "name": "deformed grid",
            "ramp": "",
            "words": "Where a regular grid of the fixed image lies in the moving image after the affine. "
            "Displacements out of the plane are not drawn.",
        },
        "jacobian": {
            "label": "Volume change",
            "name": "Jacobian determinant",
            "ramp": "diverging",
            "ticks": octaves,
            "words": "Jacobian determinant: below 1 (blue) the warp expands the moving image, above 1 (orange) it "
            "contracts it. Folded voxels are magenta.",
        },
        "displacement": {
            "label": "Displacement",
            "name": "length of the displacement",
            "ramp": "sequential",
            "words": "Length of the displacement of each point, without the affine.",
        },
        "error": {
            "label": "Inverse error",
            "name": "error of the inverse",
            "ramp": "sequential",
            "words": "Distance of a point from its origin after it was mapped to the moving image and back.",
        },
    }
    for name in ("displacement", "error"):
        if name in views.maps:
            known[name]["ticks"] = _length_ticks(views.maps[name].high)
    return {name: about for name, about in known.items() if name == "grid" or name in views.maps}


def _length_ticks(high: float) -> list[tuple[float, str]]:
    digits = max(0, 1 - math.floor(math.log10(max(high, 1e-9))))
    marks = [(share, f"{share * high:.{digits}f}") for share in (0.0, 0.5, 1.0)]
    return [marks[0], marks[1], (1.0, f"{marks[2][1]} mm and more")]


def _thumbnail(views: Views) -> str:
    """Middle slice of the first plane: the fixed image beside the result."""
    stacks = {stack.name: stack.slices[0] for stack in views.images}
    shown = [stacks[name] for name in ("fixed", "after") if name in stacks]
    if not shown:
        return ""
    joined = np.concatenate([part[part.shape[0] // 2] for part in shown], axis=1)
    step = max(1, joined.shape[0] // THUMBNAIL)
    return jpeg_url(np.ascontiguousarray(joined[::step, ::step]), 70)


def _under(entries: Mapping[str, Any]) -> str:
    seconds = registration_seconds(entries["seconds"])
    parts = [f"recipe {entries['recipe'].get('name', '')}", f"registration {seconds:.1f} s"]
    size = " × ".join(str(n) for n in reversed(entries["fixed"]["shape_zyx"][-entries["fixed"]["dimension"] :]))
    return " · ".join([*parts, f"{size} voxels"])


def _compare_words(case: Case) -> str:
    if case.fixed is None:
        return "The fixed image is not available; only the moving image is shown."
    if case.moving is None:
        return "The moving image is not available; the saved warped image is shown."
    return "The edges view shows edges of the fixed image on the moving image; they should coincide with its own edges."


def _warp_words(regularity: Regularity | None) -> str:
    if regularity is None:
        return ""
    moved = regularity.displacement_mm
    return f"Points move by {moved.mean:.1f} mm on average and {moved.max:.1f} mm at most, without the affine."


def _warp_facts(regularity: Regularity) -> list[tuple[str, str]]:
    low, middle, high = regularity.percentiles
    moved = " / ".join(f"{v:.1f}" for v in regularity.displacement_mm)
    rows = [
        ("Folded voxels, whole image", f"{regularity.folded}"),
        ("Jacobian in the object, 1st percentile", f"{low:.2f}"),
        ("Jacobian in the object, median", f"{middle:.2f}"),
        ("Jacobian in the object, 99th percentile", f"{high:.2f}"),
        ("SD of its logarithm, in the object", f"{regularity.sd_log:.2f}"),
        ("Displacement, whole image, mean / 95 % / max", f"{moved} mm"),
    ]
    if regularity.inverse_vox is not None:
        error = " / ".join(f"{v:.3f}" for v in regularity.inverse_vox)
        rows.append(("Inverse error, whole image, mean / 95 % / max", f"{error} voxels"))
    return rows


def _limits(entries: Mapping[str, Any]) -> dict[float, int]:
    """Iteration limits of the deformable stage, by level."""
    deformable = entries["recipe"].get("deformable") or {}
    return dict(zip(deformable.get("levels", ()), deformable.get("iterations", ()), strict=False))


def _iterations(history: Mapping[str, Any], limits: Mapping[float, int]) -> int:
    """Number of iterations over all levels; a step that is repeated after a rejection counts once."""
    if "iteration" not in history:
        return len(history.get("accepted", ()))
    last = dict(zip(history["level"], history["iteration"], strict=True))
    return sum(min(number + 1, limits.get(level, number + 1)) for level, number in last.items())


def _stage(stage: Mapping[str, Any], limits: Mapping[float, int]) -> dict[str, Any]:
    history = stage["history"]
    accepted = history.get("accepted", [])
    return {
        "title": _capital(stage["name"]),
        "metric": metric_title(stage["metric"]),
        "level": f"{stage['level']:g}",
        "before": "no overlap" if stage["cost_before"] is None else _cost(stage["cost_before"]),
        "after": _cost(stage["cost_after"]),
        "terms": [
            {"name": _capital(name), "before": _cost(costs["cost_before"]), "after": _cost(costs["cost_after"])}
            for name, costs in stage.get("terms", {}).items()
        ],
        "iterations": _iterations(history, limits),
        "rejected": sum(not kept for kept in accepted),
        "seconds": f"{stage['seconds']:.1f}",
        "status": stage["status"],
        "chart": _chart(charts.convergence(stage)),
    }


def _labels(labels: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if not labels or not labels.get("dice_per_label_after"):
        return None
    before = labels.get("dice_per_label_before") or {}
    after = {name: value or 0.0 for name, value in labels["dice_per_label_after"].items()}
    rows = [
        {
            "name": str(name),
            "before": "–" if before.get(name) is None else f"{before[name]:.3f}",
            "after": f"{value:.3f}",
            "width": round(100 * value),
        }
        for name, value in after.items()
    ]
    return {
        "before": _cost(labels.get("dice_mean_before")),
        "after": _cost(labels.get("dice_mean_after")),
        "rows": rows,
        "lowest": sorted(rows, key=lambda row: float(row["after"]))[:LOWEST],
        "chart": _chart(charts.spread(list(after.values()), "Dice", top=1.0)),
    }


def _landmarks(landmarks: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if not landmarks or not landmarks.get("after_mm"):
        return None
    sides = {
        side: {name: f"{value:.2f}" for name, value in landmarks[f"{side}_mm"].items()} for side in ("before", "after")
    }
    errors = landmarks.get("per_point_after_mm") or []
    return {"count": landmarks["count"], **sides, "chart": _chart(charts.spread(errors, "mm") if errors else "")}


def _facts_tables(entries: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, str, int | None]]]]:
    seconds = {part: spent for part, spent in entries["seconds"].items() if part != "total"}
    total = max(sum(seconds.values()), 1e-9)
    times = [(_capital(part), f"{spent:.2f} s", round(100 * spent / total)) for part, spent in seconds.items()]
    memory = entries.get("peak_memory_mb")
    scope = "" if "write" in seconds else ", before the report"
    run = [
        ("Registration, without report and writing", f"{registration_seconds(seconds):.1f} s", None),
        (f"Peak memory{scope}", "not known" if memory is None else shown_bytes(memory * (1 << 20)), None),
        ("Device, backend", f"{entries.get('device')}, {entries.get('backend')}", None),
        ("Threads", str(entries.get("threads")), None),
        ("Seed", str(entries.get("seed")), None),
    ]
    versions = [(name, version, None) for name, version in entries["versions"].items()]
    images = [row for side in ("fixed", "moving") for row in _image_rows(entries, side)]
    return [("Images", images), ("Run", run), ("Time", times), ("Versions", versions)]


def _image_rows(entries: Mapping[str, Any], side: str) -> Sequence[tuple[str, str, None]]:
    image = entries[side]
    place = ((entries.get("inputs") or {}).get(side) or {}).get("path")
    axes = slice(-image["dimension"], None)
    shape = " × ".join(str(n) for n in reversed(image["shape_zyx"][axes]))
    spacing = " × ".join(f"{s:.3g}" for s in reversed(image["spacing_zyx_mm"][axes]))
    rows = [(_capital(side), place or image.get("name", side), None), ("", f"{shape} voxels of {spacing} mm", None)]
    if image.get("nonfinite_voxels"):
        rows.append(("", f"{image['nonfinite_voxels']} voxels are NaN or infinite and were ignored", None))
    return rows


def _chart(svg: str) -> Markup:
    return Markup(svg)  # charts escape their text


def _cost(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]

"""A registration as a notebook displays it: a small table of figures, and the warped image."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping
from typing import Any

from warpfactor.geometry.planes import html_picture
from warpfactor.show.wording import metric_title


def to_html(entries: Mapping[str, Any], png: bytes) -> str:
    """Self-contained HTML.

    Args:
        entries: the result, as result.json describes it.
        png: a picture of the warped image.
    """
    left = 'style="text-align:left"'
    rows = "".join(
        f"<tr><th {left}>{html.escape(name)}</th><td {left}>{html.escape(text)}</td></tr>"
        for name, text in _rows(entries)
    )
    image = html_picture(png, f"{entries['moving']['name']} warped onto {entries['fixed']['name']}")
    return f"<div><table>{rows}</table>{image}</div>"


def _rows(entries: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "recipe", entries["recipe"]["name"]
    yield "status", entries["status"]
    for stage in entries["stages"]:
        yield (
            stage["name"],
            f"{metric_title(stage['metric'])} cost {_cost(stage['cost_before'])} -> {_cost(stage['cost_after'])}",
        )
    figures = entries["figures"]
    moved = figures.get("warp_displacement_mm")
    if moved is not None:
        error = figures["inverse_consistency_fixed_to_moving_to_fixed_vox"]
        yield "warp", f"{moved['mean']:.1f} mm on average, {moved['max']:.1f} mm at most"
        yield "folded voxels", str(figures["warp_jacobian_determinant_in_image"]["folded_count"])
        inside = figures["warp_jacobian_determinant_in_fixed_foreground"]
        yield "SD of log Jacobian, in the object", f"{inside['sd_log']:.2f}"
        if "shear" in inside:
            yield "shear, in the object", f"{inside['shear']:.2f}"
        yield "inverse error", f"{error['mean']:.3f} voxels on average, {error['max']:.2g} at most"
    for text in entries["warnings"]:
        yield "warning", text
    yield "time", f"{entries['seconds']['total']:.1f} s"


def _cost(cost: float | None) -> str:
    return "no overlap" if cost is None or not math.isfinite(cost) else f"{round(cost, 3) + 0.0:.3f}"

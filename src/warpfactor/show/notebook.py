"""A registration as a notebook shows it: what came out in a small table, and the warped image."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import TYPE_CHECKING

from warpfactor.show.planes import html_picture

if TYPE_CHECKING:
    from warpfactor.registration.result import Registration


def to_html(found: Registration) -> str:
    """HTML that needs nothing else."""
    left = 'style="text-align:left"'
    rows = "".join(
        f"<tr><th {left}>{html.escape(name)}</th><td {left}>{html.escape(text)}</td></tr>"
        for name, text in _rows(found)
    )
    fixed, moving = found.run.names
    image = html_picture(found.warped._repr_png_(), f"{moving} warped onto {fixed}")
    return f"<div><table>{rows}</table>{image}</div>"


def _rows(found: Registration) -> Iterator[tuple[str, str]]:
    yield "recipe", found.recipe.name
    yield "status", found.status
    for stage in found.history:
        yield stage.name, f"{stage.metric.upper()} cost {stage.change(3)}"
    warp = found.figures.warp
    if warp is not None:
        moved = warp.displacement_mm
        yield "warp", f"{moved.mean:.1f} mm on average, {moved.max:.1f} mm at most"
        yield "folded voxels", str(warp.jacobian.folded_count)
        yield "SD of log Jacobian, in the object", f"{warp.jacobian_foreground.sd_log:.2f}"
        error = warp.there_and_back_vox
        yield "inverse error", f"{error.mean:.3f} voxels on average, {error.max:.2g} at most"
    for text in found.warnings:
        yield "warning", text
    yield "time", f"{found.run.seconds['total']:.1f} s"

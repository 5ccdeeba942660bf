"""The page of a template: how it looked after each iteration, and whether it has stopped changing."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from markupsafe import Markup

from warpfactor import __version__
from warpfactor.io import atomic_path
from warpfactor.show.report import charts
from warpfactor.show.report.page import environment


class IterationFacts(Protocol):
    """What the page shows of an iteration; see `cohort.template.iteration`."""

    @property
    def number(self) -> int: ...

    @property
    def change(self) -> float | None: ...

    @property
    def shift_mm(self) -> float | None: ...

    @property
    def sharpness_per_mm(self) -> float: ...

    @property
    def spacing_mm(self) -> float: ...

    @property
    def distances_mm(self) -> Mapping[str, float]: ...


def write_template_page(iterations: Sequence[IterationFacts], pictures: Sequence[bytes], output: Path) -> None:
    """Write the page; it replaces that of an earlier run.

    Args:
        iterations: the start first.
        pictures: the template after each, as PNG.
        output: the file to write.
    """
    rows = [_row(each, png) for each, png in zip(iterations, pictures, strict=True)]
    last = iterations[-1].distances_mm
    chart = Markup(charts.strips({"people": list(last.values())}, "Distance, mm") if last else "")
    page = (
        environment()
        .get_template("template.html.jinja")
        .render(
            version=__version__,
            rows=rows,
            people=len(last),
            distances=sorted(last.items(), key=lambda item: -item[1]),
            chart=chart,
        )
    )
    with atomic_path(output, force=True) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _row(facts: IterationFacts, png: bytes) -> dict[str, Any]:
    return {
        "name": "Start" if facts.number == 0 else f"Iteration {facts.number}",
        "picture": f"data:image/png;base64,{base64.b64encode(png).decode()}",
        "change": "–" if facts.change is None else f"{100 * facts.change:.1f} %",
        "shift": "–" if facts.shift_mm is None else f"{facts.shift_mm:.2f} mm",
        "spacing": f"{facts.spacing_mm:.3g} mm",
        "sharpness": f"{facts.sharpness_per_mm:.3f} per mm",
    }

"""The charts of a report as SVG text: cost and damping over the iterations, Jacobian histogram, sorted scores.

Colours come from the style sheet of the page, so that charts follow its light, dark and print themes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfactor.checks.alignment import DEFORMABLE
from warpfactor.checks.regularity import COARSE, SHOWN_LIMIT

WIDTH = 480
LEFT, RIGHT, TOP = 48, 10, 24
GAP = 18  # between panels
LETTER = 6.2  # width


@dataclass(frozen=True)
class Axis:
    """A linear or logarithmic axis, which maps values to positions.

    Attributes:
        low, high: values at the ends.
        first, last: positions of the ends.
        log: whether the axis is logarithmic.
    """

    low: float
    high: float
    first: float
    last: float
    log: bool = False

    def at(self, value: float) -> float:
        """Position of a value, which is clipped to the axis."""
        low, high, value = (self._scaled(v) for v in (self.low, self.high, value))
        share = (value - low) / (high - low) if high > low else 0.5
        return self.first + min(max(share, 0.0), 1.0) * (self.last - self.first)

    def ticks(self, most: int) -> list[float]:
        """At most `most` round values on the axis."""
        low, high = self._scaled(self.low), self._scaled(self.high)
        step = _round_step((high - low) / most, whole=self.log)
        places = np.arange(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1) * step
        return [float(10.0**p) if self.log else float(p) for p in places]

    def _scaled(self, value: float) -> float:
        return math.log10(max(value, 1e-300)) if self.log else value


def convergence(stage: Mapping[str, Any]) -> str:
    """Cost and damping over the iterations of a stage, with a band per level; rejected steps are marked."""
    history = stage["history"]
    count = len(history.get("cost", ()))
    if count < 2:
        return ""
    across = Axis(0, count - 1, LEFT, WIDTH - RIGHT)
    costs = [math.inf if cost is None else cost for cost in history["cost"]]
    kept = [cost for cost, accepted in zip(costs, history["accepted"], strict=True) if accepted and cost < math.inf]
    shown = kept or [cost for cost in costs if cost < math.inf] or [0.0, 1.0]
    room = 0.08 * (max(shown) - min(shown)) or 0.01
    upper = Axis(min(shown) - room, max(shown) + room, TOP + 150, TOP)
    dampings = [damping for damping in history["damping"] if damping and damping > 0]
    lower = Axis(min(dampings, default=1), max(dampings, default=1), TOP + 150 + GAP + 70, TOP + 150 + GAP, log=True)
    if lower.high <= lower.low:
        lower = Axis(lower.low / 10, lower.high * 10, lower.first, lower.last, log=True)
    levels = _levels(history)
    rejected = [i for i, accepted in enumerate(history["accepted"]) if not accepted]
    parts = [
        *_bands(levels, across, TOP, lower.first),
        *_grid_lines(upper, 4, "cost"),
        *_grid_lines(lower, 3, "damping"),
        *(_line([(i, costs[i]) for i in run if history["accepted"][i]], across, upper, "line") for _, run in levels),
        *(_cross(across.at(i), upper.at(costs[i])) for i in rejected),
        _steps([(i, d) for i, d in enumerate(history["damping"]) if d], across, lower),
    ]
    words = f"Cost and damping of the {stage['name']} stage over {count} steps tried, {len(rejected)} of them rejected."
    return _svg(parts, lower.first + 6, words, f"steps tried, 1 to {count}")


def jacobian_histogram(counts: NDArray[np.int64], folded: int) -> str:
    """Histogram of the Jacobian determinant with logarithmic axes; folded voxels have a separate bar."""
    height, base = 190, TOP + 150
    across = Axis(-SHOWN_LIMIT - 0.95, SHOWN_LIMIT + 0.1, LEFT, WIDTH - RIGHT)
    up = Axis(0.8, max(10.0, 1.3 * float(max(counts.max(), folded))), base, TOP, log=True)
    wide = (across.at(1) - across.at(0)) / COARSE
    bars = [
        f'<rect x="{across.at(i / COARSE - SHOWN_LIMIT):.1f}" y="{up.at(n):.1f}" width="{max(wide - 0.6, 0.5):.1f}" '
        f'height="{base - up.at(n):.1f}" class="bar"/>'
        for i, n in enumerate(counts.tolist())
        if n > 0
    ]
    if folded:
        x, y = across.at(-SHOWN_LIMIT - 0.65), up.at(folded)
        bars.append(f'<rect x="{x - 5:.1f}" y="{y:.1f}" width="10" height="{base - y:.1f}" class="fold"/>')
        bars.append(_text(x - 5, y - 4, f"{folded:,} folded".replace(",", " "), "start fold-text"))
    names = {-4: "1/16", -3: "1/8", -2: "1/4", -1: "1/2", 0: "1", 1: "2", 2: "4", 3: "8", 4: "16"}
    ticks = [_text(across.at(place), base + 15, name, "middle") for place, name in names.items()]
    ticks.append(_text(across.at(-SHOWN_LIMIT - 0.65), base + 15, "≤ 0", "middle"))
    one = f'<line x1="{across.at(0):.1f}" x2="{across.at(0):.1f}" y1="{TOP}" y2="{base}" class="mark"/>'
    words = f"Histogram of the Jacobian determinant in the object, from 1/16 to 16; {folded} voxels fold."
    return _svg([*_grid_lines(up, 5, "voxels"), *bars, one, *ticks], height + 14, words, "volume change (Jacobian)")


def spread(values: Sequence[float], unit: str, *, top: float | None = None) -> str:
    """Sorted values as bars, such as the Dice of labels or the errors of landmarks."""
    ordered = sorted(values)
    base = TOP + 120
    up = Axis(0.0, top or 1.1 * max(ordered[-1], 1e-9), base, TOP)
    across = Axis(0, len(ordered), LEFT, WIDTH - RIGHT)
    wide = across.at(1) - across.at(0)
    bars = [
        f'<rect x="{across.at(i):.1f}" y="{up.at(v):.1f}" width="{max(0.8 * wide, 0.8):.1f}" '
        f'height="{base - up.at(v):.1f}" class="bar"/>'
        for i, v in enumerate(ordered)
    ]
    middle = float(np.median(ordered))
    mark = f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up.at(middle):.1f}" y2="{up.at(middle):.1f}" class="mark"/>'
    words = f"{len(ordered)} values of {unit}, sorted, from {ordered[0]:.2f} to {ordered[-1]:.2f}, median {middle:.2f}."
    parts = [*_grid_lines(up, 4, unit), *bars, mark]
    return _svg(parts, base + 6, words, f"sorted; the line is the median, {middle:.2f}")


def strips(groups: Mapping[str, Sequence[float]], unit: str) -> str:
    """A row of dots per group along a common axis, with a line at its median."""
    everything = [value for values in groups.values() for value in values]
    room = 0.04 * (max(everything) - min(everything)) or 0.01
    left = min(200.0, max(LEFT, 14 + LETTER * max(len(name) for name in groups)))
    across = Axis(min(everything) - room, max(everything) + room, left, WIDTH - RIGHT)
    base = TOP + 30 * len(groups)
    parts = [
        f'<line x1="{across.at(v):.1f}" x2="{across.at(v):.1f}" y1="{TOP - 6}" y2="{base}" class="rule"/>'
        + _text(across.at(v), base + 14, _number(round(v, 9)), "middle")
        for v in across.ticks(6)
    ]
    for number, (name, values) in enumerate(groups.items()):
        y, middle = TOP + 30 * number + 12, float(np.median(values))
        parts.append(_text(left - 8, y + 4, name, "end"))
        parts += [f'<circle cx="{across.at(v):.1f}" cy="{y}" r="3.2" class="dot" opacity="0.55"/>' for v in values]
        x = across.at(middle)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y - 10}" y2="{y + 10}" class="mark"/>')
    words = f"{unit} of {len(everything)} results" + (f" in {len(groups)} groups." if len(groups) > 1 else ".")
    return _svg(parts, base + 16, words, f"{unit}; the lines are medians")


def _levels(history: Mapping[str, Any]) -> list[tuple[str, list[int]]]:
    """Name and iterations of each level, and of each group of motions within it."""
    motions = history.get("stage") or [DEFORMABLE] * len(history["level"])
    keys = list(zip(history["level"], motions, strict=True))
    runs = [(key, list(group)) for key, group in groupby(range(len(keys)), key=keys.__getitem__)]
    return [(f"{'level' if motion == DEFORMABLE else motion} {level:g}", run) for (level, motion), run in runs]


def _bands(levels: Sequence[tuple[str, list[int]]], across: Axis, top: float, bottom: float) -> Iterator[str]:
    half, taken = (across.at(1) - across.at(0)) / 2, 0.0
    for number, (name, run) in enumerate(levels):
        x, right = across.at(run[0]) - half, across.at(run[-1]) + half
        kind = "band odd" if number % 2 else "band"
        yield f'<rect x="{x:.1f}" y="{top}" width="{right - x:.1f}" height="{bottom - top:.1f}" class="{kind}"/>'
        wide = LETTER * len(name)
        # The last level is short and the most important one: its name may extend over the band before it.
        middle = min((x + right) / 2, WIDTH - wide / 2) if number == len(levels) - 1 else (x + right) / 2
        if right - x > wide or (number == len(levels) - 1 and middle - wide / 2 > taken):
            yield _text(middle, top - 7, name, "middle")
            taken = middle + wide / 2


def _grid_lines(axis: Axis, most: int, name: str) -> Iterator[str]:
    for value in axis.ticks(most):
        y = axis.at(value)
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="rule"/>'
        yield _text(LEFT - 6, y + 4, _number(value), "end")
    middle = (axis.first + axis.last) / 2
    yield f'<text transform="translate(11 {middle:.0f}) rotate(-90)" class="middle name">{escape(name)}</text>'


def _line(points: Sequence[tuple[int, float]], across: Axis, up: Axis, kind: str) -> str:
    if len(points) == 1:
        x, y = points[0]
        return f'<circle cx="{across.at(x):.1f}" cy="{up.at(y):.1f}" r="1.6" class="dot"/>'
    places = " ".join(f"{across.at(x):.1f},{up.at(y):.1f}" for x, y in points)
    return f'<polyline points="{places}" class="{kind}"/>'


def _steps(points: Sequence[tuple[int, float]], across: Axis, up: Axis) -> str:
    """A step line: each value holds until the next point."""
    doubled = [(x, y) for (x, _), (_, y) in zip(points[1:], points, strict=False)]
    path = [point for pair in zip(points, doubled, strict=False) for point in pair] + list(points[-1:])
    return _line(path, across, up, "line thin")


def _cross(x: float, y: float) -> str:
    return f'<path d="M{x - 2.5:.1f} {y - 2.5:.1f}l5 5m0 -5l-5 5" class="rejected"/>'


def _text(x: float, y: float, words: str, kind: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(words)}</text>'


def _svg(parts: Sequence[str], height: float, words: str, below: str) -> str:
    caption = _text((LEFT + WIDTH - RIGHT) / 2, height + 12, below, "middle name")
    return (
        f'<svg viewBox="0 0 {WIDTH} {height + 18:.0f}" role="img" aria-label="{escape(words)}">'
        f"<title>{escape(words)}</title>{''.join(parts)}{caption}</svg>"
    )


def _round_step(rough: float, *, whole: bool) -> float:
    """1, 2 or 5 times a power of ten, at least `rough`; with `whole`, a whole number."""
    if rough <= 0:
        return 1.0
    if whole:
        return float(max(1, math.ceil(rough)))
    power = 10.0 ** math.floor(math.log10(rough))
    return next((m * power for m in (1, 2, 5) if m * power >= rough), 10 * power)


def _number(value: float) -> str:
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        return f"{value:g}"
    return f"1e{math.log10(abs(value)):.0f}" if math.log10(abs(value)) % 1 == 0 else f"{value:.0e}"

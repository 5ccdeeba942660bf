"""Figure 1: sweeps of λ₀, μ⁺ and μ⁻ with the paper's grids, for LM and for our default, on one figure.

LM is swept twice, with and without the host's rule that ends a level when the cost rises: the paper's damping cliff
depends on it. Our default has the same three settings in its trust rule, and a floor that bounds λ from below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpfactor.bench.paper import compare, draw
from warpfactor.bench.paper.experiment import Experiment, Plan, Report
from warpfactor.bench.paper.modes import DAMPING, DEFAULT, LM, NO_STOP, RULE, lm, ours
from warpfactor.bench.paper.published import SWEEP_DEFAULT, SWEEPS
from warpfactor.bench.paper.study import Study
from warpfactor.bench.run.method import Method
from warpfactor.bench.run.run import Run
from warpfactor.bench.score.accuracy import values
from warpfactor.bench.score.figures import style
from warpfactor.bench.score.metric import DICE, SD_LOG_J, Metric
from warpfactor.bench.score.stats import summarize
from warpfactor.bench.score.tables import Column, Table, Value
from warpfactor.errors import InputError
from warpfactor.optim import Trust
from warpfactor.recipebook.files import recipe as find_recipe

ENDLESS, FLOOR = "LM without stop rule", "default, floor as well"
SYMBOLS = {"initial": "λ₀", "increase": "μ⁺", "decrease": "μ⁻"}
FLAT = 0.002  # Dice within which a setting is as good as the default


@dataclass(frozen=True)
class Point:
    """One setting of one mode in a sweep.

    Attributes:
        mode: which optimizer.
        setting: which of SYMBOLS is swept.
        x: where it is in the figure: the value, or for λ₀ its ratio to the default.
        method: to run.
    """

    mode: str
    setting: str
    x: float
    method: Method


def grid(setting: str, points: int | None = None) -> list[float]:
    """The paper's values of a setting, or some of them, evenly spread, both ends among them."""
    found = [value for value, _ in SWEEPS[setting]]
    if points is None or points >= len(found):
        return found
    return [found[round(n * (len(found) - 1) / (points - 1))] for n in range(points)]


def points_of(plan: Plan) -> list[Point]:
    """All points of all sweeps."""
    return [
        Point(mode, setting, value / DAMPING["initial"] if setting == "initial" else value, make(plan, setting, value))
        for mode, make in MODES.items()
        for setting in SYMBOLS
        for value in grid(setting, plan.points)
        if mode != FLOOR or setting == "initial"
    ]


def _lm(plan: Plan, setting: str, value: float) -> Method:
    return lm(plan, f"{LM} {setting} {value:g}", {f"{RULE}{setting}": value})


def _endless(plan: Plan, setting: str, value: float) -> Method:
    return lm(plan, f"{ENDLESS} {setting} {value:g}", {**NO_STOP, f"{RULE}{setting}": value})


def _default(plan: Plan, setting: str, value: float) -> Method:
    """λ₀ by the same ratio to our own; below the floor it is the floor, whatever was asked for."""
    rule = trust()
    own = max(rule.floor, rule.initial * value / DAMPING["initial"]) if setting == "initial" else value
    return ours(plan, label=f"{DEFAULT} {setting} {value:g}", changes={f"{RULE}{setting}": own})


def _floor(plan: Plan, setting: str, value: float) -> Method:
    own = trust().initial * value / DAMPING["initial"]
    changes = {f"{RULE}initial": own, f"{RULE}floor": own}
    return ours(plan, label=f"{FLOOR} {setting} {value:g}", changes=changes)


MODES: Mapping[str, Callable[[Plan, str, float], Method]] = {
    LM: _lm,
    ENDLESS: _endless,
    DEFAULT: _default,
    FLOOR: _floor,
}


def trust() -> Trust:
    """The damping rule of our default."""
    found = find_recipe(DEFAULT).deformable
    if found is None or not isinstance(found.damping, Trust):
        raise InputError("The recipe `default` has no trust rule, so there is nothing to sweep.")
    return found.damping


def bases_of(plan: Plan) -> dict[str, Method]:
    """By mode: the method that its differences are from, with nothing swept."""
    return {LM: lm(plan), ENDLESS: lm(plan), DEFAULT: ours(plan), FLOOR: ours(plan)}


def _run(study: Study) -> Report:
    points, bases = points_of(study.plan), bases_of(study.plan)
    methods = [*{method.label: method for method in bases.values()}.values(), *(point.method for point in points)]
    runs = study.run(methods, what=f"{len(points)} settings")
    rows = [row for group in study.pairs.groups for row in _rows(runs, group, points, bases)]
    tables = [_table(rows), _ranges(rows), *compare.failures([*study.lost, *runs])]
    return Report(tables, _notes(), lambda path: _draw(rows, study.pairs.groups, path), [*study.lost, *runs])


def _rows(
    runs: Sequence[Run], group: str, points: Sequence[Point], bases: Mapping[str, Method]
) -> list[dict[str, Value]]:
    by_method: dict[str, list[Run]] = {}
    for run in runs:
        if run.group == group and run.done:
            by_method.setdefault(run.method, []).append(run)
    metric = compare.metric_of(runs, group)
    if metric is None:
        return []
    found = []
    for point in points:
        own = by_method.get(point.method.label, [])
        if own:
            base = by_method.get(bases[point.mode].label, [])
            found.append({"group": group, **_figures(point, own, base, metric)})
    return found


def _figures(point: Point, own: Sequence[Run], base: Sequence[Run], metric: Metric) -> dict[str, Value]:
    mean = summarize(values(own, metric))
    last = [compare.deformable_stage(run).get("last_damping") for run in own]
    return {
        "figure": metric.title,
        "mode": point.mode,
        "setting": point.setting,
        "x": point.x,
        "value": point.method.changes[f"{RULE}{point.setting}"],
        "count": mean.count,
        "mean": mean.mean,
        "sd": mean.sd,
        **compare.difference(compare.paired(own, base, metric)),
        SD_LOG_J.key: summarize(values(own, SD_LOG_J)).mean,
        "last_damping": f"{max(float(d) for d in last if d is not None):.2g}" if any(last) else None,
    }


def _table(rows: Sequence[Mapping[str, Value]]) -> Table:
    columns = (
        Column("group", "data"),
        Column("figure", "figure"),
        Column("mode", "optimizer"),
        Column("setting", "setting"),
        Column("value", "value", 5),
        Column("count", "pairs"),
        Column("mean", "mean", compare.DIGITS),
        Column("sd", "SD", compare.DIGITS),
        *compare.DIFFERENCE,
        Column(SD_LOG_J.key, SD_LOG_J.title, SD_LOG_J.digits),
        Column("last_damping", "largest last λ"),
    )
    return Table("sensitivity", "Every setting", columns, tuple(rows)).without_empty_columns()


def _ranges(rows: Sequence[Mapping[str, Value]]) -> Table:
    """Per group, optimizer and setting: how far the mean goes, and from where to where it stays near the default's."""
    keys = dict.fromkeys((str(row["group"]), str(row["mode"]), str(row["setting"])) for row in rows)
    found: list[Mapping[str, Value]] = []
    for group, mode, setting in keys:
        own = [r for r in rows if (r["group"], r["mode"], r["setting"]) == (group, mode, setting)]
        means = {float(row["value"] or 0): float(row["mean"] or 0) for row in own}
        near = [float(r["value"] or 0) for r in own if abs(float(r["difference"] or 0)) <= FLAT]
        found.append(
            {
                "group": group,
                "figure": own[0]["figure"],
                "mode": mode,
                "setting": setting,
                "from": f"{min(means):g}",
                "to": f"{max(means):g}",
                "lowest": min(means.values()),
                "at_lowest": f"{min(means, key=lambda v: means[v]):g}",
                "highest": max(means.values()),
                "at_highest": f"{max(means, key=lambda v: means[v]):g}",
                "range": max(means.values()) - min(means.values()),
                "near": f"{len(near)} / {len(own)}" if own[0]["figure"] == DICE.title else None,
            }
        )
    columns = (
        *(Column(k, t) for k, t in (("group", "data"), ("figure", "figure"), ("mode", "optimizer"))),
        *(Column(k, k) for k in ("setting", "from", "to")),
        Column("lowest", "lowest mean", compare.DIGITS),
        Column("at_lowest", "at"),
        Column("highest", "highest mean", compare.DIGITS),
        Column("at_highest", "at"),
        Column("range", "range", compare.DIGITS),
        Column("near", f"within {FLAT:g} of the default"),
    )
    return Table("ranges", "How much each setting matters", columns, tuple(found)).without_empty_columns()


def _notes() -> list[str]:
    rule = trust()
    return [
        "Each setting is swept with the others at their defaults. Differences are from LM's default, with the stop "
        "rule of its host, for both kinds of LM, and from our default for ours. Our default's λ is relative (method "
        f"page); its λ₀ is {rule.initial:g}, swept by the same ratios as the paper's 0.006, and never below its floor, "
        f"{rule.floor:g}: there it changes nothing by construction, so the line `{FLOOR}` moves both. The largest "
        f"last λ shows where λ ran away. The grey line is the paper's on LUMIR, as a difference from its "
        f"{SWEEP_DEFAULT:g}. Upright lines mark defaults: dashed the paper's, dotted ours."
    ]


def _draw(rows: Sequence[Mapping[str, Value]], groups: Sequence[str], path: Path) -> Path:
    """Per group a row of three panels: change from the default over λ₀, μ⁺ and μ⁻."""
    shown = [group for group in groups if any(row["group"] == group for row in rows)]
    sheet = draw.Sheet(len(shown), len(SYMBOLS))
    for line, group in enumerate(shown):
        own = [row for row in rows if row["group"] == group]
        for column, (setting, symbol) in enumerate(SYMBOLS.items()):
            x = f"{symbol} / its default" if setting == "initial" else symbol
            title, figure = f"{group}: {symbol}", str(own[0]["figure"])
            axes = sheet.axes(line, column, title=title, x=x, y=f"{figure}, change from its own default")
            _sweep(axes, [row for row in own if row["setting"] == setting])
            if figure == DICE.title:
                _published(axes, setting)
            if setting == "initial":
                draw.make_logarithmic(axes)
            _mark_defaults(axes, setting)
    return sheet.save(path)


def _mark_defaults(axes: Any, setting: str) -> None:
    """Where the paper's default is, dashed, and ours, dotted in our colour; λ₀ is relative to both already."""
    axes.axvline(1.0 if setting == "initial" else DAMPING[setting], color="0.75", lw=1, ls="--", zorder=0)
    if setting != "initial":
        colour, _ = style(list(MODES).index(DEFAULT))
        axes.axvline(getattr(trust(), setting), color=colour, lw=1, ls=":", zorder=0)


def _sweep(axes: object, rows: Sequence[Mapping[str, Value]]) -> None:
    for number, mode in enumerate(MODES):
        own = [row for row in rows if row["mode"] == mode]
        if not own:
            continue
        points = [(float(row["x"] or 0), float(row["difference"] or 0)) for row in own]
        ends = [(_number(row["low"]), _number(row["high"])) for row in own]
        known = all(math.isfinite(low + high) for low, high in ends)
        draw.curve(axes, number, mode, points, band=ends if known else None, dashed=mode in (ENDLESS, FLOOR))


def _number(value: Value) -> float:
    return math.nan if value is None else float(value)


def _published(axes: object, setting: str) -> None:
    scale = DAMPING["initial"] if setting == "initial" else 1.0
    points = [(value / scale, dice - SWEEP_DEFAULT) for value, dice in SWEEPS[setting]]
    draw.reference(axes, "paper, LUMIR", points)


EXPERIMENT = Experiment(
    name="sensitivity",
    title="Sensitivity to the damping's settings",
    question="How much do λ₀, μ⁺ and μ⁻ matter, where is the cliff, and has our default one?",
    paper="figure 1",
    run=_run,
    options=frozenset({"iterations", "start", "points"}),
    check=lambda study: study.check([point.method for point in points_of(study.plan)]),
)

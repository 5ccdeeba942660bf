"""Figure 1 of the paper: sweeps of λ₀, μ⁺ and μ⁻ over the paper's values, for LM and for our default.

LM is swept with and without the stopping rule of the paper's software, because the sharp loss of accuracy at large μ⁺
depends on it. Our default has the same three settings in its trust-region rule, and a lower limit (floor) for λ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpfactor.bench.paper import compare, draw
from warpfactor.bench.paper.methods import DAMPING, DEFAULT, LM, NO_STOP, RULE, lm, ours
from warpfactor.bench.paper.published import SWEEP_DEFAULT, SWEEPS
from warpfactor.bench.paper.study import Experiment, Findings, Study, StudyPlan
from warpfactor.bench.run.method import Method
from warpfactor.bench.run.record import Run
from warpfactor.bench.score.accuracy import values
from warpfactor.bench.score.measures import DICE, SD_LOG_J, Measure
from warpfactor.bench.score.plots import style
from warpfactor.bench.score.stats import summarize
from warpfactor.bench.score.tables import Table, TableColumn, Value
from warpfactor.errors import InputError
from warpfactor.optim import Trust
from warpfactor.recipebook.files import recipe as find_recipe

ENDLESS, FLOOR = "LM without stopping rule", "default, with the floor"
SYMBOLS = {"initial": "λ₀", "increase": "μ⁺", "decrease": "μ⁻"}
FLAT = 0.002  # difference in Dice below which a setting is as good as the default


@dataclass(frozen=True)
class SweepPoint:
    """One value of a parameter sweep.

    Attributes:
        mode: The optimizer, one of MODES.
        setting: The setting that is swept, one of SYMBOLS.
        x: Position in the plot: the value, or for λ₀ its ratio to the default.
        method: The method to run.
    """

    mode: str
    setting: str
    x: float
    method: Method


def grid(setting: str, points: int | None = None) -> list[float]:
    """The paper's values of a setting, or an evenly spaced selection that includes both ends."""
    found = [value for value, _ in SWEEPS[setting]]
    if points is None or points >= len(found):
        return found
    return [found[round(n * (len(found) - 1) / (points - 1))] for n in range(points)]


def points_of(plan: StudyPlan) -> list[SweepPoint]:
    """All points of all sweeps."""
    return [
        SweepPoint(
            mode, setting, value / DAMPING["initial"] if setting == "initial" else value, make(plan, setting, value)
        )
        for mode, make in MODES.items()
        for setting in SYMBOLS
        for value in grid(setting, plan.points)
        if mode != FLOOR or setting == "initial"
    ]


def _lm(plan: StudyPlan, setting: str, value: float) -> Method:
    return lm(plan, f"{LM} {setting} {value:g}", {f"{RULE}{setting}": value})


def _endless(plan: StudyPlan, setting: str, value: float) -> Method:
    return lm(plan, f"{ENDLESS} {setting} {value:g}", {**NO_STOP, f"{RULE}{setting}": value})


def _default(plan: StudyPlan, setting: str, value: float) -> Method:
    """Our default with λ₀ changed by the same ratio as the paper's, but never below the floor."""
    rule = trust()
    own = max(rule.floor, rule.initial * value / DAMPING["initial"]) if setting == "initial" else value
    return ours(plan, label=f"{DEFAULT} {setting} {value:g}", changes={f"{RULE}{setting}": own})


def _floor(plan: StudyPlan, setting: str, value: float) -> Method:
    own = trust().initial * value / DAMPING["initial"]
    changes = {f"{RULE}initial": own, f"{RULE}floor": own}
    return ours(plan, label=f"{FLOOR} {setting} {value:g}", changes=changes)


MODES: Mapping[str, Callable[[StudyPlan, str, float], Method]] = {
    LM: _lm,
    ENDLESS: _endless,
    DEFAULT: _default,
    FLOOR: _floor,
}


def trust() -> Trust:
    """The damping rule of our default."""
    found = find_recipe(DEFAULT).deformable
    if found is None or not isinstance(found.damping, Trust):
        raise InputError("The recipe `default` has no trust-region rule, so there is nothing to sweep.")
    return found.damping


def bases_of(plan: StudyPlan) -> dict[str, Method]:
    """By mode, the method with default settings, from which differences are taken."""
    return {LM: lm(plan), ENDLESS: lm(plan), DEFAULT: ours(plan), FLOOR: ours(plan)}


def _run(study: Study) -> Findings:
    points, bases = points_of(study.plan), bases_of(study.plan)
    methods = [*{method.label: method for method in bases.values()}.values(), *(point.method for point in points)]
    runs = study.run(methods, what=f"{len(points)} settings")
    rows = [row for group in study.pairs.groups for row in _rows(runs, group, points, bases)]
    tables = [_table(rows), _ranges(rows), *compare.failures([*study.lost, *runs])]
    return Findings(tables, _notes(), lambda path: _draw(rows, study.pairs.groups, path), [*study.lost, *runs])


def _rows(
    runs: Sequence[Run], group: str, points: Sequence[SweepPoint], bases: Mapping[str, Method]
) -> list[dict[str, Value]]:
    by_method: dict[str, list[Run]] = {}
    for run in runs:
        if run.group == group and run.done:
            by_method.setdefault(run.method, []).append(run)
    measure = compare.measure_of(runs, group)
    if measure is None:
        return []
    found = []
    for point in points:
        own = by_method.get(point.method.label, [])
        if own:
            base = by_method.get(bases[point.mode].label, [])
            found.append({"group": group, **_scores(point, own, base, measure)})
    return found


def _scores(point: SweepPoint, own: Sequence[Run], base: Sequence[Run], measure: Measure) -> dict[str, Value]:
    mean = summarize(values(own, measure))
    last = [compare.deformable_stage(run).get("last_damping") for run in own]
    return {
        "measure": measure.title,
        "mode": point.mode,
        "setting": point.setting,
        "x": point.x,
        "value": point.method.changes[f"{RULE}{point.setting}"],
        "count": mean.count,
        "mean": mean.mean,
        "sd": mean.sd,
        **compare.difference(compare.paired(own, base, measure)),
        SD_LOG_J.key: summarize(values(own, SD_LOG_J)).mean,
        "last_damping": f"{max(float(d) for d in last if d is not None):.2g}" if any(last) else None,
    }


def _table(rows: Sequence[Mapping[str, Value]]) -> Table:
    columns = (
        TableColumn("group", "data"),
        TableColumn("measure", "measure"),
        TableColumn("mode", "optimizer"),
        TableColumn("setting", "setting"),
        TableColumn("value", "value", 5),
        TableColumn("count", "pairs"),
        TableColumn("mean", "mean", compare.DIGITS),
        TableColumn("sd", "SD", compare.DIGITS),
        *compare.DIFFERENCE,
        TableColumn(SD_LOG_J.key, SD_LOG_J.title, SD_LOG_J.digits),
        TableColumn("last_damping", "largest last λ"),
    )
    return Table("sensitivity", "Every setting", columns, tuple(rows)).without_empty_columns()


def _ranges(rows: Sequence[Mapping[str, Value]]) -> Table:
    """Range of the mean by group, optimizer and setting, and how many values are as good as the default."""
    keys = dict.fromkeys((str(row["group"]), str(row["mode"]), str(row["setting"])) for row in rows)
    found: list[Mapping[str, Value]] = []
    for group, mode, setting in keys:
        own = [r for r in rows if (r["group"], r["mode"], r["setting"]) == (group, mode, setting)]
        means = {float(row["value"] or 0): float(row["mean"] or 0) for row in own}
        near = [float(r["value"] or 0) for r in own if abs(float(r["difference"] or 0)) <= FLAT]
        found.append(
            {
                "group": group,
                "measure": own[0]["measure"],
                "mode": mode,
                "setting": setting,
                "from": f"{min(means):g}",
                "to": f"{max(means):g}",
                "lowest": min(means.values()),
                "at_lowest": f"{min(means, key=lambda v: means[v]):g}",
                "highest": max(means.values()),
                "at_highest": f"{max(means, key=lambda v: means[v]):g}",
                "range": max(means.values()) - min(means.values()),
                "near": f"{len(near)} / {len(own)}" if own[0]["measure"] == DICE.title else None,
            }
        )
    columns = (
        *(TableColumn(k, t) for k, t in (("group", "data"), ("measure", "measure"), ("mode", "optimizer"))),
        *(TableColumn(k, k) for k in ("setting", "from", "to")),
        TableColumn("lowest", "lowest mean", compare.DIGITS),
        TableColumn("at_lowest", "at"),
        TableColumn("highest", "highest mean", compare.DIGITS),
        TableColumn("at_highest", "at"),
        TableColumn("range", "range", compare.DIGITS),
        TableColumn("near", f"within {FLAT:g} of the default"),
    )
    return Table("ranges", "How much each setting matters", columns, tuple(found)).without_empty_columns()


def _notes() -> list[str]:
    rule = trust()
    return [
        "Each setting is swept while the others keep their defaults. For both forms of LM, differences are relative "
        "to LM with default settings and the stopping rule; for our recipe they are relative to our default. The "
        f"damping of our default is relative (see the page on the method): its λ₀ is {rule.initial:g}, which is swept "
        f"by the same ratios as the paper's 0.006 but never below the floor {rule.floor:g}, where it has no effect. "
        f"The line `{FLOOR}` changes both. The largest final λ shows where λ grew without bound. The grey line is the "
        f"paper's on LUMIR, relative to its {SWEEP_DEFAULT:g}. Vertical lines mark the defaults of the paper (dashed) "
        "and ours (dotted)."
    ]


def _draw(rows: Sequence[Mapping[str, Value]], groups: Sequence[str], path: Path) -> Path:
    """For each group, plot the change from the default over λ₀, μ⁺ and μ⁻."""
    shown = [group for group in groups if any(row["group"] == group for row in rows)]
    sheet = draw.PanelGrid(len(shown), len(SYMBOLS))
    for line, group in enumerate(shown):
        own = [row for row in rows if row["group"] == group]
        for column, (setting, symbol) in enumerate(SYMBOLS.items()):
            x = f"{symbol} / its default" if setting == "initial" else symbol
            title, measure = f"{group}: {symbol}", str(own[0]["measure"])
            axes = sheet.axes(line, column, title=title, x=x, y=f"{measure}, change from its own default")
            _sweep(axes, [row for row in own if row["setting"] == setting])
            if measure == DICE.title:
                _published(axes, setting)
            if setting == "initial":
                draw.make_logarithmic(axes)
            _mark_defaults(axes, setting)
    return sheet.save(path)


def _mark_defaults(axes: Any, setting: str) -> None:
    """Mark the defaults with vertical lines: the paper's dashed, ours dotted. λ₀ is already relative to both."""
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
    question="How much do λ₀, μ⁺ and μ⁻ matter, and where does accuracy drop sharply? Does it with our default?",
    paper="figure 1",
    run=_run,
    options=frozenset({"iterations", "start", "points"}),
    check=lambda study: study.check([point.method for point in points_of(study.plan)]),
)

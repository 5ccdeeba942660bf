"""Made-up runs for the tests of `bench paper`: what a registration would have scored, without one.

`install` puts them in the place of the runner. Scores follow from the settings by a formula, so tests know them.
"""

import dataclasses
import math

from warpfactor.bench.paper import study as study_module
from warpfactor.bench.run.record import DONE, FAILED, Run, plan_run
from warpfactor.bench.run.runner import RunOptions, RunProgress, kept_transform

BROKEN = "broken"  # in the name of a pair: no method can register it
LOST = "lost"  # in the name of a pair: its affine fails


def dice(settings, number):
    """Higher for pairs with a higher number; LM best at μ⁺ = 2 and μ⁻ = 0.95; Adam 0.01 below LM's start."""
    deformable = settings["deformable"]
    if deformable is None:
        return 0.4
    name, damping = deformable["optimizer"]["name"], deformable["damping"]
    level = 0.6 + 0.01 * number
    if name == "adam":
        return level - 0.01 - (0.001 if number % 2 else 0.0)
    if name == "root":
        return level + 0.02
    off = 0.002 * abs(math.log2(damping["increase"] / 2)) + 0.1 * abs(damping["decrease"] - 0.95)
    if name == "tile":
        off += 0.005 * deformable["optimizer"]["tile_size"]
    if deformable["convergence"]["slope"] is None and damping["cap"] == "inf":
        off += 0.1
    return level - off


def _run(case, method, number):
    settings = method.settings_for(case)
    affine = settings["deformable"] is None
    if (LOST in case.name and affine) or (BROKEN in case.name and not affine):
        return Run(case.name, case.group, method.label, FAILED, reason=f"{case.name} cannot be registered.")
    value = dice(settings, number)
    if math.isnan(value):
        return Run(case.name, case.group, method.label, FAILED, reason="The cost became nan.")
    stage = {"name": "deformable", "rejected": 3, "iterations": 100, "last_damping": 0.5}
    return Run(
        case=case.name,
        group=case.group,
        method=method.label,
        status=DONE,
        scores={"dice": value, "sd_log_jacobian": 0.3, "folded_fraction": 0.0, "cpu_s": 2.0, "wall_s": 1.0},
        per_label={"dice": {1: value - 0.1, 2: value + 0.1}},
        entries={"details": {"stages": [] if affine else [stage]}, "jobs": 1},
    )


class Runner:
    """Stands in for `run_all`; remembers what it was asked and can be stopped."""

    def __init__(self):
        self.calls = []
        self.stop_after = math.inf
        self.made = {}

    def __call__(self, cases, methods, folder, options=None, *, initials=None, watch=None):
        tell = watch or (lambda _: None)
        how, found = options or RunOptions(), []
        tell(RunProgress(0, len(cases) * len(methods), 0, None))
        for number, case in enumerate(cases):
            for method in methods:
                if len(self.calls) >= self.stop_after:
                    raise KeyboardInterrupt
                self.calls.append((case.name, method.label, how.again))
                run = _run(case, method, number)
                if how.keep:
                    kept = kept_transform(plan_run(case, method), folder)
                    kept.parent.mkdir(parents=True, exist_ok=True)
                    kept.write_text(case.name)
                else:
                    assert initials[case.name].read_text(encoding="utf-8") == case.name
                found.append(run)
                tell(RunProgress(len(found), len(cases) * len(methods), len(found), run))
        return found


def install(monkeypatch):
    """Let studies use made-up runs; the runner, to look at."""
    runner = Runner()
    monkeypatch.setattr(study_module, "run_all", runner)
    return runner


def renamed(case, name, group=None):
    return dataclasses.replace(case, name=name, group=group or case.group)

"""Methods: named ways to register a case, in a notation that needs no quotes in a shell.

default                                           a recipe, or a recipe file
default+deformable.iterations=100,50,20           a recipe with changed settings
smooth=default+deformable.sigma_warp=1.0          the same with a label
own                                               the recipe that the dataset names for each case
greedy  ants-synquick  ants-syn  demons           other tools, if they are installed
long=greedy+iterations=100x100x50                 another tool with changed settings
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warpfactor.bench.data.dataset import BenchCase
from warpfactor.bench.peers import PEERS
from warpfactor.bench.run.task import Task, TaskResult
from warpfactor.errors import InputError
from warpfactor.recipebook.files import recipe as find_recipe
from warpfactor.recipebook.files import recipes
from warpfactor.recipebook.plain import parse_value, unknown
from warpfactor.recipebook.recipe import Recipe

OURS, OWN = "warpfactor", "own"


@dataclass(frozen=True)
class Method:
    """A registration method with its settings.

    Attributes:
        label: Name in tables; unique within a benchmark.
        base: Name or file of a recipe, "own", or the name of another tool.
        changes: Settings that differ from those of the base, by name.
        recipe: A recipe object that replaces the base.
    """

    label: str
    base: str
    changes: Mapping[str, Any]
    recipe: Recipe | None = None

    @property
    def tool(self) -> str:
        """Name of the tool: "warpfactor", or another tool."""
        return self.base if self.base in PEERS else OURS

    def settings_for(self, case: BenchCase) -> dict[str, Any]:
        """All settings as plain data; together with the files they determine the result."""
        if self.base in PEERS:
            return {**PEERS[self.base].settings, **self.changes}
        base = self.recipe or find_recipe(case.recipe if self.base == OWN else self.base)
        plain = base.replace(self.changes).to_dict()
        return {name: part for name, part in plain.items() if name not in ("name", "description")}

    def check(self, cases: Sequence[BenchCase], *, masks: bool = False) -> None:
        """Raise an InputError for unknown settings, an unknown recipe, or a tool that is not installed."""
        if self.base not in PEERS:
            for case in {case.recipe: case for case in cases}.values():
                self.settings_for(case)
            return
        peer = PEERS[self.base]
        peer.check()
        for name in self.changes:
            if name not in peer.settings:
                raise unknown(f"setting of {self.base}", name, peer.settings)
        if masks and not peer.takes_masks:
            raise InputError(f"Method {self.label!r} does not support masks; leave it out, or register without masks.")


def parse_methods(text: str) -> tuple[Method, ...]:
    """Parse a list of methods separated by commas, in the notation described at the top of this module."""
    methods = tuple(parse_method(part) for part in _split(text))
    labels = [method.label for method in methods]
    for label in labels:
        if labels.count(label) > 1:
            raise InputError(f"Two methods have the label {label!r}; give one of them another label, LABEL={label}+...")
    if not methods:
        raise InputError("No method was given; an example is default,fast,greedy.")
    return methods


def parse_method(text: str) -> Method:
    """Parse one method."""
    head, *settings = re.split(r"\+(?=[a-z])", text.strip())  # but not at the plus sign of 1e+5
    label, sign, base = head.partition("=")
    base = base.strip() if sign else head
    if not base or (sign and not label.strip()):
        raise InputError(f"Method {text!r}: write NAME, NAME+SETTING=VALUE, or LABEL=NAME+SETTING=VALUE.")
    changes = {}
    for entry in settings:
        name, equals, value = entry.partition("=")
        if not equals:
            raise InputError(f"Method {text!r}: {entry!r} is not a setting; write NAME=VALUE after each plus sign.")
        changes[name.strip()] = value.strip() if base in PEERS else parse_value(value.strip())
    method = Method(label.strip() if sign else text.strip(), base, changes)
    if base not in (*PEERS, OWN) and not base.lower().endswith((".toml", ".json")) and "/" not in base:
        _known(base)
    return method


def run_task(tool: str, task: Task) -> TaskResult:
    """Register with a tool; called in a process of its own."""
    return _run_ours(task) if tool == OURS else PEERS[tool].run(task)


def _run_ours(task: Task) -> TaskResult:
    import warpfactor as wf

    fixed_mask, moving_mask = task.mask_files()
    found = wf.register(
        task.case.fixed,
        task.case.moving,
        recipe=Recipe.from_dict({"name": "bench", **task.settings}),
        fixed_mask=fixed_mask,
        moving_mask=moving_mask,
        initial=task.initial,
        threads=task.threads,
    )
    return TaskResult(lambda: found.transform, {"stages": [_stage(stage) for stage in found.history]})


def _stage(stage: Any) -> dict[str, Any]:
    """Summary of a stage for the record of a run."""
    plain = {
        "name": stage.name,
        "cost_before": stage.cost_before,
        "cost_after": stage.cost_after,
        "seconds": stage.seconds,
        "iterations": len(stage.history),
        "ending": stage.ending.value,
        "kept": stage.kept,
    }
    if stage.name == "deformable":
        plain["rejected"] = sum(not record.accepted for record in stage.history)
        plain["last_damping"] = stage.history[-1].damping if stage.history else None
    return plain


def _known(base: str) -> None:
    names = [*recipes(), OWN, *PEERS]
    if base not in names:
        raise unknown("method", base, names)


def _split(text: str) -> list[str]:
    """Split at commas, except within lists of numbers such as iterations=60,30,10."""
    pieces: list[str] = []
    for piece in text.split(","):
        if pieces and re.fullmatch(r"\s*\[?-?[\d.]+(e[+-]?\d+)?\]?\s*", piece):
            pieces[-1] += f",{piece}"
        elif piece.strip():
            pieces.append(piece)
    return pieces

"""The methods that the experiments compare: Adam and LM with the paper's settings, and our own recipes.

LM and Adam share the metric, smoothing, levels and iterations of the recipe `paper`; only the optimizer differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warpfactor.bench.paper.study import StudyPlan
from warpfactor.bench.run.method import Method
from warpfactor.errors import InputError
from warpfactor.recipebook.files import recipe as find_recipe

ADAM, LM, DEFAULT = "Adam", "LM", "default"
PAPER = "paper"
# λ₀, μ⁺ and μ⁻ of the paper's experiments. The paper recommends λ₀ = 0.01, which our recipe uses.
DAMPING = {"initial": 0.006, "increase": 1.5, "decrease": 0.975}
ADAM_STEP = 0.25  # half a voxel times the learning rate 0.5
RULE = "deformable.damping."
NO_STOP: Mapping[str, Any] = {
    "deformable.convergence.slope": None
}  # without the stopping rule of the paper's software: end a level when the cost rises


def lm(plan: StudyPlan, label: str = LM, changes: Mapping[str, Any] | None = None) -> Method:
    """The paper's optimizer, optionally with changed settings."""
    own = {f"{RULE}{name}": value for name, value in DAMPING.items()}
    return Method(label, PAPER, {**own, **iterations(plan, PAPER), **(changes or {})})


def adam(plan: StudyPlan) -> Method:
    """Adam with the paper's learning rate."""
    own = {"deformable.optimizer": "adam", "deformable.step": ADAM_STEP}
    return Method(ADAM, PAPER, {**own, **iterations(plan, PAPER)})


def ours(
    plan: StudyPlan, recipe: str = DEFAULT, *, label: str | None = None, changes: Mapping[str, Any] | None = None
) -> Method:
    """One of our recipes, or a recipe file."""
    return Method(label or Path(recipe).stem, recipe, {**iterations(plan, recipe), **(changes or {})})


def iterations(plan: StudyPlan, recipe: str) -> dict[str, Any]:
    """The change of settings that limits the iterations of a recipe to those of the plan."""
    deformable = find_recipe(recipe).deformable
    if plan.iterations is None or deformable is None:
        return {}
    own, given = deformable.iterations, plan.iterations
    if recipe == PAPER:
        if len(given) != len(own):
            listed = ",".join(map(str, given))
            raise InputError(
                f"--iterations {listed}: the paper's methods have {len(own)} levels; give {len(own)} numbers."
            )
        return {"deformable.iterations": list(given)}
    # Levels correspond from the finest one on. Levels that are coarser than any of the paper's take the first number.
    bounds = [given[max(0, len(given) - distance)] for distance in range(len(own), 0, -1)]
    return {"deformable.iterations": [min(n, bound) for n, bound in zip(own, bounds, strict=True)]}

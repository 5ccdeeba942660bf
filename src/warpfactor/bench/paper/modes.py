"""The optimizers that the experiments compare, as methods: Adam and LM with the paper's numbers, and our own recipes.

LM and Adam share metric, smoothing, levels and iterations, those of the recipe `paper`; they differ in the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warpfactor.bench.paper.experiment import Plan
from warpfactor.bench.run.method import Method
from warpfactor.errors import InputError
from warpfactor.recipebook.files import recipe as find_recipe

ADAM, LM, DEFAULT = "Adam", "LM", "default"
PAPER = "paper"
# λ₀, μ⁺ and μ⁻ as the paper's experiments state them; its recommendation, and our recipe, has 0.01 for λ₀.
DAMPING = {"initial": 0.006, "increase": 1.5, "decrease": 0.975}
ADAM_STEP = 0.25  # half a voxel times the learning rate of 0.5
RULE = "deformable.damping."
NO_STOP: Mapping[str, Any] = {"deformable.convergence.slope": None}  # the host's rule: stop when the cost rises


def lm(plan: Plan, label: str = LM, changes: Mapping[str, Any] | None = None) -> Method:
    """The paper's optimizer, with settings changed."""
    own = {f"{RULE}{name}": value for name, value in DAMPING.items()}
    return Method(label, PAPER, {**own, **iterations(plan, PAPER), **(changes or {})})


def adam(plan: Plan) -> Method:
    """The paper's yardstick."""
    own = {"deformable.descent": "adam", "deformable.step": ADAM_STEP}
    return Method(ADAM, PAPER, {**own, **iterations(plan, PAPER)})


def ours(
    plan: Plan, recipe: str = DEFAULT, *, label: str | None = None, changes: Mapping[str, Any] | None = None
) -> Method:
    """The warp of one of our recipes, or of a recipe file."""
    return Method(label or Path(recipe).stem, recipe, {**iterations(plan, recipe), **(changes or {})})


def iterations(plan: Plan, recipe: str) -> dict[str, Any]:
    """The change that a plan's iterations mean for a recipe; empty if there are none."""
    deformable = find_recipe(recipe).deformable
    if plan.iterations is None or deformable is None:
        return {}
    own, given = deformable.iterations, plan.iterations
    if recipe == PAPER:
        if len(given) != len(own):
            listed = ",".join(map(str, given))
            raise InputError(
                f"--iterations {listed}: the paper's methods have {len(own)} levels, give {len(own)} numbers."
            )
        return {"deformable.iterations": list(given)}
    # Levels correspond from the finest one on; coarser ones than the paper has take the first number.
    bounds = [given[max(0, len(given) - distance)] for distance in range(len(own), 0, -1)]
    return {"deformable.iterations": [min(n, bound) for n, bound in zip(own, bounds, strict=True)]}

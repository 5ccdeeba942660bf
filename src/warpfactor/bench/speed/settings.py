"""The optimizers whose iterations are measured, as settings of one level at full resolution that never stops early."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import warpfactor as wf
from warpfactor.optim import Convergence
from warpfactor.terms import METRICS, Similarity

# Name -> recipe and what is changed in it. The first three differ in the optimizer only.
OPTIMIZERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "lm": ("paper", {}),
    "adam": ("paper", {"deformable.descent": "adam"}),
    "lm+rejection": ("paper", {"deformable.damping.tolerance": 0.1, "deformable.damping.cap": 1.0}),
    "default": ("default", {"deformable.damping.reject": False}),  # no level ends because no step lowers the cost
}


def level_settings(optimizer: str, metric: str, *, iterations: int, window: int = 0) -> wf.Deformable:
    """Settings of the finest level of a recipe, alone.

    Args:
        optimizer: one of OPTIMIZERS.
        metric: name; LNCC is as in the recipe, at its finest level.
        window: of LNCC instead of the recipe's.
    """
    name, changes = OPTIMIZERS[optimizer]
    found = wf.recipe(name).replace(changes).deformable
    if found is None:
        raise ValueError(f"recipe {name!r} has no deformable stage")
    return replace(
        found,
        metric=_finest(found.metric, metric, window),
        levels=(1,),
        iterations=(iterations,),
        convergence=Convergence(),
    )


def window_of(optimizer: str) -> int:
    """Edge of the LNCC window at the finest level of an optimizer's recipe."""
    metric = level_settings(optimizer, "lncc", iterations=1).metric
    return int(metric.size) if isinstance(metric, wf.LNCC) and isinstance(metric.size, int) else 0


def _finest(metric: Similarity, name: str, window: int) -> Similarity:
    if name != "lncc" or not isinstance(metric, wf.LNCC):
        plain: Similarity = METRICS[name]()
        return plain
    return replace(metric, size=window or (metric.size[-1] if isinstance(metric.size, tuple) else metric.size))

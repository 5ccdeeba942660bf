"""The overlap of two images that are label maps themselves, registered to each other."""

from __future__ import annotations

from typing import Any

from warpfactor.checks.case import Case
from warpfactor.geometry.transform import Affine
from warpfactor.measure import dice_figures


def overlap_of_labels(case: Case) -> dict[str, Any]:
    """Dice of the labels before and after the registration, in the form of the entry "labels" of result.json."""
    assert case.fixed is not None
    assert case.moving is not None
    identity, grid = Affine(dimension=case.fixed_grid.ndim), case.fixed_grid
    before, after = (
        dice_figures(case.fixed.data[0], through.resample(case.moving, grid, mode="nearest", ops=case.ops).data[0])
        for through in (identity, case.transform)
    )
    return {
        "dice_mean_before": before.mean,
        "dice_mean_after": after.mean,
        "dice_per_label_before": before.per_label,
        "dice_per_label_after": after.per_label,
    }

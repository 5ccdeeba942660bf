"""Notices about a result: linear stages that left the images dissimilar or hardly stand out, and missing parts.

Limits were measured at the end of the affine stage of `default`, as LNCC cost. 26 pairs that belong together (brains,
heads, lungs, livers, hippocampi, slices, the phantom) end at 0.02 to 0.54 and rotate by at most 14 degrees. Seven pairs
of different contrast, or with nothing in common, end at 0.60 to 0.86; five of them rotate by 27 degrees or more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from warpfactor.errors import Notice
from warpfactor.geometry.grid import Matrix

CORRELATIONS = ("lncc", "ncc")  # costs for which 1 means "nothing in common"
POOR_COST = 0.65
DOUBTFUL_COST = 0.55
DOUBTFUL_ROTATION_DEGREES = 20.0
LEAST_EVIDENCE = 11.0  # 41 pairs with a truth have 11.6 and more; six like ultrasound 4 to 10, a wrong one 10.7
ACROSS = ("mi", "mind", "mixed")  # metrics that compare images of different contrast
GUIDES = ("landmarks", "labels")  # terms that do not compare the images
INFORMATION = "mi"  # the metric whose cost does not say how alike the images are
GIVEN = "given"  # the start of a linear stage that continues from an initial transform
DEFORMABLE = "deformable"

POOR_ALIGNMENT = "poor_alignment"
WEAK_EVIDENCE = "weak_evidence"
MISSING_PART = "missing_part"


def find_notices(
    stages: Sequence[Mapping[str, Any]], affine: Matrix, missing: tuple[float, float]
) -> tuple[Notice, ...]:
    """What speaks against a result; usually nothing.

    Args:
        stages: the stages as result.json lists them.
        affine: 4x4, LPS mm, fixed to moving.
        missing: share of the object of the other image that is missing from the fixed and from the moving image.
    """
    return (*_poor_alignment(stages, affine), *_weak_evidence(stages), *_missing_parts(missing))


def _poor_alignment(stages: Sequence[Mapping[str, Any]], affine: Matrix) -> tuple[Notice, ...]:
    linear = [stage for stage in stages if stage["name"] != DEFORMABLE]
    if not linear or linear[-1]["metric"] not in CORRELATIONS:
        return ()
    last, rotation = linear[-1], rotation_degrees(affine)
    cost = np.inf if last["cost_after"] is None else last["cost_after"]
    rotated = rotation > DOUBTFUL_ROTATION_DEGREES and linear[0]["start"] != GIVEN and cost > DOUBTFUL_COST
    if not rotated and cost <= POOR_COST:
        return ()
    facts = {"stage": last["name"], "metric": last["metric"], "cost": last["cost_after"]}
    facts |= {"rotation_degrees": rotation if rotated else None, "multimodal": across_contrasts(stages)}
    return (Notice(POOR_ALIGNMENT, facts),)


def across_contrasts(stages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a stage compared the images by a metric for different contrasts."""
    return any(name in ACROSS for stage in stages for name in terms_of(stage))


def terms_of(stage: Mapping[str, Any]) -> list[str]:
    """The names of the terms of a stage's cost."""
    return str(stage["metric"]).split(" + ")


def _weak_evidence(stages: Sequence[Mapping[str, Any]]) -> tuple[Notice, ...]:
    """Mutual information found a transform that is hardly better than wrong ones."""
    linear = [stage for stage in stages if stage["name"] != DEFORMABLE]
    if not linear or linear[-1]["metric"] != INFORMATION or has_evidence(linear[-1], unknown=True):
        return ()
    return (Notice(WEAK_EVIDENCE, {"stage": linear[-1]["name"], "evidence": linear[-1]["evidence"]}),)


def has_evidence(stage: Mapping[str, Any], *, unknown: bool) -> bool:
    """Whether the result of a linear stage stands out from wrong transforms; `unknown` if that was not measured."""
    evidence = stage.get("evidence")
    return unknown if evidence is None else bool(evidence >= LEAST_EVIDENCE)


def _missing_parts(shares: tuple[float, float]) -> tuple[Notice, ...]:
    sides = zip(("fixed", "moving"), shares, strict=True)
    return tuple(Notice(MISSING_PART, {"side": side, "share": share}) for side, share in sides if share)


def rotation_degrees(matrix: Matrix) -> float:
    """Angle of the rotation that is closest to the linear part of a 4x4 matrix."""
    left, _, right = np.linalg.svd(matrix[:3, :3])
    cosine = (np.trace(left @ right) - 1) / 2
    return float(np.degrees(np.arccos(np.clip(cosine, -1, 1))))

"""The checks of a result: each gives a level and the facts behind it, from the figures of a case.

What is said about a check, and what is advised, is decided in show/verdict.py from its code, finding and facts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from warpfactor.checks.alignment import (
    CORRELATIONS,
    DEFORMABLE,
    GIVEN,
    GUIDES,
    POOR_ALIGNMENT,
    WEAK_EVIDENCE,
    across_contrasts,
    has_evidence,
    rotation_degrees,
    terms_of,
)
from warpfactor.checks.case import Case, overlap_of_labels
from warpfactor.checks.limits import AMBER, GREEN, GREY, RED, grade, worst
from warpfactor.checks.regularity import Regularity
from warpfactor.checks.similarity import Alignment, Similarity, over
from warpfactor.stages.stage import Ending

HALF = 0.5  # coverage below which a similarity says little
PERFECT = 0.01  # correlation cost below which a warp cannot improve anything
TAIL = 5  # the last fifth of the steps of a level
FEWEST_VOXELS = 80  # assumed size of an object, at least, for landmarks: an error of two voxels is never large
ROUNDING = 1e-3  # relative decrease of the cost that is none
WARP_COUNTS = 0.2  # relative decrease of the cost above which a warp must be seen in the images
QUARTER = 0.25  # of a voxel: the least that counts as the usual error of landmarks
LITTLE_ROOM = 0.05  # below a perfect overlap of labels, in which no improvement is asked for
LEAST_FALL = 0.02  # decrease of a correlation cost at the last level below which nobody need wait for its end
LEVEL_COUNTS = 0.05  # share of the whole decrease of the cost above which the last level must have settled


@dataclass(frozen=True)
class Check:
    """One check of a result.

    Attributes:
        code: what was checked, such as "overlap" or "folds".
        level: "green", "amber", "red", or "grey" if it could not be checked.
        finding: which of the possible outcomes of this check it is.
        facts: the figures behind it, and what decides about the advice, as plain data.
    """

    code: str
    level: str
    finding: str
    facts: Mapping[str, Any] = field(default_factory=dict)


def judge(
    case: Case, alignment: Alignment | None, regularity: Regularity | None, *, object_mm: float = math.inf
) -> tuple[Check, ...]:
    """All checks that are possible.

    Args:
        object_mm: size of the object of the fixed image, from corner to corner.
    """
    sure = unmistakable(alignment)
    warp = list(_warp(case, regularity, sure=sure))
    images = _images(case, alignment, worst([check.level for check in warp]))
    return (_convergence(case, sure=sure), *_notices(case, sure=sure), *images, *warp, *_scores(case, object_mm))


def initial_given(case: Case) -> bool:
    """Whether an initial transform was given: linear stages began there, or none ran and there is an affine."""
    linear = [stage for stage in case.entries["stages"] if stage.get("start") is not None]
    if linear:
        return bool(linear[0]["start"] == GIVEN)
    return not np.allclose(case.affine.matrix, np.eye(4))


def _options(case: Case) -> dict[str, bool]:
    """What the run was given and is therefore not advised again."""
    return {
        "masked": case.masked,
        "initial": initial_given(case),
        "planar": case.planar,
        "multimodal": across_contrasts(case.entries["stages"]),
    }


def _convergence(case: Case, *, sure: bool) -> Check:
    """How the optimisation ended; a warp that could not improve an alignment beyond doubt is not missed."""
    entries, stages = case.entries, case.entries["stages"]
    share = _tail_share(stages[-1]) if stages else 0.0
    if entries["interrupted"]:
        return Check("convergence", RED, "interrupted")
    unused = [stage for stage in stages if not stage["kept"] and not _agreed(stage)]
    if any(stage["name"] == DEFORMABLE for stage in unused) and not sure:
        return Check("convergence", AMBER, "warp_discarded")
    if any(stage["name"] != DEFORMABLE and not has_evidence(stage, unknown=False) for stage in unused) and not sure:
        return Check("convergence", AMBER, "start_used")
    if grade(share, "unsettled") != GREEN:
        deformable = stages[-1]["name"] == DEFORMABLE
        return Check("convergence", AMBER, "still_falling", {"share": share, "deformable": deformable})
    if stages and not stages[-1]["kept"]:
        finding = "already_aligned" if stages[-1]["name"] == DEFORMABLE else "start_sufficed"
        return Check("convergence", GREEN, finding)
    return _settled(stages[-1]) if stages else Check("convergence", GREEN, "nothing_optimised")


def _agreed(stage: Mapping[str, Any]) -> bool:
    """Whether the images were aligned before the stage, as an image and its copy are."""
    return stage["metric"] in CORRELATIONS and stage["cost_before"] is not None and stage["cost_before"] < PERFECT


def _settled(stage: Mapping[str, Any]) -> Check:
    """A stage whose cost did not decrease noticeably at its end, or that was too short to tell."""
    last = stage["levels"][-1][1] if stage["levels"] else stage["ending"]
    if last != Ending.LIMIT.value:
        return Check("convergence", GREEN, "settled")
    if len(_last_costs(stage)) < TAIL:
        return Check("convergence", GREY, "too_few_steps")
    return Check("convergence", GREEN, "nearly_settled")


def _last_costs(stage: Mapping[str, Any]) -> list[float]:
    """Costs of the accepted steps at the finest level."""
    history = stage["history"]
    if not history or not history["level"]:
        return []
    steps = zip(history["level"], history["cost"], history["accepted"], strict=True)
    return [cost for level, cost, kept in steps if level == history["level"][-1] and kept and cost is not None]


def _tail_share(stage: Mapping[str, Any]) -> float:
    """Share of the decrease of the cost at the finest level that falls into the last fifth of its accepted steps."""
    costs = _last_costs(stage)
    before, after = stage["cost_before"], stage["cost_after"]
    whole = math.inf if before is None or after is None else max(before - after, 0.0)
    least = max(LEVEL_COUNTS * whole, LEAST_FALL if stage["metric"] in CORRELATIONS else 0.0)
    if len(costs) < TAIL or not costs[0] - costs[-1] > least:
        return 0.0
    return float((costs[-1 - len(costs) // TAIL] - costs[-1]) / (costs[0] - costs[-1]))


def _notices(case: Case, *, sure: bool) -> Iterator[Check]:
    """The notices of the registration itself; doubts about its affine count unless the result stands out clearly.

    A high cost by local correlation still counts if no metric for different contrasts was used: that may be better.
    """
    across = across_contrasts(case.entries["stages"])
    for notice in case.entries.get("notices", ()):
        if notice["code"] == WEAK_EVIDENCE and sure:
            continue
        if notice["code"] == POOR_ALIGNMENT and (case.label_maps or (sure and across)):
            continue
        if notice["code"] == POOR_ALIGNMENT:
            yield Check("linear_stage", AMBER, "poor", {"notice": notice, **_options(case)})
        else:
            yield Check("notice", AMBER, notice["code"], {"notice": notice})


def _images(case: Case, alignment: Alignment | None, warp: str) -> Iterator[Check]:
    """Comparisons of the images; `warp` is the level of the checks of affine and warp."""
    for side, notice in case.missing.items():
        yield Check("images", AMBER, notice.code, {"side": side, "notice": notice.to_dict()})
    for side, notice in case.changed.items():
        yield Check("images", AMBER, notice.code, {"side": side, "notice": notice.to_dict()})
    if alignment is None:
        yield Check("similarity", GREY, "not_compared")
        return
    coverage = alignment.after.coverage
    level = grade(coverage, "coverage_sure" if unmistakable(alignment) else "coverage", low_is_bad=True)
    yield Check("overlap", level, "measured", {"coverage": coverage, **_options(case)})
    if not case.label_maps:  # the information that numbers of labels share says nothing
        yield _similarity(case, alignment)
    if alignment.affine is not None and not case.label_maps:
        yield _affine(case, alignment, alignment.affine, warp)
    if alignment.mirror_gain is not None:
        yield _sides(alignment.mirror_gain, alignment.mirror_limit, planar=case.planar)


def _similarity(case: Case, alignment: Alignment) -> Check:
    after, before = alignment.after, alignment.before
    facts: dict[str, Any] = {"correlation_after": after.correlation, "correlation_before": None, **_options(case)}
    facts |= {**standing(alignment), "off": alignment.off}
    levels = {
        "chance": grade(facts["over_chance"], "over_chance", low_is_bad=True),
        "near": grade(facts["off"], "off"),
        "part": grade(facts["worst_part"], "worst_part", low_is_bad=True),
    }
    if before is not None and before.coverage >= HALF:
        facts["correlation_before"] = before.correlation
        facts["gain"] = after.information / max(before.information, 1e-9)
        levels["less"] = grade(facts["gain"], "gain", low_is_bad=True)
    if alignment.affine is not None and case.warp is not None:
        facts["warp_gain"] = 1 - (1 - after.correlation) / max(1 - alignment.affine.correlation, 1e-9)
        name = "warp_gain" if _warped_well(case) else "warp_harm"
        levels["warp"] = worst([grade(facts["warp_gain"], name, low_is_bad=True), AMBER if _lost(case) else GREEN])
    facts["problems"] = [name for name, level in levels.items() if level != GREEN]
    return Check("similarity", worst(list(levels.values())), "measured", facts)


def standing(alignment: Alignment) -> dict[str, float]:
    """By what factors a result is more similar than wrong ones: shifted ones, those nearby, and in its worst part.

    Information and local correlation fail in different places, so the factors are geometric means of both.
    """
    after, chance, near = alignment.after, alignment.chance, alignment.near
    found = {"over_chance": over(after, chance), "over_near": math.inf if near is None else over(after, near)}
    parts = [there / max(wrong, 1e-9) for there, wrong in alignment.parts]
    return {**found, "worst_part": min(parts, default=math.inf)}


def unmistakable(alignment: Alignment | None) -> bool:
    """Whether a result stands out so far from wrong ones that an unusual transform does not speak against it."""
    if alignment is None:
        return False
    found = standing(alignment)
    both = found["over_near"] * found["over_chance"]
    return grade(found["over_near"], "sure_near", low_is_bad=True) == GREEN and (
        grade(both, "sure", low_is_bad=True) == GREEN
    )


def _warped_well(case: Case) -> bool:
    """Whether a deformable stage says that its warp made the images clearly more similar.

    A cost with landmarks or labels does not: it falls by them, too.
    """
    stages = [stage for stage in case.entries["stages"] if stage["name"] == DEFORMABLE and stage["kept"]]
    if not stages or stages[-1]["cost_before"] is None or stages[-1]["cost_after"] is None:
        return False
    if any(name in GUIDES for name in terms_of(stages[-1])):
        return False
    return bool(stages[-1]["cost_after"] < (1 - WARP_COUNTS) * stages[-1]["cost_before"])


def _lost(case: Case) -> bool:
    """Whether the warp is zero everywhere, although the cost of a deformable stage fell by it."""
    if case.warp is None or bool(case.warp.displacement.any()):
        return False
    stages = [stage for stage in case.entries["stages"] if stage["name"] == DEFORMABLE and stage["kept"]]
    return any(_fell(stage) and not _agreed(stage) for stage in stages)


def _fell(stage: Mapping[str, Any]) -> bool:
    before, after = stage["cost_before"], stage["cost_after"]
    return before is not None and after is not None and bool(after < (1 - ROUNDING) * before)


def _affine(case: Case, alignment: Alignment, affine: Similarity, warp: str) -> Check:
    """Whether another affine, or none, makes the images more similar than the one that was found."""
    fresh = alignment.fresh
    rivals = [r for r in (fresh, alignment.before) if r is not None and r.coverage >= HALF]
    best = max((r.information for r in rivals), default=0.0)
    if best <= 0 or grade(affine.information / best, "fresh", low_is_bad=True) == GREEN:
        return Check("affine", GREEN, "own_search" if fresh is None else "second_search")
    recovered = grade(alignment.after.information / best, "recovered", low_is_bad=True) == GREEN
    facts = {
        "better": "search" if fresh is not None and best == fresh.information else "identity",
        "compensated": recovered and warp == GREEN,
        "initial": initial_given(case),
    }
    return Check("affine", AMBER if recovered and warp != RED else RED, "wrong", facts)


def _sides(gain: float, limit: str, *, planar: bool) -> Check:
    """Whether left and right are exchanged in one image."""
    level = grade(gain, limit)
    if level == GREEN and planar:
        return Check("sides", GREY, "planar", {"gain": gain})
    if level == GREEN:
        return Check("sides", GREEN, "same", {"gain": gain})
    return Check("sides", level, "swapped", {"gain": gain, "clearly": level == RED})


def _warp(case: Case, regularity: Regularity | None, *, sure: bool) -> Iterator[Check]:
    """Checks of affine and warp; `sure` if the images say that an unusual affine is right."""
    entries = case.entries
    if entries["stages"] and entries["stages"][0].get("start") not in (None, GIVEN):
        degrees = rotation_degrees(case.affine.matrix)
        level = GREEN if sure else grade(degrees, "rotation")
        yield Check("rotation", level, "measured", {"degrees": degrees})
    yield _scale(case, entries["figures"]["affine_volume_ratio_moving_to_fixed"], sure=sure)
    if regularity is None:
        return
    yield _folds(regularity)
    low, _, high = regularity.percentiles
    spread = {"sd_log": regularity.sd_log, "low": low, "high": high}
    yield Check("regularity", grade(regularity.sd_log, "sd_log"), "measured", spread)
    if regularity.inverse_vox is not None:
        mean, p95, _ = regularity.inverse_vox
        yield Check("inverse", grade(p95, "inverse"), "measured", {"mean_vox": mean, "p95_vox": p95})


def _scale(case: Case, ratio: float, *, sure: bool) -> Check:
    """How much the affine changes volumes."""
    if ratio <= 0:
        return Check("scale", RED, "mirrored")
    factor, facts = max(ratio, 1 / ratio), {"ratio": ratio, **_options(case)}
    if sure:
        return Check("scale", GREEN, "measured", facts)
    level = grade(factor, "volume")
    dissimilar = any(notice["code"] == POOR_ALIGNMENT for notice in case.entries.get("notices", ()))
    stricter = grade(factor, "volume_dissimilar") if dissimilar else GREEN
    if stricter != GREEN:
        return Check("scale", worst([stricter, level]), "dissimilar", facts)
    return Check("scale", level, "measured", facts)


def _folds(regularity: Regularity) -> Check:
    if regularity.folded == 0:
        return Check("folds", GREEN, "none")
    facts = {"folded": regularity.folded, "voxels": regularity.voxels, "share_of_object": regularity.folded_share}
    return Check("folds", worst([grade(regularity.folded_share, "folded"), AMBER]), "folded", facts)


def _scores(case: Case, object_mm: float) -> Iterator[Check]:
    """Labels and landmarks, if they were given."""
    labels, landmarks = case.entries.get("labels") or {}, case.entries.get("landmarks") or {}
    if case.label_maps and not labels:
        labels = overlap_of_labels(case)
    if labels.get("dice_mean_after") is not None:
        yield _labels(labels, warped=case.warp is not None)
    if landmarks.get("after_mm"):
        size = max(object_mm, FEWEST_VOXELS * max(case.fixed_grid.spacing_mm[-case.fixed_grid.ndim :]))
        yield _landmarks(landmarks, size, min(case.fixed_grid.spacing_mm[-case.fixed_grid.ndim :]))


def _labels(labels: Mapping[str, Any], *, warped: bool) -> Check:
    """Overlap of labels; a warp, which follows anatomy, must improve it unless it was nearly perfect before."""
    before, after = labels.get("dice_mean_before") or 0.0, labels["dice_mean_after"]
    each = [score or 0.0 for score in (labels.get("dice_per_label_after") or {"all": after}).values()]
    overlapping = [score for score in each if score > 0]
    levels = {
        "less": grade(after - before, "dice", low_is_bad=True),
        "low": grade(sum(overlapping) / max(len(overlapping), 1), "dice_after", low_is_bad=True),
        "few": grade(len(overlapping) / max(len(each), 1), "labels_overlapping", low_is_bad=True),
    }
    room = 1 - before
    if warped and room > LITTLE_ROOM and levels["less"] == GREEN:
        levels["still"] = grade((after - before) / room, "labels_gain", low_is_bad=True)
    facts = {"before": before, "after": after, "overlapping": len(overlapping), "count": len(each)}
    return _scored("labels", levels, facts)


def _landmarks(landmarks: Mapping[str, Any], size_mm: float, voxel_mm: float) -> Check:
    before, after = landmarks["before_mm"]["mean"], landmarks["after_mm"]["mean"]
    further, count = landmarks.get("further", 0), landmarks.get("count", 1)
    levels = {
        "worse": grade(after / max(before, 1e-9), "landmarks"),
        "far": grade(after / size_mm, "landmarks_far"),
        "further": grade(further / max(count, 1), "landmarks_further"),
    }
    most, middle = landmarks["after_mm"].get("max"), landmarks["after_mm"].get("median")
    if most is not None:
        usual = max(after if middle is None else middle, QUARTER * voxel_mm)
        levels["worst"] = grade(most / size_mm * most / usual, "landmarks_alone")
    facts = {
        "before_mm": before,
        "after_mm": after,
        "max_mm": most,
        "median_mm": middle,
        "share_of_size": after / size_mm,
        "further": further,
        "count": count,
    }
    return _scored("landmarks", levels, facts)


def _scored(code: str, levels: Mapping[str, str], facts: Mapping[str, Any]) -> Check:
    """A check of several figures: the worst of their levels, with the names of those that are not green."""
    problems: Sequence[str] = [name for name, level in levels.items() if level != GREEN]
    return Check(code, worst(list(levels.values())), "measured", {**facts, "problems": problems})

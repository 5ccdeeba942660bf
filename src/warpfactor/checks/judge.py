"""The checks of a verdict, each from figures of a case: how it ended, overlap, likeness, warp, labels, landmarks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from warpfactor.checks import advice
from warpfactor.checks.alignment import CORRELATIONS, GIVEN, reason_and_advice, turn_degrees
from warpfactor.checks.case import Case
from warpfactor.checks.likeness import Alignment, Likeness
from warpfactor.checks.regularity import Regularity
from warpfactor.checks.verdict import AMBER, GREEN, GREY, RED, Check, Verdict, grade, worst
from warpfactor.geometry.grid import Matrix
from warpfactor.stages.stage import Ending

HALF = 0.5  # coverage below which a likeness says little
PERFECT = 0.01  # correlation cost below which a warp can only harm
TAIL = 5  # the last fifth of a level
FEWEST_VOXELS = 80  # across an object, for landmarks: an error of two voxels is never far
LEVEL_COUNTS = 0.05  # share of the whole gain that a level must have made before it is asked to settle


def judge(
    case: Case, alignment: Alignment | None, regularity: Regularity | None, *, object_mm: float = math.inf
) -> Verdict:
    """All checks that can be made.

    Args:
        object_mm: size of what the fixed image shows, from corner to corner.
    """
    warp = list(_warp(case, case.affine.matrix, regularity))
    images = _images(case, alignment, worst([check.level for check in warp]))
    return Verdict((*_course(case), *images, *warp, *_scores(case, object_mm)))


def _course(case: Case) -> Iterator[Check]:
    """How the optimisation ended."""
    entries, stages = case.entries, case.entries["stages"]
    share = _unsettled(stages[-1]) if stages else 0.0
    if entries["interrupted"]:
        yield Check("Course", RED, "interrupted", "The run was interrupted before its end.", "Run it again to its end.")
    elif any(not stage["kept"] and not _agreed(stage) for stage in stages):
        yield Check(
            "Course",
            AMBER,
            "the warp was left out",
            "The warp made the images less alike and was left out; the result is the affine alone.",
            "Check the affine and the metric; across contrasts use the recipe multimodal.",
        )
    elif grade(share, "unsettled") != GREEN:
        yield Check(
            "Course",
            AMBER,
            "the cost was still falling",
            f"The cost was still falling when the iterations ran out: {share:.0%} of the last level's gain came in its "
            "last fifth.",
            "Give it more iterations, for instance with the recipe accurate."
            if stages[-1]["name"] == "deformable"
            else "Give it more iterations: set linear.iterations.",
        )
    elif any(not stage["kept"] for stage in stages):
        yield Check("Course", GREEN, "the images agreed before the warp, which was left out")
    else:
        yield _settled(stages[-1]) if stages else Check("Course", GREEN, "nothing was optimised")
    for warning in entries.get("warnings", ()):
        yield _doubt(case, warning)


def _doubt(case: Case, warning: str) -> Check:
    """A warning of the registration itself."""
    reason, doubtful = reason_and_advice(warning)
    if doubtful:
        return Check("Linear stage", AMBER, "the linear stage left doubts", reason, advice.little_alike(case))
    return Check("Warning", AMBER, "there was a warning", reason, "Look at the images.")


def _agreed(stage: Mapping[str, Any]) -> bool:
    """Whether nothing was left to align, as between an image and itself."""
    return stage["metric"] in CORRELATIONS and stage["cost_before"] is not None and stage["cost_before"] < PERFECT


def _settled(stage: Mapping[str, Any]) -> Check:
    """A stage whose cost did not fall noticeably at its end, or that was too short to tell."""
    limited = Ending.LIMIT.value in (stage["ending"], *(ending for _, ending in stage["levels"][-1:]))
    if not limited:
        return Check("Course", GREEN, "the cost had settled")
    if len(_last_costs(stage)) < TAIL:
        value = "too few steps at the finest level to tell whether the cost had settled"
        return Check("Course", GREY, value, f"There were {value}.", "More iterations would show it.")
    return Check("Course", GREEN, "the cost had nearly stopped falling")


def _last_costs(stage: Mapping[str, Any]) -> list[float]:
    """Costs of the accepted steps at the finest level."""
    history = stage["history"]
    if not history or not history["level"]:
        return []
    steps = zip(history["level"], history["cost"], history["accepted"], strict=True)
    return [cost for level, cost, kept in steps if level == history["level"][-1] and kept and cost is not None]


def _unsettled(stage: Mapping[str, Any]) -> float:
    """Share of the gain at the finest level that came in the last fifth of its accepted steps."""
    costs = _last_costs(stage)
    whole = _fall(stage["cost_before"], stage["cost_after"])
    if len(costs) < TAIL or not costs[0] - costs[-1] > LEVEL_COUNTS * whole:
        return 0.0
    return float((costs[-1 - len(costs) // TAIL] - costs[-1]) / (costs[0] - costs[-1]))


def _fall(before: float | None, after: float | None) -> float:
    return math.inf if before is None or after is None else max(before - after, 0.0)


def _images(case: Case, alignment: Alignment | None, warp: str) -> Iterator[Check]:
    """What the images themselves say; `warp` is the level of the checks of affine and warp."""
    for side, why in case.missing.items():
        yield Check("Images", AMBER, f"the {side} image is not here", why, f"Rebuild this page with --{side} FILE.")
    if alignment is None:
        yield Check("Likeness", GREY, "", "The images could not be compared.")
        return
    yield _coverage(case, alignment.after)
    yield _likeness(case, alignment)
    if alignment.fresh is not None and alignment.affine is not None:
        yield _affine(case, alignment, alignment.affine, alignment.fresh, warp)
    if alignment.mirror_gain is not None:
        yield _sides(alignment.mirror_gain, alignment.mirror_limit, flat=case.fixed_grid.shape[0] == 1)


def _coverage(case: Case, after: Likeness) -> Check:
    level = grade(after.coverage, "coverage", low_is_bad=True)
    value = f"{_percent(after.coverage)} of the fixed object lies inside the moving image"
    if level == GREEN:
        return Check("Overlap", level, value)
    return Check(
        "Overlap",
        level,
        value,
        f"The images hardly overlap: only {_percent(after.coverage)} of what the fixed image shows lies inside the "
        "moving one.",
        advice.apart(case),
    )


def _likeness(case: Case, alignment: Alignment) -> Check:
    after, before, chance = alignment.after, alignment.before, alignment.chance
    over_chance = after.information / max(chance.information, 1e-9)
    levels, reasons = [grade(over_chance, "over_chance", low_is_bad=True)], []
    if levels[0] != GREEN:
        reasons.append(
            f"The images are hardly more alike than when shifted by a tenth of their size ({over_chance:.1f} times)."
        )
    value = f"local correlation {after.correlation:.2f}"
    if before is not None and before.coverage >= HALF:
        value = f"local correlation {before.correlation:.2f} before, {after.correlation:.2f} after"
        gain = after.information / max(before.information, 1e-9)
        worse = grade(gain, "gain", low_is_bad=True)
        if worse != GREEN:
            reasons.append("The images share less information after the registration than before it.")
        levels.append(worse)
    level = worst(levels)
    return Check("Likeness", level, value, " ".join(reasons), "" if level == GREEN else advice.unlike(case))


def _affine(case: Case, alignment: Alignment, affine: Likeness, fresh: Likeness, warp: str) -> Check:
    """Whether another linear transform, or none, fits better than the one that was found."""
    rivals = [r for r in (fresh, alignment.before) if r is not None and r.coverage >= HALF]
    best = max((r.information for r in rivals), default=0.0)
    if best <= 0 or grade(affine.information / best, "fresh", low_is_bad=True) == GREEN:
        return Check("Affine", GREEN, "no other affine fits better")
    recovered = grade(alignment.after.information / best, "recovered", low_is_bad=True) == GREEN
    what = "another position" if best == fresh.information else "leaving the images where they were"
    reason = f"The affine looks wrong: {what} makes the images clearly more alike."
    if recovered and warp == GREEN:
        reason += " The warp made up for it, but has more to do than it should."
    return Check(
        "Affine",
        AMBER if recovered and warp != RED else RED,
        "the affine looks wrong",
        reason,
        advice.wrong_affine(case),
    )


def _sides(gain: float, limit: str, *, flat: bool) -> Check:
    level = grade(gain, limit)
    if level == GREEN and flat:
        return Check(
            "Left and right",
            GREY,
            "not judged in slices",
            "Slices of different people do not tell whether left and right are swapped.",
            "Compare a landmark that has a side.",
        )
    if level == GREEN:
        return Check("Left and right", level, "a mirrored image does not fit better")
    sure = "clearly " if level == RED else "a little "
    return Check(
        "Left and right",
        level,
        "left and right may be swapped",
        f"Mirrored from left to right, the moving image fits {sure}better ({gain:.0%}): one of the images may have "
        "left and right swapped.",
        "Compare a landmark that has a side; check how the files were converted.",
    )


def _warp(case: Case, affine: Matrix, regularity: Regularity | None) -> Iterator[Check]:
    entries = case.entries
    if entries["stages"] and entries["stages"][0].get("start") not in (None, GIVEN):
        yield _turn(turn_degrees(affine))
    yield _volume(case, entries["figures"]["affine_volume_ratio_moving_to_fixed"])
    if regularity is None:
        return
    yield _folds(regularity)
    yield _spread(regularity)
    if regularity.inverse_vox is not None:
        yield _inverse(regularity.inverse_vox.mean, regularity.inverse_vox.p95)


def _turn(degrees: float) -> Check:
    level = grade(degrees, "turn")
    value = f"the affine turns by {degrees:.0f} degrees"
    if level == GREEN:
        return Check("Turn", level, value)
    return Check(
        "Turn",
        level,
        value,
        f"The affine turns the image by {degrees:.0f} degrees, though no initial transform asked for it.",
        "Look whether both images are the same way up; if one is not, check how the files were converted.",
    )


def _volume(case: Case, ratio: float) -> Check:
    if ratio <= 0:
        return Check(
            "Size",
            RED,
            "the affine mirrors the image",
            "The affine mirrors the image: its determinant is negative.",
            "Check the orientation in the headers, and the initial transform.",
        )
    factor = max(ratio, 1 / ratio)
    level = grade(factor, "volume")
    value = f"the affine changes volumes by a factor of {ratio:.2f}"
    doubt = grade(factor, "volume_doubt") if _doubtful(case.entries) else GREEN
    if doubt != GREEN:
        return Check(
            "Size",
            worst([doubt, level]),
            value,
            f"The affine changes volumes by a factor of {ratio:.2f} and leaves the images little alike, as it does "
            "when one shows more than the other.",
            advice.wrong_size(case),
        )
    if level == GREEN:
        return Check("Size", level, value)
    return Check(
        "Size",
        level,
        value,
        f"The affine changes volumes by a factor of {ratio:.2f}, which is more than bodies usually differ.",
        "Check the voxel sizes in the headers, and that both images show the same, as a head and a bare brain do not; "
        "else use --recipe rigid or an --initial.",
    )


def _doubtful(entries: Mapping[str, Any]) -> bool:
    """Whether the linear stage left the images little alike."""
    return any(reason_and_advice(warning)[1] for warning in entries.get("warnings", ()))


def _folds(regularity: Regularity) -> Check:
    if regularity.folded == 0:
        return Check("Folds", GREEN, "no voxel folds")
    value = f"{regularity.folded} voxels fold ({_small_percent(regularity.folded / regularity.voxels)})"
    level = worst([grade(regularity.folded_share, "folded"), AMBER])
    return Check(
        "Folds",
        level,
        value,
        f"The warp folds in {regularity.folded} voxels ({_small_percent(regularity.folded_share)} of the object): "
        "there it has no inverse.",
        "Smooth more (--set deformable.sigma_warp=1.0), or look whether the images correspond where it folds.",
    )


def _spread(regularity: Regularity) -> Check:
    level = grade(regularity.sd_log, "sd_log")
    low, _, high = regularity.percentiles
    value = f"volumes change by {low:.2f} to {high:.2f} times in 98% of the object"
    if level == GREEN:
        return Check("Regularity", level, value)
    return Check(
        "Regularity",
        level,
        value,
        f"The warp stretches and squeezes strongly (SD of the log Jacobian {regularity.sd_log:.2f} in the object), "
        "as it does when images do not correspond.",
        "Check the affine first; then smooth more (--set deformable.sigma_grad=2.0).",
    )


def _inverse(mean: float, p95: float) -> Check:
    level = grade(p95, "inverse")
    value = f"the inverse is right to {mean:.3f} voxels on average"
    if level == GREEN:
        return Check("Inverse", level, value)
    return Check(
        "Inverse",
        level,
        f"the inverse is off by {mean:.2f} voxels on average",
        f"Going there and back misses by {p95:.1f} voxels or more in a twentieth of the image.",
        "Do not carry points or labels to the moving image with it; smooth more, and look for folds.",
    )


def _scores(case: Case, object_mm: float) -> Iterator[Check]:
    """Labels and landmarks, where they were given."""
    labels, landmarks = case.entries.get("labels") or {}, case.entries.get("landmarks") or {}
    if labels.get("dice_mean_after") is not None:
        yield _labels(labels)
    if landmarks.get("after_mm"):
        size = max(object_mm, FEWEST_VOXELS * max(case.fixed_grid.spacing_mm[-case.fixed_grid.ndim :]))
        yield _landmarks(landmarks, size)


def _labels(labels: Mapping[str, Any]) -> Check:
    before, after = labels.get("dice_mean_before") or 0.0, labels["dice_mean_after"]
    each = [score or 0.0 for score in (labels.get("dice_per_label_after") or {"all": after}).values()]
    met = [score for score in each if score > 0]
    found = (
        (
            grade(after - before, "dice", low_is_bad=True),
            f"The labels overlap less after ({after:.2f}) than before ({before:.2f}).",
        ),
        (
            grade(sum(met) / max(len(met), 1), "dice_after", low_is_bad=True),
            f"The labels hardly overlap (mean Dice {after:.2f}).",
        ),
        (
            grade(len(met) / max(len(each), 1), "labels_met", low_is_bad=True),
            f"Only {len(met)} of {len(each)} labels overlap at all: the maps may not name the same things.",
        ),
    )
    return _score("Labels", f"overlap of labels (Dice) {before:.2f} before, {after:.2f} after", found)


def _landmarks(landmarks: Mapping[str, Any], size_mm: float) -> Check:
    before, after = landmarks["before_mm"]["mean"], landmarks["after_mm"]["mean"]
    most, further, count = landmarks["after_mm"].get("max"), landmarks.get("further", 0), landmarks.get("count", 1)
    found = (
        (
            grade(after / max(before, 1e-9), "landmarks"),
            f"The landmarks are {after:.1f} mm apart, before {before:.1f} mm.",
        ),
        (
            grade(after / size_mm, "landmarks_far"),
            f"The landmarks are still {after:.1f} mm apart, {after / size_mm:.0%} of the object's size.",
        ),
        (
            grade(further / max(count, 1), "landmarks_further"),
            f"{further} of {count} landmarks are more than a voxel further apart than before.",
        ),
    )
    worst_mm = "" if most is None else f", {most:.1f} mm at most"
    return _score("Landmarks", f"landmarks {before:.1f} mm apart before, {after:.1f} mm after{worst_mm}", found)


def _score(name: str, value: str, found: Sequence[tuple[str, str]]) -> Check:
    """The worst of several levels, with the reasons of those that are not green."""
    reasons = [reason for level, reason in found if level != GREEN]
    hints = {
        "Labels": "check that both label maps belong to these images and name the same things.",
        "Landmarks": "check that the points belong to these images and are LPS millimetres (RAS has other signs).",
    }
    todo = f"Look at the edges in the report, and {hints[name]}" if reasons else ""
    return Check(name, worst([level for level, _ in found]), value, " ".join(reasons), todo)


def _percent(share: float) -> str:
    return f"{share:.0%}"


def _small_percent(share: float) -> str:
    return f"{share:.2%}" if share >= 1e-4 else "less than 0.01%"

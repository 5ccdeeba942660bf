"""The verdict on a result: its checks in words, and what to do about those that are not green.

Nothing is advised that the run was given already: the facts of a check say whether there were masks or an initial
transform.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from warpfactor.checks.inputs import IMAGE_CHANGED
from warpfactor.checks.judge import Check
from warpfactor.checks.limits import AMBER, GREEN, GREY, RANK, RED
from warpfactor.errors import Notice
from warpfactor.show.wording import ACROSS, MULTIMODAL, poor_alignment, sentence

HEADLINES = {GREEN: "Looks good", AMBER: "Look closer", RED: "Do not use this as it is"}
SUMMARISED = ("convergence", "overlap", "similarity", "folds", "inverse", "labels", "landmarks")  # in the one-line text
SAME_OBJECT = "Check that both images show the same object"
SKULL = "if one image has a skull and the other has none, extract the brain first"
LOOK = "Look at the edges in the report"


class Words(NamedTuple):
    """A check in words.

    Attributes:
        value: what was found.
        reason: why it is not green.
        advice: what to do then.
    """

    value: str
    reason: str = ""
    advice: str = ""


@dataclass(frozen=True)
class WordedCheck:
    """A check with its words.

    Attributes:
        code, level, finding, facts: as in checks.judge.Check.
        name: title of the check.
        value: what was found.
        reason: why it is not green; empty if it is.
        advice: what to do then; empty if it is green.
    """

    code: str
    name: str
    level: str
    finding: str
    facts: Mapping[str, Any]
    value: str
    reason: str = ""
    advice: str = ""

    @classmethod
    def of(cls, check: Check) -> WordedCheck:
        """The check with the words for its finding and facts."""
        title, words = _WORDS[check.code]
        value, reason, advice = words(check)
        fine = check.level == GREEN
        facts = dict(check.facts)
        return cls(
            check.code, title, check.level, check.finding, facts, value, "" if fine else reason, "" if fine else advice
        )


@dataclass(frozen=True)
class Verdict:
    """All checks of a result, and the worst of them.

    Attributes:
        checks: in the order in which they are shown.
    """

    checks: tuple[WordedCheck, ...]

    @classmethod
    def of(cls, checks: Sequence[Check]) -> Verdict:
        """The verdict of these checks."""
        return cls(tuple(WordedCheck.of(check) for check in checks))

    @property
    def level(self) -> str:
        """ "green", "amber" or "red"; checks that could not be made do not count."""
        return max((check.level for check in self.checks), key=RANK.__getitem__, default=GREEN).replace(GREY, GREEN)

    @property
    def headline(self) -> str:
        """The level in words."""
        return HEADLINES[self.level]

    @property
    def sentence(self) -> str:
        """The most important findings in one line; those that are not green come first."""
        good = (check for check in self.checks if check.code in SUMMARISED and not RANK[check.level])
        return "; ".join(check.value for check in (*self.problems, *good) if check.value) + "."

    @property
    def problems(self) -> tuple[WordedCheck, ...]:
        """The amber and red checks, worst first."""
        return tuple(sorted((c for c in self.checks if RANK[c.level]), key=lambda c: -RANK[c.level]))

    def to_dict(self) -> dict[str, Any]:
        """The verdict as result.json stores it."""
        return {
            "level": self.level,
            "headline": self.headline,
            "reasons": [check.reason for check in self.problems],
            "checks": [asdict(check) for check in self.checks],
        }


def _convergence(check: Check) -> Words:
    facts = check.facts
    if check.finding == "interrupted":
        return Words("interrupted", "The run was interrupted before its end.", "Run it again without interruption.")
    if check.finding == "warp_discarded":
        return Words(
            "the warp was discarded",
            "The warp made the images less similar and was discarded; the result is the affine alone.",
            "Check the affine and the metric; for images of different contrast use the recipe multimodal.",
        )
    if check.finding == "start_used":
        return Words(
            "the linear stage found nothing better than its initialisation",
            "The linear stage made the images no more similar than its initialisation, which is used instead.",
            "Look at the warped image; if it does not lie on the fixed one, give an initial transform or masks.",
        )
    if check.finding == "still_falling":
        advice = (
            "for instance with the recipe accurate" if facts["deformable"] else "with the setting linear.iterations"
        )
        return Words(
            "the cost was still falling",
            f"The cost was still falling when the iterations ran out: {facts['share']:.0%} of its decrease at the last "
            "level came in the last fifth of the steps.",
            f"Allow more iterations, {advice}.",
        )
    if check.finding == "too_few_steps":
        value = "too few steps at the finest level to tell whether the cost had settled"
        return Words(value, f"There were {value}.", "More iterations would show it.")
    return {
        "already_aligned": Words("the images were aligned before the warp, which was discarded"),
        "start_sufficed": Words("the linear stage found nothing better than its initialisation, which is used"),
        "nothing_optimised": Words("nothing was optimised"),
        "settled": Words("the cost had settled"),
        "nearly_settled": Words("the cost had nearly stopped falling"),
    }[check.finding]


def _linear_stage(check: Check) -> Words:
    facts = check.facts
    skull = "" if facts["planar"] else f"{SKULL}; "
    advice = f"Look at the warped image. {_capital(MULTIMODAL)}; {skull}otherwise {_try(facts)}."
    if facts["multimodal"]:
        advice = f"{ACROSS}{skull}{'otherwise ' if skull else ''}{_try(facts)}."
    return Words(
        "the images are not very similar after the linear stage",
        poor_alignment(facts["notice"]["facts"]),
        advice,
    )


def _notice(check: Check) -> Words:
    notice = Notice(**check.facts["notice"])
    return Words("there is a warning", sentence(notice), "Look at the images.")


def _images(check: Check) -> Words:
    side = check.facts["side"]
    reason = sentence(Notice(**check.facts["notice"]))
    if check.finding == IMAGE_CHANGED:
        return Words(f"the {side} image is another file", reason, "Look for the file that was registered.")
    return Words(f"the {side} image is not available", reason, f"Make the report again with --{side} FILE.")


def _overlap(check: Check) -> Words:
    covered = f"{check.facts['coverage']:.0%}"
    return Words(
        f"{covered} of the fixed object lies inside the moving image",
        f"The images hardly overlap: only {covered} of the object of the fixed image lies inside the moving image.",
        f"Check the positions in their headers, and that they show the same part of the body; or {_try(check.facts)}.",
    )


def _similarity(check: Check) -> Words:
    if check.finding == "not_compared":
        return Words("", "The images could not be compared.")
    facts = check.facts
    before, after = facts["correlation_before"], facts["correlation_after"]
    value = f"local correlation {after:.2f}"
    if before is not None:
        value = f"local correlation {before:.2f} before, {after:.2f} after"
    reasons = {
        "chance": "The images are hardly more similar than after a shift by a tenth of their size "
        f"({facts['over_chance']:.1f} times as similar).",
        "near": "The images are more similar after a shift by 4 % of the object or more, or a rotation by 6 degrees "
        "or more.",
        "part": "In a part of the image the result is no more similar than after a shift.",
        "less": "The images share less information after the registration than before it.",
        "warp": _little_gain(facts.get("warp_gain", 0.0)),
    }
    contrast = "" if facts["multimodal"] else f"; {MULTIMODAL}"
    masks = "" if facts["masked"] else "; give masks if the images correspond only in part"
    return Words(value, _reasons(check, reasons), f"{LOOK}. {SAME_OBJECT}{contrast}{masks}.")


def _little_gain(gain: float) -> str:
    """What a warp did that added too little to the affine, or harmed."""
    if gain < 0:
        return "The images are less similar after the warp than after the affine alone."
    return "The cost of the warp fell, but the images are hardly more similar than after the affine alone."


def _affine(check: Check) -> Words:
    if check.finding == "own_search":
        return Words("the search of the linear stage found no better affine")
    if check.finding == "second_search":
        return Words("a second search found no better affine")
    facts = check.facts
    better = "another position" if facts["better"] == "search" else "leaving the images where they were"
    reason = f"The affine looks wrong: {better} makes the images clearly more similar."
    if facts["compensated"]:
        reason += " The warp compensated for it, but is larger than it should be."
    if facts["initial"]:
        advice = "Run the linear stage again without an initial transform (--initial), or with a better one."
    else:
        advice = f"{SAME_OBJECT}; or start the linear stage from a rough initial transform (--initial)."
    return Words("the affine looks wrong", reason, advice)


def _sides(check: Check) -> Words:
    if check.finding == "planar":
        return Words(
            "not checked in slices",
            "In a slice it cannot be decided reliably whether left and right are exchanged.",
            "Compare a structure whose side is known.",
        )
    if check.finding == "same":
        return Words("a mirrored image does not fit better")
    degree = "clearly" if check.facts["clearly"] else "a little"
    return Words(
        "left and right may be exchanged",
        f"Mirrored from left to right, the moving image fits {degree} better ({check.facts['gain']:.0%}): left and "
        "right may be exchanged in one of the images.",
        "Compare a structure whose side is known; check how the files were converted.",
    )


def _rotation(check: Check) -> Words:
    degrees = check.facts["degrees"]
    return Words(
        f"the affine rotates by {degrees:.0f} degrees",
        f"The affine rotates the image by {degrees:.0f} degrees, although no initial transform was given.",
        "Check whether both images have the same orientation; if not, check how the files were converted.",
    )


def _scale(check: Check) -> Words:
    if check.finding == "mirrored":
        return Words(
            "the affine mirrors the image",
            "The affine mirrors the image: its determinant is negative.",
            "Check the orientation in the headers, and the initial transform.",
        )
    facts = check.facts
    value = f"the affine changes volumes by a factor of {facts['ratio']:.2f}"
    if check.finding == "dissimilar":
        reason = (
            f"{_capital(value)} and leaves the images dissimilar, as happens when one image shows more than the other."
        )
        return Words(value, reason, _scale_advice(facts))
    return Words(
        value,
        f"{_capital(value)}, more than people usually differ in size.",
        "Check the voxel sizes in the headers, and that both images show the same object (a head and an extracted "
        "brain do not); otherwise use the recipe rigid (--recipe rigid) or an initial transform (--initial).",
    )


def _scale_advice(facts: Mapping[str, Any]) -> str:
    if facts["planar"]:
        return "Check the pixel sizes, and that both images show the same part."
    masks = "" if facts["masked"] else ", or give a mask of the brain"
    return f"{_capital(SKULL)}{masks}; otherwise check the voxel sizes and that both images show the same part."


def _folds(check: Check) -> Words:
    if check.finding == "none":
        return Words("no voxel folds")
    facts = check.facts
    count = facts["folded"]
    return Words(
        f"{count} voxels fold ({_small_percent(count / facts['voxels'])})",
        f"The warp folds in {count} voxels ({_small_percent(facts['share_of_object'])} of the object) and has no "
        "inverse there.",
        "Increase the smoothing (--smoothness 2), or check whether the images correspond where it folds.",
    )


def _regularity(check: Check) -> Words:
    facts = check.facts
    return Words(
        f"volumes change by {facts['low']:.2f} to {facts['high']:.2f} times in 98% of the object",
        f"The warp changes volumes strongly (SD of the log Jacobian {facts['sd_log']:.2f} in the object), as happens "
        "when images do not correspond.",
        "Check the affine first; then increase the smoothing (--smoothness 2).",
    )


def _inverse(check: Check) -> Words:
    mean, p95 = check.facts["mean_vox"], check.facts["p95_vox"]
    value = f"the inverse is accurate to {mean:.3f} voxels on average"
    return Words(
        value if check.level == GREEN else f"the inverse has an error of {mean:.2f} voxels on average",
        f"Mapping a point forward and back has an error of {p95:.1f} voxels or more in 5 % of the image.",
        "Do not map points or labels to the moving image with it; increase the smoothing, and look for folds.",
    )


def _labels(check: Check) -> Words:
    facts = check.facts
    before, after = facts["before"], facts["after"]
    reasons = {
        "less": f"The labels overlap less after ({after:.2f}) than before ({before:.2f}).",
        "still": f"The labels overlap no better after ({after:.3f}) than before ({before:.3f}), although "
        "the images were warped.",
        "low": f"The labels hardly overlap (mean Dice {after:.2f}).",
        "few": f"Only {facts['overlapping']} of {facts['count']} labels overlap at all: the same label may mean "
        "different structures in the two maps.",
    }
    advice = f"{LOOK}, and check that both label maps belong to these images and use the same labels."
    return Words(f"overlap of labels (Dice) {before:.2f} before, {after:.2f} after", _reasons(check, reasons), advice)


def _landmarks(check: Check) -> Words:
    facts = check.facts
    before, after, most = facts["before_mm"], facts["after_mm"], facts["max_mm"]
    reasons = {
        "worse": f"The landmarks are further apart after ({after:.1f} mm) than before ({before:.1f} mm).",
        "far": f"The landmarks are still {after:.1f} mm apart, {facts['share_of_size']:.0%} of the size of the object.",
        "further": f"{facts['further']} of {facts['count']} landmarks are more than a voxel further apart than before.",
    }
    if most is not None:
        middle = "" if facts.get("median_mm") is None else f"; the median is {facts['median_mm']:.1f} mm"
        reasons["worst"] = f"The largest landmark error is {most:.1f} mm{middle}."
    largest = "" if most is None else f", {most:.1f} mm at most"
    advice = f"{LOOK}, and check that the points belong to these images and are LPS millimetres (RAS has other signs)."
    return Words(
        f"landmarks {before:.1f} mm apart before, {after:.1f} mm after{largest}", _reasons(check, reasons), advice
    )


def _reasons(check: Check, reasons: Mapping[str, str]) -> str:
    """The reasons of the problems of a check."""
    return " ".join(reasons[problem] for problem in check.facts["problems"])


def _try(facts: Mapping[str, Any]) -> str:
    """The inputs that were not given yet."""
    initial = "a better initial transform" if facts["initial"] else "an initial transform"
    left = [*([] if facts["masked"] else ["masks"]), f"{initial} (--initial)"]
    return f"try {' or '.join(left)}"


def _small_percent(share: float) -> str:
    return f"{share:.2%}" if share >= 1e-4 else "less than 0.01%"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


# The title of every check, and what makes its words; in the order in which checks are shown.
_WORDS: dict[str, tuple[str, Callable[[Check], Words]]] = {
    "convergence": ("Convergence", _convergence),
    "linear_stage": ("Linear stage", _linear_stage),
    "notice": ("Warning", _notice),
    "images": ("Images", _images),
    "overlap": ("Overlap", _overlap),
    "similarity": ("Similarity", _similarity),
    "affine": ("Affine", _affine),
    "sides": ("Left and right", _sides),
    "rotation": ("Rotation", _rotation),
    "scale": ("Scale", _scale),
    "folds": ("Folds", _folds),
    "regularity": ("Regularity", _regularity),
    "inverse": ("Inverse", _inverse),
    "labels": ("Labels", _labels),
    "landmarks": ("Landmarks", _landmarks),
}

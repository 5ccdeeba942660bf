"""Sentences for people, made from codes and facts: why a stage ended, and what speaks against an input or a result."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from warpfactor.checks import alignment, inputs
from warpfactor.checks.device import record
from warpfactor.errors import Notice
from warpfactor.stages.linear.motion import MOTIONS
from warpfactor.stages.stage import Ending

Facts = Mapping[str, Any]
ABBREVIATIONS = ("lncc", "ncc", "mse", "mi", "mind")
OTHER = {"fixed": "moving", "moving": "fixed"}
MULTIMODAL = "if the contrasts differ, use the recipe multimodal (--recipe multimodal)"
ACROSS = (
    "Look at the warped image; between different contrasts this cost is high even for aligned images. If they are "
    "not aligned, "
)
ADVICE = f"Look at the warped image. {MULTIMODAL.capitalize()}; otherwise try masks or an initial transform."

_ENDINGS = {
    Ending.CONVERGED: "Converged: no further step promises to lower the cost.",
    Ending.LIMIT: "Finished: the levels ran to their iteration limits, or to where nothing more was to be gained.",
    Ending.STALLED: "Finished: no step lowered the cost any more.",
    Ending.ROSE: "Stopped where the cost began to rise, as the stopping rule of the recipe says.",
    Ending.BROAD: "Left to smoother settings, because the motion is smooth.",
    Ending.NOISE: "Converged: only noise was left to follow.",
    Ending.INTERRUPTED: "Interrupted; this is the best result so far.",
    Ending.SKIPPED: "Skipped, because it has the same shape as the next level.",
    Ending.WORSE: "The warp made the images less similar and was discarded; the result is the start transform.",
    Ending.NOTHING: "Nothing was optimised beyond the initial transform.",
}


_NO_BETTER = "The linear stage made the images no more similar than its initialisation, which is used instead."


def metric_title(name: str) -> str:
    """The metric of a stage as people write it: abbreviations in capitals, words as they are."""
    return " + ".join(part.upper() if part in ABBREVIATIONS else part for part in name.split(" + "))


def ending_sentence(ending: Ending, stage: str = "") -> str:
    """Why a stage of that name ended, in a sentence."""
    if ending is Ending.WORSE and stage in MOTIONS:
        return _NO_BETTER
    return _ENDINGS[ending]


def sentence(notice: Notice) -> str:
    """A notice in words: what is wrong, and what to do about it."""
    return _NOTICES[notice.code](notice.facts)


def warn_of(notices: Iterable[Notice]) -> None:
    """Issue each notice as a Python warning."""
    for notice in notices:
        warnings.warn(sentence(notice), stacklevel=3)


def poor_alignment(facts: Facts) -> str:
    """What a linear stage left, without advice."""
    cost = "infinite" if facts["cost"] is None else f"{facts['cost']:.2f}"
    metric = metric_title(facts["metric"])
    text = f"After the {facts['stage']} stage the images are not very similar ({metric} cost {cost}; "
    text += "0 is a perfect match, 1 means nothing in common)"
    degrees = facts["rotation_degrees"]
    return f"{text}." if degrees is None else f"{text}, and the stage rotated them by {degrees:.0f} degrees."


def _poor_alignment(facts: Facts) -> str:
    advice = f"{ACROSS}try masks or an initial transform." if facts.get("multimodal") else ADVICE
    return f"{poor_alignment(facts)} {advice}"


def _weak_evidence(facts: Facts) -> str:
    return (
        f"The {facts['stage']} stage is uncertain: its result is only {facts['evidence']:.1f} standard deviations "
        "better than wrong transforms. Look at the warped image; try masks or an initial transform."
    )


def _missing_part(facts: Facts) -> str:
    side = facts["side"]
    return (
        f"A part of the {side} image is missing: it has its background value where {facts['share']:.0%} of the object "
        f"of the {OTHER[side]} image should be. That part was excluded, and the warp there is extrapolated from its "
        f"surroundings. If you can, give a mask of the part that exists ({side}_mask, --{side}-mask)."
    )


def _labels_as_image(facts: Facts) -> str:
    return (
        f"{facts['name']} looks like a label map, not like an image; register the image that it belongs to, and pass "
        "the labels as moving labels."
    )


def _sizes_differ(facts: Facts) -> str:
    large, small = facts["names"]
    lengths = facts["lengths_mm"]
    return (
        f"{large} is {lengths[0]:.3g} mm long and {small} {lengths[1]:.3g} mm; check the spacing of both (the pixels "
        "of a PNG or JPEG count as 1 mm, those of a TIFF are as large as its resolution says)."
    )


def _image_as_mask(facts: Facts) -> str:
    return (
        f"{facts['name']} looks like an image, not like a mask; every voxel that is not zero counts as inside, "
        f"{100 * facts['share']:.0f} % of them, so give a mask that is zero outside."
    )


def _points_outside(facts: Facts) -> str:
    frame = "LPS (without ras=True or --ras)" if facts["ras"] else "RAS (with ras=True or --ras)"
    return (
        f"{facts['name']}: {facts['outside']} of {facts['count']} points lie outside the {facts['space']} image; "
        f"check whether they are {frame}, voxel indices, or belong to another image."
    )


def _landmarks_misread(facts: Facts) -> str:
    how = {
        "swapped": "with fixed and moving exchanged",
        "ras": "as RAS (with ras=True or --ras)",
        "lps": "as LPS (without ras=True or --ras)",
    }[facts["better"]]
    return (
        f"{facts['name']}: the landmarks are {facts['error_mm']:.2f} mm apart, but {facts['better_mm']:.2f} mm {how}; "
        "check the file."
    )


def _in_target_space(facts: Facts) -> str:
    to = facts["to"]
    return (
        f"{facts['name']}: has the grid of the {to} image, not that of the {OTHER[to]} image, and is resampled to "
        f"{to} space; check whether it should go to {OTHER[to]} space (--to {OTHER[to]})."
    )


def _outside_source_space(facts: Facts) -> str:
    return (
        f"{facts['name']}: lies outside the {OTHER[facts['to']]} image of this result; check whether it belongs to "
        "another image."
    )


def _image_not_found(facts: Facts) -> str:
    side = facts["side"]
    return f"The {side} image {facts['name']} was not found; give its file as {side} (--{side})."


def _image_differs(facts: Facts) -> str:
    side = facts["side"]
    text = f"{facts['path']}: is not the {side} image of this result: it has {facts['found']}, the result "
    text += f"{facts['expected']}; give the right file as {side} (--{side})"
    hint = "; if its spacing was given to `register`, make the report there, with result.report()"
    return f"{text}{hint if facts['same_shape'] else ''}."


def _image_changed(facts: Facts) -> str:
    return (
        f"{facts['path']}: is not the file that was registered as {facts['side']}, its content is another one; use the "
        "original, or register again."
    )


def _transform_changed(facts: Facts) -> str:
    return (
        f"{facts['path']}: is not the file that the registration wrote; make its verdict again with warpfactor report, "
        "or register again."
    )


def _image_unreadable(facts: Facts) -> str:
    return str(facts["error"])


def _unverified_device(facts: Facts) -> str:
    return (
        f"Backend {facts['backend']!r} is experimental, not yet verified on this device ({facts['title']}); run "
        f"`warpfactor info --check-device {facts['device']}` once."
    )


_NOTICES: dict[str, Callable[[Facts], str]] = {
    alignment.POOR_ALIGNMENT: _poor_alignment,
    alignment.WEAK_EVIDENCE: _weak_evidence,
    alignment.MISSING_PART: _missing_part,
    inputs.LABELS_AS_IMAGE: _labels_as_image,
    inputs.SIZES_DIFFER: _sizes_differ,
    inputs.IMAGE_AS_MASK: _image_as_mask,
    inputs.POINTS_OUTSIDE: _points_outside,
    inputs.LANDMARKS_MISREAD: _landmarks_misread,
    inputs.IN_TARGET_SPACE: _in_target_space,
    inputs.OUTSIDE_SOURCE_SPACE: _outside_source_space,
    inputs.IMAGE_NOT_FOUND: _image_not_found,
    inputs.IMAGE_DIFFERS: _image_differs,
    inputs.IMAGE_UNREADABLE: _image_unreadable,
    inputs.IMAGE_CHANGED: _image_changed,
    inputs.TRANSFORM_CHANGED: _transform_changed,
    record.UNVERIFIED_DEVICE: _unverified_device,
}

"""What to do about a check that is not green. Nothing is advised that the run was given already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from warpfactor.checks.alignment import GIVEN
from warpfactor.checks.case import Case

MASKS = ("fixed_mask", "moving_mask")
SAME_THING = "Check that both images show the same thing"
MULTIMODAL = "if the contrasts differ, use the recipe multimodal (--recipe multimodal)"
SKULL = "if one image has a skull and the other has none, extract the brain first"


def masked(case: Case) -> bool:
    """Whether a mask was given, even if its file is gone."""
    inputs = case.entries.get("inputs") or {}
    return case.fixed_mask is not None or case.moving_mask is not None or any(name in inputs for name in MASKS)


def started(case: Case) -> bool:
    """Whether an initial transform was given: linear stages began there, or none ran and there is an affine."""
    linear = [stage for stage in case.entries["stages"] if stage.get("start") is not None]
    if linear:
        return bool(linear[0]["start"] == GIVEN)
    return not np.allclose(case.affine.matrix, np.eye(4))


def little_alike(case: Case) -> str:
    """For a linear stage by correlation that left the images little alike."""
    skull = "" if _flat(case) else f"{SKULL}; "
    return f"Look at the warped image. {_capital(MULTIMODAL)}; {skull}otherwise {_try(case)}."


def unlike(case: Case) -> str:
    """For a result that is hardly more alike than chance."""
    contrast = "" if _by_information(case.entries) else f"; {MULTIMODAL}"
    masks = "" if masked(case) else "; give masks where only a part counts"
    return f"Look at the edges in the report. {SAME_THING}{contrast}{masks}."


def apart(case: Case) -> str:
    """For images that hardly overlap."""
    return f"Check the positions in their headers, and that they show the same part of the body; or {_try(case)}."


def wrong_affine(case: Case) -> str:
    """For an affine that another position beats."""
    if started(case):
        return "Run the linear stage again without --initial, or start it from a better --initial."
    return f"{SAME_THING}; or start the linear stage from a rough --initial."


def wrong_size(case: Case) -> str:
    """For an affine that changes volumes and leaves the images little alike."""
    if _flat(case):
        return "Check the pixel sizes, and that both images show the same part."
    masks = "" if masked(case) else ", or give a mask of the brain"
    return f"{_capital(SKULL)}{masks}; otherwise check the voxel sizes and that both images show the same part."


def _try(case: Case) -> str:
    """What is left to give."""
    left = [
        *([] if masked(case) else ["masks"]),
        "a better --initial" if started(case) else "an initial transform (--initial)",
    ]
    return f"try {' or '.join(left)}"


def _flat(case: Case) -> bool:
    return case.fixed_grid.shape[0] == 1


def _by_information(entries: Mapping[str, Any]) -> bool:
    return any(stage["metric"] == "mi" for stage in entries["stages"])


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]

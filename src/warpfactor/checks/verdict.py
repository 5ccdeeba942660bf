"""The verdict: what was checked, what it says in words, and what to do if it says no.

A check is green, amber (look before you use it) or red (do not use it as it is); grey could not be made. The verdict is
its worst check. The limits below are the only numbers; each says where it comes from. "Good pairs" are 32 registrations
of brains, heads, lungs, livers, hippocampi and slices that are right by labels or landmarks, where there are any, and
to the eye; the phantom, in three dimensions and two and in both contrasts, lies within the same limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

GREEN, AMBER, RED, GREY = "green", "amber", "red", "grey"
_RANK = {GREEN: 0, GREY: 0, AMBER: 1, RED: 2}
HEADLINES = {
    GREEN: "Looks good",
    AMBER: "Look closer",
    RED: "Do not use this as it is",
}


TOLD = ("Course", "Overlap", "Likeness", "Folds", "Inverse", "Labels", "Landmarks")  # checks of the one-line summary


class Limit(NamedTuple):
    """From where on a figure is amber and red, and where these numbers come from."""

    amber: float
    red: float
    reason: str


LIMITS = {
    "coverage": Limit(0.6, 0.3, "share of the object inside the moving image; cropped good pairs have 0.64 and more"),
    "over_chance": Limit(
        2.8, 1.7, "information over that after a shift; good pairs 3.6 to 15, unrelated ones 1.2 to 2.3"
    ),
    "gain": Limit(0.95, 0.85, "information after over before; good pairs 1.6 and more, the same image twice 1.0"),
    "fresh": Limit(0.6, 0.6, "information of the affine over that of a new search; good pairs 0.97 and more"),
    "recovered": Limit(1.35, 1.35, "information of the result over that of a new search, if the affine is poor"),
    "mirror": Limit(
        0.015,
        0.25,
        "cost saved by mirroring a volume; none of 56 pairs of different brains more than 0.015, and 44 of them if one "
        "of the two is mirrored",
    ),
    "mirror_flat": Limit(0.15, 0.3, "the same in slices; 90 pairs of different brains at most 0.1, mirrored or not"),
    "mirror_mi": Limit(0.1, 0.25, "information gained by mirroring; a T1 and a T2 image of one person at most 0.0"),
    "folded": Limit(0.0, 0.005, "share of the object that folds; any fold has no inverse, half a per cent shows"),
    "sd_log": Limit(0.7, 1.2, "spread of the log Jacobian; good pairs at most 0.64, failed ones 0.66 to 1.4"),
    "inverse": Limit(0.5, 2.0, "95th percentile in voxels; good pairs at most 0.3"),
    "turn": Limit(90.0, 360.0, "degrees that the affine turns without being asked to; good pairs at most 14"),
    "volume": Limit(
        1.6,
        3.0,
        "factor by which the affine changes volumes, either way; good pairs at most 1.38, a head on a bare brain 1.7 "
        "to 2.8",
    ),
    "volume_doubt": Limit(
        1.4, 1.75, "the same if the linear stage left doubts; good pairs at most 1.25, a head on a bare brain 1.84"
    ),
    "unsettled": Limit(0.2, 1.0, "share of the last level's gain in its last fifth; 0.2 is a straight line"),
    "dice": Limit(-0.005, -0.05, "gain of the mean overlap of labels; what is below is more than rounding"),
    "dice_after": Limit(0.2, 0.05, "mean overlap of the labels that overlap at all; good pairs 0.5 and more"),
    "labels_met": Limit(
        0.5, 0.0, "share of the labels that overlap at all; slices of different brains have 0.77 in common"
    ),
    "landmarks": Limit(1.02, 1.25, "mean landmark error after over before; the first is more than rounding"),
    "landmarks_further": Limit(
        0.05,
        0.5,
        "share of landmarks more than a voxel further apart than before; lungs and two livers none, two livers 0.08 "
        "and 0.1, whose surroundings slide along them",
    ),
    "landmarks_far": Limit(
        0.02, 0.1, "mean landmark error over the size of the object; good pairs at most 0.015, a tenth is no alignment"
    ),
}


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: what.
        level: "green", "amber", "red" or "grey".
        value: what was found, in words.
        reason: why it is not green; empty if it is.
        advice: what to do then.
    """

    name: str
    level: str
    value: str
    reason: str = ""
    advice: str = ""


@dataclass(frozen=True)
class Verdict:
    """All checks, and the worst of them."""

    checks: tuple[Check, ...]

    @property
    def level(self) -> str:
        """ "green", "amber" or "red"; what could not be checked does not count."""
        return max((check.level for check in self.checks), key=_RANK.__getitem__, default=GREEN).replace(GREY, GREEN)

    @property
    def headline(self) -> str:
        return HEADLINES[self.level]

    @property
    def sentence(self) -> str:
        """What was found, in one line; whatever is not green is in it, and comes first."""
        good = (check for check in self.checks if check.name in TOLD and not _RANK[check.level])
        told = [*self.problems, *good]
        return "; ".join(check.value for check in told if check.value) + "."

    @property
    def problems(self) -> tuple[Check, ...]:
        """What is not green, worst first."""
        return tuple(sorted((c for c in self.checks if _RANK[c.level]), key=lambda c: -_RANK[c.level]))

    def to_dict(self) -> dict[str, Any]:
        """For result.json."""
        return {
            "level": self.level,
            "headline": self.headline,
            "reasons": [check.reason for check in self.problems],
            "checks": [asdict(check) for check in self.checks],
        }


def grade(value: float, limit: str, *, low_is_bad: bool = False) -> str:
    """Green, amber or red by the limits of that name; beyond the limit is worse, on it is not."""
    amber, red, _ = LIMITS[limit]
    sign = -1 if low_is_bad else 1
    if sign * value > sign * red:
        return RED
    return AMBER if sign * value > sign * amber else GREEN


def worst(levels: Sequence[str]) -> str:
    return max(levels, key=_RANK.__getitem__, default=GREEN)

"""The limits of the checks, the only numbers by which a result is judged; each says where it comes from.

"Good results" and "failing ones" are those of the first half of docs/benchmarks/verdicts.md, where limits name them.
"Good pairs" are 32 registrations of brains, heads, lungs, livers, hippocampi and slices that are right by labels or
landmarks, where there are any, and by eye; the phantom, in two and three dimensions and both contrasts, lies within the
same limits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

# Green is good, amber means "look before you use it", red "do not use it as it is"; grey could not be checked.
GREEN, AMBER, RED, GREY = "green", "amber", "red", "grey"
RANK = {GREEN: 0, GREY: 0, AMBER: 1, RED: 2}


class Limit(NamedTuple):
    """The values beyond which a figure is amber and red, and where these come from."""

    amber: float
    red: float
    reason: str


LIMITS = {
    "coverage": Limit(0.6, 0.3, "share of the object inside the moving image; cropped good pairs have 0.64 and more"),
    "coverage_sure": Limit(0.3, 0.15, "the same where the result stands out clearly; an object cut in half has 0.35"),
    "over_chance": Limit(
        1.37,
        1.15,
        "similarity over that after a shift by a tenth of the object; good results 1.43 and more, failing ones that no "
        "other check finds 1.31 at most",
    ),
    "affine_chance": Limit(
        2.8,
        1.7,
        "information under the affine over that after the shift, from which on no other affine is searched for; good "
        "pairs 3.6 to 15, unrelated ones 1.2 to 2.3",
    ),
    "gain": Limit(0.95, 0.85, "information after over before; good pairs 1.6 and more, the same image twice 1.0"),
    "off": Limit(
        1.25,
        2.0,
        "how far from the result the images are most similar, in units of 4 % of the object or 6 degrees; good results "
        "at most 1.01, failing ones that no other check finds 2.2 and more",
    ),
    "worst_part": Limit(
        1.0,
        0.0,
        "correlation over that after a shift, in the worst part; a limit of 1.2 found no failing result of the first "
        "half that other checks do not find",
    ),
    "sure_near": Limit(
        1.3,
        1.3,
        "similarity over the most after small motions (over_near), from which on an unusual affine is believed",
    ),
    "sure": Limit(
        4.3,
        4.3,
        "over_near times over_chance that must be reached as well; failing results 3.8 at most, if no mirrored image, "
        "warp of zero or single landmark makes them fail; unusual good ones 4.9 and more",
    ),
    "warp_gain": Limit(
        0.005,
        -0.3,
        "share of the missing correlation that the warp adds to the affine, if the cost fell by a fifth; good results "
        "0.013 and more, a warp of zero 0",
    ),
    "warp_harm": Limit(-0.05, -0.3, "the same if the cost fell less; good results are not below 0"),
    "fresh": Limit(0.6, 0.6, "information of the affine over that of a new search; good pairs 0.97 and more"),
    "recovered": Limit(1.35, 1.35, "information of the result over that of a new search, if the affine is poor"),
    "mirror": Limit(
        0.025,
        0.25,
        "cost saved by mirroring a volume; none of 56 pairs of different brains more than 0.015, one of two mice 0.02; "
        "44 of the 56 more than 0.015 if one of the two is mirrored",
    ),
    "mirror_flat": Limit(0.15, 0.3, "the same in slices; 90 pairs of different brains at most 0.1, mirrored or not"),
    "mirror_mi": Limit(0.1, 0.25, "information gained by mirroring; a T1 and a T2 image of one person at most 0.0"),
    "folded": Limit(0.0, 0.005, "share of the object that folds; any fold has no inverse, half a per cent shows"),
    "sd_log": Limit(0.7, 1.2, "spread of the log Jacobian; good pairs at most 0.64, failed ones 0.66 to 1.4"),
    "inverse": Limit(0.5, 2.0, "95th percentile in voxels; good pairs at most 0.3"),
    "rotation": Limit(
        90.0, 360.0, "degrees by which the affine rotates without an initial transform; good pairs at most 14"
    ),
    "volume": Limit(
        1.6,
        3.0,
        "factor by which the affine changes volumes, either way; good pairs at most 1.38, a head on a bare brain 1.7 "
        "to 2.8",
    ),
    "volume_dissimilar": Limit(
        1.4,
        1.75,
        "the same if the linear stage left the images dissimilar; good pairs at most 1.25, a head on a bare brain 1.84",
    ),
    "unsettled": Limit(0.2, 1.0, "share of the last level's gain in its last fifth; 0.2 is a straight line"),
    "dice": Limit(-0.005, -0.05, "gain of the mean Dice of labels; rounding stays above this"),
    "labels_gain": Limit(0.01, -1.0, "gain of the mean Dice by a warp, of what it lacks of 1; slices have 0.15"),
    "dice_after": Limit(0.2, 0.05, "mean Dice of the labels that overlap at all; good pairs 0.5 and more"),
    "labels_overlapping": Limit(
        0.5, 0.0, "share of the labels that overlap at all; slices of different brains have 0.77 in common"
    ),
    "landmarks": Limit(1.02, 1.25, "mean landmark error after over before; rounding stays below this"),
    "landmarks_further": Limit(
        0.05,
        0.5,
        "share of landmarks more than a voxel further apart than before; lungs and two livers none, two livers 0.08 "
        "and 0.1, whose surroundings slide along them",
    ),
    "landmarks_alone": Limit(
        0.26,
        4.0,
        "largest landmark error, once over the size of the object and once over the median error, multiplied; 25 of 26 "
        "good results at most 0.24, with one landmark that is 14 mm off 0.28 and more",
    ),
    "landmarks_far": Limit(
        0.02, 0.1, "mean landmark error over the size of the object; good pairs at most 0.015, a tenth is no alignment"
    ),
}


def grade(value: float, limit: str, *, low_is_bad: bool = False) -> str:
    """Green, amber or red by the limits of that name; a value on the limit is still on its good side."""
    amber, red, _ = LIMITS[limit]
    sign = -1 if low_is_bad else 1
    if sign * value > sign * red:
        return RED
    return AMBER if sign * value > sign * amber else GREEN


def worst(levels: Sequence[str]) -> str:
    """The worst of several levels; green if there are none."""
    return max(levels, key=RANK.__getitem__, default=GREEN)


def limits_digest() -> str:
    """What identifies these limits: a verdict by other ones is made again when it is read back."""
    numbers = {name: (limit.amber, limit.red) for name, limit in LIMITS.items()}
    return hashlib.sha256(repr(sorted(numbers.items())).encode()).hexdigest()[:16]

"""What speaks against a registration: a linear stage that left the images little alike, a part that is missing.

Measured at the end of the affine stage of `default`, LNCC cost: 26 pairs that belong together (brains, heads, lungs,
livers, hippocampi, slices, the phantom) end at 0.02 to 0.54 and turn by 14 degrees at most. Seven pairs of different
contrast or with nothing in common end at 0.60 to 0.86, five of them turned by 27 degrees or more.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from warpfactor.geometry.grid import Matrix
from warpfactor.stages.stage import Stage

CORRELATIONS = ("lncc", "ncc")  # costs for which 1 means "nothing in common"
POOR_COST = 0.65
DOUBTFUL_COST = 0.55
DOUBTFUL_TURN_DEGREES = 20.0
GIVEN = "given"
ADVICE = (
    "Look at the warped image. If the contrasts differ, use the recipe multimodal (--recipe multimodal); "
    "if not, try masks or an initial transform."
)


def find_doubts(stages: Sequence[Stage], affine: Matrix) -> tuple[str, ...]:
    """Sentences about what looks wrong, most often none.

    Args:
        stages: as they went.
        affine: 4x4 at the end, LPS mm, fixed to moving.
    """
    linear = [stage for stage in stages if stage.name != "deformable"]
    if not linear or linear[-1].metric not in CORRELATIONS:
        return ()
    last, turn = linear[-1], turn_degrees(affine)
    turned = turn > DOUBTFUL_TURN_DEGREES and linear[0].start != GIVEN
    likeness = f"After the {last.name} stage the images are little alike ({last.metric.upper()} cost "
    likeness += f"{last.cost_after:.2f}; 0 is a perfect match, 1 nothing in common)"
    if turned and last.cost_after > DOUBTFUL_COST:
        return (f"{likeness}, and it turned them by {turn:.0f} degrees. {ADVICE}",)
    return (f"{likeness}. {ADVICE}",) if last.cost_after > POOR_COST else ()


def find_missing(shares: tuple[float, float]) -> tuple[str, ...]:
    """A sentence for each image of which a part is missing, most often none.

    Args:
        shares: of the inside of what the other image shows, missing from the fixed and from the moving one.
    """
    return tuple(
        f"A part of the {name} image is missing: it has its background value where {share:.0%} of the inside of "
        f"what the {other} image shows should be. That part was left out, and the warp there follows from its "
        f"surroundings. A mask of what is there (--{name}-mask) is the better way."
        for name, other, share in (("fixed", "moving", shares[0]), ("moving", "fixed", shares[1]))
        if share
    )


def reason_and_advice(doubt: str) -> tuple[str, str]:
    """The two parts of a sentence of `find_doubts`; the advice is empty for any other text."""
    reason = doubt.removesuffix(ADVICE)
    return reason.strip(), doubt[len(reason) :]


def turn_degrees(matrix: Matrix) -> float:
    """Angle of the rotation nearest to the linear part of a 4x4 matrix."""
    left, _, right = np.linalg.svd(matrix[:3, :3])
    cosine = (np.trace(left @ right) - 1) / 2
    return float(np.degrees(np.arccos(np.clip(cosine, -1, 1))))

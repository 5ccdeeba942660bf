"""Everything that is measured of a case for its verdict, and the checks that follow from it."""

from __future__ import annotations

from typing import NamedTuple

from warpfactor.checks.case import Case
from warpfactor.checks.coarse import ObjectMask
from warpfactor.checks.judge import Check, judge
from warpfactor.checks.regularity import Regularity, inverse_error_of, jacobian_of, measure
from warpfactor.checks.similarity import Alignment, align


class Examination(NamedTuple):
    """What was measured, and the checks.

    Attributes:
        alignment: similarity of the images; None if they cannot be compared.
        regularity: of the warp; None without one.
        object_mm: size of the object of the fixed image.
        checks: in the order in which they are shown.
    """

    alignment: Alignment | None
    regularity: Regularity | None
    object_mm: float
    checks: tuple[Check, ...]


def region_of(case: Case) -> ObjectMask:
    """The object of the fixed image, or of the warped one if that is all there is."""
    image = case.fixed if case.fixed is not None else case.warped
    return ObjectMask.whole(case.fixed_grid) if image is None else ObjectMask.of(image, case.fixed_mask, case.ops)


def conclude(case: Case, region: ObjectMask, regularity: Regularity | None) -> Examination:
    """Compare the images and judge the case.

    Args:
        region: the object of the fixed image.
        regularity: of the warp; None without one.
    """
    alignment, size = align(case, case.ops), region.size_mm(case.fixed_grid)
    return Examination(alignment, regularity, size, judge(case, alignment, regularity, object_mm=size))


def examine(case: Case) -> Examination:
    """Measure and judge a case, without drawing anything."""
    region = region_of(case)
    return conclude(case, region, measure(case, region, jacobian_of(case.warp, case.ops), inverse_error_of(case)))

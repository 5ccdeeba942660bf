"""How near the results of an operation are to the reference: errors in units of what rounding excuses."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from warpfactor.checks.device.problems import KernelProblem

FACTOR = 4.0  # times the error of the reference in single precision, which is allowed
SUMS = 1e-5  # of a single number
POSITION = 4 * torch.finfo(torch.float32).eps  # times the length of the image: the rounding of a point's position
RARE = 1e-4  # share of values that may differ because a point falls into the neighbouring cell
MANY = 200  # values, of which one may always do so


def relative_error(found: Any, exact: Any, rough: Any, problem: KernelProblem, length: int) -> float:
    """The largest error over what is allowed; at most 1 if the result is right.

    Args:
        found: one output, a tensor or number.
        exact: that of the reference in double precision.
        rough: that of the reference in single precision.
        length: of the longest axis, in voxels.
    """
    if not isinstance(exact, Tensor):
        return _of_number(float(found), float(exact), float(rough), problem.slack)
    if found.shape != exact.shape:
        return math.inf
    wanted, near = exact.double().cpu(), rough.double().cpu()
    scale = float(wanted.abs().max()) + 1e-30
    share = problem.rounding + (POSITION * length if problem.positions else 0.0)
    whole = not exact.is_floating_point()
    allowed = problem.slack if whole else FACTOR * _largest(near - wanted) + share * scale + problem.slack
    error = _largest(found.double().cpu() - wanted, _rare(wanted.numel()) if problem.positions else 0)
    return error / allowed if allowed > 0 else (0.0 if error == 0 else math.inf)


def _of_number(found: float, exact: float, rough: float, slack: float) -> float:
    if not math.isfinite(found):
        return 0.0 if found == exact else math.inf
    return abs(found - exact) / (FACTOR * abs(rough - exact) + SUMS * abs(exact) + slack + 1e-30)


def _rare(count: int) -> int:
    return int(RARE * count) + (1 if count > MANY else 0)


def _largest(errors: Tensor, but: int = 0) -> float:
    """The largest absolute value but for that many; infinite if there are more that are no numbers."""
    values = torch.nan_to_num(errors.abs(), nan=math.inf).flatten()
    return float(values.topk(min(but + 1, values.numel())).values[-1]) if values.numel() else 0.0

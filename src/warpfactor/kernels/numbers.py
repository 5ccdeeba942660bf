"""Arithmetic on numbers of three kinds: Python's own, tensors that stay on their device, and symbols.

What decides about a step is written once with these functions. With Python's numbers the host decides; with tensors the
device does, and the host does not wait for it: no branch of the program depends on the value of a tensor. With symbols
a backend finds out what is done with them, to do it in one kernel (`symbols.py`). Types say `float` and `bool` for all
kinds, as everything else that handles them does.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from warpfactor.kernels.symbols import Symbol

N = TypeVar("N")


def chosen(condition: Any, yes: N, no: N) -> N:
    """`yes` where the condition holds, otherwise `no`; both are computed."""
    if isinstance(condition, Symbol):
        return cast(N, Symbol("where", condition, yes, no))
    if not isinstance(condition, Tensor):
        return yes if condition else no
    if not isinstance(yes, Tensor) and not isinstance(no, Tensor):
        kind = torch.bool if isinstance(yes, bool) else torch.float64
        return cast(N, torch.where(condition, torch.full_like(condition, cast(float, yes), dtype=kind), cast(Any, no)))
    return cast(N, torch.where(condition, cast(Any, yes), cast(Any, no)))


def larger(a: float, b: float) -> float:
    """The larger number."""
    return chosen(a > b, a, b)


def smaller(a: float, b: float) -> float:
    """The smaller number."""
    return chosen(a < b, a, b)


def quotient(a: float, b: float) -> float:
    """a / b, or 0 where b is 0."""
    divisor: Any = b
    if isinstance(divisor, Tensor):
        return cast(float, torch.where(divisor == 0, 0.0, a / divisor))
    return chosen(b == 0, 0.0, a / chosen(b == 0, 1.0, b))


def inverse(flag: Any) -> bool:
    """Whether a flag is not set."""
    return cast(bool, ~flag) if isinstance(flag, (Tensor, Symbol)) else not flag


def finite(value: float) -> bool:
    """Whether a number is neither infinite nor NaN."""
    return abs(value) < float("inf")

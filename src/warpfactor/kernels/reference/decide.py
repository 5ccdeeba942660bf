"""What a rule for numbers makes of figures of the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


@torch.no_grad()
def decide(rule: Callable[..., Sequence[Any]], *figures: Any) -> Tensor:
    """See DeviceOps: the numbers one by one, in double precision."""
    found = rule(*figures)
    held = next(figure for figure in figures if isinstance(figure, Tensor))
    values = (v if isinstance(v, Tensor) else torch.full((), float(v), device=held.device) for v in found)
    return torch.stack([value.double().expand(held.shape) for value in values], -1)


decide.pairs = decide  # type: ignore[attr-defined]

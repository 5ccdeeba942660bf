"""Tensors and numpy arrays as the figures take them: one shape, one type, a mask that selects something."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.kernels.ops import Tally

Array: TypeAlias = npt.NDArray[Any]


def to_array(data: Array | Tensor) -> Array:
    return data.detach().cpu().numpy() if isinstance(data, Tensor) else np.asarray(data)


def same_shape(first: Array | Tensor, second: Array | Tensor) -> tuple[Array, Array]:
    a, b = to_array(first), to_array(second)
    if a.shape != b.shape:
        raise InputError(f"Arrays of shapes {a.shape} and {b.shape} cannot be compared: resample one to the other")
    return a, b


def measurable(values: Array | Tensor, mask: Array | Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Values in single precision on the CPU and a mask of the same shape; neither is copied if it is that already."""
    array = torch.from_numpy(np.ascontiguousarray(to_array(values), dtype=np.float32))
    inside = None
    if mask is not None:
        _, chosen = same_shape(array, mask)
        inside = torch.from_numpy(np.ascontiguousarray(chosen, dtype=bool))
    return array, inside


def counted(tally: Tally) -> Tally:
    """The tally; InputError if it is empty."""
    if tally.count == 0:
        raise InputError("The mask is empty, so there are no voxels to measure")
    return tally

"""Similarity of two images: mutual information and correlation."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.measure.arrays import Array, same_shape, to_array


def mutual_information(
    a: Array | Tensor, b: Array | Tensor, *, bins: int = 32, mask: Array | Tensor | None = None
) -> float:
    """Mutual information of two images (natural logarithm), from a joint histogram over their full ranges."""
    values_a, values_b = _selected_pair(a, b, mask)
    joint = np.histogram2d(values_a, values_b, bins=bins)[0] / values_a.size
    independent = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    filled = joint > 0
    return float((joint[filled] * np.log(joint[filled] / independent[filled])).sum())


def ncc(a: Array | Tensor, b: Array | Tensor, *, mask: Array | Tensor | None = None) -> float:
    """Correlation coefficient of two images, -1 to 1; 0 if either is constant."""
    values_a, values_b = _selected_pair(a, b, mask)
    centred_a, centred_b = values_a - values_a.mean(), values_b - values_b.mean()
    norm = np.sqrt((centred_a @ centred_a) * (centred_b @ centred_b))
    return float(centred_a @ centred_b / norm) if norm > 0 else 0.0


def _selected(values: Array | Tensor, mask: Array | Tensor | None) -> Array:
    """(N,) float64 values where mask is true (everywhere without one)."""
    array = to_array(values).astype(np.float64)
    if mask is not None:
        array, inside = same_shape(array, to_array(mask).astype(bool))
        array = array[inside]
    if array.size == 0:
        raise InputError("The mask is empty, so there are no voxels to measure")
    return array.ravel()


def _selected_pair(a: Array | Tensor, b: Array | Tensor, mask: Array | Tensor | None) -> tuple[Array, Array]:
    first, second = same_shape(a, b)
    return _selected(first, mask), _selected(second, mask)

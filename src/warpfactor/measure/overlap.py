"""Overlap of label maps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.measure.arrays import Array, same_shape

MOST_BINS = 1 << 20  # labels below this are counted in a histogram


@dataclass(frozen=True)
class DiceFigures:
    """Overlap of two label maps.

    Attributes:
        per_label: Dice of every label in either map; 0 for a label that only one of them has.
        mean: over all of per_label.
        mean_common: over the labels that both maps have. A mean over nothing is nan.
    """

    per_label: dict[int, float]
    mean: float
    mean_common: float


def dice(labels_a: Array | Tensor, labels_b: Array | Tensor) -> dict[int, float]:
    """Dice 2 |A and B| / (|A| + |B|) of every label in either map; background (0) is left out.

    A label that only one map has gets 0. The maps share one shape; whole numbers in a float type are fine.
    """
    return dice_figures(labels_a, labels_b).per_label


def dice_figures(labels_a: Array | Tensor, labels_b: Array | Tensor) -> DiceFigures:
    """Dice of every label in either map (0 in only one; background left out), and its two means."""
    a, b = label_pair(labels_a, labels_b)
    count_a, count_b, count_both = _counts(a), _counts(b), _counts(a[a == b])
    per_label = {
        label: 2 * count_both.get(label, 0) / (count_a.get(label, 0) + count_b.get(label, 0))
        for label in sorted(count_a.keys() | count_b.keys())
    }
    common = [per_label[label] for label in count_a.keys() & count_b.keys()]
    return DiceFigures(per_label, mean=_mean(list(per_label.values())), mean_common=_mean(sorted(common)))


def label_pair(labels_a: Array | Tensor, labels_b: Array | Tensor) -> tuple[Array, Array]:
    """Both maps as int64, one shape."""
    a, b = same_shape(labels_a, labels_b)
    return _whole(a), _whole(b)


def _whole(labels: Array) -> Array:
    """Labels as int64, which counting takes without another copy."""
    if labels.dtype.kind not in "biu" and not np.all(np.isfinite(labels) & (labels == np.rint(labels))):
        raise InputError("A label map holds values that are not whole numbers: resample labels with nearest")
    return labels.astype(np.int64)


def _counts(labels: Array) -> dict[int, int]:
    """Voxels of each label; background left out. Small numbers are counted in one pass, others sorted."""
    if labels.size and labels.min() >= 0 and labels.max() < MOST_BINS:
        bins = np.bincount(labels.ravel())
        values = np.flatnonzero(bins)
        counts = bins[values]
    else:
        values, counts = np.unique(labels, return_counts=True)
    return {int(value): int(count) for value, count in zip(values, counts, strict=True) if value != 0}


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else float("nan")

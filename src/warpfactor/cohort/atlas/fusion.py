"""Fusion of label maps: how much each atlas counts at every voxel, and the label with the most votes.

`weighted` counts an atlas by the local correlation of its warped image with the target. `joint` also looks at atlases
that err together, so that several copies of one error do not outvote the others: with the matrix M of how often two
atlases are likely to err at a voxel, the weights are M⁻¹1 / (1ᵀM⁻¹1) (Wang et al., Multi-atlas segmentation with joint
label fusion, 2013).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from warpfactor.kernels.ops import Ops

RADIUS = 3  # voxels, of the windows in which images are compared
POWER = 2.0  # of the local correlation
JOINT_POWER = 2.0  # of the expected common error
JOINT_RIDGE = 3.0  # added to the diagonal of M, whose mean is 1
JOINT_FLOOR = 5e-2  # as VARIANCE_FLOOR
VARIANCE_FLOOR = 1e-2  # of the variance of a whole image; far below it a window shows nothing but noise
_SLAB_BYTES = 128 << 20

Weigh = Callable[[Tensor, Tensor, Ops], Tensor | None]


@dataclass(frozen=True)
class Fused:
    """Labels that several atlases agreed on.

    Attributes:
        labels: (D, H, W) int32.
        probability: (D, H, W) float32, the share of the votes that the label got.
    """

    labels: Tensor
    probability: Tensor


def fuse(target: Tensor, images: Tensor, labels: Tensor, rule: str, ops: Ops) -> tuple[Fused, Tensor | None]:
    """The fused labels, and the weights they come from; None if all atlases count alike.

    Args:
        target: (D, H, W) image to segment.
        images: (N, D, H, W) warped images of the atlases.
        labels: (N, D, H, W) int32, their warped labels.
        rule: a name of FUSIONS.
        ops: the backend.
    """
    weights = FUSIONS[rule](target, images, ops)
    return vote(labels, weights), weights


def vote(labels: Tensor, weights: Tensor | None = None) -> Fused:
    """The label with the largest sum of weights at every voxel; of equals the smallest."""
    best = torch.zeros(labels.shape[1:], dtype=torch.int32)
    most = torch.full(labels.shape[1:], -torch.inf)
    for planes in _slabs(labels):
        part, share = labels[:, planes], _shares(weights, labels, planes)
        for label in torch.unique(part).tolist():
            votes = torch.where(part == label, share, 0.0).sum(0)
            better = votes > most[planes]
            best[planes][better] = label
            most[planes][better] = votes[better]
    return Fused(best, most.clamp_(0.0, 1.0))


def label_probability(labels: Tensor, weights: Tensor | None, label: int) -> Tensor:
    """(D, H, W) share of the votes that one label gets."""
    found = torch.zeros(labels.shape[1:])
    for planes in _slabs(labels):
        share = _shares(weights, labels, planes)
        found[planes] = torch.where(labels[:, planes] == label, share, 0.0).sum(0)
    return found.clamp_(0.0, 1.0)


def majority(target: Tensor, images: Tensor, ops: Ops) -> None:
    """Every atlas counts alike."""


def weighted(target: Tensor, images: Tensor, ops: Ops) -> Tensor:
    """An atlas counts by a power of its local correlation with the target."""
    weights = torch.empty_like(images)
    for number, image in enumerate(images):
        weights[number] = local_correlation(target, image, ops).clamp_min_(1e-3) ** POWER
    return weights.div_(weights.sum(0))


def joint(target: Tensor, images: Tensor, ops: Ops) -> Tensor:
    """An atlas counts by what it adds to the others."""
    reference = standardised(target, ops)
    apart = torch.stack([(standardised(image, ops) - reference).abs_() for image in images])
    weights = torch.empty_like(apart)
    count = len(apart)
    for planes in _slabs(apart, count):
        near = slice(max(0, planes.start - RADIUS), planes.stop + RADIUS)
        inner = slice(planes.start - near.start, planes.start - near.start + planes.stop - planes.start)
        matrix = torch.empty((count, count, *apart[0, planes].shape))
        for i in range(count):
            products = _means((apart[i : i + 1, near] * apart[i:, near]).contiguous(), ops)[:, inner]
            matrix[i, i:] = matrix[i:, i] = products**JOINT_POWER
        weights[:, planes] = _solved(matrix)
    return weights


FUSIONS: Mapping[str, Weigh] = {"joint": joint, "weighted": weighted, "majority": majority}


def local_correlation(first: Tensor, second: Tensor, ops: Ops) -> Tensor:
    """Correlation of two images in windows around every voxel, from -1 to 1; 0 where one of them is flat."""
    sums = _means(torch.stack([first, second, first * first, second * second, first * second]), ops)
    variances = [(sums[2 + k] - sums[k] ** 2).clamp_min_(0.0) for k in (0, 1)]
    floors = [VARIANCE_FLOOR * float(image.var()) + 1e-12 for image in (first, second)]
    covariance = sums[4] - sums[0] * sums[1]
    found = covariance / ((variances[0] + floors[0]) * (variances[1] + floors[1])).sqrt()
    return found.clamp_(-1.0, 1.0)


def standardised(image: Tensor, ops: Ops) -> Tensor:
    """An image with mean 0 and variance 1 in the window around every voxel; 0 where it is flat."""
    sums = _means(torch.stack([image, image * image]), ops)
    variance = (sums[1] - sums[0] ** 2).clamp_min_(0.0) + JOINT_FLOOR * float(image.var()) + 1e-12
    found: Tensor = (image - sums[0]) / variance.sqrt_()
    return found


def _means(fields: Tensor, ops: Ops) -> Tensor:
    radius = [min(RADIUS, length - 1) for length in fields.shape[1:]]
    return ops.smooth_box(fields, radius)


def _solved(matrix: Tensor) -> Tensor:
    """M⁻¹1 / (1ᵀM⁻¹1) at every voxel, from (N, N, ...) to (N, ...); negative weights are left out."""
    count, shape = matrix.shape[0], matrix.shape[2:]
    systems = matrix.reshape(count, count, -1).permute(2, 0, 1).contiguous()
    scale = systems.diagonal(dim1=1, dim2=2).mean(1).clamp_min_(1e-6)
    systems /= scale[:, None, None]
    systems.diagonal(dim1=1, dim2=2).add_(JOINT_RIDGE)
    found = torch.linalg.solve(systems, torch.ones(len(systems), count)).clamp_min_(0.0)
    found /= found.sum(1, keepdim=True).clamp_min_(1e-6)
    weights: Tensor = found.T.reshape(count, *shape)
    return weights


def _shares(weights: Tensor | None, labels: Tensor, planes: slice) -> Tensor:
    return torch.full((len(labels), 1, 1, 1), 1.0 / len(labels)) if weights is None else weights[:, planes]


def _slabs(fields: Tensor, per_voxel: int = 1) -> Iterator[slice]:
    """Slices of planes that take little memory, over (N, D, H, W)."""
    count, depth, height, width = fields.shape
    planes = max(1, _SLAB_BYTES // (4 * count * per_voxel * height * width))
    for first in range(0, depth, planes):
        yield slice(first, min(first + planes, depth))

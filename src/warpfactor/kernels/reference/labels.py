"""Resampling of label maps: the label with the largest interpolation weight."""

from collections.abc import Sequence

import torch
from torch import Tensor

from warpfactor.kernels.reference.sample import inside_image, moving_points


@torch.no_grad()
def sample_labels(
    labels: Tensor,
    displacement: Tensor | None,
    matrix: Tensor,
    *,
    shape: Sequence[int] | None = None,
    outside: float = 0.0,
) -> Tensor:
    """The label whose corners around p have the largest total weight in linear interpolation.

    Among equal weights, the label of the first corner is taken.

    Args:
        labels: (D, H, W), of any number type; the result has the same type.
        displacement: (3, *fixed shape), or None for the affine alone.
        matrix: (3, 4), fixed voxel index to moving voxel index; p is as in `sample`.
        shape: Fixed shape, used only without a displacement.
        outside: Label of points more than half a voxel beyond the outermost voxel centres.
    """
    if displacement is not None:
        shape = displacement.shape[1:]
    if shape is None:
        raise ValueError("sample_labels needs a displacement or a shape; both are None")
    points = moving_points(labels, displacement, matrix, shape)
    inside = inside_image(points, labels)
    voters, weights = _corners(labels, points)
    winner, most = voters[0].clone(), torch.full_like(weights[0], -1.0)
    for candidate in voters:
        support = torch.zeros_like(most)
        for voter, weight in zip(voters, weights, strict=True):
            support += torch.where(voter == candidate, weight, 0.0)
        winner = torch.where(support > most, candidate, winner)
        most = torch.maximum(support, most)
    return torch.where(inside, winner, torch.tensor(outside, device=labels.device).to(labels.dtype))


def _corners(labels: Tensor, points: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """The eight voxels around each point (x changes fastest) and their linear weights, (z * y) * x."""
    numbers: list[Tensor | int] = [0]
    weights: list[Tensor | float] = [1.0]
    for point, n in zip(points, labels.shape, strict=True):
        clamped = torch.nan_to_num(point).clamp(0, n - 1)
        low = clamped.long()
        fraction = clamped - low
        ends = ((low, 1 - fraction), ((low + 1).clamp(max=n - 1), fraction))
        numbers = [number * n + place for number in numbers for place, _ in ends]
        weights = [weight * share for weight in weights for _, share in ends]
    flat = labels.reshape(-1)
    return [flat[number] for number in numbers], [torch.as_tensor(weight) for weight in weights]

"""How far two halves of a force agree: what every second voxel says, against what the voxels between them say.

A force that moves anatomy is the same for neighbours: smoothed by itself, each half of the voxels gives the same field.
Noise is not: its halves have nothing in common. Two things follow without any knowledge of the images:

- where the halves no longer agree, nothing is left to learn at this resolution and every further step fits noise;
- what they agree on has a correlation length. A Gaussian of that length keeps it and takes off the rest: it is about a
  voxel between the cortices of two people, and two or more in templates, in breathing organs and in noisy images.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from warpfactor.kernels.ops import Ops

EDGE = 48  # voxels: edge of the blocks that are looked at
BLOCKS = 2  # at most this many blocks along each axis
CORNERS = (0, 3, 5, 6)  # of eight blocks those that do not touch, half a million voxels, which say as much as all
FAR = 4.0  # the second scale at which the common power is measured, in units of the first


class Agreement(NamedTuple):
    """What two halves of a force have in common after a Gaussian.

    Attributes:
        correlation: of the halves; 1 in agreement, about 0 for noise.
        power: what they have in common per frequency that the Gaussian lets through, in units of the whole force.
    """

    correlation: float
    power: float


def agreement(force: Tensor, weights: Sequence[float], sigma: Sequence[float], ops: Ops) -> Agreement:
    """How far the two halves of a force agree after a Gaussian; they are the two colours of a chessboard.

    Args:
        force: (3, D, H, W), not smoothed; left as it is. Blocks spread over the image are looked at.
        weights: of its components along z, y, x, which make them comparable.
        sigma: of the Gaussian, in voxels along z, y, x.
    """
    return agreement_of_blocks(_parts(force), force.shape[1:], weights, sigma, ops)


def agreement_of_blocks(
    parts: Sequence[Tensor], shape: Sequence[int], weights: Sequence[float], sigma: Sequence[float], ops: Ops
) -> Agreement:
    """The same from the blocks of a force of this shape (D, H, W)."""
    both, first, second, energy = _products(parts, weights, sigma, ops).tolist()
    if not first * second > 0:
        return Agreement(0.0, 0.0)
    smoothed = [s for s, n in zip(sigma, shape, strict=True) if n > 1 and s > 0]
    passed = math.prod(1 / (2 * math.sqrt(math.pi) * s) for s in smoothed)  # energy that is left of white noise
    return Agreement(both / math.sqrt(first * second), 4 * both / energy / passed)


def correlation_length(near: Agreement, far: Agreement, dimensions: int) -> float:
    """Correlation length of what the halves agree on, in units of the Gaussian of `near`; `far` is of one FAR times it.

    A field with the power spectrum exp(-k²l²) has, after a Gaussian s, the mean power (1 + l²/s²)^(-d/2) of its lowest
    frequency. The quotient of two such powers gives l. It is 0 for a spectrum that does not fall.
    """
    if near.power <= 0:
        return math.inf if far.power > 0 else 0.0
    quotient = (max(far.power, 0.0) / near.power) ** (2 / dimensions)
    if quotient <= 1:
        return 0.0
    return math.sqrt((quotient - 1) / (1 - quotient / FAR**2)) if quotient < FAR**2 else math.inf


def agree_on_device(force: Tensor, weights: Sequence[float], sigma: Sequence[Any], ops: Any, least: float) -> Tensor:
    """Whether the correlation of the halves is at least `least`, decided on their device, for (B, 3, D, H, W) forces.

    Args:
        ops: over pairs.
    """
    both, first, second, _ = _products(_parts(force), weights, sigma, ops).unbind(-1)
    found = torch.where(first * second > 0, both / (first * second).sqrt(), 0.0)
    return found >= least


def _parts(force: Tensor) -> list[Tensor]:
    """The blocks of a force, (3, d, h, w) each, or of the forces of several pairs."""
    return [force[..., z, y, x] for z, y, x in blocks_of(force.shape[-3:])]


def _products(parts: Sequence[Tensor], weights: Sequence[float], sigma: Sequence[Any], ops: Any) -> Tensor:
    """Of the smoothed halves with each other and with themselves, and of the whole force with itself: (4,) float64."""
    total = torch.zeros((*parts[0].shape[:-4], 4), dtype=torch.float64, device=parts[0].device)
    for block in parts:
        whole = torch.stack([part * w for part, w in zip(block.unbind(-4), weights, strict=True)], -4)
        energy = _dot(whole, whole)
        black = ops.smooth_gaussian(whole * _chessboard(whole), sigma)
        white = ops.smooth_gaussian(whole, sigma).sub_(black)
        total += torch.stack([_dot(black, white), _dot(black, black), _dot(white, white), energy], -1)
    return total


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Σ a b, by planes first: a sum over everything would depend on the number of threads."""
    return (a * b).sum((-2, -1), dtype=torch.float64).flatten(-2).sum(-1)


def _chessboard(field: Tensor) -> Tensor:
    z, y, x = (torch.arange(n, device=field.device) for n in field.shape[-3:])
    return ((z[:, None, None] + y[:, None] + x) % 2).to(field.dtype)


def blocks_of(shape: Sequence[int]) -> list[tuple[slice, ...]]:
    """The blocks of a force of this shape (D, H, W) that are looked at."""
    every: list[tuple[slice, ...]] = [
        (slice(z, z + EDGE), slice(y, y + EDGE), slice(x, x + EDGE))
        for z in _starts(shape[0])
        for y in _starts(shape[1])
        for x in _starts(shape[2])
    ]
    return every if len(every) < BLOCKS**3 else [every[k] for k in CORNERS]


def _starts(n: int) -> list[int]:
    """Where the blocks along an axis of n voxels begin: one after the other, or as many as there may be, spread."""
    room = max(0, n - EDGE * BLOCKS)
    return [k * EDGE + room * (k + 1) // (BLOCKS + 1) for k in range(min(BLOCKS, -(-n // EDGE)))]

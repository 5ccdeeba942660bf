"""A pair of small images with its truth, and how such pairs are named before they are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from warpfactor import kernels
from warpfactor.bench.verdicts.truth import Truth
from warpfactor.checks.coarse import shrink, spacing_for
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.image import Image

VOXELS, PIXELS = 50_000, 16_000  # of volumes and of slices


@dataclass(frozen=True)
class TrialPair:
    """Two images and their truth.

    Attributes:
        name: unique.
        kind: over which scores can be compared.
        recipe: by which it is registered.
        sided: whether labels differ from left to right, so that a mirrored image is wrong by them.
    """

    name: str
    kind: str
    fixed: Image
    moving: Image
    truth: Truth
    recipe: str = "default"
    fixed_mask: Image | None = None
    moving_mask: Image | None = None
    sided: bool = False


@dataclass(frozen=True)
class PairSource:
    """A pair that is read or made when it is needed.

    Attributes:
        half: 1 for the pairs by which limits are chosen, 2 for those by which rates are measured.
    """

    name: str
    kind: str
    make: Callable[[], TrialPair]
    half: int = 1


def half_of(number: int, count: int) -> int:
    """1 for the first half of a list, with the one in its middle; 2 for the rest."""
    return 1 if number < (count + 1) // 2 else 2


def small_spacing(grid: Grid) -> float:
    """Spacing in mm at which an image is as small as it should be here."""
    return spacing_for(grid, PIXELS if grid.shape[0] == 1 else VOXELS)


def shrunk(image: Image, spacing_mm: float) -> Image:
    """The first channel of an image at a coarser spacing."""
    found = shrink(Image(image.data[:1], image.grid, image.name), spacing_mm, kernels.select("cpu"))
    return Image(torch.nan_to_num(found.data), found.grid, image.name)

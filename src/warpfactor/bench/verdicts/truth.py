"""What tells whether a transform is right, and what no check of a result sees: labels, landmarks or a known map."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch

from warpfactor.geometry.grid import Grid, Matrix
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Transform
from warpfactor.io import Landmarks
from warpfactor.measure import dice, target_registration_error


class Truth(Protocol):
    """Scores a transform; `score` has no meaning across kinds."""

    @property
    def better(self) -> int:
        """+1 if a high score is good, -1 if a low one is."""
        ...

    def score(self, transform: Transform) -> float: ...


@dataclass(frozen=True)
class LabelTruth:
    """Mean Dice over the labels that both maps have."""

    fixed: Image
    moving: Image
    better: int = 1

    @cached_property
    def common(self) -> set[int]:
        one, other = ({int(label) for label in torch.unique(image.data)} for image in (self.fixed, self.moving))
        return (one & other) - {0}

    def score(self, transform: Transform) -> float:
        carried = transform.resample(self.moving, self.fixed.grid, mode="nearest").data[0]
        found = dice(self.fixed.data[0], carried)
        return sum(found.get(label, 0.0) for label in self.common) / max(len(self.common), 1)


@dataclass(frozen=True)
class PointTruth:
    """Mean landmark error as a share of the fixed image's longest side.

    Attributes:
        chosen: whether a person chose the points, so that they can be given to the checks as landmarks.
    """

    points: Landmarks
    side_mm: float
    better: int = -1
    chosen: bool = True

    def score(self, transform: Transform) -> float:
        return (
            target_registration_error(transform.map_points(self.points.fixed), self.points.moving).mean / self.side_mm
        )


@dataclass(frozen=True)
class MapTruth:
    """Mean distance to a known affine over the object, as a share of the fixed image's longest side."""

    matrix: Matrix
    fixed: Image
    better: int = -1

    def score(self, transform: Transform) -> float:
        values = self.fixed.data[0]
        index = torch.nonzero(values > values.min() + 0.15 * (values.max() - values.min())).numpy()
        points = self.fixed.grid.index_to_world(index[:: 1 + len(index) // 2000])
        true = np.column_stack([points, np.ones(len(points))]) @ self.matrix.T
        apart = np.linalg.norm(transform.map_points(points) - true[:, :3], axis=1).mean()
        return float(apart) / side_mm(self.fixed.grid)


def side_mm(grid: Grid) -> float:
    """Length of the longest side of an image."""
    return max(n * s for n, s in zip(grid.shape, grid.spacing_mm, strict=True))

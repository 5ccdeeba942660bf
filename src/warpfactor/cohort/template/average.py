"""Averages of images, masks and labels in the space of a template, accumulated image by image."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from warpfactor.cohort.table.row import CohortRow
from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Transform
from warpfactor.io import read_labels, read_mask
from warpfactor.kernels.ops import Ops
from warpfactor.registration.apply import outside_values, resample_channels
from warpfactor.registration.inputs import load_image
from warpfactor.scene.object import foreground

RANGE = (2.0, 98.0)  # percentiles that are brought together before images are averaged
CUT = 1.0  # standard deviations at which a value counts half
SHARPEN_VOX = 1.0
_COUNT_BYTES = 1 << 29  # for votes, several labels at a time
_KEPT_BYTES = 1 << 29  # of images that need not be read twice

Place = Callable[[CohortRow], Transform]


@dataclass(frozen=True)
class Averager:
    """Averages over a group.

    Attributes:
        rows: the people, in an order that does not depend on how they were named.
        place: the transform of a person, from the template's space to theirs.
        grid: of the template.
        ops: the backend.
    """

    rows: Sequence[CohortRow]
    place: Place
    grid: Grid
    ops: Ops

    def images(self) -> Image:
        """The robust mean of all images, a channel at a time brought to one range of intensities.

        Values far from the mean of all count less: w = 1 / (1 + (distance / (CUT * deviation))²). Images are needed
        twice; those of a large group are read twice, so that few have to be held.
        """
        count, total, squares, ranges = len(self.rows), None, None, None
        kept = list[Tensor]()
        for scaled, limits in self._scaled(self.rows):
            if (len(kept) + 1) * scaled.nbytes <= _KEPT_BYTES:
                kept.append(scaled)
            total = scaled.double() if total is None else total.add_(scaled)
            squares = scaled.double().square_() if squares is None else squares.add_(scaled.double().square_())
            ranges = limits if ranges is None else ranges + limits
        if total is None or squares is None or ranges is None:
            raise InputError("A template needs at least one image.")
        mean = total.div_(count)
        if count > 2:
            mean = self._weighted(kept, mean, squares.div_(count).sub_(mean.square()).clamp_min_(0.0).sqrt_())
        low, high = (ranges / count)[:, 0], (ranges / count)[:, 1]
        shape = (-1, 1, 1, 1)
        natural = mean * (high - low).reshape(shape) + low.reshape(shape)
        return Image(natural.to(torch.float32), self.grid, "template")

    def _weighted(self, kept: Sequence[Tensor], mean: Tensor, deviation: Tensor) -> Tensor:
        """The robust mean; `kept` are the first of the images."""
        total, weights = torch.zeros_like(mean), torch.zeros_like(mean)
        floor = 1e-3 * float(deviation.mean()) + 1e-12
        others = (scaled for scaled, _ in self._scaled(self.rows[len(kept) :]))
        for scaled in itertools.chain(kept, others):
            weight = 1.0 / (1.0 + ((scaled - mean) / (CUT * deviation + floor)).square_())
            total.add_(weight * scaled)
            weights.add_(weight)
        return total.div_(weights)

    def _scaled(self, rows: Sequence[CohortRow]) -> Iterator[tuple[Tensor, Tensor]]:
        """Images on the template's grid, from 0 to 1 between two percentiles, and what those are, (C, 2)."""
        for row in rows:
            image = load_image(row.moving[0] if len(row.moving) == 1 else list(row.moving))
            moved = resample_channels(
                self.place(row), image, self.grid, outside=outside_values(image, None), ops=self.ops
            )
            data = torch.nan_to_num_(moved.data.to(torch.float32))
            limits = torch.tensor([self.ops.percentiles(channel, RANGE) for channel in data], dtype=torch.float64)
            low, width = limits[:, 0].reshape(-1, 1, 1, 1), (limits[:, 1] - limits[:, 0]).clamp_min(1e-12)
            yield ((data - low) / width.reshape(-1, 1, 1, 1)).to(torch.float32), limits

    def mask(self) -> Image | None:
        """Where most masks are; None if nobody has one."""
        masks = [(row, row.moving_mask) for row in self.rows if row.moving_mask is not None]
        votes = torch.zeros(self.grid.shape)
        for row, path in masks:
            votes += self.place(row).resample(read_mask(path), self.grid, mode="nearest", ops=self.ops).data[0] > 0
        inside = votes > len(masks) / 2
        return Image(inside[None].to(torch.uint8), self.grid, "mask") if masks and bool(inside.any()) else None

    def labels(self, tell: Callable[[int, Image], None] | None = None) -> tuple[Image, Image] | None:
        """The label that most people have at every voxel, and how many of them; None if nobody has labels.

        Votes are counted for several labels at a time, and the label maps read again for the next ones.

        Args:
            tell: called with every label and the share of people who have it at each voxel.
        """
        maps = [(row, row.moving_labels) for row in self.rows if row.moving_labels is not None]
        if not maps:
            return None
        values = sorted({int(value) for _, path in maps for value in torch.unique(read_labels(path).data)})
        best, most = torch.zeros(self.grid.shape, dtype=torch.int32), torch.zeros(self.grid.shape)
        at_once = max(1, _COUNT_BYTES // (2 * self.grid.voxel_count))
        for first in range(0, len(values), at_once):
            some = values[first : first + at_once]
            for value, votes in zip(some, self._votes(maps, some), strict=True):
                better = votes > most
                best[better], most[better] = value, votes[better].to(torch.float32)
                if tell is not None:
                    tell(value, Image((votes / len(maps))[None].to(torch.float32), self.grid, f"label {value}"))
        share = most / len(maps)
        return Image(best[None], self.grid, "labels"), Image(share[None], self.grid, "labels probability")

    def _votes(self, maps: Sequence[tuple[CohortRow, Path]], values: Sequence[int]) -> Tensor:
        """(values, D, H, W): how many people have each of some labels at every voxel."""
        counts = torch.zeros((len(values), *self.grid.shape), dtype=torch.int16)
        for row, path in maps:
            moved = self.place(row).resample(read_labels(path), self.grid, mode="label", ops=self.ops).data[0]
            for number, value in enumerate(values):
                counts[number] += moved == value
        return counts


def sharpened(image: Image, amount: float, ops: Ops) -> Image:
    """M + amount (M - smoothed M), within the range of M."""
    if amount == 0:
        return image
    sigma = [SHARPEN_VOX if n > 1 else 0.0 for n in image.grid.shape]
    smooth = ops.smooth_gaussian(image.data.clone(), sigma)
    data = image.data + amount * (image.data - smooth)
    low, high = image.data.amin((1, 2, 3), keepdim=True), image.data.amax((1, 2, 3), keepdim=True)
    return Image(torch.minimum(torch.maximum(data, low), high), image.grid, image.name)


def sharpness_per_mm(image: Image) -> float:
    """Mean length of the gradient in the object, in standard deviations of the object's values per mm."""
    inside = foreground(image.data, None)
    data = image.data[0].double()
    total = torch.zeros_like(data)
    for axis, spacing in enumerate(image.grid.spacing_mm):
        if data.shape[axis] > 2:
            total += (torch.gradient(data, spacing=spacing, dim=axis)[0]) ** 2
    return float(total.sqrt()[inside].mean() / data[inside].std().clamp_min(1e-12))


def relative_change(after: Image, before: Image) -> float:
    """Root mean square of the difference in the object, in standard deviations of the object's values."""
    inside = foreground(before.data, None).expand_as(before.data)
    apart = (after.data - before.data)[inside].double()
    return float(apart.square().mean().sqrt() / before.data[inside].double().std().clamp_min(1e-12))

"""What guides a registration besides its two images: further pairs of images, label maps, landmarks, terms of the warp.

Each is described as a user has it, with files or arrays, and becomes a weighted term once the images are read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warpfactor.checks.inputs import lie_apart
from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Affine
from warpfactor.io import from_any, read_labels, read_landmarks
from warpfactor.kernels.ops import Ops
from warpfactor.registration.companions import check_common, common_labels
from warpfactor.registration.inputs import Images, load_image, load_mask
from warpfactor.scene.prepare import make_scene
from warpfactor.terms import METRICS, LabelTerm, LandmarkTerm, PairTerm, Term, Weighted


class Guide(ABC):
    """What becomes a term when the images of a registration are known.

    Attributes:
        weight: of the term.
    """

    weight: float

    @abstractmethod
    def load(self, images: Images, ops: Ops, device: torch.device) -> Term:
        """The term; InputError if it cannot belong to the images."""


@dataclass(frozen=True, eq=False)
class ImagePair(Guide):
    """Two further images of the same subjects to register together with the first two, such as T2 and T1.

    Attributes:
        fixed, moving: as those of `register`. The fixed one is brought onto the grid of the registration's fixed image
            by its header, if it has another one; the moving one may have any grid in moving space.
        metric: a name of `METRICS`, or settings such as wf.MI(bins=48).
        weight: beside the other terms; every metric is of order one at a voxel.
        fixed_mask, moving_mask: where these images count, on their own grids; by default where those of the
            registration do.
    """

    fixed: Any
    moving: Any
    metric: str | Term = "lncc"
    weight: float = 1.0
    fixed_mask: Any = None
    moving_mask: Any = None

    def load(self, images: Images, ops: Ops, device: torch.device) -> PairTerm:
        metric = _metric(self.metric)
        fixed, moving = (
            load_image(self.fixed, name="fixed image of a pair"),
            load_image(self.moving, name="moving image"),
        )
        fixed_mask = load_mask(self.fixed_mask, fixed, name="fixed mask of a pair")
        moving_mask = load_mask(self.moving_mask, moving, name="moving mask of a pair")
        own_masks = (fixed_mask is not None, moving_mask is not None)
        _check_place(fixed, images.fixed)
        _check_place(moving, images.moving)
        name = f"{metric.name} of {Path(fixed.name).name.partition('.')[0]}"
        fixed, fixed_mask = _onto(fixed, fixed_mask, images.fixed.grid, ops)
        if moving_mask is None and images.moving_mask is not None:
            moving_mask = _resampled(images.moving_mask, moving.grid, "nearest", ops)
        scene = make_scene(fixed, moving, ops=ops, fixed_mask=fixed_mask, moving_mask=moving_mask, device=device)
        return PairTerm(metric, scene, name, own_masks)


@dataclass(frozen=True, eq=False)
class LabelPair(Guide):
    """Label maps of the two images, whose overlap becomes part of the cost.

    Attributes:
        fixed: on the grid of the fixed image; a file, an Image or an array.
        moving: in moving space; an array is taken to lie on the moving image's grid.
        values: the labels to use; by default all that both maps have, other than 0.
        weight: beside the other terms; with 1 they pull about as strongly as the images do.
    """

    fixed: Any
    moving: Any
    values: Sequence[int] | None = None
    weight: float = 1.0

    def load(self, images: Images, ops: Ops, device: torch.device) -> LabelTerm:
        fixed = _labels(self.fixed, images.fixed.grid, "fixed labels").on_grid(images.fixed.grid)
        moving = _labels(self.moving, images.moving.grid, "moving labels")
        _check_place(moving, images.moving)
        common = common_labels(fixed, moving)
        if self.values is not None:
            missing = sorted({int(value) for value in self.values} - set(common))
            if missing or not self.values:
                wrong = f"label {missing[0]} is not in both" if missing else "no label is chosen"
                raise InputError(f"{fixed.name} and {moving.name}: {wrong}; they share {_listed(common)}.")
            common = tuple(sorted({int(value) for value in self.values}))
        check_common(fixed, moving)
        return LabelTerm(fixed.data[0], moving.data[0], fixed.grid, moving.grid, common)


@dataclass(frozen=True, eq=False)
class LandmarkPair(Guide):
    """Corresponding points of the two images.

    Attributes:
        fixed: (N, 3) points, LPS mm, or a CSV file of both (see `read_landmarks`).
        moving: (N, 3) points; None if `fixed` is a file.
        weight: beside the other terms; with 1 they pull as strongly as the images do around them.
        ras: whether the file is RAS instead of LPS.
    """

    fixed: Any
    moving: Any = None
    weight: float = 1.0
    ras: bool = False

    def load(self, images: Images, ops: Ops, device: torch.device) -> LandmarkTerm:
        fixed, moving, source = self.fixed, self.moving, ""
        if isinstance(fixed, (str, Path)):
            (fixed, moving), source = read_landmarks(fixed, ras=self.ras), f"{fixed}: "
        elif moving is None:
            raise InputError("Landmarks need the points of both images; give a CSV file, or fixed and moving points.")
        term = LandmarkTerm.of(fixed, moving)
        term.check_inside(images.fixed.grid, images.moving.grid, source)
        return term


def load_guides(given: Iterable[Any], images: Images, ops: Ops, device: torch.device) -> tuple[Weighted, ...]:
    """Weighted terms of what guides a registration: guides, weighted terms, or terms, whose weight is 1.

    Those of weight zero are left out.
    """
    return tuple(found for each in given if (found := _weighted(each, images, ops, device)).weight > 0)


def _weighted(given: Any, images: Images, ops: Ops, device: torch.device) -> Weighted:
    if isinstance(given, Weighted):
        return given
    if isinstance(given, Guide):
        return Weighted(given.load(images, ops, device), given.weight)
    if not callable(getattr(given, "prepare", None)):
        raise InputError(
            f"A {type(given).__name__} is not a term; give an ImagePair, a LabelPair, a LandmarkPair, or a term "
            "such as Bending(), alone or as Weighted(term, weight)."
        )
    return Weighted(given)


def _metric(given: str | Term) -> Term:
    if not isinstance(given, str):
        return given
    if given not in METRICS:
        raise InputError(f"Unknown metric {given!r}; use one of {', '.join(METRICS)}.")
    made: Term = METRICS[given]()
    return made


def _check_place(image: Image, of: Image) -> None:
    """InputError if an image lies apart from the one it belongs to."""
    if image.grid.ndim != of.grid.ndim:
        raise InputError(
            f"{image.name} is {image.grid.ndim}-D and {of.name} is {of.grid.ndim}-D; both must have the same dimension."
        )
    if lie_apart(image.grid, of.grid):
        raise InputError(f"{image.name} lies outside {of.name} in space; check its header.")


def _onto(image: Image, mask: Image | None, grid: Grid, ops: Ops) -> tuple[Image, Image | None]:
    """An image and its mask on another grid; what the image does not cover is masked."""
    if image.grid.same_space(grid):
        return image.on_grid(grid), None if mask is None else mask.on_grid(grid)
    covered = mask or Image(torch.ones((1, *image.grid.shape), dtype=torch.uint8), image.grid, image.name)
    return _resampled(image, grid, "linear", ops), _resampled(covered, grid, "nearest", ops)


def _resampled(image: Image, grid: Grid, mode: str, ops: Ops) -> Image:
    return Affine(dimension=grid.ndim).resample(image, grid, mode=mode, ops=ops)


def _labels(source: Any, grid: Grid, name: str) -> Image:
    """A label map as int32, from a file, an image or an array on `grid`."""
    if isinstance(source, (str, Path)):
        return read_labels(source)
    array = isinstance(source, (np.ndarray, Tensor))
    image = Image.from_array(source, grid=grid, name=name) if array else from_any(source)
    if image.channels != 1 or not torch.equal(image.data, image.data.round()):
        raise InputError(f"{image.name}: is not a label map; it must have one channel of whole numbers.")
    return Image(image.data.to(torch.int32), image.grid, image.name)


def _listed(values: Sequence[int], most: int = 12) -> str:
    if not values:
        return "none"
    return ", ".join(map(str, values[:most])) + (" ..." if len(values) > most else "")

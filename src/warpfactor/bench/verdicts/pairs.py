"""Small pairs of images of many kinds, each with a truth that no check sees: labels, landmarks or a known map.

Real images come from a folder like the project's evaluation data, shrunk to some ten thousand voxels, which is the
resolution at which checks compare images. Phantoms and pairs with hard starts need no folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import permutations
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from warpfactor import kernels
from warpfactor.bench.data.dataset import BenchCase
from warpfactor.bench.data.hard import HardPair, hard_pairs, make_pair
from warpfactor.bench.data.kinds import COLLECTION, ImageKind
from warpfactor.bench.data.landmarks import read_pair
from warpfactor.checks.coarse import shrink, shrink_mask, spacing_for
from warpfactor.geometry.grid import Grid, Matrix
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Affine, Transform
from warpfactor.io import Landmarks, read_image, read_labels, read_mask
from warpfactor.measure import dice, target_registration_error
from warpfactor.phantom import Contrast, phantom

VOXELS, PIXELS = 50_000, 16_000  # of volumes and of slices
MOST = {"brain": 28, "hippocampus": 24, "slices2d": 28, "mouse": 12, "protonlung": 14}  # pairs of a kind
BOTH_WAYS = ("lung", "liver", "macaque", "contrast", "knee", "histology")
RECIPES = ("default", "default", "default", "symmetric", "default", "affine")  # in turn
SEEDS = 6  # phantoms of each form and contrast
CONTRASTS: tuple[Contrast, ...] = ("t1", "t2", "inverted")
FORMS: Mapping[str, tuple[int, int, int]] = {"volume": (36, 42, 36), "slice": (1, 128, 128)}
SIDED = ("brain", "slices2d", "mouse", "protonlung")  # labels differ from left to right
HARD_SLICE = "slice 200"


class Truth(Protocol):
    """What tells whether a transform is right; `score` has no meaning across kinds."""

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
    """Mean landmark error as a share of the fixed image's longest side."""

    points: Landmarks
    side_mm: float
    better: int = -1

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


def side_mm(grid: Grid) -> float:
    """Length of the longest side of an image."""
    return max(n * s for n, s in zip(grid.shape, grid.spacing_mm, strict=True))


@dataclass(frozen=True)
class PairSource:
    """A pair that is read or made when it is needed."""

    name: str
    kind: str
    make: Callable[[], TrialPair]


def all_pairs(folder: Path | None) -> list[PairSource]:
    """Every pair; those of real images only if there is a folder of them. Kinds take turns: any part has all."""
    kinds = [list(phantom_pairs()), list(hard_trials(folder))]
    kinds += [] if folder is None else [list(pairs) for pairs in real_pairs(folder)]
    longest = max(len(pairs) for pairs in kinds)
    places = [((number + 0.5) / len(pairs) * longest, source) for pairs in kinds for number, source in enumerate(pairs)]
    return [source for _, source in sorted(places, key=lambda place: place[0])]


def phantom_pairs() -> Iterator[PairSource]:
    """Brain-like phantoms, in one contrast and in two, volumes and slices."""
    for seed in range(SEEDS):
        for contrast in CONTRASTS if seed < SEEDS // 2 else CONTRASTS[:1]:
            for form in FORMS:
                make = partial(_phantom_pair, form, contrast, seed)
                yield PairSource(f"phantom {form} {contrast} {seed}", f"phantom {form}", make)


def _phantom_pair(form: str, contrast: Contrast, seed: int) -> TrialPair:
    shape = FORMS[form]
    grid = Grid.from_spacing(shape[1:] if shape[0] == 1 else shape, 2.0)
    made = phantom(shape, contrast=contrast, seed=seed, displacement_vox=3.0, noise=0.03)
    labels = LabelTruth(Image(made.fixed_labels[None], grid), Image(made.moving_labels[None], grid))
    fixed, moving = Image(made.fixed[None], grid, f"{seed}"), Image(made.moving[None], grid, f"{seed}")
    return TrialPair(f"phantom {form} {contrast} {seed}", f"phantom {form}", fixed, moving, labels)


def hard_trials(folder: Path | None) -> Iterator[PairSource]:
    """Pairs of one object that begin far from each other: turned, scaled, cut, in other contrasts, with noise."""
    seen = set()
    for case in hard_pairs(folder):
        form = case.source.partition(" ")[0]
        small = replace(case, source=HARD_SLICE) if form == "slice" else case
        key = replace(small, name="")
        if key not in seen:  # some differ in the number of pixels only
            seen.add(key)
            yield PairSource(f"hard: {case.name}", "hard", partial(_hard_trial, small, folder))


def _hard_trial(case: HardPair, folder: Path | None) -> TrialPair:
    fixed, moving, matrix = make_pair(case, folder)
    spacing = spacing_for(fixed.grid, PIXELS if fixed.grid.shape[0] == 1 else VOXELS)
    one, other = (_shrunk(image, spacing) for image in (fixed, moving))
    return TrialPair(f"hard: {case.name}", "hard", one, other, MapTruth(matrix, one))


def real_pairs(folder: Path) -> Iterator[Iterator[PairSource]]:
    """Pairs of the kinds that the folder has; of kinds with many images every ordered pair, up to a number."""
    for kind in COLLECTION:
        if (folder / kind.name).is_dir():
            yield _pairs_of(kind, folder)


def _pairs_of(kind: ImageKind, folder: Path) -> Iterator[PairSource]:
    pairs = kind.pairs
    if kind.name in MOST:
        names = list(dict.fromkeys(name for pair in kind.pairs for name in pair))
        every = list(permutations(names, 2))
        chosen = np.random.default_rng(len(names)).permutation(len(every))[: MOST[kind.name]]
        pairs = tuple(every[int(number)] for number in chosen)
    for number, case in enumerate(replace(kind, pairs=pairs).cases(folder)):
        recipe = RECIPES[number % len(RECIPES)] if kind.name in MOST else "default"
        ending = "" if recipe == "default" else f", {recipe}"
        make = partial(_real_pair, case, kind, recipe)
        yield PairSource(f"{kind.name}: {case.name}{ending}", f"{kind.name}{ending}", make)
        if kind.name in BOTH_WAYS:
            yield PairSource(f"{kind.name}: {case.name}, swapped", kind.name, partial(_swapped, case, kind))


def _real_pair(case: BenchCase, kind: ImageKind, recipe: str) -> TrialPair:
    fixed, moving = read_image(case.fixed), read_image(case.moving)
    spacing = spacing_for(fixed.grid, PIXELS if fixed.grid.shape[0] == 1 else VOXELS)
    one, other = _shrunk(fixed, spacing), _shrunk(moving, spacing)
    points = read_pair(case, fixed.grid, moving.grid)
    truth: Truth
    if points is not None:
        count = len(points.fixed) - kind.outside  # the last ones lie outside the organ
        truth = PointTruth(Landmarks(points.fixed[:count], points.moving[:count]), side_mm(fixed.grid))
    else:
        assert case.fixed_labels is not None
        assert case.moving_labels is not None
        labels = read_labels(case.fixed_labels), read_labels(case.moving_labels)
        truth = LabelTruth(_labels_on(labels[0], one.grid), _labels_on(labels[1], other.grid))
    ops = kernels.select("cpu")
    masks = [
        None if path is None else shrink_mask(read_mask(path), image.grid, ops)
        for path, image in ((case.fixed_mask, one), (case.moving_mask, other))
    ]
    ending = "" if recipe == "default" else f", {recipe}"
    return TrialPair(
        f"{kind.name}: {case.name}{ending}",
        f"{kind.name}{ending}",
        one,
        other,
        truth,
        recipe=recipe,
        fixed_mask=masks[0],
        moving_mask=masks[1],
        sided=kind.name in SIDED,
    )


def _swapped(case: BenchCase, kind: ImageKind) -> TrialPair:
    return swapped(_real_pair(case, kind, "default"))


def swapped(pair: TrialPair) -> TrialPair:
    """Fixed and moving exchanged; of pairs whose truth is landmarks."""
    assert isinstance(pair.truth, PointTruth)
    points = Landmarks(pair.truth.points.moving, pair.truth.points.fixed)
    return replace(
        pair,
        name=f"{pair.name}, swapped",
        fixed=pair.moving,
        moving=pair.fixed,
        truth=PointTruth(points, side_mm(pair.moving.grid)),
        fixed_mask=pair.moving_mask,
        moving_mask=pair.fixed_mask,
    )


def _shrunk(image: Image, spacing_mm: float) -> Image:
    found = shrink(Image(image.data[:1], image.grid, image.name), spacing_mm, kernels.select("cpu"))
    return Image(torch.nan_to_num(found.data), found.grid, image.name)


def _labels_on(labels: Image, grid: Grid) -> Image:
    return Affine(dimension=grid.ndim).resample(labels, grid, mode="nearest")

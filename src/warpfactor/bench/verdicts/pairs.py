"""Small pairs of images of many kinds, each with a truth that no check sees: labels, landmarks or a known map.

Real images come from a folder like the project's evaluation data, shrunk to some ten thousand voxels, which is the
resolution at which checks compare images. Phantoms and pairs with hard starts need no folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import combinations, permutations
from pathlib import Path

import numpy as np

from warpfactor import kernels
from warpfactor.bench.data.dataset import BenchCase
from warpfactor.bench.data.hard import HardPair, hard_pairs, make_pair
from warpfactor.bench.data.kinds import COLLECTION, ImageKind
from warpfactor.bench.data.landmarks import read_pair
from warpfactor.bench.verdicts.bent import bent_pairs
from warpfactor.bench.verdicts.trial import PairSource, TrialPair, half_of, shrunk, small_spacing
from warpfactor.bench.verdicts.truth import LabelTruth, MapTruth, PointTruth, Truth, side_mm
from warpfactor.checks.coarse import shrink_mask
from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Affine
from warpfactor.io import Landmarks, read_image, read_labels, read_mask
from warpfactor.phantom import Contrast, phantom

MOST = {"brain": 20, "hippocampus": 16, "slices2d": 20, "mouse": 12, "protonlung": 10}  # pairs of a kind, at first
MORE = {"brain": 12, "hippocampus": 12, "slices2d": 12, "protonlung": 8}  # further ones, two by two in the halves
BOTH_WAYS = ("lung", "liver", "macaque", "contrast", "knee", "histology")
RECIPES = ("default", "default", "default", "symmetric", "default", "affine")  # in turn
SEEDS, MORE_SEEDS = 4, 4  # phantoms of each form, in two contrasts
OTHER_CONTRASTS: tuple[Contrast, ...] = ("t2", "inverted")  # in turn
FORMS: Mapping[str, tuple[int, int, int]] = {"volume": (36, 42, 36), "slice": (1, 128, 128)}
SIDED = ("brain", "slices2d", "mouse", "protonlung")  # labels differ from left to right
HARD_SLICE = "slice 200"
NEW_SLICES = (  # other anatomies than those of hard_pairs, for the second half
    HardPair("190 px, turned 60", "slice 190", 60),
    HardPair("195 px, turned 150", "slice 195", 150),
    HardPair("205 px, scale 0.7, turned 20", "slice 205", 20, scale=0.7),
    HardPair("210 px, scale 1.4, turned 100", "slice 210", 100, scale=1.4),
    HardPair("215 px, cut x, turned 30", "slice 215", 30, half="cut x"),
    HardPair("220 px, empty x, turned 15", "slice 220", 15, half="empty x"),
    HardPair("225 px, noise 0.3, turned 70", "slice 225", 70, noise=0.3),
    HardPair("230 px, inverted, turned 120", "slice 230", 120, contrast="inverted"),
    HardPair("235 px, wave, turned 10", "slice 235", 10, contrast="wave"),
    HardPair("240 px, inverted object, turned 75", "slice 240", 75, contrast="inverted object"),
)


def all_pairs(folder: Path | None) -> list[PairSource]:
    """Every pair, those of half 1 first; those of real images only if there is a folder of them."""
    kinds = [list(phantom_pairs()), list(hard_trials(folder))]
    if folder is not None:
        kinds += [*(list(pairs) for pairs in real_pairs(folder)), list(bent_pairs(folder))]
    return [source for half in (1, 2) for source in _in_turn(kinds, half)]


def _in_turn(kinds: list[list[PairSource]], half: int) -> list[PairSource]:
    """The pairs of one half, in an order in which kinds take turns: any part of it has all."""
    chosen = [[source for source in pairs if source.half == half] for pairs in kinds]
    places = [((number + 0.5) / len(pairs), source) for pairs in chosen for number, source in enumerate(pairs)]
    return [source for _, source in sorted(places, key=lambda place: place[0])]


def phantom_pairs() -> Iterator[PairSource]:
    """Brain-like phantoms, in one contrast and in two, volumes and slices."""
    contrast: Contrast
    for seed in range(SEEDS + MORE_SEEDS):
        for contrast in ("t1", OTHER_CONTRASTS[seed % len(OTHER_CONTRASTS)]):
            for form in FORMS:
                make = partial(_phantom_pair, form, contrast, seed)
                half = _half(seed, SEEDS)
                yield PairSource(f"phantom {form} {contrast} {seed}", f"phantom {form}", make, half)


def _phantom_pair(form: str, contrast: Contrast, seed: int) -> TrialPair:
    shape = FORMS[form]
    grid = Grid.from_spacing(shape[1:] if shape[0] == 1 else shape, 2.0)
    made = phantom(shape, contrast=contrast, seed=seed, displacement_vox=3.0, noise=0.03)
    labels = LabelTruth(Image(made.fixed_labels[None], grid), Image(made.moving_labels[None], grid))
    fixed, moving = Image(made.fixed[None], grid, f"{seed}"), Image(made.moving[None], grid, f"{seed}")
    return TrialPair(f"phantom {form} {contrast} {seed}", f"phantom {form}", fixed, moving, labels)


def hard_trials(folder: Path | None) -> Iterator[PairSource]:
    """Pairs of one object that begin far from each other: turned, scaled, cut, in other contrasts, with noise.

    Slices of `hard_pairs` are in half 1, new ones in half 2; the rest takes turns.
    """
    found = dict[HardPair, HardPair]()
    for case in hard_pairs(folder):
        small = replace(case, source=HARD_SLICE) if _is_slice(case) else case
        found.setdefault(replace(small, name=""), small)  # some differ in the number of pixels only
    slices = [case for case in found.values() if _is_slice(case)]
    others = [case for case in found.values() if not _is_slice(case)]
    halves = [(case, 1) for case in slices] + [(case, 1 + number % 2) for number, case in enumerate(others)]
    for case, half in [*halves, *((case, 2) for case in NEW_SLICES)]:
        yield PairSource(f"hard: {case.name}", "hard", partial(_hard_trial, case, folder), half)


def _is_slice(case: HardPair) -> bool:
    return case.source.startswith("slice ")


def _hard_trial(case: HardPair, folder: Path | None) -> TrialPair:
    fixed, moving, matrix = make_pair(case, folder)
    spacing = small_spacing(fixed.grid)
    one, other = (shrunk(image, spacing) for image in (fixed, moving))
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
        chosen = np.random.default_rng(len(names)).permutation(len(every))
        count = MOST[kind.name] + MORE.get(kind.name, 0)
        pairs = tuple(every[int(number)] for number in chosen[:count])
    for number, case in enumerate(replace(kind, pairs=pairs).cases(folder)):
        half = _half(number, MOST.get(kind.name, len(pairs)))
        recipe = RECIPES[number % len(RECIPES)] if kind.name in MOST else "default"
        ending = "" if recipe == "default" else f", {recipe}"
        make = partial(_real_pair, case, kind, recipe)
        yield PairSource(f"{kind.name}: {case.name}{ending}", f"{kind.name}{ending}", make, half)
        if kind.name in BOTH_WAYS:
            yield PairSource(f"{kind.name}: {case.name}, swapped", kind.name, partial(_swapped, case, kind), half)
    yield from _pairs_between(kind, folder)


def _half(number: int, first: int) -> int:
    """Half of a pair: the first ones are divided in their middle, further ones take turns two by two."""
    return half_of(number, first) if number < first else 1 + (number - first) // 2 % 2


def _pairs_between(kind: ImageKind, folder: Path) -> Iterator[PairSource]:
    """Pairs of two moving images that have landmarks in the same fixed image, both ways; they take turns."""
    cases = [case for case in kind.cases(folder) if case.fixed_landmarks is not None]
    both = [(one, other) for one, other in combinations(cases, 2) if one.fixed == other.fixed]
    for number, (one, other) in enumerate(both):
        name, half = _name_between(one, other), 1 + number % 2
        make = partial(_between, one, other, kind)
        yield PairSource(f"{kind.name}: {name}", kind.name, make, half)
        yield PairSource(f"{kind.name}: {name}, swapped", kind.name, partial(_between_swapped, one, other, kind), half)


def _between_swapped(one: BenchCase, other: BenchCase, kind: ImageKind) -> TrialPair:
    return swapped(_between(one, other, kind))


def _name_between(one: BenchCase, other: BenchCase) -> str:
    return " <- ".join(case.name.partition(" <- ")[2] for case in (one, other))


def _between(one: BenchCase, other: BenchCase, kind: ImageKind) -> TrialPair:
    """The moving images of two pairs, with the landmarks that both have."""
    first, second = (_real_pair(case, kind, "default") for case in (one, other))
    assert isinstance(first.truth, PointTruth)
    assert isinstance(second.truth, PointTruth)
    if not np.array_equal(first.truth.points.fixed, second.truth.points.fixed):
        raise InputError(f"{one.name} and {other.name} have different landmarks in their fixed image.")
    points = Landmarks(first.truth.points.moving, second.truth.points.moving)
    return TrialPair(
        f"{kind.name}: {_name_between(one, other)}",
        kind.name,
        first.moving,
        second.moving,
        PointTruth(points, side_mm(first.moving.grid)),
    )


def _real_pair(case: BenchCase, kind: ImageKind, recipe: str) -> TrialPair:
    fixed, moving = read_image(case.fixed), read_image(case.moving)
    spacing = small_spacing(fixed.grid)
    one, other = shrunk(fixed, spacing), shrunk(moving, spacing)
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


def _labels_on(labels: Image, grid: Grid) -> Image:
    return Affine(dimension=grid.ndim).resample(labels, grid, mode="nearest")

"""A small example dataset: phantoms with labels, landmarks and masks, and their table."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from warpfactor.bench.data.dataset import BenchCase, write_table
from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Warp
from warpfactor.io import make_table, write_image, write_points
from warpfactor.io.atomic import atomic_folder
from warpfactor.phantom import Phantom, phantom

TABLE = "pairs.csv"
SPACING_MM = 2.0
LANDMARKS = 40


def write_example(
    folder: Path, *, pairs: int = 3, shape: tuple[int, int, int] = (48, 56, 48), force: bool = False
) -> Path:
    """Write a number of phantom pairs and their table into a folder, and return the path of the table."""
    if pairs < 1:
        raise InputError(f"The number of pairs must be at least 1, not {pairs}.")
    with atomic_folder(folder, force=force, own=[TABLE]) as place:
        cases = [_write_pair(place, number, shape) for number in range(pairs)]
        write_table(cases, place / TABLE)
    return folder / TABLE


def _write_pair(place: Path, seed: int, shape: tuple[int, int, int]) -> BenchCase:
    """Write the files of one phantom; the paths of the case are relative to the folder."""
    made = phantom(shape, seed=seed)
    flat = shape[0] == 1
    grid = Grid.from_spacing(shape[1:] if flat else shape, SPACING_MM)
    images = {
        "fixed": made.fixed,
        "moving": made.moving,
        "fixed_labels": made.fixed_labels,
        "moving_labels": made.moving_labels,
        "fixed_mask": made.mask.byte(),
        "moving_mask": (made.moving_labels > 0).byte(),
    }
    files = {name: Path(f"pair{seed}_{name}.nii.gz") for name in images}
    for name, data in images.items():
        write_image(Image(data[None], grid, name), place / files[name])
    points = {side: Path(f"pair{seed}_{side}_landmarks.csv") for side in ("fixed", "moving")}
    _write_landmarks(made, grid, place / points["fixed"], place / points["moving"], seed)
    marks = {f"{side}_landmarks": path for side, path in points.items()}
    words = {"name": f"phantom {seed}", "group": "phantom"}
    return BenchCase.from_dict({**words, **{name: str(path) for name, path in {**files, **marks}.items()}})


def _write_landmarks(made: Phantom, grid: Grid, fixed: Path, moving: Path, seed: int) -> None:
    """Write random voxels inside the phantom, and the points to which the true warp maps them."""
    inside = made.mask.nonzero().numpy()
    chosen = np.random.default_rng(seed).choice(len(inside), size=min(LANDMARKS, len(inside)), replace=False)
    points = grid.index_to_world(inside[np.sort(chosen)])
    write_points(make_table(points), points, fixed)
    mapped = Warp(made.displacement, grid).map_points(points)
    write_points(make_table(mapped), mapped, moving)

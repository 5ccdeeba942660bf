"""Small files under every name that README.md and docs/ use, and what makes commands take a fraction of a second."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Picture

import warpfactor as wf
from serial import use_serial
from small import GRID, SHAPE, image, pair, write_pair
from warpfactor.bench.data import example
from warpfactor.bench.data.dataset import BenchCase, write_table
from warpfactor.bench.run import runner, worker
from warpfactor.bench.run.record import read_run
from warpfactor.cli import warmup
from warpfactor.recipebook.table import RECIPES
from warpfactor.registration import ahead

COPIES = {
    "fixed": ("template", "inhale", "t1_fixed", "scan1"),
    "moving": ("subject", "exhale", "t1_moving", "scan2", "scan3", "tissue", "sub-01", "sub-02", "sub-03"),
    "mask": ("fixed_mask", "moving_mask", "template_mask", "inhale_lungs", "exhale_lungs"),
    "fixed_labels": (
        "atlas",
        "scan1_labels",
    ),
    "moving_labels": ("labels",),
}


def make(folder: Path) -> Path:
    """Fill a folder with stand-ins, the result folder `out` and, of a cohort, the first result."""
    write_pair(folder)
    for source, names in COPIES.items():
        for name in names:
            shutil.copy(folder / f"{source}.nii.gz", folder / f"{name}.nii.gz")
    _write_channels(folder)
    _write_sections(folder)
    _write_points(folder)
    _write_results(folder)
    files = {name: Path(f"{name}.nii.gz") for name in ("fixed", "moving", "fixed_labels", "moving_labels")}
    write_table([BenchCase(name="a", group="pairs", **files)], folder / "pairs.csv")
    for name in ("NLST", "OASIS"):
        _write_challenge(folder, name)
    _write_cohort(folder)
    return folder


def _write_channels(folder: Path) -> None:
    made = pair(contrast="t2")
    for name in ("fixed", "moving"):
        wf.write_image(image(getattr(made, name)), folder / f"t2_{name}.nii.gz")
    wf.io.write_series([image(made.moving), image(made.moving)], folder / "series.nii.gz")
    coarse = GRID.scaled(2.0)
    mask = wf.Affine().resample(wf.read_labels(folder / "mask.nii.gz"), coarse, mode="nearest")
    wf.write_image(mask, folder / "coarse_mask.nii.gz")


def _write_sections(folder: Path) -> None:
    """Photographs of sections with a mask, regions and points; and a gray pair."""
    made = pair((1, 32, 28))
    for name in ("fixed", "moving"):
        gray = (200 * getattr(made, name)[0].numpy()).clip(0, 255).round().astype(np.uint8)
        Picture.fromarray(gray).save(folder / f"{name}.png")
        for number in (12,) if name == "fixed" else (13, 14):
            Picture.fromarray(np.stack([255 - gray, 255 - gray // 2, 255 - gray // 3], -1)).save(
                folder / f"section_{number}.png"
            )
    Picture.fromarray(255 * made.mask[0].byte().numpy()).save(folder / "section_12_mask.png")
    Picture.fromarray(made.moving_labels[0].byte().numpy()).save(folder / "section_13_regions.png")
    (folder / "section_13_points.csv").write_text("x,y,name\n10,12,a\n14,20,b\n", encoding="utf-8")


def _write_points(folder: Path) -> None:
    index = np.random.default_rng(1).uniform(6, np.array(SHAPE) - 7, (5, 3))
    points = GRID.index_to_world(index)
    for name in ("fixed_points", "moving_points"):
        wf.io.write_points(wf.io.make_table(points), points, folder / f"{name}.csv")
    header = ",".join(f"{side}_{axis}" for side in ("fixed", "moving") for axis in "xyz")
    np.savetxt(folder / "landmarks.csv", np.c_[points, points + 1.0], delimiter=",", header=header, comments="")


def _write_results(folder: Path) -> None:
    """A result, the same under names of other tools, and as that of a person in a cohort."""
    found = wf.register(folder / "fixed.nii.gz", folder / "moving.nii.gz", recipe=quick(wf.recipe("default")))
    out = found.save(folder / "out")
    found.save(folder / "results" / "sub-01")
    shutil.copy(out / "0GenericAffine.mat", folder / "affine.mat")
    for name in ("0GenericAffine.mat", "1Warp.nii.gz", "1InverseWarp.nii.gz"):
        shutil.copy(out / name, folder / f"ants_{name}")
    wf.write_transform(found.transform, folder / "fireants_warp.nii.gz")


def _write_cohort(folder: Path) -> None:
    """Labels and further images of the people, their table, and one of them as a BIDS dataset."""
    for place, source in (("labels", "moving_labels"), ("functional", "moving")):
        (folder / place).mkdir()
        for number in (1, 2, 3):
            shutil.copy(folder / f"{source}.nii.gz", folder / place / f"sub-0{number}.nii.gz")
    names = ("fixed", "moving", "fixed_labels", "moving_labels")
    files = ("template", "sub-01", "atlas", "labels/sub-01")
    cells = ",".join(f"{name}.nii.gz" for name in files)
    (folder / "people.csv").write_text(f"name,{','.join(names)},group\na,{cells},patients\n", encoding="utf-8")
    atlas = "sub-01.nii.gz,labels/sub-01.nii.gz"
    (folder / "atlases.csv").write_text(f"name,image,labels\na,{atlas}\nb,{atlas}\n", encoding="utf-8")
    anatomy = folder / "study" / "sub-01" / "ses-1" / "anat"
    anatomy.mkdir(parents=True)
    (folder / "study" / "dataset_description.json").write_text("{}", encoding="utf-8")
    shutil.copy(folder / "moving.nii.gz", anatomy / "sub-01_ses-1_T1w.nii.gz")


def _write_challenge(folder: Path, name: str) -> None:
    """A folder of Learn2Reg with one pair and what there is to score it."""
    sides = {"fixed": f"{name}_0101_0000", "moving": f"{name}_0101_0001"}
    for side, stem in sides.items():
        for kind, source in (("images", side), ("labels", f"{side}_labels"), ("masks", "mask")):
            place = folder / name / f"{kind}Tr"
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy(folder / f"{source}.nii.gz", place / f"{stem}.nii.gz")
    pairs = {"registration_val": [{side: f"./imagesTr/{stem}.nii.gz" for side, stem in sides.items()}]}
    (folder / name / f"{name}_dataset.json").write_text(json.dumps({"name": name, **pairs}), encoding="utf-8")


def quick(recipe: wf.Recipe) -> wf.Recipe:
    """The recipe with as few iterations as possible."""
    changes: dict[str, Any] = {}
    if recipe.linear:
        changes |= {"linear.starts": ["identity"], "linear.iterations": [1] * len(recipe.linear[0].iterations)}
        changes |= {"linear.metric": "ncc"}  # one instead of two, between which a judge decides
    if recipe.deformable is not None:
        changes |= {"deformable.iterations": [2] * len(recipe.deformable.levels), "deformable.broad_from": 0.0}
    return recipe.replace(changes)


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recipes with few iterations, a small example, reports without a second affine, all in this process."""
    for name, recipe in list(RECIPES.items()):
        monkeypatch.setitem(RECIPES, name, quick(recipe))
    monkeypatch.setattr(example, "write_example", partial(example.write_example, pairs=2, shape=SHAPE))
    monkeypatch.setattr("warpfactor.checks.examine.align", lambda *_: None)
    monkeypatch.setattr(runner, "_run_once", run_here)
    monkeypatch.setattr(warmup, "parts", lambda: [("a part", lambda: None)])  # tests/cli/test_startup.py runs them all
    monkeypatch.setattr(ahead, "mark_compiled", lambda: None)
    monkeypatch.setattr(ahead, "are_compiled", lambda: True)
    use_serial(monkeypatch)


def run_here(plan: Any, folder: Path, how: Any, _: Any) -> Any:
    """Stands in for `runner._run_once`: the run of a benchmark in this process instead of one of its own."""
    request = json.loads(json.dumps(runner._request(plan, folder, how)))
    try:
        worker.run(request)
    except wf.WarpfactorError as error:
        runner._write_failure(request, 1, [f"{worker.REASON}{error}"], Path(request["output"]))
    return read_run(Path(request["output"]))

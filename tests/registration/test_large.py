"""Registration under a limit of memory: the plan, the finest level on the half grid, and what is written."""

import json

import numpy as np
import pytest

import warpfactor as wf
from warpfactor.errors import InputError, OutOfMemoryError
from warpfactor.io.lazy import LazyImage, open_lazily
from warpfactor.registration.plan import Beside, MemoryPlan, make_plan, planes_beside

zarr = pytest.importorskip("zarr", reason="zarr is not installed")

HALF = MemoryPlan(10**10, 10**9, "int16", "half", 8, {})
SHAPE = (49, 50, 52)


@pytest.fixture(autouse=True)
def compiled(monkeypatch):
    """Kernels count as compiled; see test_ahead.py."""
    monkeypatch.setattr("warpfactor.registration.ahead.are_compiled", lambda: True)


@pytest.fixture(scope="module")
def made():
    return wf.phantom.phantom(SHAPE, seed=3, displacement_vox=3.0)


@pytest.fixture(scope="module")
def result(made, tmp_path_factory):
    """Registered from OME-Zarr on the half grid, and saved."""
    place = tmp_path_factory.mktemp("large")
    for side in ("fixed", "moving"):
        voxels = (getattr(made, side) * 2000 + 500).round().clamp(0, 4095).numpy()
        wf.write_image(wf.Image.from_array(voxels, 0.5), place / f"{side}.ome.zarr")
    told = []
    pair = place / "fixed.ome.zarr", place / "moving.ome.zarr"
    found = wf.register(*pair, recipe="fast", memory=HALF, threads=1, progress=told.append)
    found.save(place / "out")
    assert [event for stage in found.history for event in stage.history if event in told] == told
    return found, place


def true_error(transform, made, spacing=1.0):
    """Mean distance from the truth inside the object, in voxels."""
    index = np.argwhere(made.mask.numpy())[::7]
    moved = transform.map_points(spacing * index[:, ::-1])[:, ::-1] / spacing
    return float(np.linalg.norm(moved - index - made.displacement.numpy()[(slice(None), *index.T)].T, axis=1).mean())


def test_the_half_grid_loses_little(made, result):
    found, _ = result
    assert found.warp.grid.shape == (25, 25, 26)
    assert found.fixed_grid.shape == SHAPE
    whole = wf.register(made.fixed, made.moving, recipe="fast", threads=1)
    before = float(made.displacement.norm(dim=0)[made.mask].mean())
    half = true_error(found.transform, made, 0.5)
    assert half < 0.35 * before
    assert half < true_error(whole.transform, made) + 0.08


def test_the_finest_level_ran_at_full_resolution(result):
    stage = result[0].history[-1]
    assert [factor for factor, _ in stage.levels][-2:] == [2, 1]
    assert stage.level == 1
    assert stage.cost_after < stage.cost_before
    assert {event.level for event in stage.history} == {1.0, 2.0} | {float(f) for f, _ in stage.levels}


def test_levels_and_seconds_are_those_of_the_whole_run(result):
    linear, deformable = result[0].history[0], result[0].history[-1]
    assert linear.level >= 2  # of the full images: they were registered at half their resolution
    assert linear.level <= min(event.level for event in linear.history)
    factors, seconds = ([getattr(event, name) for event in deformable.history] for name in ("level", "seconds"))
    assert factors == sorted(factors, reverse=True)
    assert seconds == sorted(seconds)
    assert deformable.seconds >= seconds[-1]


def test_the_warped_image_is_that_of_the_transform(result):
    found, place = result
    written = wf.read_image(place / "out" / "warped.ome.zarr")
    assert written.grid.same_space(found.fixed_grid)
    moving = wf.read_image(place / "moving.ome.zarr")
    whole = found.transform.resample(moving, found.fixed_grid, outside=found.run.outside[0])
    assert float((written.data - whole.data).abs().max()) < 0.01 * float(moving.data.max())


def test_the_folder_says_what_was_planned_and_is_read_again(result):
    found, place = result
    entries = json.loads((place / "out" / "result.json").read_text())
    assert entries["memory"]["warp"] == "half"
    assert entries["memory"]["peak_bytes"] > 10**8
    assert entries["fixed"]["shape_zyx"] == list(SHAPE)
    assert (place / "out" / "report.html").stat().st_size < 5e6
    saved = wf.read_result(place / "out")
    assert saved.fixed_grid.same_space(found.fixed_grid)
    points = np.array([[8.0, 9.0, 10.0]])
    assert saved.transform.map_points(points) == pytest.approx(found.transform.map_points(points), abs=1e-3)
    assert wf.report.rebuild(place / "out").verdict.level in ("green", "amber", "red")


def stand_in(size):
    """An OME-Zarr of size^3 voxels of which nothing is read, and the recipe for it."""
    grid = wf.Grid.from_spacing((size,) * 3)
    lazy = LazyImage(grid, np.dtype("uint16"), "big.zarr", 1, 0, 32, (), lambda *_: None)
    return lazy, wf.recipe("default").for_grid(grid)


@pytest.fixture
def fresh(monkeypatch):
    """A process without what other tests leave behind in memory."""
    monkeypatch.setattr("warpfactor.registration.plan.used_bytes", lambda: 0)


def test_ways_are_tried_until_one_fits(made, fresh):
    lazy, recipe = stand_in(512)
    plans = [make_plan(limit, lazy, lazy, recipe) for limit in ("20GB", "8GB", "3GB", "2GB")]
    assert [plan.warp for plan in plans] == ["full", "full", "half", "half"]
    assert [plan.images for plan in plans] == ["float32", "int16", "int16", "int16"]
    assert plans[3].slab_planes < plans[2].slab_planes
    assert all(plan.predicted_bytes <= plan.limit_bytes for plan in plans)
    assert plans[3].predicted_bytes < 0.93 * plans[3].limit_bytes  # runs differ a little; thinner slabs leave room
    with pytest.raises(OutOfMemoryError, match=r"1.00 GB is too low.*needs at least [12]\.\d\d GB"):
        make_plan("1GB", lazy, lazy, recipe)
    with pytest.raises(OutOfMemoryError, match=r"of which the program itself takes \d+ MB; raise the limit\.$"):
        make_plan("300MB", lazy, lazy, recipe)
    with pytest.raises(OutOfMemoryError, match="needs whole images"):
        make_plan("3GB", lazy, lazy, recipe.replace({"deformable.metric": "mi"}))
    with pytest.raises(InputError, match="write for instance"):
        make_plan("much", lazy, lazy, recipe)
    with pytest.raises(OutOfMemoryError, match=r"rank 0, because ranks cannot keep.* without ranks"):
        make_plan("2GB", lazy, lazy, recipe, Beside(shared=True))
    assert open_lazily(made.fixed).held_bytes > 0


def test_masks_are_planned_for_or_make_slabs_thinner(fresh):
    lazy, recipe = stand_in(512)
    plain, masked = (make_plan("2.1GB", lazy, lazy, recipe, Beside(masked=(each, each))) for each in (False, True))
    assert masked.slab_planes < plain.slab_planes
    found = [planes_beside(plain, recipe, recipe.deformable, lazy.grid, more * 512**3) for more in (0, 2)]
    assert found[0] == plain.slab_planes > found[1] >= masked.slab_planes


def test_a_volume_of_a_thousand_planes_is_planned(fresh):
    lazy, recipe = stand_in(1024)
    assert make_plan("14GB", lazy, lazy, recipe, Beside(masked=(True, True))).warp == "half"


def test_full_ways_give_the_usual_result(made):
    usual = wf.register(made.fixed, made.moving, recipe="affine", threads=1)
    planned = wf.register(made.fixed, made.moving, recipe="affine", threads=1, memory="8GB")
    assert planned.run.plan.warp == "full"
    assert np.array_equal(usual.affine.matrix, planned.affine.matrix)

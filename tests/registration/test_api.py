"""`register` from Python: every kind of input, what comes out, and what it promises."""

import inspect
import json
import subprocess
import sys
import threading

import nibabel
import numba
import numpy as np
import pytest
import torch

import warpfactor as wf
from small import GRID, LINEAR, QUICK, WARP_ONLY, image, pair
from warpfactor.optim import SGD, Paper
from warpfactor.stages.stage import Ending


@pytest.fixture(scope="module")
def made():
    return pair()


@pytest.fixture(scope="module")
def images(made):
    return image(made.fixed, name="fixed"), image(made.moving, name="moving")


@pytest.fixture(scope="module")
def found(images):
    return wf.register(*images, recipe="default", overrides=QUICK)


def test_importing_the_package_is_cheap_and_the_function_is_found_whatever_came_first():
    code = (
        "import sys, warpfactor; assert 'torch' not in sys.modules and 'numba' not in sys.modules;"
        "assert set(warpfactor.__all__) <= set(dir(warpfactor));"
        "import warpfactor.registration.run; assert callable(warpfactor.register);"
        "missing = [n for n in warpfactor.__all__ if not getattr(warpfactor, n)]; assert not missing"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="nothing"):
        _ = wf.nothing


def test_the_truth_is_approached(images, made):
    found = wf.register(*images, overrides={**WARP_ONLY, "deformable.iterations": [30, 15]})
    error = (found.warp.displacement - made.displacement).norm(dim=0)[made.mask].mean()
    assert error < 0.6 * made.displacement.norm(dim=0)[made.mask].mean()
    assert all(stage.cost_after < stage.cost_before for stage in found.history)


def test_transform_and_inverse_undo_each_other(found):
    points = GRID.index_to_world([[8.0, 9.0, 10.0], [12.5, 13.0, 11.0]])
    there = found.transform.map_points(points)
    assert np.abs(found.inverse.map_points(there) - points).max() < 0.1
    assert np.array_equal(found.apply_points(points, to="moving"), there)
    assert np.array_equal(found.apply_points(there), found.inverse.map_points(there))
    assert (found.transform.source, found.transform.target) == ("fixed", "moving")
    assert (found.inverse.source, found.inverse.target) == ("moving", "fixed")


def test_the_inverse_is_consistent_on_the_phantom(found):
    figures = found.figures.warp
    assert figures.there_and_back_vox.mean < 0.1
    assert figures.back_and_there_vox.mean < 0.01
    assert figures.there_and_back_mm.mean == pytest.approx(1.5 * figures.there_and_back_vox.mean, rel=1e-5)
    assert figures.jacobian.folded_count == 0


def test_the_warped_image_is_the_moving_image_through_the_transform(found, images):
    again = found.apply(images[1])
    assert torch.equal(again.data, found.warped.data)
    assert found.warped.grid == images[0].grid
    back = found.apply(found.warped, to="moving")
    assert back.grid == images[1].grid
    labels = wf.Image((images[1].data > 0.4).to(torch.int32), images[1].grid)
    assert found.apply(labels, mode="label").data.dtype == torch.int32
    with pytest.raises(wf.InputError, match="Unknown space"):
        found.apply(images[1], to="atlas")
    with pytest.raises(wf.InputError, match="Unknown space"):
        found.apply_points([[0, 0, 0]], to="atlas")


def test_a_saved_result_is_read_back(found, tmp_path):
    folder = found.save(tmp_path / "out", report=False, extra={"note": "x"})
    saved = wf.read_result(folder)
    names = {"warped.nii.gz", "0GenericAffine.mat", "1Warp.nii.gz", "1InverseWarp.nii.gz", "result.json"}
    assert {path.name for path in folder.iterdir()} == names
    points = GRID.index_to_world([[8.0, 9.0, 10.0]])
    assert np.allclose(saved.transform.map_points(points), found.transform.map_points(points), atol=1e-4)
    assert np.allclose(saved.inverse.map_points(points), found.inverse.map_points(points), atol=1e-4)
    assert saved.fixed_grid == found.fixed_grid
    assert saved.warp is not None
    assert saved.entries["note"] == "x"
    figures = saved.entries["figures"]
    assert figures["inverse_consistency_fixed_to_moving_to_fixed_vox"]["mean"] < 0.1
    assert figures["warp_jacobian_determinant_in_image"]["folded_count"] == 0
    assert len(saved.entries["stages"][1]["history"]["cost"]) == len(found.history[1].history)


def test_a_result_is_not_overwritten_unasked_and_others_files_stay(found, tmp_path):
    found.save(tmp_path / "out", report=False)
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(wf.FileError, match="not empty"):
        found.save(tmp_path / "out")
    affine = wf.register(found.warped, found.warped, recipe="affine", overrides=LINEAR)
    affine.save(tmp_path / "out", force=True, report=False)
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        "notes.txt",
        "warped.nii.gz",
        "0GenericAffine.mat",
        "result.json",
    }
    assert wf.read_result(tmp_path / "out").warp is None
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_an_empty_folder_is_filled(found, tmp_path):
    (tmp_path / "out").mkdir()
    found.save(tmp_path / "out", report=False)
    assert wf.read_result(tmp_path / "out").warp is not None
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_run_from_its_result_file_gives_the_same_warp_bit_for_bit(found, images, tmp_path):
    found.save(tmp_path / "out", report=False)
    again = wf.register(*images, recipe=str(tmp_path / "out" / "result.json"), threads=1)
    assert torch.equal(again.warp.displacement, found.warp.displacement)
    assert np.array_equal(again.affine.matrix, found.affine.matrix)
    assert again.recipe == found.recipe


def test_arrays_are_images_with_a_spacing(made):
    found = wf.register(
        made.fixed.numpy(),
        made.moving.numpy(),
        fixed_spacing_mm=(3, 2, 2),
        moving_spacing_mm=(3, 2, 2),
        recipe="rigid",
        overrides=LINEAR,
    )
    assert found.fixed_grid.spacing_mm == (3.0, 2.0, 2.0)
    assert found.warp is None
    assert found.inverse_warp is None
    assert found.figures.warp is None
    assert found.run.names == ("fixed", "moving")


def test_foreign_images_give_what_our_own_give(images):
    ours = wf.register(*images, recipe="rigid", overrides=LINEAR)
    foreign = [[part.to_sitk() for part in images], [_nibabel(part) for part in images]]
    for pair_of in foreign:
        theirs = wf.register(*pair_of, recipe="rigid", overrides=LINEAR)
        assert np.allclose(theirs.affine.matrix, ours.affine.matrix, atol=1e-6)


def test_ants_images_give_what_our_own_give(images):
    ants = pytest.importorskip("ants")
    theirs = []
    for part in images:
        _, origin, spacing, direction = part.grid.to_itk()
        values = part.data[0].numpy().T.copy()
        theirs.append(ants.from_numpy(values, origin, spacing, np.reshape(direction, (3, 3))))
    ours = wf.register(*images, recipe="rigid", overrides=LINEAR)
    assert np.allclose(wf.register(*theirs, recipe="rigid", overrides=LINEAR).affine.matrix, ours.affine.matrix)


def _nibabel(part):
    lps = part.grid.matrix[:, [2, 1, 0, 3]]
    return nibabel.Nifti1Image(part.data[0].numpy().T, np.diag([-1, -1, 1, 1]) @ lps)


def test_masks_are_arrays_images_or_files(images, made, tmp_path):
    mask = image(made.mask.to(torch.uint8), name="mask")
    wf.write_image(mask, tmp_path / "mask.nii.gz")
    forms = [made.mask, made.mask.numpy(), mask, tmp_path / "mask.nii.gz"]
    warps = [wf.register(*images, overrides=WARP_ONLY, fixed_mask=form).warp.displacement for form in forms]
    assert all(torch.equal(warp, warps[0]) for warp in warps[1:])
    without = wf.register(*images, overrides=WARP_ONLY).warp.displacement
    assert not torch.equal(warps[0], without)


def test_a_wrong_mask_is_refused(images, made):
    with pytest.raises(wf.InputError, match="mask is empty"):
        wf.register(*images, fixed_mask=torch.zeros_like(made.mask))
    shifted = wf.Image(made.mask.to(torch.uint8)[None], wf.Grid.from_spacing(GRID.shape, 1.5), "mask")
    with pytest.raises(wf.InputError, match="does not lie on the grid"):
        wf.register(*images, moving_mask=shifted)
    with pytest.raises(wf.InputError, match="one channel"):
        wf.register(*images, moving_mask=wf.Image(torch.ones((2, *GRID.shape)), GRID))


@pytest.mark.parametrize("name", ["fixed_mask", "moving_mask"])
def test_a_mask_with_reversed_axes_is_refused(name, made):
    pair = [part.numpy()[2:, 1:] for part in (made.fixed, made.moving)]
    with pytest.raises(wf.InputError, match=r"mask: .* axes look reversed, .* pass array\.T\."):
        wf.register(*pair, **{name: made.mask.numpy()[2:, 1:].T})


def test_channels_are_registered_together(images, made):
    fixed, moving = images
    second = [wf.Image(part.data.square(), part.grid, "squared") for part in images]
    settings = WARP_ONLY
    both = wf.register([fixed, second[0]], [moving, second[1]], overrides=settings, channel_weights=(1, 0))
    alone = wf.register(fixed, moving, overrides=settings)
    assert both.warped.channels == 2
    assert torch.allclose(both.warp.displacement, alone.warp.displacement, atol=1e-4)
    with pytest.raises(wf.InputError, match="channels"):
        wf.register([fixed, second[0]], moving, overrides=settings)
    with pytest.raises(wf.InputError, match="empty"):
        wf.register([], moving)


def test_an_initial_affine_is_where_linear_stages_start(images, tmp_path):
    shift = np.eye(4)
    shift[:3, 3] = (4.0, -3.0, 2.0)
    moved = wf.Image(images[1].data, wf.Grid(GRID.shape, shift @ GRID.matrix), "moved")
    wf.write_transform(wf.Affine(shift), tmp_path / "shift.mat")
    for initial in (shift, wf.Affine(shift), tmp_path / "shift.mat", [str(tmp_path / "shift.mat")]):
        found = wf.register(images[0], moved, recipe="rigid", overrides=LINEAR, initial=initial)
        assert found.history[0].start == "given"
        assert np.abs(found.affine.matrix[:3, 3] - shift[:3, 3]).max() < 1.5
    with pytest.raises(wf.InputError, match="cannot be an initial transform"):
        wf.register(*images, initial=object())


def test_an_initial_warp_is_where_the_deformable_stage_starts(images, found):
    changes = {**QUICK, "deformable.iterations": [0, 1]}
    again = wf.register(*images, recipe=found.recipe, overrides=changes, initial=found.transform)
    assert [stage.name for stage in again.history] == ["deformable"]
    assert np.array_equal(again.affine.matrix, found.affine.matrix)
    assert again.history[0].cost_before == pytest.approx(found.history[-1].cost_after, rel=1e-5)


def test_threads_are_limited_for_the_run_only(images, monkeypatch, all_threads):
    seen = []
    progress = seen.append
    before = numba.get_num_threads()
    found = wf.register(
        *images, recipe="rigid", overrides=LINEAR, threads=1, progress=lambda _: progress(numba.get_num_threads())
    )
    assert set(seen) == {1}
    assert found.run.threads == 1
    assert numba.get_num_threads() == before
    assert wf.register(*images, recipe="rigid", overrides=LINEAR, threads=10_000).run.threads == before
    with pytest.raises(wf.InputError, match="The number of threads must be at least 1, not 0"):
        wf.register(*images, threads=0)


def test_progress_tells_stage_level_and_share(images):
    updates = []
    wf.register(*images, overrides=QUICK, progress=updates.append)
    assert {update.stage for update in updates} >= {"affine", "deformable"}
    shares = [update.done for update in updates if update.stage == "deformable"]
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] <= 1


def test_a_warp_that_makes_things_worse_is_left_out(images):
    wild = wf.Deformable(
        metric=wf.LNCC(3), optimizer=SGD(), damping=Paper(), step=8.0, levels=(1,), iterations=(6,), sigma_warp=0
    )
    recipe = wf.Recipe("wild", deformable=wild)
    found = wf.register(images[0], images[0], recipe=recipe)
    assert found.warp is None
    assert found.ending is Ending.WORSE
    assert found.status.startswith("The warp made the images less similar")
    assert not found.history[-1].kept
    assert torch.allclose(found.warped.data, images[0].data)


def stopper(stage, level=None):
    """A stop event, and a progress callback that sets it at the first iteration of a stage (and level)."""
    stop = threading.Event()

    def progress(event):
        if event.stage == stage and level in (None, event.level):
            stop.set()

    return {"stop": stop, "progress": progress}


def test_a_stopped_run_keeps_its_best(images):
    found = wf.register(*images, overrides=QUICK, **stopper("deformable", 1))
    assert found.interrupted
    assert found.ending is Ending.INTERRUPTED
    assert found.status.startswith("Interrupted")
    assert found.warp is not None
    assert found.inverse_warp is not None
    assert found.history[-1].cost_after < found.history[-1].cost_before


def test_a_stopped_linear_stage_keeps_its_best_and_ends_the_run(images):
    first, second = (
        wf.LinearSettings(dof="rigid", levels=(2,), iterations=(3,)),
        wf.LinearSettings(levels=(2,), iterations=(3,)),
    )
    recipe = wf.Recipe("two", linear=(first, second), deformable=wf.Deformable())
    found = wf.register(*images, recipe=recipe, **stopper("affine"))
    assert found.interrupted
    assert [(stage.name, stage.interrupted) for stage in found.history] == [("rigid", False), ("affine", True)]
    assert found.history[1].cost_after <= found.history[0].cost_after
    assert found.warp is None


def test_a_run_that_is_stopped_before_it_begins_keeps_the_initial_transform(images):
    stop = threading.Event()
    stop.set()
    shift = np.eye(4)
    shift[0, 3] = 1.0
    found = wf.register(*images, overrides=WARP_ONLY, initial=shift, stop=stop)
    assert found.interrupted
    assert np.array_equal(found.affine.matrix, shift)
    assert found.warp is None


def test_ctrl_c_ends_a_run(images):
    def interrupt(event):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wf.register(*images, overrides=QUICK, progress=interrupt)


def test_nan_voxels_do_not_count_and_are_counted(images):
    data = images[0].data.clone()
    data[0, 3, 4, 5:9] = torch.nan
    data[0, 3, 4, 9] = torch.inf
    found = wf.register(wf.Image(data, GRID, "holes"), images[1], overrides=QUICK)
    assert found.run.nonfinite == (5, 0)
    assert torch.isfinite(found.warp.displacement).all()
    assert found.to_dict()["fixed"]["nonfinite_voxels"] == 5


def test_an_image_smaller_than_the_window_is_registered(rng):
    small = rng.random((6, 7, 5)).astype(np.float32)
    found = wf.register(small, small, overrides={**WARP_ONLY, "deformable.metric.size": 9})
    assert torch.isfinite(found.warp.displacement).all()


def test_slices_are_registered_in_their_plane():
    made = pair((1, 32, 36))
    found = wf.register(made.fixed[0].numpy(), made.moving[0].numpy(), overrides=QUICK)
    assert found.fixed_grid.ndim == 2
    assert not found.warp.displacement[0].any()


def test_single_slices_of_volumes_keep_their_place():
    made = pair((1, 32, 36))
    tilt = (1, 0, 0, 0, 0.8, -0.6, 0, 0.6, 0.8)
    fixed = wf.Grid.from_itk((36, 32, 1), (10, -20, 30), (1, 1, 5), tilt)
    moving = wf.Grid.from_itk((36, 32, 1), (11, -18, 36), (1, 1, 5), tilt)
    found = wf.register(image(made.fixed, fixed), image(made.moving, moving), overrides=QUICK)
    assert found.history[-1].cost_after < found.history[-1].cost_before
    assert float(found.warped.data.abs().sum()) > 0


def test_two_kinds_of_files_are_told_apart():
    made = pair((1, 32, 36))
    flat, deep = wf.Grid.from_spacing((32, 36)), wf.Grid.from_spacing((1, 32, 36))
    with pytest.raises(wf.InputError, match="save both in the same way"):
        wf.register(image(made.fixed, flat), image(made.moving, deep))


def test_a_loss_of_ones_own_is_used(images):
    metric = wf.Custom(lambda warped, fixed: (warped - fixed).square().mean())
    found = wf.register(*images, overrides={**WARP_ONLY, "deformable.metric": metric})
    assert found.history[0].metric == "custom"
    assert "<lambda>" in json.dumps(found.to_dict())


def test_what_is_not_there_is_refused(images):
    with pytest.raises(wf.InputError, match="Device 'nowhere'"):
        wf.register(*images, device="nowhere")
    with pytest.raises(wf.InputError, match="Unknown backend"):
        wf.register(*images, backend="gpu")
    with pytest.raises(wf.InputError, match="is not an image"):
        wf.register(images[0], 3)


def test_the_reference_backend_gives_nearly_the_same(images, found):
    other = wf.register(*images, overrides=WARP_ONLY, backend="reference")
    ours = wf.register(*images, overrides=WARP_ONLY)
    assert other.run.backend == "reference"
    assert (other.warp.displacement - ours.warp.displacement).abs().mean() < 0.02


@pytest.mark.parametrize("content", [None, "{}", "no json"])
def test_a_folder_that_is_no_result_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "result.json").write_text(content)
    with pytest.raises(wf.FileError, match=r"not a result folder|damaged"):
        wf.read_result(tmp_path)


def test_editors_see_the_arguments():
    assert list(inspect.signature(wf.register).parameters)[:4] == ["fixed", "moving", "recipe", "overrides"]

"""The parts of a report: slices and their orientation, sheets, similarity, regularity, charts."""

import base64
import io
import math
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image as Picture

import warpfactor as wf
from geometries import GRIDS
from pages import FLAT, registered
from warpfactor import kernels
from warpfactor.checks import similarity
from warpfactor.checks.coarse import ObjectMask, coarse_scene, shrink
from warpfactor.checks.limits import grade
from warpfactor.checks.regularity import COARSE, SHOWN_LIMIT, inverse_error_of, jacobian_of, measure
from warpfactor.checks.sampling import _own, at, nearest, sample
from warpfactor.checks.similarity import local_correlation, shared_information
from warpfactor.geometry.resample import resample_through
from warpfactor.registration.case import case_of_result
from warpfactor.scene.object import shown
from warpfactor.show.report import charts
from warpfactor.show.report.page import _iterations, _position
from warpfactor.show.report.sheets import Stack, encode, layout
from warpfactor.show.report.slices import SLICES, choose_planes
from warpfactor.show.report.views import make_views

OPS = kernels.select()


def whole(grid):
    return np.array([[0, 0, 0], np.asarray(grid.shape) - 1])


@pytest.mark.parametrize("name", GRIDS)
def test_slices_stand_upright_whatever_the_axes_of_the_file(name):
    grid = GRIDS[name]
    planes = choose_planes(grid, whole(grid))
    if grid.shape[0] == 1:
        assert [plane.name for plane in planes] == ["Slice"]
        assert planes[0].letters == ()
    else:
        assert [plane.name for plane in planes] == ["Axial", "Coronal", "Sagittal"]
    # Along each plane's slices, rows and columns: the world axis that grows, and in which direction.
    expected = {
        "Axial": ((2, 1), (1, 1), (0, 1)),
        "Coronal": ((1, 1), (2, -1), (0, 1)),
        "Sagittal": ((0, 1), (2, -1), (1, 1)),
        "Slice": (None, (1, 1), (0, 1)),
    }
    for plane in planes:
        for axis, wanted in enumerate(expected[plane.name]):
            if wanted is not None:
                direction = plane.grid.matrix[:3, axis]
                nearest = int(np.abs(direction).argmax())
                assert (nearest, np.sign(direction[nearest])) == wanted
        assert plane.grid.spacing_mm[1] == pytest.approx(plane.grid.spacing_mm[2]), "pixels are square"
        assert list(plane.positions_mm) == sorted(plane.positions_mm)


def test_slices_are_voxels_of_the_image_and_not_too_many():
    grid = wf.Grid.from_spacing((120, 61, 40), 1.0)
    planes = choose_planes(grid, np.array([[3, 0, 5], [110, 60, 30]]))
    for plane, axis in zip(planes, (0, 1, 2), strict=True):
        count = plane.grid.shape[0]
        assert SLICES // 2 <= count <= SLICES
        index = grid.world_to_index(plane.grid.index_to_world([(k, 0, 0) for k in range(count)]))[:, axis]
        assert np.allclose(index, index.round())
    assert 3 <= grid.world_to_index(planes[0].grid.index_to_world([(0, 0, 0)]))[0, 0] <= 7


@pytest.mark.parametrize("name", GRIDS)
def test_voxels_that_are_pixels_are_taken_as_they_are(name, generator):
    grid = GRIDS[name]
    image = wf.Image(torch.rand((2, *grid.shape), generator=generator), grid)
    still = wf.Affine(dimension=grid.ndim)
    for plane in choose_planes(grid, whole(grid)):
        for mode in ("linear", "nearest"):
            place = still.on_grid(plane.grid)
            wanted = resample_through(image, place, mode=mode, outside=-1.0).data
            assert torch.allclose(at(image, place, mode=mode, outside=-1.0, ops=OPS), wanted, atol=1e-6)
    two_rows = np.eye(4)
    two_rows[1, 3] = 2
    moved = nearest(image, wf.Grid(grid.shape, grid.matrix @ two_rows, grid.ndim), outside=-1.0, ops=OPS)
    assert torch.equal(moved[:, :, :-2], image.data[:, :, 2:]) and bool((moved[:, :, -2:] == -1).all())


def test_pixels_are_voxels_where_they_are_as_large():
    grid = wf.Grid.from_spacing((40, 50, 60), (2.0, 1.0, 1.0))
    axial, coronal, _ = choose_planes(grid, np.array([[3, 4, 5], [33, 35, 41]]))
    index = grid.world_to_index(axial.grid.index_to_world([(0, 0, 0), (1, 7, 9)]))
    assert np.allclose(index, index.round()) and axial.pixel_mm == pytest.approx(1)
    assert axial.grid.shape[1:] == (36, 41), "the object and its margin"
    place = wf.Affine(dimension=3).on_grid(axial.grid)
    assert _own(torch.zeros(1, *grid.shape), place.matrix(grid), place.grid.shape) is not None
    index = grid.world_to_index(coronal.grid.index_to_world([(0, 0, 0)]))
    assert np.allclose(index[0, 1:], index[0, 1:].round())


def test_a_large_image_is_shown_smaller():
    grid = wf.Grid.from_spacing((3000, 2000), 0.01)
    (plane,) = choose_planes(grid, whole(grid))
    assert plane.grid.voxel_count < 1_000_000
    assert plane.pixel_mm > 0.02


def test_coarse_voxels_are_means_and_slices_stay_thin():
    grid = wf.Grid.from_spacing((24, 24, 24), 1.0)
    checks = torch.from_numpy(np.indices(grid.shape).sum(axis=0) % 2).float()[None]
    image = wf.Image(checks, grid)
    assert torch.allclose(shrink(image, 1.5, OPS).data, torch.tensor(0.5), atol=0.2)
    layers = wf.Image(torch.arange(24.0)[:, None, None].expand(1, 24, 24, 24).contiguous(), grid)
    planes = choose_planes(grid, np.array([[0, 0, 0], [23, 23, 23]]))
    assert torch.equal(sample(layers, wf.Affine(), planes[0].grid, OPS, slices=True)[0, :, 5, 5], torch.arange(24.0))


def test_an_object_is_found_and_laid_over_the_voxels():
    data = torch.zeros((1, 40, 50, 60))
    data[0, 10:30, 5:45, 20:50] = 1 + torch.rand((20, 40, 30))
    region = ObjectMask.of(wf.Image(data, wf.Grid.from_spacing((40, 50, 60), 1.0)), None, OPS)
    assert np.abs(region.box() - [[10, 5, 20], [29, 44, 49]]).max() <= 2
    mask = region.planes(slice(0, 40))
    assert mask.shape == (40, 50, 60)
    assert (mask == (data[0] > 0).numpy()).mean() > 0.93


def test_every_slice_is_found_on_its_sheet(rng):
    smooth = np.linspace(0, 200, 7 * 11 * 13).reshape(7, 11, 13)
    slices = (smooth + rng.integers(0, 3, smooth.shape)).astype(np.uint8)
    sheets = encode([Stack("a", [slices]), Stack("b", [slices], exact=True)])
    place = layout(*slices.shape)
    for name, tolerance in (("a", 8), ("b", 0)):
        data = base64.b64decode(sheets[name][0].split(",")[1])
        sheet = np.asarray(Picture.open(io.BytesIO(data))).astype(int)
        for k in range(7):
            y, x = k // place["across"] * place["tileHeight"], k % place["across"] * place["tileWidth"]
            assert np.abs(sheet[y : y + 11, x : x + 13] - slices[k]).max() <= tolerance


def test_measures_of_similarity_do_not_depend_on_the_contrast(generator):
    image = torch.nn.functional.avg_pool3d(torch.rand((1, 40, 40, 40), generator=generator), 3, 1)[0]
    other = torch.nn.functional.avg_pool3d(torch.rand((1, 40, 40, 40), generator=generator), 3, 1)[0]
    everywhere = torch.ones_like(image, dtype=torch.bool)
    image, other = (image - image.mean()) / image.std(), (other - other.mean()) / other.std()
    assert shared_information(image.ravel().numpy(), image.ravel().numpy()) == pytest.approx(1)
    assert shared_information(image.ravel().numpy(), -image.ravel().numpy()) > 0.8
    assert shared_information(image.ravel().numpy(), other.ravel().numpy()) < 0.02
    assert local_correlation(image, -2 * image, everywhere, OPS) > 0.97
    assert local_correlation(image, other, everywhere, OPS) < 0.2


@pytest.mark.parametrize("mirrored", [False, True])
def test_a_straight_fit_is_made_only_if_a_mirrored_one_looks_better(mirrored, monkeypatch):
    pair = registered(mirrored=mirrored)
    case = case_of_result(pair.found)
    fits, fit = [], similarity._fit
    monkeypatch.setattr(similarity, "_fit", lambda *given: fits.append(given) or fit(*given))
    scene = coarse_scene(case.fixed, case.moving, None, similarity.POINTS, OPS)
    comparison = similarity._Comparison(scene, shown(scene.fixed), None, OPS)
    gain = similarity._mirror_gain(case, comparison, "lncc", "mirror", OPS)
    assert (len(fits), grade(gain, "mirror") != "green") == ((2, True) if mirrored else (1, False))


def test_a_result_correlates_more_than_the_start_and_than_by_chance():
    pair = registered()
    found = similarity.align(case_of_result(pair.found), OPS)
    assert found.after.correlation > found.before.correlation > 0
    assert found.after.correlation > found.chance.correlation


def test_regularity_agrees_with_the_figures_of_the_registration():
    pair = registered()
    case = case_of_result(pair.found)
    region = ObjectMask.of(pair.fixed, None, OPS)
    found = measure(case, region, jacobian_of(case.warp, OPS), inverse_error_of(case))
    figures = pair.found.figures.warp
    assert found.folded == figures.jacobian.folded_count == 0
    assert found.sd_log == figures.jacobian_foreground.sd_log
    assert found.percentiles[1] == figures.jacobian_foreground.percentiles[50]
    assert found.displacement_mm == pytest.approx(figures.displacement_mm)
    assert found.inverse_vox == pytest.approx(figures.there_and_back_vox)
    other = replace(case, warp=wf.Warp(1.2 * case.warp.displacement, case.fixed_grid, "fixed", "fixed"))
    stretched = measure(other, region, jacobian_of(other.warp, OPS), inverse_error_of(other))
    assert stretched.sd_log == pytest.approx(1.2 * found.sd_log, rel=0.15), "of the warp that is there"
    assert stretched.displacement_mm.max == pytest.approx(1.2 * found.displacement_mm.max, rel=1e-5)
    assert stretched.inverse_vox.mean > 2 * found.inverse_vox.mean
    assert len(found.counts) == 2 * SHOWN_LIMIT * COARSE
    assert found.counts.sum() == region.planes(slice(0, 32)).sum()
    assert found.percentiles[0] < 1 < found.percentiles[2]


def test_the_error_of_an_inverse_is_shown_where_it_is():
    pair = registered()
    case = case_of_result(pair.found)
    wrong = case.inverse_warp.displacement.clone()
    wrong[2, :, :, :16] += 1.5
    case = replace(case, inverse_warp=replace(case.inverse_warp, displacement=wrong))
    back = inverse_error_of(case)
    shown = make_views(case, ObjectMask.whole(case.fixed_grid), jacobian_of(case.warp, OPS), back.errors_mm).maps[
        "error"
    ]
    assert shown.high == pytest.approx(1.5 * 2.0, rel=0.1), "in mm"
    slices = shown.stack.slices[0].astype(int)
    assert slices[:, 10:-10, 2:10].mean() > 200 > 30 > slices[:, 10:-10, -10:-2].mean()
    assert back.figures_vox.max == pytest.approx(1.5, rel=0.2)


def test_maps_show_what_the_warp_does():
    grid = wf.Grid.from_spacing((24, 24, 24), 2.0)
    data = torch.rand((1, 24, 24, 24))
    field = torch.zeros((3, *grid.shape))
    field[2] = 0.5 * torch.arange(24.0)  # x -> 1.5 x: every volume grows by a half
    found = wf.register(data[0].numpy(), data[0].numpy(), recipe="rigid", overrides={"linear.iterations": [1, 1, 1]})
    case = case_of_result(found)
    case = replace(
        case,
        fixed=wf.Image(data, grid),
        moving=wf.Image(data, grid),
        warp=wf.Warp(field, grid, "fixed", "fixed"),
        fixed_grid=grid,
    )
    views = make_views(case, ObjectMask.whole(grid), jacobian_of(case.warp, OPS), None)
    shown = views.maps["jacobian"]
    level = views.maps["jacobian"].stack.slices[0][:, 3:-3, 3:-3]
    assert np.allclose(level / 255 * (shown.high - shown.low) + shown.low, math.log2(1.5), atol=0.02)
    assert views.maps["displacement"].high == pytest.approx(23, rel=0.05)
    lines = views.lines[0]
    assert np.allclose(lines.steps[..., 1] * lines.unit, 0.5 * np.arange(lines.pitch // 2, 24, lines.pitch), atol=0.1)
    assert not lines.steps[..., 0].any()
    assert views.folds is not None and not any(part.any() for part in views.folds.slices)


@pytest.mark.parametrize("shape", [None, FLAT])
def test_charts_are_well_formed(shape):
    pair = registered() if shape is None else registered(shape)
    for stage in pair.found.to_dict()["stages"]:
        tree = ET.fromstring(charts.convergence(stage))
        crosses = [part for part in tree.iter() if part.get("class") == "rejected"]
        assert len(crosses) == stage["history"]["accepted"].count(False)
        assert tree.get("role") == "img" and "steps tried" in tree.get("aria-label")
    counts = np.zeros(2 * SHOWN_LIMIT * COARSE, dtype=np.int64)
    counts[10:20] = 1000
    tree = ET.fromstring(charts.jacobian_histogram(counts, 12))
    assert any("12 folded" in (part.text or "") for part in tree.iter())
    assert not any(part.get("class") == "fold" for part in ET.fromstring(charts.jacobian_histogram(counts, 0)).iter())
    ET.fromstring(charts.spread([0.2, 0.9, 0.5], "Dice", top=1.0))
    assert charts.convergence({"history": {}, "name": "affine"}) == ""


def test_the_finest_level_has_its_name_however_short_it_is():
    levels = [4.0] * 60 + [2.0] * 30 + [1.0] * 4
    history = {"level": levels, "cost": [0.5] * 94, "accepted": [True] * 94, "damping": [1.0] * 94}
    tree = ET.fromstring(charts.convergence({"history": history, "name": "deformable"}))
    places = {part.text: float(part.get("x")) for part in tree.iter() if (part.text or "").startswith("level")}
    assert list(places) == ["level 4", "level 2", "level 1"]
    assert places["level 1"] - places["level 2"] > charts.LETTER * len("level 1")
    assert places["level 1"] + charts.LETTER * len("level 1") / 2 <= charts.WIDTH


def test_positions_have_the_letter_of_their_side():
    assert [_position("Axial", z) for z in (-12.4, -0.2, 88.0)] == ["I 12 mm", "S 0 mm", "S 88 mm"]
    assert (_position("Coronal", 3.0), _position("Sagittal", -3.0), _position("Slice", 3.0)) == (
        "P 3 mm",
        "R 3 mm",
        "3 mm",
    )


def test_iterations_are_counted_as_a_run_tells_them():
    history = {"level": [4.0, 4.0, 4.0, 1.0, 1.0, 1.0], "iteration": [0, 1, 1, 0, 1, 2], "accepted": [True] * 6}
    assert _iterations(history, {4.0: 5, 1.0: 2}) == 4
    assert _iterations({"level": [2.0] * 3, "accepted": [True, False, True]}, {}) == 3


def test_charts_bear_strange_histories():
    history = {"level": [1, 1], "cost": [None, 1e9], "accepted": [False, True], "damping": [0.0, 1e-6]}
    ET.fromstring(charts.convergence({"history": history, "name": "deformable"}))
    history = {"level": [2, 2, 1], "cost": [0.5, 0.5, 0.5], "accepted": [False] * 3, "damping": [None, None, None]}
    ET.fromstring(charts.convergence({"history": history, "name": "deformable"}))

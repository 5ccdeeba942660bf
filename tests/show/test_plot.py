"""Figures show what they say: the right slices the right way up, lines where the warp puts them, folds, curves."""

import dataclasses
import io
import subprocess
import sys

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import warpfactor as wf
from small import GRID, LINEAR, QUICK, image, pair
from warpfactor.geometry.planes import middle, planes
from warpfactor.show.plot import compare

SHAPE = (6, 8, 10)


@pytest.fixture(scope="module")
def images():
    made = pair()
    return image(made.fixed, name="fixed"), image(made.moving, name="moving")


@pytest.fixture(scope="module")
def found(images):
    return wf.register(*images, overrides=QUICK)


@pytest.fixture(scope="module")
def saved(found, tmp_path_factory):
    return wf.read_result(found.save(tmp_path_factory.mktemp("results") / "out", report=False))


def drawn(figure):
    """The panels of a figure that hold an image, with that image's array."""
    return [axes.images[0].get_array() for axes in figure.axes if axes.images]


def size(figure):
    """Bytes of the figure as PNG; it must be drawable."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=40)
    return len(stream.getvalue())


def marked(matrix, ndim=3):
    """A volume that counts up along left, posterior and superior, on a grid with the given axes."""
    grid = wf.Grid(SHAPE, matrix, ndim)
    index = np.stack(np.indices(SHAPE), axis=-1).reshape(-1, 3)
    return grid, grid.index_to_world(index).reshape(*SHAPE, 3)


AXES = [
    np.diag([0, 0, 0, 1.0]) + np.eye(4)[:, [2, 1, 0, 3]] * [1, 1, 1, 0],  # z, y, x run to superior, posterior, left
    np.diag([0, 0, 0, 1.0]) + np.eye(4)[:, [2, 1, 0, 3]] * [-2, -1, -1, 0],
    np.diag([0, 0, 0, 1.0]) + np.eye(4)[:, [0, 2, 1, 3]] * [-1, 3, 1, 0],  # sagittal slices
]


@pytest.mark.parametrize("matrix", AXES)
def test_planes_are_the_right_way_up(matrix):
    grid, world = marked(matrix)
    found = {plane.name: plane for plane in planes(grid)}
    assert list(found) == ["axial", "coronal", "sagittal"]
    for name, (to_right, down) in {"axial": (0, 1), "coronal": (0, -2), "sagittal": (1, -2)}.items():
        plane = found[name]
        across = plane.cut(world[..., abs(to_right)], middle(grid)[plane.normal])
        along = plane.cut(world[..., abs(down)], middle(grid)[plane.normal])
        assert (np.diff(across, axis=1) > 0).all()
        assert (np.sign(np.diff(along, axis=0)) == (1 if down > 0 else -1)).all()
        steps = (abs(np.diff(along, axis=0)).max(), np.diff(across, axis=1).max())
        assert plane.spacing_mm == pytest.approx(steps)


def test_a_slice_has_one_plane_as_it_lies():
    grid = wf.Grid.from_spacing((8, 10), (2.0, 1.0))
    (plane,) = planes(grid)
    values = np.arange(80.0).reshape(1, 8, 10)
    assert plane.name == "slice"
    assert plane.aspect == 2.0
    assert np.array_equal(plane.cut(values, 0), values[0])


def test_the_planes_go_through_the_point_that_is_asked_for():
    grid, _ = marked(AXES[1])
    assert middle(grid, grid.index_to_world([[1, 2, 3]])[0]) == (1, 2, 3)
    assert middle(grid, [1e6, 1e6, 1e6]) == (0, 0, 0)
    assert middle(wf.Grid.from_spacing((8, 10)), [3.0, 2.0]) == (0, 2, 3)


def test_blend_is_gray_where_images_agree(images):
    figure = wf.plot.overlay(images[0], images[0], images[1])
    same, other = drawn(figure)[0], drawn(figure)[3]
    assert len(drawn(figure)) == 6
    assert np.array_equal(same[..., 0], same[..., 1])
    assert not np.array_equal(other[..., 0], other[..., 1])
    assert size(figure) > 1000


def test_a_checkerboard_is_made_of_both():
    board = compare._checkerboard(np.zeros((16, 16)), np.ones((16, 16)))
    assert board.mean() == 0.5
    assert board[0, 0] != board[0, 2]
    assert board[0, 0] == board[1, 1]


@pytest.mark.parametrize("mode", compare.MODES)
def test_overlays_take_results_of_both_kinds_and_other_grids(images, found, saved, mode):
    coarse = wf.Affine().resample(images[1], images[1].grid.scaled(2))
    figure = wf.plot.overlay(images[0], found, saved, coarse, mode=mode)
    assert len(drawn(figure)) == 9
    assert all(panel.shape[:2] in ((26, 24), (24, 24), (24, 26)) for panel in drawn(figure))
    first, second = drawn(figure)[0], drawn(figure)[3]
    assert np.abs(first - second).max() < 0.01


def test_contours_are_lines_over_the_fixed_image(images, found):
    figure = wf.plot.overlay(images[0], found, mode="contours")
    assert all(len(axes.collections) == 1 for axes in figure.axes)
    flat = wf.Image(torch.zeros_like(images[0].data), GRID)
    assert not any(axes.collections for axes in wf.plot.overlay(images[0], flat, mode="contours").axes)


def test_what_cannot_be_laid_over_is_refused(images):
    with pytest.raises(wf.InputError, match="Unknown mode 'flicker'"):
        wf.plot.overlay(*images, mode="flicker")
    with pytest.raises(wf.InputError, match="nothing to lay over"):
        wf.plot.overlay(images[0])


def test_a_grid_without_displacement_is_straight_and_a_shift_moves_it():
    grid = wf.Grid.from_spacing((20, 24))
    still = wf.Warp(torch.zeros((3, *grid.shape)), grid)
    shifted = wf.Warp(torch.stack([torch.zeros(grid.shape), *(torch.full(grid.shape, 0.5),) * 2]), grid)
    for warp, offset in ((still, 0.0), (shifted, 0.5)):
        rows, columns = wf.plot.grid(warp, lines=4).axes[0].collections
        heights = {float(v) for path in rows.get_paths() for v in path.vertices[:, 1].round(5)}
        widths = {float(v) for path in columns.get_paths() for v in path.vertices[:, 0].round(5)}
        assert heights == {y - offset for y in (6.0, 12.0, 18.0)}
        assert widths == {x - offset for x in (6.0, 12.0, 18.0)}


def test_a_grid_needs_a_line():
    with pytest.raises(wf.InputError, match="A grid of 0 lines"):
        wf.plot.grid(wf.Warp(torch.zeros(3, 8, 8, 8), wf.Grid.from_spacing((8, 8, 8), 1.0)), lines=0)


def test_the_grid_of_a_result_lies_over_its_warped_image(found, saved):
    for result in (found, saved):
        figure = wf.plot.grid(result)
        assert len(drawn(figure)) == 3
        assert all(len(axes.collections) == 2 for axes in figure.axes)
    assert size(figure) > 1000


def test_folds_are_marked_and_counted():
    grid = wf.Grid.from_spacing((12, 14))
    displacement = torch.zeros((3, *grid.shape))
    displacement[2, 0, 4:8, 6] = 3.0
    warp = wf.Warp(displacement, grid)
    figure = wf.plot.jacobian(warp)
    folds = warp.jacobian().data[0, 0].numpy() <= 0
    assert folds.sum() > 0
    assert np.array_equal(np.ma.getmaskarray(drawn(figure)[0]), folds)
    assert figure.axes[0].get_title(loc="left").startswith(f"{folds.sum()} folded voxels")
    labels = [text.get_text() for text in figure.axes[-1].get_yticklabels()]
    assert {"0.5", "1", "2"} <= set(labels)
    assert size(figure) > 1000


def test_displacement_is_in_millimetres(found):
    figure = wf.plot.displacement(found)
    plane = planes(GRID)[0]
    length = found.warp.displacement.norm(dim=0).numpy() * 1.5
    expected = plane.cut(length, middle(GRID)[plane.normal])
    assert np.allclose(drawn(figure)[0], expected, atol=1e-4)


def test_curves_show_every_iteration_and_mark_rejected_ones(found, saved):
    for result in (found, saved):
        figure = wf.plot.curves(result)
        assert [axes.get_title() for axes in figure.axes[:2]] == ["affine, LNCC", "deformable, LNCC"]
        lines = figure.axes[1].lines
        points = sum(len(line.get_xdata()) for line in lines if line.get_linestyle() in ("-", "None"))
        assert points == len(found.history[1].history)
        assert {text.get_text().strip() for text in figure.axes[1].texts} == {"level 2", "level 1"}
    assert size(figure) > 1000


def test_the_legend_of_the_curves_is_outside_the_panels(found):
    records = found.history[1].history
    some = (dataclasses.replace(records[0], accepted=False), *records[1:])
    history = (found.history[0], dataclasses.replace(found.history[1], history=some))
    figure = wf.plot.curves(dataclasses.replace(found, history=history))
    assert all(axes.get_legend() is None for axes in figure.axes)
    (legend,) = figure.legends
    figure.canvas.draw()
    place = legend.get_window_extent()
    assert not any(axes.get_window_extent().overlaps(place) for axes in figure.axes)


def test_titles_tell_before_from_after(images, found, saved):
    figure = wf.plot.overlay(images[0], images[1], found, saved)
    titles = [axes.get_title(loc="left") for axes in figure.axes if axes.get_title(loc="left")]
    assert titles == ["moving over fixed", "moving, warped, over fixed", "moving, warped, over fixed"]


def test_the_jacobian_says_of_what_its_spread_is(found, saved):
    inside = f"{found.figures.warp.jacobian_foreground.sd_log:.2f} in the object"
    for result, words in ((found, inside), (saved, inside), (found.warp, "whole image")):
        assert wf.plot.jacobian(result).axes[0].get_title(loc="left").endswith(words)


def test_what_is_no_result_and_what_lies_outside_is_refused(images, found):
    for draw in (wf.plot.grid, wf.plot.jacobian, wf.plot.displacement, wf.plot.curves):
        with pytest.raises(wf.InputError, match="'x' is not a result; give what `register` or `read_result"):
            draw("x")
    for at, words in (((1000, 0, 0), r"at=\(1000, 0, 0\) lies outside"), ((1, 2), "3 numbers"), ("a", "no point")):
        with pytest.raises(wf.InputError, match=words):
            wf.plot.image(images[0], at=at)
    with pytest.raises(wf.InputError, match="2 numbers"):
        wf.plot.image(np.random.default_rng(0).random((9, 8)), at=[1.0])
    assert wf.plot.image(np.random.default_rng(0).random((9, 8)), at=(3.0, 2.0))


def test_a_linear_result_has_curves_but_no_warp(images):
    rigid = wf.register(*images, recipe="rigid", overrides=LINEAR)
    assert len(wf.plot.curves(rigid).axes) == 2
    for draw in (wf.plot.grid, wf.plot.jacobian, wf.plot.displacement):
        with pytest.raises(wf.InputError, match="no warp to draw"):
            draw(rigid)
    nothing = wf.register(*images, recipe="rigid", overrides={**LINEAR, "linear.iterations": [0]})
    with pytest.raises(wf.InputError, match="no iterations to draw"):
        wf.plot.curves(nothing)


def test_images_of_any_kind_are_drawn(images, found, tmp_path):
    wf.write_image(images[0], tmp_path / "fixed.nii.gz")
    for source in (images[0], tmp_path / "fixed.nii.gz", found, np.random.default_rng(0).random((9, 8))):
        figure = wf.plot.image(source)
        assert isinstance(figure, Figure)
        assert len(drawn(figure)) in (1, 3)
    assert wf.plot.image(images[0], at=GRID.index_to_world([[2, 2, 2]])[0]).axes[0].get_title(loc="left") == "fixed"


def test_plots_leave_matplotlib_as_it_was():
    code = (
        "import sys, warpfactor as wf, numpy as np; assert 'matplotlib' not in sys.modules;"
        "figure = wf.plot.image(np.random.rand(8, 9)); assert figure._repr_png_()[:4] == b'\\x89PNG';"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

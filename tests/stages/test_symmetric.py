"""The symmetric stage: exchanged images give the inverse; both halves and their inverses undo each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.helpers.scenes import OPS, scene_of

import warpfactor as wf
from warpfactor.geometry.halfway import mean_transform, middle_grid, square_root
from warpfactor.optim import STEPS
from warpfactor.optim.damping import Paper
from warpfactor.scene.middle import Middle
from warpfactor.stages.consistent import balanced_inverse, consistent, settle, undo_each_other
from warpfactor.stages.facing import Facing, can_face
from warpfactor.stages.linear.both import run_linear_both_ways
from warpfactor.stages.settings import Deformable
from warpfactor.stages.symmetric import run_symmetric
from warpfactor.terms import LNCC, MI, MIND, MSE, Custom, Sum
from warpfactor.terms.both import BothWays

SHAPE = (20, 22, 24)
BRIEF = Deformable(
    method="symmetric", levels=(2, 1), iterations=(8, 4), damping=replace(wf.recipe("default").deformable.damping)
)


def turned(angle: float = 0.2, scale: float = 1.1, shift: tuple[float, float, float] = (1.0, -2.0, 0.5)) -> np.ndarray:
    matrix = np.eye(4)
    c, s = np.cos(angle), np.sin(angle)
    matrix[:3, :3] = scale * np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
    matrix[:3, 3] = shift
    return matrix


def blobs(shape, seed: int, grid: wf.Grid | None = None) -> wf.Image:
    """A smooth image with structure at several scales."""
    made = torch.randn((1, *shape), generator=torch.Generator().manual_seed(seed))
    image = sum(OPS.smooth_gaussian(made.clone(), [s if n > 1 else 0.0 for n in shape]) * s for s in (1.5, 3.0))
    return wf.Image(image, grid or wf.Grid.from_spacing(shape if shape[0] > 1 else shape[1:]))


def bent(image: wf.Image, seed: int = 3, size: float = 12.0) -> wf.Image:
    """The image through a smooth warp."""
    shape = image.grid.shape
    u = torch.randn((3, *shape), generator=torch.Generator().manual_seed(seed))
    OPS.smooth_gaussian(u, [4.0 if n > 1 else 0.0 for n in shape])
    u *= size * torch.tensor([float(n > 1) for n in shape]).reshape(3, 1, 1, 1)
    return wf.Warp(u, image.grid).resample(image, image.grid)


@pytest.fixture(scope="module")
def pair() -> tuple[wf.Image, wf.Image]:
    fixed = blobs(SHAPE, 0)
    return fixed, bent(fixed)


def exchanged(fixed, moving, settings, affine=None, **masks):
    """What a pair gives, and the exchanged pair with the inverse affine."""
    swapped = {"fixed_mask": masks.get("moving_mask"), "moving_mask": masks.get("fixed_mask")}
    back = None if affine is None else np.linalg.inv(affine)
    there = run_symmetric(scene_of(fixed, moving, **masks), settings, ops=OPS, affine=affine)
    return there, run_symmetric(scene_of(moving, fixed, **swapped), settings, ops=OPS, affine=back)


def apart(there, back) -> float:
    """How far the halves of one are from those of the other, exchanged, in voxels."""
    first, second = there.halves, back.halves
    assert first.middle.grid.same_space(second.middle.grid, 1e-6)
    return max(
        float((first.to_fixed - second.to_moving).abs().max()), float((first.to_moving - second.to_fixed).abs().max())
    )


def test_a_square_root_is_half_a_transform_and_that_of_the_inverse_is_its_inverse():
    whole = turned(2.5)
    half = square_root(whole)
    np.testing.assert_allclose(half @ half, whole, atol=1e-12)
    np.testing.assert_allclose(square_root(np.linalg.inv(whole)) @ half, np.eye(4), atol=1e-12)
    assert square_root(np.diag([-1.0, 1.0, 1.0, 1.0])) is None


def test_the_mean_of_two_transforms_treats_both_alike():
    first, second = turned(0.3), turned(-0.1, 0.9, (4.0, 0.0, 0.0))
    mean = mean_transform(first, second)
    np.testing.assert_allclose(mean_transform(second, first), mean, atol=1e-12)
    inverse = mean_transform(np.linalg.inv(first), np.linalg.inv(second))
    np.testing.assert_allclose(inverse @ mean, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(mean_transform(np.eye(4), turned(0.4))[:2, :2], square_root(turned(0.4))[:2, :2])


def test_the_middle_grid_of_equal_grids_is_that_grid_and_does_not_care_how_they_are_stored():
    grid = wf.Grid.from_spacing(SHAPE, (2.0, 1.0, 1.5))
    assert middle_grid(grid, grid).same_space(grid, 1e-9)
    mirrored = wf.Grid(
        (24, 22, 20), grid.matrix @ np.array([[0, 0, -1, 19], [0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1.0]])
    )
    assert middle_grid(mirrored, grid).same_space(grid, 1e-9)
    flat = wf.Grid.from_spacing((30, 20))
    assert middle_grid(flat, flat) == flat


def test_exchanged_images_exchange_the_halves(pair):
    there, back = exchanged(*pair, BRIEF)
    assert there.stage.cost_after < 0.7 * there.stage.cost_before
    assert apart(there, back) < 1e-4


@pytest.mark.parametrize("name", ["pointwise", "tile", "adam", "sgd"])
def test_every_optimizer_steps_both_halves_alike(pair, name):
    damping = {} if name != "pointwise" else {"damping": Paper(relative=True, initial=10.0)}
    settings = replace(BRIEF, optimizer=STEPS[name](), iterations=(5, 2), step=0.5, **damping)
    there, back = exchanged(*pair, settings)
    assert there.stage.kept
    assert there.stage.cost_after < there.stage.cost_before
    assert apart(there, back) < 1e-3


def squares(warped: torch.Tensor, fixed: torch.Tensor) -> torch.Tensor:
    return (warped - fixed).square().mean()


@pytest.mark.parametrize("metric", [LNCC(3), MSE(), MI(), MIND(), Custom(squares)], ids=lambda m: m.name)
def test_every_metric_pulls_both_images(pair, metric):
    there, back = exchanged(*pair, replace(BRIEF, metric=metric, levels=(1,), iterations=(4,)))
    assert there.stage.cost_after < there.stage.cost_before
    assert apart(there, back) < 1e-3


def test_slices_masks_and_several_channels():
    fixed = blobs((1, 40, 36), 1)
    moving = bent(fixed, size=6.0)
    mask = torch.ones((1, 1, 40, 36), dtype=torch.uint8)
    mask[..., :12] = 0
    masked = wf.Image(mask, fixed.grid)
    there, back = exchanged(fixed, moving, BRIEF, moving_mask=masked)
    assert apart(there, back) < 1e-4
    assert not there.displacement[0].any()
    double = [wf.Image(torch.cat([each.data, -each.data]), each.grid) for each in (fixed, moving)]
    there, back = exchanged(*double, BRIEF)
    assert apart(there, back) < 1e-4


def test_different_and_oblique_grids():
    fixed = blobs(SHAPE, 2)
    oblique = wf.Grid((18, 24, 22), turned(0.5, 1.0) @ wf.Grid.from_spacing((18, 24, 22), (1.2, 0.9, 1.0)).matrix)
    affine = turned(0.3, 1.05)
    moving = wf.Affine(np.linalg.inv(affine)).resample(bent(fixed), oblique)
    there, back = exchanged(fixed, moving, BRIEF, affine)
    assert there.stage.cost_after < 0.9 * there.stage.cost_before
    assert apart(there, back) < 1e-3
    # Through the halves themselves there and back is the identity, and exchanged images have the same way to rounding.
    points = fixed.grid.index_to_world(np.mgrid[6:14:2, 7:15:2, 8:16:2].reshape(3, -1).T)
    moved = there.halves.map_points(points)
    assert np.linalg.norm(moved - wf.Affine(affine).map_points(points), axis=1).max() > 0.4
    np.testing.assert_allclose(there.halves.swapped().map_points(moved), points, atol=1e-3)
    np.testing.assert_allclose(back.halves.map_points(moved), points, atol=2e-3)
    # The maps that are stored on the grid of either image differ from that by how each grid interpolates.
    forward = wf.Chain((wf.Warp(there.displacement, fixed.grid), wf.Affine(affine)))
    again = wf.Chain((wf.Warp(back.displacement, oblique), wf.Affine(np.linalg.inv(affine))))
    for error in (forward.map_points(points) - moved, again.map_points(moved) - points):
        assert np.linalg.norm(error, axis=1).max() < 0.02


def test_a_way_looked_up_in_both_halves_is_not_smoothed_on_its_way_to_another_grid():
    """A wave that linear interpolation between voxels would flatten by a tenth."""
    grid = wf.Grid.from_spacing((9, 32, 9))
    shifted = wf.Grid((9, 31, 9), grid.matrix @ np.array([[1.0, 0, 0, 0], [0, 1, 0, 0.5], [0, 0, 1, 0], [0, 0, 0, 1]]))
    middle = Middle(grid, np.eye(4), np.eye(4))

    def wave(y):
        return 0.2 * torch.sin(2 * np.pi * y / 8)

    along = torch.zeros((3, 9, 32, 9))
    along[2] = wave(torch.arange(32.0)).reshape(1, -1, 1)
    found = middle.whole_way(shifted, torch.zeros_like(along), along, OPS)[2, 4, 2:-2, 4]
    assert float((found - wave(torch.arange(31.0) + 0.5)[2:-2]).abs().max()) < 0.003
    undone = middle.whole_way(shifted, along, torch.zeros_like(along), OPS)[2, 4, 2:-2, 4]
    torch.testing.assert_close(undone, -found, rtol=0, atol=3e-4)  # 0.2 ** 3 of what linear interpolation is off by


def test_halves_that_bend_too_much_within_a_voxel_are_smoothed_alike():
    grid = wf.Grid.from_spacing((14, 16, 15))
    middle = Middle(grid, np.eye(4), np.eye(4))
    generator = torch.Generator().manual_seed(2)
    halves = tuple(
        OPS.smooth_gaussian(torch.randn((3, *grid.shape), generator=generator), (1.5, 1.5, 1.5)) * 4 for _ in range(2)
    )
    exchanged = tuple(half.clone() for half in reversed(halves))

    def ways():
        return middle.whole_way(grid, *halves, OPS), middle.whole_way(grid, *reversed(halves), OPS)

    assert not undo_each_other(*ways(), OPS)
    settle(middle, halves, OPS)
    settle(middle.swapped(), exchanged, OPS)
    assert undo_each_other(*ways(), OPS)
    assert all(torch.equal(one, other) for one, other in zip(halves, reversed(exchanged), strict=True))
    assert float(halves[0].abs().max()) > 0.5  # they still lead somewhere


def test_the_gradient_of_both_ways_is_that_of_the_cost():
    made = scene_of(blobs((8, 9, 10), 4), blobs((8, 9, 10), 5))
    middle = Middle.of(made.fixed.grid, made.moving.grid, turned(0.1, 1.02, (0.3, -0.2, 0.1)))
    both = BothWays(MSE(), middle, in_double(made), wf.kernels.select("cpu", "reference"))
    shape = (3, *middle.grid.shape)
    generator = torch.Generator().manual_seed(1)
    to_fixed, to_moving, way = (torch.randn(shape, generator=generator, dtype=torch.float64) * 0.2 for _ in range(3))
    gradients = torch.empty_like(to_fixed), torch.empty_like(to_moving)
    point = both.linearize((to_fixed, to_moving), gradients)
    ahead, behind = (both.linearize((to_fixed, to_moving + sign * 1e-5 * way)) for sign in (1, -1))
    assert point.count > 100
    slope = (ahead.cost * ahead.count - behind.cost * behind.count) / 2e-5
    assert float((gradients[1] * way).sum()) == pytest.approx(slope, rel=1e-6)


def in_double(scene):
    """The scene in double precision, both images in the same units."""
    sides = (replace(side, data=side.data.double(), scale=((0.0, 1.0),)) for side in scene.sides)
    return type(scene)(*sides)


def test_linear_stages_both_ways_round_are_each_others_inverse():
    made = wf.phantom.phantom((26, 28, 26))
    settings = wf.LinearSettings(dof="rigid", metric="lncc", symmetric=True, starts=("centre",))
    images = [
        wf.Image.from_array(each) if not isinstance(each, wf.Image) else each for each in (made.fixed, made.moving)
    ]
    there, stage = run_linear_both_ways(scene_of(*images), settings, ops=OPS)
    back, _ = run_linear_both_ways(scene_of(*reversed(images)), settings, ops=OPS)
    np.testing.assert_allclose(there @ back, np.eye(4), atol=1e-9)
    np.testing.assert_allclose(there[:3, :3] @ there[:3, :3].T, np.eye(3), atol=1e-9)
    assert stage.cost_after < stage.cost_before


def test_a_result_of_the_recipe_has_an_inverse_and_a_midpoint(tmp_path):
    made = wf.phantom.phantom((30, 32, 30))
    plain = {"linear.metric": "lncc", "linear.starts": ("centre",)}
    result = wf.register(made.fixed, made.moving, recipe="syn", overrides=plain)
    again = wf.register(made.moving, made.fixed, recipe="symmetric", overrides=plain)
    assert result.recipe.name == "symmetric"
    np.testing.assert_allclose(result.affine.matrix @ again.affine.matrix, np.eye(4), atol=1e-9)
    figures = result.figures.warp
    for trip in (figures.there_and_back_vox, figures.back_and_there_vox):
        assert trip.mean < 0.02
        assert trip.max < 0.5
    first, second = result.midpoint(), again.midpoint()
    assert float((first.data - second.data).abs().max()) < 1e-2 * float(first.data.abs().max())
    fixed, moving = result.midpoint("fixed").data, result.midpoint("moving").data
    apart = float((fixed - moving).abs().mean())
    assert apart < 0.55 * float((made.fixed - made.moving).abs().mean())  # 0.50; a third of it is noise
    way = result.transform.to_warp(result.fixed_grid).displacement - made.displacement
    assert float(way.square().sum(0).sqrt().mean()) < 0.72  # voxels; 0.65, and 0.60 by the greedy stage
    with pytest.raises(wf.InputError, match="no midpoint"):
        wf.register(made.fixed, made.moving, recipe="rigid", overrides=plain).midpoint()
    with pytest.raises(wf.InputError, match="use one of mean, fixed, moving"):
        result.midpoint("both")


def test_what_the_method_cannot_do_is_said_before_anything_runs(pair):
    start = wf.Warp(torch.zeros((3, *SHAPE)), pair[0].grid)
    with pytest.raises(wf.InputError, match="cannot start from a warp"):
        wf.register(*pair, recipe="symmetric", initial=start)
    with pytest.raises(wf.InputError, match="Unknown method 'fast'"):
        wf.recipe("default").replace({"deformable.method": "fast"})


def test_images_on_grids_unlike_each_other_and_with_guides_meet_in_the_middle(pair):
    scene, still = scene_of(*pair), np.eye(4)
    coarse = pair[1].grid.scaled(shape=(10, 11, 12))
    assert can_face(scene, LNCC(3), still)
    assert can_face(scene_of(pair[0], wf.Affine(np.eye(4)).resample(pair[1], coarse)), LNCC(3), still) is False
    assert not can_face(scene, Sum((wf.Weighted(LNCC(3)), wf.Weighted(wf.Bending(), 0.1))), still)
    there = run_symmetric(scene, BRIEF, ops=OPS, guides=(wf.Weighted(wf.Bending(), 0.01),))
    assert [name for name, *_ in there.stage.terms] == ["lncc", "bending"]


def test_two_warps_are_reconciled_to_each_others_inverse():
    grids = wf.Grid.from_spacing((14, 16, 15)), wf.Grid.from_spacing((15, 14, 17), (0.95, 1.1, 0.9))
    facing = Facing.of(*grids, turned(0.1, 1.05, (0.3, -0.2, 0.1)))
    generator = torch.Generator().manual_seed(4)
    both = [OPS.smooth_gaussian(torch.randn((3, *grid.shape), generator=generator), (2.5,) * 3) * 6 for grid in grids]
    middle = (slice(None), *(slice(4, -4),) * 3)

    def apart() -> float:
        return max(float((facing.led(k, both[1 - k], both[k], OPS) + both[k])[middle].abs().max()) for k in (0, 1))

    before = apart()
    for _ in range(3):
        facing.reconcile((both[0], both[1]), OPS)
    assert before > 1
    assert apart() < 0.05


def test_a_warp_that_does_not_help_is_left_out(pair):
    found = run_symmetric(
        scene_of(pair[0], pair[0]), replace(BRIEF, damping=replace(BRIEF.damping, reject=False)), ops=OPS
    )
    assert found.displacement is None or float(found.displacement.abs().max()) < 0.05


@pytest.mark.parametrize("size", [6.0, 9.0, 25.0])
def test_no_voxel_is_left_where_a_warp_and_its_inverse_do_not_undo_each_other(size):
    """Single voxels between those to which the warp leads, and warps that take more than a few passes."""
    made = torch.randn((3, *SHAPE), generator=torch.Generator().manual_seed(2))
    forward = OPS.smooth_gaussian(made, (1.2, 1.2, 1.2)) * size
    inverse = balanced_inverse(forward, OPS)

    def worst() -> float:
        trips = (OPS.round_trip(*both, np.eye(3).tolist()) for both in ((forward, inverse), (inverse, forward)))
        return max(float((error * stays).max()) for error, stays in trips)

    assert worst() > 5
    inverse = consistent(forward, inverse, OPS)
    assert worst() < 0.5
    assert float(forward.square().sum(0).sqrt().mean()) > 0.8  # it still leads somewhere

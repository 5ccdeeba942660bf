"""Linear registration finds known transforms, stays in its group, and says what it cannot do."""

import csv
import functools
import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from scenes import OPS, Stopper, align, scene_of
from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.image import Image
from warpfactor.io.images import read_image
from warpfactor.kernels import numba as cpu
from warpfactor.kernels import reference
from warpfactor.phantom import phantom
from warpfactor.scene.prepare import make_side
from warpfactor.scene.scene import Scene
from warpfactor.stages.linear.cost import METRICS, linear_cost
from warpfactor.stages.linear.motion import MOTIONS, Motion, centre_of, restrict, strain
from warpfactor.stages.linear.solve import Solver
from warpfactor.stages.linear.stage import Levels, LinearSettings
from warpfactor.stages.linear.starts import Object, Overlap, axes_starts
from warpfactor.stages.stage import Ending

SHAPE = (48, 56, 48)
SLICE = (1, 96, 80)
SETTINGS = LinearSettings(levels=(4, 2, 1), iterations=(40, 40, 20))


def rotation(axis, degrees):
    axis = np.asarray(axis, dtype=float) / np.linalg.norm(axis)
    x, y, z = axis
    k = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    t = np.radians(degrees)
    return np.eye(3) + np.sin(t) * k + (1 - np.cos(t)) * k @ k


def transform(linear, shift, grid):
    """4x4: the linear part about the middle of a grid, then a shift."""
    centre = centre_of(grid)
    result = np.eye(4)
    result[:3, :3] = linear
    result[:3, 3] = centre + shift - linear @ centre
    return result


@functools.lru_cache
def still_phantom(shape, contrast="t1", bias=0.0):
    return phantom(shape, contrast=contrast, displacement_vox=0, bias=bias)


def carried(truth, shape=SHAPE, contrast="t1", bias=0.0):
    """A fixed and a moving image of one object, on grids such that `truth(grid)` is the transform between them."""
    images = still_phantom(shape, contrast, bias)
    grid = Grid.from_spacing(shape, 2.0)
    matrix = truth(grid)
    fixed = Image(images.fixed[None].clone(), grid, "fixed")
    return fixed, Image(images.moving[None].clone(), Grid(shape, matrix @ grid.matrix), "moving"), matrix


def error_mm(found, truth, grid):
    """Mean distance between two transforms over the middle of a grid."""
    index = np.stack(np.meshgrid(*[np.linspace(0.2, 0.8, 5) * (n - 1) for n in grid.shape], indexing="ij"), -1)
    points = np.column_stack([grid.index_to_world(index.reshape(-1, 3)), np.ones(125)])
    return np.linalg.norm((points @ (found - truth).T)[:, :3], axis=1).mean()


def run(fixed, moving, settings=SETTINGS, **options):
    masks = {k: options.pop(k) for k in ("fixed_mask", "moving_mask") if k in options}
    return align(scene_of(fixed, moving, **masks), settings, **options)


LINEAR = {
    "translation": np.eye(3),
    "rigid": rotation((1, 2, -1), 12),
    "similarity": 1.12 * rotation((1, 2, -1), 12),
    "affine": rotation((1, 2, -1), 12) @ np.array([[1.1, 0.08, 0], [0, 0.92, 0.05], [0.04, 0, 1.05]]),
}


@pytest.mark.parametrize("dof", MOTIONS)
def test_known_transform_is_found(dof):
    fixed, moving, truth = carried(lambda grid: transform(LINEAR[dof], [9, -7, 5], grid))
    found = run(fixed, moving, replace(SETTINGS, dof=dof))
    assert error_mm(found.matrix, truth, fixed.grid) < 0.3
    assert found.stage.start in dict(found.stage.start_costs)


@pytest.mark.parametrize("scale", [0.6, 1.5])
@pytest.mark.parametrize("angle", [0, 160])
def test_slices_may_differ_in_size(scale, angle):
    """As pictures do whose pixels have no size."""
    linear = rotation((0, 0, 1), angle) @ np.diag([scale, scale, 1])
    fixed, moving, truth = carried(lambda grid: transform(linear, [9, -7, 0], grid), SLICE)
    found = run(fixed, moving)
    assert error_mm(found.matrix, truth, fixed.grid) < 0.3
    assert found.stage.start.startswith("size")
    rigid = run(fixed, moving, replace(SETTINGS, dof="rigid"))
    assert not any(name.startswith("size") for name in dict(rigid.stage.start_costs))


def test_a_single_pixel_has_no_size():
    dot, bar = torch.zeros(1, 10, 10), torch.zeros(1, 10, 10)
    dot[0, 5, 5] = 1
    bar[0, 3:7, 2:8] = 1
    for fixed, moving in ((bar, dot), (dot, bar), (dot, dot)):
        found = run(Image.from_array(fixed), Image.from_array(moving), replace(SETTINGS, levels=(1,), iterations=(5,)))
        assert not any(name.startswith("size") for name in dict(found.stage.start_costs))


@pytest.mark.parametrize("dof", MOTIONS)
def test_known_transform_is_found_in_a_slice(dof):
    planar = {
        "translation": np.eye(3),
        "rigid": rotation((0, 0, 1), 20),
        "similarity": rotation((0, 0, 1), 20) @ np.diag([0.9, 0.9, 1]),
        "affine": rotation((0, 0, 1), 20) @ np.array([[1.1, 0.08, 0], [0, 0.95, 0], [0, 0, 1]]),
    }
    fixed, moving, truth = carried(lambda grid: transform(planar[dof], [9, -7, 0], grid), SLICE)
    found = run(fixed, moving, replace(SETTINGS, dof=dof))
    assert error_mm(found.matrix, truth, fixed.grid) < 0.3
    assert np.allclose(found.matrix[2], [0, 0, 1, 0], atol=1e-12)


@pytest.mark.parametrize("metric", METRICS)
def test_large_turn_and_offset_with_every_metric(metric):
    fixed, moving, truth = carried(lambda grid: transform(rotation((2, -1, 3), 30), [60, -45, 50], grid))
    found = run(fixed, moving, replace(SETTINGS, dof="rigid", metric=metric))
    assert error_mm(found.matrix, truth, fixed.grid) < 0.3


@pytest.mark.parametrize("contrast", ["inverted", "t2"])
def test_other_contrast_with_mutual_information(contrast):
    truth = lambda grid: transform(LINEAR["affine"], [9, -7, 5], grid)  # noqa: E731
    fixed, moving, matrix = carried(truth, contrast=contrast)
    found = run(fixed, moving, replace(SETTINGS, metric="mi"))
    assert error_mm(found.matrix, matrix, fixed.grid) < 0.4


def resampled(image, grid):
    matrix = grid.voxel_map(image.grid)
    return Image(OPS.sample(image.data[0], None, matrix, shape=grid.shape)[None], grid, "moving")


def test_oblique_left_handed_thick_slices():
    fixed, moving, truth = carried(lambda grid: transform(rotation((1, 1, 0), 8), [4, 3, -6], grid))
    directions = rotation((1, -2, 1), 25) @ np.diag([1, 1, -1])
    matrix = np.eye(4)
    matrix[:3, :3] = directions @ np.diag([5.0, 1.7, 2.3])
    shape = (24, 70, 52)
    matrix[:3, 3] = centre_of(moving.grid) - matrix[:3, :3] @ ((np.array(shape) - 1) / 2)
    found = run(fixed, resampled(moving, Grid(shape, matrix)), replace(SETTINGS, dof="rigid"))
    assert error_mm(found.matrix, truth, fixed.grid) < 0.4


def test_few_slices():
    fixed, moving, truth = carried(lambda grid: transform(rotation((0, 0, 1), 10), [6, -4, 0], grid))
    grid = moving.grid.scaled((8.0, 1.0, 1.0), shape=(6, *SHAPE[1:]))
    found = run(resampled(fixed, fixed.grid.scaled((8.0, 1, 1), shape=(6, *SHAPE[1:]))), resampled(moving, grid))
    assert error_mm(found.matrix, truth, fixed.grid) < 1.5


@pytest.mark.parametrize("metric", ["lncc", "ncc", "mi"])
def test_smaller_field_of_view(metric):
    fixed, moving, truth = carried(lambda grid: transform(rotation((0, 1, 0), 6), [10, 0, 8], grid))
    corner = np.eye(4)
    corner[:3, 3] = (8, 4, 10)
    crop = Image(moving.data[:, 8:36, 4:44, 10:40].contiguous(), Grid((28, 40, 30), moving.grid.matrix @ corner))
    settings = replace(SETTINGS, dof="rigid", metric=metric)
    assert error_mm(run(fixed, crop, settings).matrix, truth, fixed.grid) < 0.5
    backwards = run(crop, fixed, settings).matrix
    assert error_mm(np.linalg.inv(backwards), truth, fixed.grid) < 0.5


def test_computed_tomography_numbers_change_nothing():
    fixed, moving, truth = carried(lambda grid: transform(LINEAR["rigid"], [40, 30, -20], grid))
    numbers = [replace(i, data=2000 * i.data - 1000) for i in (fixed, moving)]
    plain = run(fixed, moving, replace(SETTINGS, dof="rigid"))
    hounsfield = run(*numbers, replace(SETTINGS, dof="rigid"))
    assert np.allclose(plain.matrix, hounsfield.matrix, atol=1e-2)
    assert error_mm(hounsfield.matrix, truth, fixed.grid) < 0.2


def test_centre_of_mass_ignores_the_background_value():
    images = still_phantom(SHAPE)
    grid = Grid.from_spacing(SHAPE, 2.0)
    true_centre = grid.index_to_world(torch.nonzero(images.mask).numpy()).mean(axis=0)
    for image in (images.fixed, 2000 * images.fixed - 1000, 1 - images.fixed):
        assert np.linalg.norm(Object.of(make_side(Image(image[None], grid), None, "cpu", OPS)).centre - true_centre) < 4


def test_principal_axes_hold_the_true_turn():
    fixed, moving, truth = carried(lambda grid: transform(rotation((1, 3, 2), 75), [0, 0, 0], grid), (40, 64, 52))
    starts = axes_starts(Overlap.of(scene_of(fixed, moving)))
    assert all(np.isclose(np.linalg.det(s.matrix[:3, :3]), 1) for s in starts)
    assert min(error_mm(s.matrix, truth, fixed.grid) for s in starts) < 2


def test_masks_keep_a_disturbance_out():
    fixed, moving, truth = carried(lambda grid: transform(LINEAR["rigid"], [9, -7, 5], grid))
    mask = torch.ones((1, *SHAPE), dtype=torch.uint8)
    fixed.data[:, 10:25, 10:30, 10:25] = 5.0
    mask[:, 8:27, 8:32, 8:27] = 0
    moving.data[:, 30:44, 30:50, 20:40] = 4.0
    moving_mask = torch.ones((1, *SHAPE), dtype=torch.uint8)
    moving_mask[:, 28:46, 28:52, 18:42] = 0
    masks = {"fixed_mask": Image(mask, fixed.grid), "moving_mask": Image(moving_mask, moving.grid)}
    settings = replace(SETTINGS, dof="rigid", metric="ncc")
    assert error_mm(run(fixed, moving, settings, **masks).matrix, truth, fixed.grid) < 0.5


@pytest.mark.parametrize(("dof", "shape"), [("rigid", SHAPE), ("similarity", SHAPE), ("rigid", SLICE)])
def test_rigid_and_similarity_are_exactly_that(dof, shape):
    linear = rotation((0, 0, 1), 10) @ np.diag([1.2, 0.9, 1])
    fixed, moving, _ = carried(lambda grid: transform(linear, [3, 4, 0], grid), shape)
    found = run(fixed, moving, replace(SETTINGS, dof=dof, levels=(4, 2), iterations=(20, 20))).matrix[:3, :3]
    scale = np.linalg.det(found) ** (1 / 3)
    assert np.abs(found.T @ found - scale**2 * np.eye(3)).max() < 1e-10
    if dof == "rigid":
        assert abs(scale - 1) < 1e-10


def test_given_start_is_used_and_brought_into_the_group():
    fixed, moving, truth = carried(lambda grid: transform(LINEAR["rigid"], [9, -7, 5], grid))
    start = truth @ transform(np.diag([1.05, 0.97, 1]) @ rotation((0, 1, 1), 4), [2, -1, 3], fixed.grid)
    found = run(fixed, moving, replace(SETTINGS, dof="rigid"), start=start)
    assert found.stage.start == "given"
    assert error_mm(found.matrix, truth, fixed.grid) < 0.2
    assert np.abs(found.matrix[:3, :3].T @ found.matrix[:3, :3] - np.eye(3)).max() < 1e-10


def test_start_with_another_scale_is_no_collapse():
    fixed, moving, truth = carried(lambda grid: transform(4 * np.eye(3), [0, 0, 0], grid))
    start = truth @ transform(rotation((0, 1, 1), 4), [2, -1, 3], fixed.grid)
    assert error_mm(run(fixed, moving, start=start).matrix, truth, fixed.grid) < 4 * 0.3


def test_unrelated_images_do_not_collapse(rng):
    grid = Grid.from_spacing((24, 24, 24), 2.0)
    images = [Image.from_array(rng.standard_normal(grid.shape), grid=grid) for _ in range(2)]
    found = run(*images, LinearSettings(levels=(2, 1), iterations=(30, 30), metric="mse"))
    assert 0.3 < np.linalg.det(found.matrix[:3, :3]) < 3
    assert Overlap.of(scene_of(*images)).share(found.matrix) > 0.25


def test_no_overlap_is_a_clear_error():
    fixed, moving, _ = carried(lambda grid: np.eye(4))
    far = np.eye(4)
    far[0, 3] = 500
    with pytest.raises(InputError, match="hardly overlap"):
        run(fixed, moving, start=far)
    away = replace(moving, grid=Grid(SHAPE, far @ moving.grid.matrix))
    with pytest.raises(InputError, match="hardly overlap"):
        run(fixed, away, replace(SETTINGS, starts=("identity",)))
    assert error_mm(run(fixed, away).matrix, far, fixed.grid) < 0.2


def test_masks_without_common_voxels_are_a_clear_error():
    fixed, moving, _ = carried(lambda grid: np.eye(4))
    left, right = torch.zeros((2, 1, *SHAPE), dtype=torch.uint8)
    left[..., :20], right[..., 30:] = 1, 1
    masks = {"fixed_mask": Image(left, fixed.grid), "moving_mask": Image(right, moving.grid)}
    with pytest.raises(InputError, match="masks"):
        run(fixed, moving, replace(SETTINGS, starts=("identity",)), **masks)


def test_wrong_settings_and_starts_are_named():
    for wrong in ({"dof": "projective"}, {"metric": "lnc"}, {"starts": ("axis",)}, {"starts": ("axes",)}):
        with pytest.raises(InputError, match=str(next(iter(wrong.values()))[-3:]).strip("()',")):
            LinearSettings(**wrong)
    for wrong in (
        {"levels": (2, 4, 8)},
        {"iterations": ()},
        {"levels": (4, 2), "iterations": (3,)},
        {"window": 4},
        {"prior": -1.0},
    ):
        with pytest.raises(InputError):
            LinearSettings(**wrong)
    fixed, moving, _ = carried(lambda grid: np.eye(4))
    with pytest.raises(InputError, match="4x4"):
        run(fixed, moving, start=np.zeros((4, 4)))


def test_history_tells_every_iteration():
    fixed, moving, _ = carried(lambda grid: transform(LINEAR["affine"], [9, -7, 5], grid))
    seen = []
    found = run(fixed, moving, progress=seen.append)
    assert tuple(seen) == found.stage.history
    assert {r.level for r in seen} <= set(SETTINGS.levels)
    for level in SETTINGS.levels:
        kept = [r.cost for r in seen if r.level == level and r.accepted and r.stage == "affine"]
        assert kept == sorted(kept, reverse=True)
    assert all(a.seconds <= b.seconds for a, b in itertools.pairwise(seen))


def double_solver(metric, shape=(20, 22, 24)):
    """A solver in float64 whose fixed voxels all lie inside the moving image, so that the cost is smooth."""
    images = still_phantom(shape)
    grid = Grid.from_spacing(shape, 1.0)
    inner = grid.scaled(1.0, shape=[n - 10 if n > 1 else 1 for n in shape])
    shifted = np.eye(4)
    shifted[:3, 3] = [5 if n > 1 else 0 for n in shape]
    small = Image(images.fixed[None], grid)
    fixed = resampled(small, Grid(inner.shape, grid.matrix @ shifted))
    scene = scene_of(fixed, Image(images.moving[None], grid))
    scene = Scene(*(replace(side, data=side.data.double()) for side in scene.sides))
    cost = linear_cost(scene, metric, reference, window=5, bins=16)
    return Solver(scene, cost, Overlap.of(scene), np.eye(4), 0.05, 1e-5)


@pytest.mark.parametrize("shape", [(20, 22, 24), (1, 30, 28)])
@pytest.mark.parametrize("metric", METRICS)
def test_gradient_is_the_derivative_of_the_cost(metric, shape):
    solver = double_solver(metric, shape)
    grid = solver.scene.fixed.grid
    motion = Motion.on(grid, "affine", 1.0)
    count = len(motion.generators)
    assert count == (12 if shape[0] > 1 else 6)
    here = motion.step(np.linspace(-0.6, 0.7, count))
    point = solver._point(here, motion)
    for k in range(count):
        step = 1e-5 * np.eye(count)[k]
        ahead, behind = (solver._point(here @ motion.step(s), motion).cost for s in (step, -step))
        assert (ahead - behind) / 2e-5 == pytest.approx(point.gradient[k], rel=1e-3, abs=1e-6)
    assert np.linalg.eigvalsh(point.curvature).min() > 0


def test_strain_is_zero_for_rotations_and_relative():
    turn = transform(rotation((1, 2, 3), 40), [1, 2, 3], Grid.from_spacing((8, 8, 8)))
    assert np.abs(strain(turn, np.eye(4))).max() < 1e-12
    stretched = np.diag([2.0, 1, 1, 1])
    assert np.allclose(strain(turn @ stretched, stretched), 0, atol=1e-12)
    assert np.allclose(np.linalg.eigvalsh(strain(turn @ stretched, np.eye(4))), [0, 0, 2 * np.log(2)])


@pytest.mark.parametrize("dof", MOTIONS)
def test_restricting_twice_is_restricting_once(dof):
    grid = Grid.from_spacing((8, 9, 10), 1.5)
    matrix = transform(LINEAR["affine"], [1, 2, 3], grid)
    once = restrict(matrix, dof, grid)
    assert np.allclose(restrict(once, dof, grid), once)
    assert np.allclose(once @ [*centre_of(grid), 1], matrix @ [*centre_of(grid), 1])


@pytest.mark.parametrize("dof", MOTIONS)
def test_in_2d_nothing_couples_z(dof):
    grid = Grid.from_spacing((9, 10), 1.5)
    noisy = transform(rotation((1e-9, -1e-9, 1), 20), [3, 2, 1e-12], grid)
    found = restrict(noisy, dof, grid)
    assert found[2].tolist() == found[:, 2].tolist() == [0, 0, 1, 0]


def test_levels_that_were_made_before_change_nothing():
    made = still_phantom(SHAPE)
    grid = Grid.from_spacing(SHAPE, 2.0)
    scene = scene_of(Image(made.fixed[None], grid), Image(made.moving[None].roll(2, 3), grid))
    levels = Levels.of(scene, SETTINGS, OPS)
    for start in (None, transform(np.eye(3), (3.0, 0.0, 0.0), grid)):
        found = [align(scene, SETTINGS, start=start, levels=k) for k in (levels, None)]
        assert np.array_equal(found[0].matrix, found[1].matrix)
        assert found[0].stage.cost_after == found[1].stage.cost_after


def test_the_cost_before_is_that_of_the_start():
    fixed, moving, _ = carried(lambda grid: transform(LINEAR["rigid"], [9, -7, 5], grid))
    found = run(fixed, moving, replace(SETTINGS, dof="rigid", levels=(4, 2), iterations=(20, 20)))
    assert found.stage.cost_after < found.stage.cost_before
    again = run(fixed, moving, replace(SETTINGS, dof="rigid", levels=(4, 2), iterations=(0, 0)), start=found.matrix)
    assert again.stage.cost_before == pytest.approx(again.stage.cost_after) == pytest.approx(found.stage.cost_after)


def test_stopping_leaves_the_best_transform_so_far():
    fixed, moving, truth = carried(lambda grid: transform(LINEAR["rigid"], [9, -7, 5], grid))
    settings = replace(SETTINGS, dof="rigid", levels=(4, 2), iterations=(20, 20))

    stopper = Stopper(lambda event: event.level == 2)
    found = run(fixed, moving, settings, progress=stopper, stop=stopper.stop)
    assert found.stage.ending is Ending.INTERRUPTED
    assert [event.level for event in found.stage.history].count(2) == 1
    assert error_mm(found.matrix, truth, fixed.grid) < 2


@pytest.mark.parametrize("shapes", [((7, 9, 11), (8, 7, 10)), ((1, 13, 9), (1, 11, 12))])
@pytest.mark.parametrize("masked", [False, True])
def test_cpu_sums_agree_with_the_reference(shapes, masked, generator):
    fixed, moving = (torch.randn(s, generator=generator) for s in shapes)
    matrix = torch.tensor(
        [[1.03, 0.05, -0.02, 0.3131], [-0.04, 0.7, 0.03, 0.9173], [0.02, -0.06, 1.1, -0.4137]], dtype=torch.float64
    )
    masks = {}
    if masked:
        drawn = [(torch.rand(s, generator=generator) > 0.2).to(torch.uint8) for s in shapes]
        masks = dict(zip(("fixed_mask", "moving_mask"), drawn, strict=True))
    exact = reference.affine_moments(fixed.double(), moving.double(), matrix, **masks)
    for found, true in zip(cpu.affine_moments(fixed, moving, matrix, **masks), exact, strict=True):
        assert torch.allclose(found, true, rtol=0, atol=1e-6 * float(true.abs().max()))
    force = torch.randn((3, *shapes[0]), generator=generator)
    for found, true in zip(cpu.affine_gradient(force), reference.affine_gradient(force.double()), strict=True):
        assert torch.allclose(found, true, rtol=0, atol=1e-6 * float(true.abs().max()))


@pytest.mark.parametrize("metric", ["lncc", "mi"])
def test_reference_kernels_find_the_same(metric):
    fixed, moving, _ = carried(lambda grid: transform(rotation((1, 0, 1), 5), [3, 2, 1], grid), (20, 20, 20))
    scene = scene_of(fixed, moving)
    settings = LinearSettings(dof="rigid", metric=metric, levels=(1,), iterations=(6,), starts=("identity",))
    found = [align(scene, settings, ops=ops).matrix for ops in (cpu, reference)]
    assert error_mm(*found, fixed.grid) < 0.02


def test_several_channels():
    fixed, moving, truth = carried(lambda grid: transform(LINEAR["rigid"], [9, -7, 5], grid))
    pair = [replace(i, data=torch.cat([i.data, 1 - i.data.square()])) for i in (fixed, moving)]
    assert error_mm(run(*pair, replace(SETTINGS, dof="rigid")).matrix, truth, fixed.grid) < 0.2


def landmarks(path):
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return [np.array([[float(r[f"{k}_{c}_lps"]) for c in "xyz"] for r in rows]) for k in ("fix", "mov")]


def test_lung_pair_from_35_mm_away(data_dir):
    fixed, moving = (read_image(data_dir / "lung" / f"lung_{n}.nii.gz") for n in ("fixed", "moving"))
    found = run(fixed, moving, LinearSettings())
    points, true = landmarks(data_dir / "lung" / "landmarks_51_corrected.csv")
    mapped = points @ found.matrix[:3, :3].T + found.matrix[:3, 3]
    assert np.linalg.norm(points - true, axis=1).mean() > 35
    assert np.linalg.norm(mapped - true, axis=1).mean() < 4.2

"""The default recipe gives the same warp whatever the unit of intensity and length, the padding and the order of axes.

Two results are compared as maps of world points of the fixed image's object, so that affine and warp count together.
Differences are in voxels: their mean and their 99th percentile over the object. The tolerances, each with its reason:

* ROUNDING: the numbers that reach the optimizer differ in their last bit only, as by another unit, another order of
  axes or another processor. Most often the warps then differ by 1e-6 voxel. But where a point falls on the lattice the
  slope of linear interpolation has two sides, and a cost may lie at the edge of being lower; rounding then chooses one,
  and a neighbourhood goes another way. Of 30 such changes of the slice 20 gave the same to 2e-6 voxel in the mean, 6
  were 1e-4 away, 4 were 0.017 away; of 30 with the settings of large objects and more steps the worst was 0.042 (0.11
  at the 99th percentile). Each test below may hit such an edge, on one processor and not on another, so it allows for
  that, a tenth of the phantom's true error.
* COMMON: what most of many such changes stay within, of the run among them that is nearest to the rest: the
  unchanged run may itself lie beyond an edge.
  Since the default looks every few iterations whether two halves of the force still agree, rounding may also end a
  level at another iteration: a slice with its axes in another order was 0.035 away in the mean and 0.19 at the 99th
  percentile, products as a loss of one's own 0.008 and 0.21.
* EMPTIER: more differs than numbers. Levels and iterations follow from the size of the image, which a margin changes
  (0.060 and 0.163 for a volume in zeros). What was unknown beyond the border is now known to be empty, windows and
  filters are no longer cut there, and the coarsest affine level has other voxels.
* NOISIER: the images differ. Noise is where none was, which moves the affine by some tenths of a voxel; the warp makes
  up for most of that.
"""

import functools
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch.nn import functional

import warpfactor as wf
from warpfactor.geometry.grid import apply_matrix
from warpfactor.phantom import phantom

SHAPES = {"3-D": (48, 56, 44), "2-D": (1, 112, 96)}
SPACING = {"3-D": (1.5, 1.2, 1.2), "2-D": (1.2, 1.5)}
BRIGHT = 1000.0  # the phantom's tissues lie between 0 and this, as those of a scanner
WARP_ONLY = {"linear": None}
SHORT = {**WARP_ONLY, "deformable.iterations": [30, 15, 5]}
# Off the lattice: exactly on a voxel the slope of linear interpolation has two sides, and rounding would choose one.
OFF_LATTICE = [[1.01, 0.02, 0, 0.3], [-0.02, 0.99, 0, 0.2], [0, 0, 1, 0], [0, 0, 0, 1]]
MARGIN, PAD = 8, 8  # voxels; multiples of the coarsest level's factor, so that its voxels stay where they are


class Tolerance(NamedTuple):
    """Of the difference in voxels, over the object."""

    mean: float
    p99: float


ROUNDING = Tolerance(0.04, 0.25)
COMMON = Tolerance(1e-3, 1e-2)
EMPTIER = Tolerance(0.08, 0.2)
NOISIER = Tolerance(0.08, 0.4)
OWN_LOSS = Tolerance(0.04, 0.4)


@functools.cache
def truth(dimension="3-D"):
    return phantom(SHAPES[dimension], seed=3, displacement_vox=3.0)


def grid_of(dimension):
    shape = SHAPES[dimension] if dimension == "3-D" else SHAPES[dimension][1:]
    return wf.Grid.from_spacing(shape, SPACING[dimension])


def register(fixed, moving, grid, **options):
    return wf.register(wf.Image.from_array(fixed, grid=grid), wf.Image.from_array(moving, grid=grid), **options)


@functools.cache
def plain(dimension="3-D"):
    made = truth(dimension)
    return register(BRIGHT * made.fixed, BRIGHT * made.moving, grid_of(dimension))


def object_points(mask, grid):
    return grid.index_to_world(torch.nonzero(mask).numpy())


def difference(one, two, points, world=None):
    """Distance in voxels of where two results send points; `world`, 4x4, leads from one world to the other."""
    world = np.eye(4) if world is None else np.asarray(world)
    there = two.transform.map_points(apply_matrix(world, points))
    apart = one.transform.map_points(points) - apply_matrix(np.linalg.inv(world), there)
    return np.linalg.norm(apart, axis=1) / min(one.fixed_grid.spacing_mm[-one.fixed_grid.ndim :])


def figures(one, two, points, world=None):
    """Mean and 99th percentile of the difference."""
    apart = difference(one, two, points, world)
    return Tolerance(float(apart.mean()), float(np.quantile(apart, 0.99)))


def assert_same(one, two, points, tolerance, world=None):
    found = figures(one, two, points, world)
    assert found.mean < tolerance.mean and found.p99 < tolerance.p99, f"{found} exceeds {tolerance}"


def check(dimension, changed, tolerance, world=None):
    points = object_points(truth(dimension).mask, grid_of(dimension))
    assert_same(plain(dimension), changed, points, tolerance, world)


# The last bit


@pytest.mark.parametrize("dimension", SHAPES)
def test_most_changes_of_the_last_bit_change_nothing_to_speak_of(dimension):
    made, grid = truth(dimension), grid_of(dimension)
    generator = torch.Generator().manual_seed(1)

    def rounded(image):
        return BRIGHT * image * (1 + 1e-7 * torch.randn(image.shape, generator=generator))

    points = object_points(made.mask, grid)
    count = 5 if dimension == "2-D" else 3
    runs = [plain(dimension), *(register(rounded(made.fixed), rounded(made.moving), grid) for _ in range(count))]
    sent = [run.transform.map_points(points) / min(grid.spacing_mm[-grid.ndim :]) for run in runs]
    lengths = [[np.linalg.norm(one - two, axis=1) for two in sent] for one in sent]
    apart = np.array([[(each.mean(), np.quantile(each, 0.99)) for each in row] for row in lengths])
    others = apart[~np.eye(len(runs), dtype=bool)].reshape(len(runs), -1, 2)
    typical = Tolerance(*min(np.median(others, axis=1).tolist()))
    assert typical.mean < COMMON.mean and typical.p99 < COMMON.p99, f"{typical} exceeds {COMMON}"
    assert apart[..., 0].max() < ROUNDING.mean and apart[..., 1].max() < ROUNDING.p99


# Intensities


@pytest.mark.parametrize("dimension", SHAPES)
def test_the_warp_that_is_compared_is_one(dimension):
    made, found = truth(dimension), plain(dimension)
    true = made.displacement.norm(dim=0)[made.mask].mean()
    error = (found.transform.on_grid(found.fixed_grid).total() - made.displacement).norm(dim=0)[made.mask].mean()
    assert true > 1
    assert error < 0.5 * true


SCALES = [("3-D", 1000, 1), ("2-D", 1000, 0.001)]


@pytest.mark.parametrize(("dimension", "of_fixed", "of_moving"), SCALES)
def test_intensities_may_be_scaled(dimension, of_fixed, of_moving):
    made = truth(dimension)
    changed = register(of_fixed * BRIGHT * made.fixed, of_moving * BRIGHT * made.moving, grid_of(dimension))
    check(dimension, changed, ROUNDING)


def test_scaling_by_a_power_of_two_changes_nothing_at_all():
    made = truth()
    changed = register(1024 * BRIGHT * made.fixed, BRIGHT / 1024 * made.moving, grid_of("3-D"))
    assert torch.equal(changed.warp.displacement, plain().warp.displacement)
    assert np.array_equal(changed.affine.matrix, plain().affine.matrix)


OFFSETS = [("3-D", -500, 1000), ("2-D", 1000, 0)]


@pytest.mark.parametrize(("dimension", "to_fixed", "to_moving"), OFFSETS)
def test_intensities_may_have_an_offset(dimension, to_fixed, to_moving):
    made = truth(dimension)
    changed = register(BRIGHT * made.fixed + to_fixed, BRIGHT * made.moving + to_moving, grid_of(dimension))
    check(dimension, changed, ROUNDING)


def test_the_deformable_stage_alone_is_as_indifferent_to_intensities():
    made, grid = truth(), grid_of("3-D")
    options = {"overrides": WARP_ONLY, "initial": OFF_LATTICE}
    one = register(made.fixed, made.moving, grid, **options)
    two = register(1000 * made.fixed - 500, 0.001 * made.moving + 0.001, grid, **options)
    assert_same(one, two, object_points(made.mask, grid), ROUNDING)


# Units of length and of the cost


@pytest.mark.parametrize(("dimension", "factor"), [("3-D", 1000), ("2-D", 0.001)])
def test_length_may_have_another_unit(dimension, factor):
    made, grid = truth(dimension), grid_of(dimension)
    world = np.diag([factor, factor, factor if grid.ndim == 3 else 1, 1])
    other = wf.Grid(grid.shape, world @ grid.matrix, grid.ndim)
    changed = register(BRIGHT * made.fixed, BRIGHT * made.moving, other)
    check(dimension, changed, ROUNDING, world)
    ratio = changed.figures.warp.displacement_mm.mean / plain(dimension).figures.warp.displacement_mm.mean
    assert ratio == pytest.approx(factor, rel=1e-3)


LOSSES = {
    "squares": lambda warped, fixed: (warped - fixed).square(),
    "products": lambda warped, fixed: -warped * fixed,
}


@pytest.mark.parametrize("loss", LOSSES)
def test_the_cost_may_be_a_sum_or_a_mean(loss):
    made, grid, each = truth(), grid_of("3-D"), LOSSES[loss]
    found = [
        register(made.fixed, made.moving, grid, overrides={**SHORT, "deformable.metric": wf.Custom(reduced)})
        for reduced in (lambda w, f: each(w, f).sum(), lambda w, f: each(w, f).mean())
    ]
    assert found[0].figures.warp.displacement_mm.max > 1
    assert_same(*found, object_points(made.mask, grid), OWN_LOSS)


# Axes


def in_memory_order(array, grid, order, signs):
    """The same image in the same place, its array axes in another order and running backwards where a sign is -1."""
    matrix = grid.matrix[:, [*order, 3]].copy()
    flipped = [axis for axis, sign in enumerate(signs) if sign < 0]
    turned = array.permute(order).flip(flipped) if flipped else array.permute(order)
    for axis in flipped:
        matrix[:3, 3] += (turned.shape[axis] - 1) * matrix[:3, axis]
        matrix[:3, axis] *= -1
    return wf.Image.from_array(turned.contiguous(), grid=wf.Grid(tuple(turned.shape), matrix, grid.ndim))


PERMUTED_AND_FLIPPED = (1, 2, 0), (1, -1, 1)


def test_axes_may_lie_in_memory_in_any_order():
    made, grid = truth(), grid_of("3-D")
    fixed, moving = (
        in_memory_order(BRIGHT * array, grid, *PERMUTED_AND_FLIPPED) for array in (made.fixed, made.moving)
    )
    check("3-D", wf.register(fixed, moving), ROUNDING)


def test_the_two_images_need_not_lie_in_memory_alike():
    made, grid = truth(), grid_of("3-D")
    fixed = in_memory_order(BRIGHT * made.fixed, grid, *PERMUTED_AND_FLIPPED)
    check("3-D", wf.register(fixed, wf.Image.from_array(BRIGHT * made.moving, grid=grid)), ROUNDING)


def test_axes_of_a_slice_may_lie_in_memory_in_any_order():
    made, grid = truth("2-D"), grid_of("2-D")
    for order, signs in zip([(0, 1, 2), (0, 2, 1)], [(1, -1, 1), (1, -1, -1)], strict=True):
        images = [in_memory_order(BRIGHT * array, grid, order, signs) for array in (made.fixed, made.moving)]
        check("2-D", wf.register(*images), ROUNDING)


def test_a_mirrored_body_has_the_mirrored_warp():
    made, grid, axis = truth(), grid_of("3-D"), 2
    changed = register(BRIGHT * made.fixed.flip([axis]), BRIGHT * made.moving.flip([axis]), grid)
    check("3-D", changed, ROUNDING, mirror(grid, axis))


def mirror(grid, axis):
    """4x4 of the world that turns the grid's array axis round."""
    turn = np.eye(4)
    turn[axis, axis], turn[axis, 3] = -1, grid.shape[axis] - 1
    return grid.matrix @ turn @ np.linalg.inv(grid.matrix)


# Surroundings


@functools.cache
def surrounded(dimension, noise):
    """A noise-free pair with an empty margin, as scans have one, and noise of the given SD everywhere."""
    shape = (48, 56, 48) if dimension == "3-D" else (1, 96, 88)
    made = phantom(shape, seed=3, displacement_vox=3.0, noise=0.0)
    images = [pad(array, MARGIN) for array in (made.fixed, made.moving)]
    return [noisy(image, noise, seed) for seed, image in enumerate(images)], pad(made.mask.float(), MARGIN) > 0


def pad(array, width):
    return functional.pad(array, (width, width, width, width, *((width, width) if array.shape[0] > 1 else ())))


def noisy(image, sd, seed):
    return image + sd * torch.randn(image.shape, generator=torch.Generator().manual_seed(seed))


def padded_with_noise(image, width, sd, seed):
    wide = pad(image, width)
    inside = pad(torch.ones_like(image), width) > 0
    return torch.where(inside, wide, noisy(torch.zeros_like(wide), sd, seed))


SURROUNDINGS = {  # noise SD of the pair, noise SD of what is put around it; white matter has 0.84
    "zeros": (0.0, 0.0),
    "noise-around-noise": (0.02, 0.02),
    "noise-around-zeros": (0.0, 0.02),
    "strong-noise": (0.1, 0.1),
}


def plain_grid(images):
    return wf.Grid.from_spacing(images[0].shape if images[0].shape[0] > 1 else images[0].shape[1:])


# The choice of smoother settings is left out: the force of these phantoms has a length near the limit (1.57 bare, 1.76
# with a margin), so that the margin would decide it.
DETAILED = {"deformable.broad_from": 0.0}


@functools.cache
def padded_result(dimension, surroundings):
    """The result of the padded pair, in the world of the plain one."""
    noise, around = SURROUNDINGS[surroundings]
    images, _ = surrounded(dimension, noise)
    small = plain_grid(images)
    wide = [padded_with_noise(image, PAD, around, 10 + seed) for seed, image in enumerate(images)]
    corner = np.eye(4)
    corner[:3, 3] = -PAD if dimension == "3-D" else (0, -PAD, -PAD)
    return register(*wide, wf.Grid(tuple(wide[0].shape), small.matrix @ corner, small.ndim), overrides=DETAILED)


@functools.cache
def bare_result(dimension, noise):
    images, _ = surrounded(dimension, noise)
    return register(*images, plain_grid(images), overrides=DETAILED)


CASES = [("3-D", "zeros"), ("3-D", "noise-around-zeros"), ("2-D", "zeros"), ("2-D", "noise-around-noise")]


@pytest.mark.parametrize(("dimension", "surroundings"), CASES)
def test_what_lies_around_an_object_does_not_move_it(dimension, surroundings):
    noise, _ = SURROUNDINGS[surroundings]
    padded, bare = padded_result(dimension, surroundings), bare_result(dimension, noise)
    _, mask = surrounded(dimension, noise)
    tolerance = EMPTIER if surroundings == "zeros" else NOISIER
    assert_same(bare, padded, object_points(mask, bare.fixed_grid), tolerance)


@pytest.mark.parametrize("surroundings", ["noise-around-zeros", "strong-noise"])
def test_noise_is_not_registered(surroundings):
    """There is nothing to find in noise: beyond the reach of the object's own motion it stays where it is."""
    length = padded_result("3-D", surroundings).warp.displacement.norm(dim=0)
    inside = functional.pad(torch.ones([n - 2 * PAD for n in length.shape]), (PAD,) * 6) > 0
    assert length[~inside].mean() < 0.3

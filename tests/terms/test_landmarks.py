"""Landmarks: a true gradient, corresponding points brought together, wrong ones held in check, bad input named."""

import numpy as np
import pytest
import torch

import warpfactor as wf
from scenes import OPS, scene_of
from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.image import Image
from warpfactor.terms import LandmarkTerm

OBLIQUE = torch.tensor([[0.9, 0.15, -0.1, 0.2], [-0.12, 1.1, 0.2, -0.3], [0.1, -0.25, 0.8, 0.4]], dtype=torch.float64)
PLANAR = torch.tensor([[0, 0, 0, 0], [0, 1.1, 0.2, -0.3], [0, -0.25, 0.8, 0.4]], dtype=torch.float64)


def scene_on(shape, spacing):
    grid, generator = Grid.from_spacing(shape, spacing), torch.Generator().manual_seed(4)
    fixed, moving = (Image(torch.rand((1, *shape), generator=generator), grid) for _ in range(2))
    return scene_of(fixed, moving)


@pytest.mark.parametrize(("shape", "matrix"), [((6, 7, 8), OBLIQUE), ((1, 9, 8), PLANAR)], ids=["3-D", "2-D"])
def test_gradient_is_the_finite_difference_of_the_cost(shape, matrix, rng):
    scene = scene_on(shape, (2.0, 1.0, 1.5))
    grid = scene.fixed.grid
    index = rng.uniform(0, np.asarray(shape) - 1, (4, 3))
    points = grid.index_to_world(index)
    term = LandmarkTerm.of(points, points + rng.normal(0, 3, (4, 3)), reach_mm=1.8).prepare(scene, OPS)
    u = torch.tensor(rng.normal(0, 0.4, (3, *shape)))
    gradient = torch.full_like(u, torch.nan)
    point = term.linearize(u, matrix, gradient)
    assert 0 < point.cost < 1
    for place in rng.permutation(np.argwhere(gradient[2].abs().numpy() > 1e-6))[:10]:
        for axis in range(int(shape[0] == 1), 3):
            costs = []
            for step in (1e-4, -1e-4):
                moved = u.clone()
                moved[(axis, *place)] += step
                costs.append(term.linearize(moved, matrix).cost)
            slope = point.count * (costs[0] - costs[1]) / 2e-4
            assert gradient[(axis, *place)].item() == pytest.approx(slope, rel=1e-4, abs=1e-6)


def test_landmarks_that_lie_right_cost_nothing():
    scene = scene_on((8, 9, 10), 1.0)
    points = scene.fixed.grid.index_to_world(np.array([[2.0, 3.0, 4.0], [5.0, 5.0, 5.0]]))
    gradient = torch.ones(3, 8, 9, 10)
    found = LandmarkTerm.of(points, points).prepare(scene, OPS)
    assert found.linearize(torch.zeros(3, 8, 9, 10), torch.eye(3, 4, dtype=torch.float64), gradient).cost == 0
    assert not gradient.any()


@pytest.fixture(scope="module")
def lost():
    """Two images of one contrast whose inside says nothing, and where four points of it went."""
    shape = (32, 36, 34)
    z, y, x = np.meshgrid(*(np.arange(n) - n / 2 for n in shape), indexing="ij")
    ball = (z**2 + y**2 + x**2 < 14**2).astype(np.float32)
    image = Image.from_array(torch.from_numpy(ball))
    index = np.array([[16, 18, 12], [16, 18, 22], [12, 18, 17], [20, 18, 17]], dtype=float)
    fixed = image.grid.index_to_world(index)
    return image, fixed, fixed + np.array([0.0, 3.0, 0.0])


QUICK = {"linear": "none", "deformable.iterations": (30, 20, 10)}


def error(found, fixed, moving):
    return np.linalg.norm(found.transform.map_points(fixed) - moving, axis=1)


def test_landmarks_lead_where_the_images_say_nothing(lost):
    image, fixed, moving = lost
    alone = wf.register(image, image, overrides=QUICK)
    led = wf.register(image, image, overrides=QUICK, landmarks=(fixed, moving))
    assert error(alone, fixed, moving).mean() == pytest.approx(3.0, abs=0.2)
    assert error(led, fixed, moving).mean() < 1.0
    assert led.figures.warp.jacobian.folded_count == 0


def test_a_wrong_landmark_does_not_ruin_the_others(lost):
    image, fixed, moving = lost
    wrong = moving.copy()
    wrong[0] += [9.0, 9.0, 9.0]
    led = wf.register(image, image, overrides=QUICK, landmarks=(fixed, wrong))
    assert error(led, fixed, moving)[1:].mean() < 1.5
    assert led.figures.warp.jacobian.folded_count == 0


def test_a_weight_of_zero_leaves_them_out(lost):
    image, fixed, moving = lost
    found = wf.register(image, image, overrides=QUICK, landmarks=(fixed, moving), landmarks_weight=0)
    assert found.history[-1].metric == "lncc"


def test_bad_landmarks_are_named(lost, tmp_path):
    image, fixed, moving = lost
    far = fixed.copy()
    far[2] = [1000, 0, 0]
    with pytest.raises(InputError, match=r"Landmark 3 of 4, \(1000, 0, 0\) mm, lies outside the fixed image"):
        wf.register(image, image, landmarks=(far, moving))
    with pytest.raises(InputError, match="4 fixed and 3 moving landmarks"):
        wf.register(image, image, landmarks=(fixed, moving[:3]))
    with pytest.raises(InputError, match=r"weight of landmarks is -1"):
        wf.register(image, image, landmarks=(fixed, moving), landmarks_weight=-1)
    with pytest.raises(wf.FileError, match="there is no such file"):
        wf.register(image, image, landmarks=tmp_path / "none.csv")

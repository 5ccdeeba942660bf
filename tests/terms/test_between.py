"""Guides of two images that both move: true gradients, exchanged images exchange the halves, and they lead."""

import numpy as np
import pytest
import torch

import warpfactor as wf
from guides import side, terms
from scenes import OPS
from warpfactor.kernels import reference
from warpfactor.scene.middle import Middle, came_from
from warpfactor.scene.scene import Scene
from warpfactor.terms import MSE, LandmarkTerm, Sum, Weighted
from warpfactor.terms.both import prepare_between

APART = np.array([0.0, 3.0, 0.0])
TURNED = np.array([[0.98, -0.17, 0.02, 0.3], [0.17, 1.02, -0.05, -0.4], [0.0, 0.06, 0.97, 0.2], [0, 0, 0, 1]])
PLANAR = np.array([[0.98, -0.17, 0, 0.3], [0.17, 1.02, 0, -0.4], [0, 0, 1, 0], [0, 0, 0, 1]])


def guide(name, generator, shape):
    """A term, and the scene beside which it is asked."""
    scene = Scene(*(side(generator, shape, (2.0, 1.0, 1.5)) for _ in range(2)))
    if name == "landmarks":
        index = np.array([[shape[0] / 2 - 0.5, 3.2, 4.1], [0.0, 4.5, 3.3]])
        points = scene.fixed.grid.index_to_world(index)
        return LandmarkTerm.of(points, points + np.array([0.4, -0.6, 0.0])), scene
    made = terms(generator, shape)
    return Sum((Weighted(MSE(), 0.3), Weighted(made["labels"], 2.0))) if name == "sum" else made[name], scene


@pytest.mark.parametrize(("shape", "affine"), [((5, 7, 8), TURNED), ((1, 9, 8), PLANAR)], ids=["3-D", "2-D"])
@pytest.mark.parametrize("name", ["labels", "pair", "landmarks", "bending", "volume", "sum"])
def test_gradients_are_finite_differences_with_the_other_image_still(name, shape, affine, generator):
    term, scene = guide(name, generator, shape)
    middle = Middle.of(scene.fixed.grid, scene.moving.grid, affine)
    prepared = prepare_between(term, scene, middle, reference)
    pair = [0.4 * torch.rand((3, *middle.grid.shape), generator=generator, dtype=torch.float64) - 0.2 for _ in range(2)]
    if shape[0] == 1:
        for u in pair:
            u[0] = 0
    gradients = tuple(torch.full_like(u, torch.nan) for u in pair)
    point = prepared.linearize(tuple(pair), gradients)
    assert point.cost > 0
    assert point.count > 0
    for moving in (0, 1):
        steepest = int(gradients[moving][1:].abs().argmax())
        place = np.unravel_index(steepest, gradients[moving][1:].shape)
        index = (place[0] + 1, *place[1:])
        totals = [_pulled(prepared, pair, moving, index, step) for step in (1e-6, -1e-6)]
        slope = (totals[0] - totals[1]) / 2e-6
        assert gradients[moving][index].item() == pytest.approx(slope, rel=1e-4, abs=2e-6)


def _pulled(prepared, pair, moving, index, step):
    """The total of a term with one voxel of one half moved and the other image still."""
    if hasattr(prepared, "parts"):  # a sum
        weights = prepared.weighing.weights
        return sum(
            w * _pulled(part, pair, moving, index, step) for w, part in zip(weights, prepared.parts, strict=True)
        )
    moved = list(pair)
    moved[moving] = pair[moving].clone()
    moved[moving][index] += step
    if hasattr(prepared, "_pull"):
        point = prepared._pull(moving, tuple(moved), None)
    else:  # of the warp alone
        point = prepared.term.linearize(moved[moving] - moved[1 - moving], torch.eye(3, 4))
    return point.cost * point.count


@pytest.fixture(scope="module")
def balls():
    """Two images that show nothing but a large ball, with labels and points in it that are apart."""
    z, y, x = np.mgrid[:28, :30, :26] - np.array([14, 15, 13]).reshape(3, 1, 1, 1)
    image = (z**2 + y**2 + x**2 < 12**2).astype(np.float32)
    fixed, moving = (((z**2 + (y - s) ** 2 + x**2) < 36).astype(np.int32) for s in (-1.5, 1.5))
    grid = wf.Grid.from_spacing(image.shape)
    index = np.array([[14, 15, 9], [14, 15, 17], [10, 15, 13], [18, 15, 13]], dtype=float)
    points = grid.index_to_world(index)
    return wf.Image.from_array(image), (fixed, moving), (points - APART / 2, points + APART / 2)


def overlap(first, second):
    """Dice of what two label maps have in common."""
    return 2 * np.sum((first > 0) & (second > 0)) / (np.sum(first > 0) + np.sum(second > 0))


QUICK = {"linear": "none", "deformable.levels": (2, 1), "deformable.iterations": (20, 12)}


def test_landmarks_and_labels_lead_both_images_alike(balls):
    image, (fixed, moving), (first, second) = balls
    guides = {
        "landmarks": lambda a, b: [wf.LandmarkPair(a, b)],
        "labels": lambda a, b: [wf.LabelPair(a, b), wf.Weighted(wf.Bending(), 0.01)],
        "pair": lambda a, b: [wf.ImagePair(a.astype(np.float32), b.astype(np.float32), metric="mse")],
    }
    for name, given in guides.items():
        a, b = (first, second) if name == "landmarks" else (fixed, moving)
        there, back = (
            wf.register(image, image, recipe="symmetric", overrides=QUICK, terms=given(*both))
            for both in ((a, b), (b, a))
        )
        torch.testing.assert_close(there.halves.to_fixed, back.halves.to_moving, rtol=0, atol=0)  # bit for bit
        assert [term[0] for term in there.history[-1].terms][1].startswith(("landmarks", "labels", "mse"))
        if name == "landmarks":
            left = np.linalg.norm(there.transform.map_points(first) - second, axis=1)
            assert left.mean() < 1.5  # 3 before
        else:
            moved = there.transform.resample(wf.Image.from_array(moving), image.grid, mode="label").data[0].numpy()
            before, after = (
                2 * np.sum((m > 0) & (fixed > 0)) / np.sum((m > 0) + 1 * (fixed > 0)) for m in (moving, moved)
            )
            assert after > 0.9 > before
        assert there.figures.warp.jacobian.folded_count == 0


def test_a_velocity_is_led_too(balls):
    image, _, (first, second) = balls
    found = wf.register(image, image, recipe="velocity", overrides=QUICK, landmarks=(first, second))
    assert np.linalg.norm(found.transform.map_points(first) - second, axis=1).mean() < 1.5
    assert found.history[-1].metric == "lncc + landmarks"


def test_a_point_is_found_where_its_displacementcame_from(generator):
    u = OPS.smooth_gaussian(torch.randn((3, 12, 14, 13), generator=generator), (2.0, 2.0, 2.0)) * 8
    index = np.array([[5.3, 6.1, 7.7], [2.0, 9.5, 4.4]])
    place = came_from(index, u)
    warp = wf.Warp(u, wf.Grid.from_spacing((12, 14, 13)))
    world = warp.grid.index_to_world(place)
    np.testing.assert_allclose(warp.map_points(world), warp.grid.index_to_world(index), atol=1e-3)
    assert np.abs(place - index).max() > 0.3

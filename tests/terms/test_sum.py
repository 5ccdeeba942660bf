"""Several terms at once: costs and gradients add with their weights, and are reported one by one."""

import numpy as np
import pytest
import torch

from scenes import OPS, scene_of, warp
from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.image import Image
from warpfactor.optim import Demons
from warpfactor.phantom import phantom
from warpfactor.stages.settings import Deformable
from warpfactor.terms import LNCC, MSE, LandmarkTerm, Sum, Weighted

SHAPE = (16, 18, 17)
EYE = torch.eye(3, 4, dtype=torch.float64)


@pytest.fixture(scope="module")
def scene():
    truth = phantom(SHAPE, displacement_vox=1.0, seed=3)
    return scene_of(Image.from_array(truth.fixed), Image.from_array(truth.moving))


def linearized(term, scene):
    u = 0.3 * torch.randn((3, *SHAPE), generator=torch.Generator().manual_seed(1))
    gradient = torch.full_like(u, torch.nan)
    return term.prepare(scene, OPS).linearize(u, EYE, gradient), gradient


def test_totals_and_gradients_add_with_their_weights(scene):
    lncc, mse = LNCC(3), MSE()
    (point, gradient), (first, one), (second, two) = (
        linearized(term, scene) for term in (Sum((Weighted(lncc, 2.0), Weighted(mse, 0.5))), lncc, mse)
    )
    torch.testing.assert_close(gradient, 2.0 * one + 0.5 * two, rtol=1e-5, atol=1e-6)
    total = 2.0 * first.cost * first.count + 0.5 * second.cost * second.count
    assert point.cost * point.count == pytest.approx(total)
    assert point.count == first.count
    assert dict(point.parts) == {"lncc": first.cost, "mse": second.cost}


def test_one_term_of_weight_one_is_that_term(scene):
    (point, gradient), (alone, slope) = linearized(Sum((Weighted(LNCC(3)),)), scene), linearized(LNCC(3), scene)
    assert (point.cost, point.residual, point.count) == (alone.cost, alone.residual, alone.count)
    assert torch.equal(gradient, slope)


def test_weights_of_all_terms_must_not_be_zero():
    with pytest.raises(InputError, match="weights of all terms are zero"):
        Sum((Weighted(MSE(), 0.0), Weighted(LNCC(3), 0.0)))
    with pytest.raises(InputError, match=r"weight of mse is -1"):
        Weighted(MSE(), -1.0)


def test_the_history_tells_every_term(scene):
    points = Grid.from_spacing(SHAPE, 1.0).index_to_world(np.array([[4.0, 5.0, 5.0]]))
    guide = Weighted(LandmarkTerm.of(points, points + 1.0), 0.5)
    found = warp(scene, Deformable(metric=LNCC(3), levels=(1,), iterations=(3,)), guides=(guide,))
    assert found.stage.metric == "lncc + landmarks"
    assert all([name for name, _ in event.parts] == ["lncc", "landmarks"] for event in found.records)


def test_a_step_for_one_metric_refuses_a_sum(scene):
    points = np.array([[4.0, 5.0, 5.0]])
    settings = Deformable(metric=MSE(), optimizer=Demons(), levels=(1,), iterations=(3,))
    with pytest.raises(InputError, match="demons step is defined for the metric 'mse'"):
        warp(scene, settings, guides=(Weighted(LandmarkTerm.of(points, points)),))

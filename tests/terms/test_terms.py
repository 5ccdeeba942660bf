"""Labels, further pairs and terms of the warp alone: true gradients in float64, what they do, bad input named."""

import dataclasses

import numpy as np
import pytest
import torch

import warpfactor as wf
from guides import side, terms
from scenes import OPS
from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid
from warpfactor.kernels import reference
from warpfactor.scene.scene import Scene
from warpfactor.terms import LNCC, MI, MSE, Bending, Sum, VolumeChange, Weighted

OBLIQUE = torch.tensor([[0.9, 0.15, -0.1, 0.2], [-0.12, 1.1, 0.2, -0.3], [0.1, -0.25, 0.8, 0.4]], dtype=torch.float64)
PLANAR = torch.tensor([[0, 0, 0, 0], [0, 1.1, 0.2, -0.3], [0, -0.25, 0.8, 0.4]], dtype=torch.float64)
SCALE = ((0.0, 1.0),)


@pytest.mark.parametrize(("shape", "matrix"), [((5, 7, 8), OBLIQUE), ((1, 9, 8), PLANAR)], ids=["3-D", "2-D"])
@pytest.mark.parametrize("name", ["labels", "pair", "bending", "volume"])
def test_gradient_is_the_finite_difference_of_the_total(name, shape, matrix, generator):
    scene = Scene(*(side(generator, shape, (2.0, 1.0, 1.5)) for _ in range(2)))
    term = terms(generator, shape)[name].prepare(scene, reference)
    u = 0.5 * torch.rand((3, *shape), generator=generator, dtype=torch.float64) - 0.25
    if shape[0] == 1:
        u[0] = 0
    gradient = torch.full_like(u, torch.nan)
    point = term.linearize(u, matrix, gradient)
    assert point.cost > 0
    assert point.cost == pytest.approx(term.linearize(u, matrix).cost, rel=1e-12)
    for place in gradient.abs().sum(0).flatten().topk(12).indices.tolist():
        index = np.unravel_index(place, shape)
        for axis in range(int(shape[0] == 1), 3):
            totals = []
            for step in (1e-6, -1e-6):
                moved = u.clone()
                moved[(axis, *index)] += step
                totals.append(term.linearize(moved, matrix).cost * point.count)
            slope = (totals[0] - totals[1]) / 2e-6
            assert gradient[(axis, *index)].item() == pytest.approx(slope, rel=1e-4, abs=2e-6)


def ramp(shape, rates):
    axes = torch.meshgrid(*(torch.arange(n, dtype=torch.float32) for n in shape), indexing="ij")
    return torch.stack([rate * axis for rate, axis in zip(rates, axes, strict=True)])


def test_terms_of_the_warp_cost_what_their_formulas_say(generator):
    shape = (6, 7, 8)
    scene, eye = Scene(side(generator, shape), side(generator, shape)), torch.eye(3, 4)
    straight = ramp(shape, (0.1, 0.2, -0.1))
    assert Bending().prepare(scene, OPS).linearize(straight, eye).cost == pytest.approx(0, abs=1e-10)
    volume = np.log(1.1 * 1.2 * 0.9) ** 2
    assert VolumeChange().prepare(scene, OPS).linearize(straight, eye).cost == pytest.approx(volume, rel=1e-4)
    curved = torch.zeros(3, *shape)
    curved[2] = 0.5 * torch.arange(8.0) ** 2
    inner = 6 / 8  # the share of voxels with neighbours on both sides
    assert Bending().prepare(scene, OPS).linearize(curved, eye).cost == pytest.approx(inner, rel=1e-5)


def test_volume_change_is_the_same_in_slabs(generator, monkeypatch):
    from warpfactor.terms import regularity

    shape = (9, 6, 7)
    u = 0.3 * torch.rand((3, *shape), generator=generator, dtype=torch.float64)
    found = []
    for voxels in (10**6, 2 * 42):
        monkeypatch.setattr(regularity, "slabs", lambda s, v=voxels: regularity_slabs(s, v))
        gradient = torch.full_like(u, torch.nan)
        found.append((VolumeChange().linearize(u, torch.eye(3, 4), gradient).cost, gradient))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-12)
    torch.testing.assert_close(found[0][1], found[1][1])


def regularity_slabs(shape, voxels):
    from warpfactor.geometry.grid import slabs

    return slabs(shape, voxels)


@pytest.fixture(scope="module")
def balls():
    """Two pairs of images: one that says nothing but where an outer ball is, one that shows two inner ones; labels."""
    shape = (28, 30, 32)
    z, y, x = np.meshgrid(*(np.arange(n) - n / 2 for n in shape), indexing="ij")

    def ball(centre, radius):
        return (z - centre[0]) ** 2 + (y - centre[1]) ** 2 + (x - centre[2]) ** 2 < radius**2

    outer = ball((0, 0, 0), 13).astype(np.float32)
    labels = [np.zeros(shape, np.int32) for _ in range(2)]
    for each, shift in zip(labels, (0, 2), strict=True):
        each[ball((0, shift, -5), 4)] = 4
        each[ball((0, -shift, 5), 4)] = 9
    shown = [outer + (each == 4) - 0.5 * (each == 9) for each in labels]
    return outer, shown, labels


# The images say little here, but what they say is exact, so they are given little weight.
LIGHT = 0.1
QUICK = {"linear": "none", "deformable.metric": "mse", "deformable.iterations": (30, 20, 10)}


def dice(found, labels, value):
    carried = found.apply(wf.Image.from_array(labels[1]), mode="label").data[0].numpy()
    inside, other = labels[0] == value, carried == value
    return 2 * (inside & other).sum() / (inside.sum() + other.sum())


def test_labels_lead_where_the_images_say_nothing(balls):
    outer, _, labels = balls
    alone = wf.register(outer, outer, overrides=QUICK)
    led = wf.register(outer, outer, overrides=QUICK, terms=[wf.LabelPair(*labels)], metric_weight=LIGHT)
    assert max(dice(alone, labels, value) for value in (4, 9)) < 0.75
    assert min(dice(led, labels, value) for value in (4, 9)) > 0.93
    assert led.figures.warp.jacobian.folded_count == 0
    assert led.history[-1].metric == "mse + labels"


def test_only_chosen_labels_lead(balls):
    outer, _, labels = balls
    led = wf.register(outer, outer, overrides=QUICK, terms=[wf.LabelPair(*labels, values=[4])], metric_weight=LIGHT)
    assert dice(led, labels, 4) > 0.93 > 0.75 > dice(led, labels, 9)


def test_a_second_pair_of_images_leads_and_is_reported_by_itself(balls):
    outer, shown, labels = balls
    seen = list[tuple[float, dict[str, float]]]()
    found = wf.register(
        outer,
        outer,
        overrides=QUICK,
        terms=[wf.ImagePair(shown[0], shown[1] * -3, metric="mi", weight=0.5)],
        metric_weight=LIGHT,
        progress=lambda event: seen.append((event.level, dict(event.parts))),
    )
    assert min(dice(found, labels, value) for value in (4, 9)) > 0.75  # 0.64 without the pair
    assert all(list(parts) == ["mse", "mi of fixed image of a pair"] for _, parts in seen)
    finest = [parts["mi of fixed image of a pair"] for level, parts in seen if level == 1]
    assert finest[-1] < finest[0]


def test_a_second_pair_may_have_other_grids(balls):
    outer, shown, labels = balls
    first = wf.Image.from_array(outer)
    fixed, moving = (wf.Image.from_array(part) for part in shown)
    coarse = Grid.from_spacing((14, 15, 16), 2.0)
    grid = Grid(coarse.shape, coarse.matrix + np.pad(np.full((3, 1), 0.5), ((0, 1), (3, 0))))
    small = [wf.Affine().resample(part, grid) for part in (fixed, moving)]
    found = wf.register(first, first, overrides=QUICK, terms=[wf.ImagePair(*small, metric=MSE())], metric_weight=LIGHT)
    assert min(dice(found, labels, value) for value in (4, 9)) > 0.8


def test_a_mask_of_a_pair_is_for_that_pair_only(balls):
    outer, shown, labels = balls
    mask = np.ones_like(outer)
    mask[..., 16:] = 0  # hides label 9
    found = wf.register(
        outer, outer, overrides=QUICK, terms=[wf.ImagePair(*shown, metric="mse", fixed_mask=mask, moving_mask=mask)]
    )
    assert dice(found, labels, 4) > 0.85 > 0.75 > dice(found, labels, 9)


@pytest.mark.parametrize("term", [Bending(), VolumeChange()], ids=lambda term: term.name)
def test_terms_of_the_warp_make_it_smoother(balls, term, rng):
    noisy = [part + 0.1 * rng.normal(size=part.shape) for part in balls[1]]
    found = []
    for weight in (0, 1):
        result = wf.register(*noisy, overrides=QUICK, terms=[wf.Weighted(term, weight)])
        found.append(term.linearize(result.warp.displacement, torch.eye(3, 4)).cost)
    assert found[1] < 0.5 * found[0]


def test_the_images_may_weigh_nothing(balls):
    _, shown, labels = balls
    led = wf.register(*shown, overrides=QUICK, terms=[wf.LabelPair(*labels)], metric_weight=0)
    assert led.history[-1].metric == "labels"
    assert min(dice(led, labels, value) for value in (4, 9)) > 0.9


def test_two_terms_of_one_name_are_told_apart():
    both = Sum((Weighted(LNCC()), Weighted(MI()), Weighted(LNCC(), 0.5), Weighted(MSE(), 0.0)))
    assert both.name == "lncc + mi + lncc 2"


@dataclasses.dataclass(frozen=True)
class Short:
    """Half the mean squared length of the displacement."""

    name: str = "short"
    sees_shading: bool = False

    def prepare(self, scene, ops, *, level=0, weights=None):
        return self

    def linearize(self, displacement, matrix, gradient=None):
        count = displacement[0].numel()
        if gradient is not None:
            gradient.copy_(displacement)
        cost = float(displacement.square().sum()) / (2 * count)
        return wf.Linearization(cost, cost, count)


def test_a_term_of_your_own(balls):
    _, shown, _ = balls
    free, held = (wf.register(*shown, overrides=QUICK, terms=terms) for terms in ([], [wf.Weighted(Short(), 0.3)]))
    assert held.history[-1].metric == "mse + short"
    assert held.figures.warp.displacement_mm.mean < 0.8 * free.figures.warp.displacement_mm.mean


def test_bad_terms_are_named(balls):
    outer, shown, labels = balls
    far = wf.Image(
        torch.ones(1, 28, 30, 32), Grid(outer.shape, np.diag([1, 1, 1, 1.0])[[2, 1, 0, 3]] + 500 * far_away())
    )
    cases = {
        "have no label in common": [wf.LabelPair(labels[0], np.where(labels[1] == 4, 5, 0))],
        "label 5 is not in both; they share 4, 9": [wf.LabelPair(*labels, values=[5])],
        "no label is chosen": [wf.LabelPair(*labels, values=[])],
        "is not a label map": [wf.LabelPair(labels[0] * 0.5, labels[1])],
        "Unknown metric 'cc'": [wf.ImagePair(*shown, metric="cc")],
        "lies outside fixed in space": [wf.ImagePair(far, shown[1])],
        "weight of mi of .* is -1": [wf.ImagePair(*shown, metric="mi", weight=-1)],
        "A str is not a term": ["mi"],
        "the points of both images": [wf.LandmarkPair(np.zeros((1, 3)))],
    }
    for message, given in cases.items():
        with pytest.raises(InputError, match=message):
            wf.register(outer, outer, terms=given)
    with pytest.raises(InputError, match="weights of all terms are zero"):
        wf.register(outer, outer, terms=[wf.LabelPair(*labels, weight=0)], metric_weight=0)
    with pytest.raises(InputError, match="weight of the images is -1"):
        wf.register(outer, outer, metric_weight=-1)
    with pytest.raises(InputError, match="'rigid' has no deformable stage, which is what labels would guide"):
        wf.register(outer, outer, terms=[wf.LabelPair(*labels)], recipe="rigid")


def far_away():
    shift = np.zeros((4, 4))
    shift[:3, 3] = 1
    return shift


def test_a_term_without_overlap_is_named(balls):
    outer, shown, _ = balls
    left, right = np.zeros_like(outer), np.zeros_like(outer)
    left[..., :6], right[..., 26:] = 1, 1
    pair = wf.ImagePair(*shown, metric="mse", fixed_mask=left, moving_mask=right)
    for recipe in ("default", "symmetric"):
        with pytest.raises(InputError, match=r"The term mse of .* cannot be computed"):
            wf.register(outer, outer, recipe=recipe, overrides=QUICK, terms=[pair])

"""Ranks share a registration and find the bits of one process, or refuse with a sentence."""

import threading
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

import warpfactor as wf
from equality import assert_same
from warpfactor.bench.halos import halos
from warpfactor.phantom import phantom
from warpfactor.ranks.exchange import UNIT, cuts
from warpfactor.ranks.lent import reached
from warpfactor.registration.plan import MemoryPlan

SHAPE = (48, 30, 28)  # three slabs, and with four ranks one that has none
QUICK = {"deformable.meant_for": 0}
SHORT = MemoryPlan(10**10, 10**9, "int16", "full", None, {})
HALF = replace(SHORT, warp="half", slab_planes=8)
RECIPES = "default", "lung", "multimodal"


@pytest.fixture(scope="module")
def images():
    return phantom(SHAPE)


@pytest.fixture(scope="module")
def ranks():
    """Four of them; test_places.py has two."""
    with wf.Ranks.local(4, threads=1) as made:
        yield made


def masks(images):
    """Masks that leave out a corner of each image."""
    found = []
    corners = (slice(0, 20), slice(0, 12)), (slice(30, 44), slice(20, 30))
    for image, corner in zip((images.fixed, images.moving), corners, strict=True):
        mask = np.ones(image.shape, np.uint8)
        mask[corner] = 0
        found.append(mask)
    return {"fixed_mask": found[0], "moving_mask": found[1]}


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_bits_of_one_process(images, ranks, recipe):
    options = {"recipe": recipe, "overrides": QUICK if recipe == "default" else {}, **masks(images)}
    options["memory"] = SHORT if recipe == "lung" else None
    found = wf.register(images.fixed, images.moving, ranks=ranks, **options)
    assert len({event.level for event in found.history[-1].history}) > 1
    assert found.run.ranks == ranks.count == len(found.run.rank_peaks)
    assert_same(found, wf.register(images.fixed, images.moving, **options))


def test_what_is_sent_is_what_is_counted(ranks):
    thick = phantom((64, 16, 18))  # 16 planes for each rank; rank 0 has one neighbour
    settings = {"levels": (1,), "iterations": (4,), "meant_for": 0, "reach": 1.0}
    recipe = replace(wf.recipe("default").replace({f"deformable.{k}": v for k, v in settings.items()}), linear=())
    sent = []

    def tell(_):
        sent.append(ranks._exchange.sent_bytes)

    wf.register(thick.fixed, thick.moving, recipe=recipe, ranks=ranks, progress=tell)
    counted = sum(halo.planes * halo.bytes_each for halo in halos(recipe.deformable, 64, 4, step_vox=0.9))
    assert min(b - a for a, b in pairwise(sent)) == counted * 16 * 18


def test_a_run_that_is_stopped(images, ranks):
    def run(**given):
        stop, seen = threading.Event(), []

        def tell(event):
            seen.append(event)
            if sum(each.stage == "deformable" for each in seen) == 5:
                stop.set()

        return wf.register(images.fixed, images.moving, overrides=QUICK, progress=tell, stop=stop, **given)

    found = run(ranks=ranks)
    assert found.interrupted
    assert_same(found, run())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"recipe": "rigid"}, "no deformable stage"),
        ({"recipe": "symmetric"}, "moves both images"),
        ({"overrides": {"deformable.metric": "mi"}}, "'mi' is not a sum over planes"),
        ({"overrides": {"deformable.optimizer": "adam"}}, "'adam' cannot be computed in slabs"),
        ({"terms": [wf.Bending()]}, "need the whole image"),
        ({"backend": "reference"}, "backend 'numba'"),
        ({"ranks": 0}, "number of ranks must be at least 1, not 0"),
        ({"memory": HALF}, "cannot be kept at half resolution"),
    ],
)
def test_refusals(images, options, sentence):
    with pytest.raises(wf.InputError, match=sentence):
        wf.register(images.fixed, images.moving, **{"ranks": 2, **options})


def test_slices_are_refused():
    made = phantom((1, 40, 40))
    with pytest.raises(wf.InputError, match="the image has one slice"):
        wf.register(made.fixed, made.moving, ranks=2)


@pytest.mark.parametrize("depth", [1, 15, 40, 64, 100, 2048])
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_slabs_cover_the_planes(depth, size):
    found = cuts(depth, size)
    assert [n for a, b in found for n in range(a, b)] == list(range(depth))
    assert all(a % UNIT == 0 or a == depth for a, _ in found)
    if depth == 2048:
        assert {b - a for a, b in found} == {depth // size}


def test_the_planes_a_slab_is_mapped_to(generator):
    field = 3 * torch.randn((3, 20, 9, 8), generator=generator)
    matrix = torch.tensor([[0.8, 0.2, -0.3, 4.0], [0, 1, 0, 0], [0, 0, 1, 0]]).double()
    first, last = reached(field, (5, 9), matrix, 40)
    z, y, x = torch.meshgrid(torch.arange(5, 9), torch.arange(9), torch.arange(8), indexing="ij")
    points = torch.stack([z, y, x]) + field[:, 5:9].double()
    p = torch.tensordot(matrix[0, :3], points, 1) + matrix[0, 3]
    low, high = p.clamp(0, 39).floor().min(), p.clamp(0, 39).floor().max() + 1
    assert first <= low and last > min(high, 39)
    assert last - first < 40

"""Many pairs at once: each comes out as if it were alone, with its own end, progress and errors."""

import threading
from dataclasses import replace

import pytest
import torch

import warpfactor as wf
from small import QUICK, WARP_ONLY
from warpfactor.errors import InputError

SHAPE = (18, 20, 17)
COUNT = 3
LINEAR_TOO = {"overrides": QUICK}
METRICS = [
    LINEAR_TOO,
    {"recipe": "default"},
    {"recipe": "multimodal"},
    {"recipe": "paper"},
    {"overrides": {"deformable.metric": "mse"}},
    {"overrides": {"deformable.metric": "mi"}},
    {"overrides": {"deformable.optimizer": "tile", "deformable.damping": "paper"}},
]


@pytest.fixture(scope="module")
def pairs():
    made = [wf.phantom.phantom(SHAPE, displacement_vox=1.5, seed=seed) for seed in range(COUNT)]
    return [each.fixed for each in made], [each.moving for each in made]


def quick(**options):
    """Options of a run that takes a moment; without a linear stage, unless they ask for one."""
    return {**options, "overrides": {**WARP_ONLY, **options.get("overrides", {})}}


def untimed(stage):
    return replace(stage, seconds=0.0, history=tuple(replace(event, seconds=0.0) for event in stage.history))


def assert_same(found, expected):
    assert torch.equal(found.warp.displacement, expected.warp.displacement)
    assert torch.equal(found.inverse_warp.displacement, expected.inverse_warp.displacement)
    assert torch.equal(found.warped.data, expected.warped.data)
    assert (found.affine.matrix == expected.affine.matrix).all()
    assert [untimed(stage) for stage in found.history] == [untimed(stage) for stage in expected.history]
    assert found.figures == expected.figures
    assert found.run.threads == expected.run.threads


@pytest.mark.parametrize(("number", "options"), list(enumerate(METRICS)), ids=str)
def test_every_pair_comes_out_as_if_it_were_alone(pairs, number, options):
    chosen = LINEAR_TOO if options is LINEAR_TOO else quick(**options)
    found = wf.register_batch(*pairs, threads=1, **chosen)
    assert len(found) == COUNT
    one = number % COUNT  # each is compared with two of the metrics or more
    assert_same(found[one], wf.register(pairs[0][one], pairs[1][one], threads=1, **chosen))


def test_the_reference_backend_too(pairs):
    chosen = quick(backend="reference", recipe="fast")
    found = wf.register_batch(*pairs, **chosen)
    assert_same(found[1], wf.register(pairs[0][1], pairs[1][1], **chosen))


def test_arrays_whose_first_axis_counts_and_slices():
    made = [wf.phantom.phantom((1, 24, 26), seed=seed) for seed in range(2)]
    fixed, moving = (torch.cat([getattr(each, side) for each in made]) for side in ("fixed", "moving"))
    found = wf.register_batch(fixed, moving.numpy(), **quick())
    assert_same(found[1], wf.register(fixed[1], moving[1], **quick()))


def test_what_belongs_to_a_pair_goes_to_it(pairs):
    mask = torch.zeros(SHAPE)
    mask[4:14, 4:15, 4:12] = 1
    start = wf.Affine(torch.tensor([[1.0, 0, 0, 2], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]).double().numpy())
    options = {"fixed_mask": [None, mask, None], "initial": [None, None, start]}
    found = wf.register_batch(*pairs, **options, **quick())
    changed = [{}, {"fixed_mask": mask}, {"initial": start}]
    for number, each in enumerate(changed):
        alone = wf.register(pairs[0][number], pairs[1][number], **each, **quick())
        assert_same(found[number], alone)


def test_progress_names_the_pair_and_each_stops_by_itself(pairs):
    stops = [threading.Event() for _ in range(COUNT)]
    seen = []

    def progress(number, event):
        seen.append(number)
        if event.stage == "deformable" and number == 1:
            stops[1].set()

    found = wf.register_batch(*pairs, progress=progress, stop=stops, **quick())
    assert set(seen) == set(range(COUNT))
    assert [result.interrupted for result in found] == [False, True, False]
    assert_same(found[2], wf.register(pairs[0][2], pairs[1][2], **quick()))


def test_one_event_stops_all(pairs):
    stop = threading.Event()
    stop.set()
    assert all(result.interrupted for result in wf.register_batch(*pairs, stop=stop, **quick()))


def test_an_error_names_its_pair(pairs):
    fixed, moving = pairs
    broken = [moving[0], torch.ones(SHAPE), moving[2]]
    with pytest.raises(InputError, match=r"^Pair 1: .*constant"):
        wf.register_batch(fixed, broken, **quick())
    errors = {}
    found = wf.register_batch(fixed, broken, on_error=errors.__setitem__, **quick())
    assert list(errors) == [1]
    assert str(errors[1]).startswith("Pair 1: ")
    assert_same(found[1], wf.register(fixed[2], moving[2], **quick()))


def test_a_loss_that_draws_random_numbers_is_the_same_in_every_pair(pairs):
    def loss(warped, fixed):
        return ((warped - fixed).square() * torch.rand(fixed.shape)).mean()

    chosen = quick(overrides={"deformable.metric": wf.Custom(loss)})
    torch.manual_seed(7)
    found = wf.register_batch(*pairs, **chosen)
    drawn = torch.rand(1)
    torch.manual_seed(7)
    assert torch.equal(drawn, torch.rand(1))
    for number in (0, 2):
        assert_same(found[number], wf.register(pairs[0][number], pairs[1][number], **chosen))


def test_random_numbers_and_threads_of_the_caller_are_left_alone(pairs):
    before = torch.get_num_threads()
    torch.manual_seed(7)
    wf.register_batch(*pairs, threads=1, **quick())
    drawn = torch.rand(1)
    torch.manual_seed(7)
    assert torch.equal(drawn, torch.rand(1))
    assert torch.get_num_threads() == before


def test_no_pairs_give_no_results():
    assert wf.register_batch([], []) == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"moving": [1, 2]}, "There are 3 fixed images and 2 of moving; give one for each pair"),
        ({"fixed": "fixed.nii.gz"}, "fixed must be a list with one entry for each pair, it is a single str"),
        ({"fixed_mask": [None]}, "3 fixed images and 1 of fixed_mask"),
        ({"stop": [threading.Event()]}, "3 fixed images and 1 of stop"),
        ({"together": 0}, "registered together must be at least 1, not 0"),
    ],
)
def test_bad_batches_are_named(pairs, options, message):
    with pytest.raises(InputError, match=message):
        wf.register_batch(**{"fixed": pairs[0], "moving": pairs[1], **options})

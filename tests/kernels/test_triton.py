"""The Triton kernels in Triton's interpreter against the reference, and what they are cut into."""

import importlib.util
import json
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from warpfactor.checks.device.problems import PROBLEMS

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")

SCRIPT = Path(__file__).parents[1] / "helpers" / "interpreted.py"


@pytest.fixture(scope="module")
def interpreted():
    """What the tasks of tests/helpers/interpreted.py found."""
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("title", [each.title for each in PROBLEMS])
def test_every_operation_agrees_with_the_reference(interpreted, title):
    found = interpreted["checks"][title]
    assert len(found) >= 2
    assert [each for each in found if not each["error"] <= 1] == []


# In voxels, millimetres and units of the cost. Most differ by a millionth; where a step divides by the square of a
# small gradient, rounding shows at a few 1e-5.
APART = {"warp": 1e-3, "inverse": 2e-3, "affine": 1e-4, "cost": 1e-5}
LNCCS = ["lncc, root", "lncc of the paper, pointwise", "lncc, tile"]
RUNS = [*LNCCS, "mse, demons", "mse, sgd", "mi, adam", "velocity", "mind, root", "mixed, root"]


@pytest.mark.parametrize("run", [*RUNS, "default"])
def test_whole_registrations_agree_with_those_on_the_reference(interpreted, run):
    found = interpreted["registrations"][run]
    assert found["moved"] > 0.05
    assert {name: found[name] for name, most in APART.items() if not found[name] <= most} == {}


def test_an_iteration_launches_what_the_model_of_its_traffic_lists(interpreted):
    from warpfactor.bench.gpu.traffic import iteration

    # Over tables or single numbers, once a level, or only where a step is not kept.
    small = {"combine", "sum_tables", "mi_ratios", "lengths", "decide_numbers", "share_taps", "adam_rates", "taken"}
    for name, seen in interpreted["iterations"].items():
        metric, _, step = name.partition(", ")
        listed = Counter(each.kernel.name for each in iteration(metric, step))
        assert {kernel: count for kernel, count in seen["launches"].items() if kernel not in small} == listed, name
        assert seen["launches"]["decide_numbers"] == 3


@pytest.mark.parametrize("name", ["lncc, root, pointwise", "mse, tile", "mi, adam"])
def test_a_level_holds_what_the_model_of_its_memory_says(interpreted, name):
    from warpfactor.bench.gpu.memory import IMAGES, level_bytes

    shape = (10, 11, 12)  # so large that the tables of a histogram are smaller than the rings
    metric, _, step = name.partition(", ")
    model = level_bytes(shape, metric, step) - IMAGES * math.prod(shape)
    # Besides: taps, sums, matrices; what the device decides by (1,408 at most).
    assert model <= interpreted["iterations"][name]["bytes"] <= model + 2000


@pytest.mark.parametrize("name", ["undone from a copy", "paper"])
def test_a_level_that_does_not_wait_for_the_device_finds_the_same_without_a_read(interpreted, name):
    found = interpreted["unwaited"][name]
    assert found["same"]
    assert found["moved"] > 0.05
    assert found["apart"] <= 1e-5  # voxels; taps and the volume's rate are rounded otherwise
    assert found["reads"] == found["made"] == 0
    assert found["kinds"] <= 2  # of turns, by their launches with their numbers: some compare the halves of the force
    assert found["turns"] >= 2
    assert (found["rejected"] > 0) == (name == "undone from a copy")


@pytest.mark.parametrize("name", ["looked at before", "mi"])
def test_pairs_that_run_together_are_as_if_alone_with_as_many_launches(interpreted, name):
    found = interpreted["together"][name]
    assert found["alike"]
    assert found["reads"] == 0
    assert min(found["moved"], found["differ"]) > 0.05  # voxels
    alone, together = found["launches"]
    assert alone == together > 10


RULES = ["undone from a copy", "looked at before", "never undone", "paper, undone", "flat", "rising", "sgd"]


@pytest.mark.parametrize("name", RULES)
def test_kernels_decide_as_the_rules_of_which_they_are_made(interpreted, name):
    found = interpreted["decisions"][name]
    assert found["differ"] <= 1e-12
    assert found["values"] > 20


def test_slabs_cover_a_volume_once_and_rings_hold_what_is_still_needed():
    from warpfactor.kernels.triton.slabs import PassChain, Reach

    for depth, radius, plane in ((40, 3, 2_000_000), (7, 2, 1), (100, 17, 3_000_000), (1, 0, 9_000_000)):
        reaches = (Reach(), Reach(radius, radius), Reach(radius, radius - 1 if radius else 0))
        chain = PassChain(depth, reaches, (plane, 2 * plane))
        done = [0, 0, 0]
        for turn in chain.turns():
            assert turn.start == done[turn.number] < turn.stop
            done[turn.number] = turn.stop
            if turn.number > 0:
                reach, before = reaches[turn.number], turn.number - 1
                assert done[before] >= min(depth, turn.stop + reach.ahead)
                oldest = max(0, turn.start - reach.behind)
                assert done[before] - oldest <= chain.rings[before]
        assert done == [depth] * 3

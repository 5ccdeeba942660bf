"""The check of a device: it covers every operation, passes what is right, and finds what is wrong."""

import json
import math
from functools import partial

import pytest
import torch

import warpfactor as wf
from commands import run
from small import QUICK, pair
from warpfactor import kernels
from warpfactor.checks.device import check, record, timing
from warpfactor.checks.device.check import check_backend
from warpfactor.checks.device.problems import PROBLEMS, KernelProblem
from warpfactor.errors import InputError, Notice
from warpfactor.kernels import numba, reference
from warpfactor.kernels.ops import DeviceOps, Ops
from warpfactor.registration import run as registration
from warpfactor.registration.resources import checked_device
from warpfactor.show.device import device_page

OPERATIONS = {name for each in (Ops, DeviceOps) for name in vars(each) if not name.startswith("_")}
CPU = torch.device("cpu")
ODD = check.SHAPES[:3]
quick = partial(check_backend, "other", device=CPU, shapes=ODD[:1], timed_shape=None)


class Changed:
    """The CPU's backend with some operations replaced."""

    def __init__(self, **operations):
        self.operations = operations

    def __getattr__(self, name):
        return self.operations.get(name) or getattr(numba, name)


def of(*operations):
    return [problem for problem in PROBLEMS if problem.operation in operations]


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setattr(record, "record_path", lambda: tmp_path / "cache" / "devices.json")


def test_every_operation_has_a_problem():
    """A new operation needs one in checks/device/problems.py, or nobody can check it on a device."""
    assert {problem.operation for problem in PROBLEMS} == OPERATIONS


def test_the_kernels_of_the_cpu_pass():
    found = check_backend("numba", numba, CPU, shapes=ODD, timed_shape=None)
    assert found.passed, [each for each in found.checks if not each.passed]
    assert {each.images for each in found.checks} == {"float32", "int16"}


def test_the_reference_in_single_precision_passes():
    found = quick(ops=reference, half=True)
    assert found.passed
    assert {each.images for each in found.checks} == {"float32", "int16", "float16"}


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("compose", lambda warp, step, **options: numba.compose(warp, -step, **options)),
        (
            "norms",
            lambda gradient, weights: (1.0001 * numba.norms(gradient, weights)[0], *numba.norms(gradient, weights)[1:]),
        ),
        ("jacobian_determinant", lambda field: numba.jacobian_determinant(field).fill_(math.nan)),
        ("smooth_box", lambda field, radius: numba.smooth_box(field, radius)[:, :-1]),
        ("sample_labels", lambda labels, *rest, **options: numba.sample_labels(labels, *rest, **options) + 1),
    ],
)
def test_a_wrong_kernel_is_found(name, wrong):
    found = quick(ops=Changed(**{name: wrong}), problems=of(name, "resize"))
    assert {each.problem.operation for each in found.checks if not each.passed} == {name}


def test_what_a_kernel_raises_is_what_its_check_finds():
    def broken(*_, **__):
        raise RuntimeError("no registers left\nand much more")

    found = quick(ops=Changed(tile=broken), problems=of("tile", "norms"))
    assert [each.trouble for each in found.checks] == ["", *["RuntimeError: no registers left"] * 2]
    page = device_page("Some GPU", {"torch": "9"}, [found])
    assert "Backend other: 1 of 3 checks passed" in page
    assert "tile (even), 7x9x11 and 8x7x10, float32: RuntimeError: no registers left" in page


@pytest.mark.parametrize(("name", "passes"), [("compose", True), ("jacobian_determinant", False)])
def test_one_value_may_differ_where_points_fall_into_cells(name, passes):
    def off(*args, **options):
        out = getattr(numba, name)(*args, **options)
        out.view(-1)[5] += 1
        return out

    assert quick(ops=Changed(**{name: off}), problems=of(name)).passed is passes


def test_kernels_are_timed_beside_a_copy():
    found = check_backend("numba", numba, CPU, problems=of("norms", "descend"), shapes=ODD[:1], timed_shape=(6, 7, 8))
    assert [each.operation for each in found.times] == ["norms", "descend"]
    assert all(each.seconds > 0 for each in found.times)
    assert found.times[0].bytes_moved == 12 * 6 * 7 * 8
    assert found.bandwidth > 0
    assert "of copy" in device_page("x", {}, [found])


def test_a_kernel_that_fails_at_full_size_has_no_time():
    def broken(*_):
        raise torch.OutOfMemoryError("out of memory")

    problem = KernelProblem("norms", lambda ops, at: broken(), bytes_moved=12.0)
    (found,) = timing.time_problems(numba, CPU, [problem], (4, 5, 6))
    assert math.isnan(found.seconds)


def test_what_passed_is_kept_until_the_kernels_change(cache, monkeypatch):
    assert not record.is_verified(CPU, "numba")
    assert record.keep(CPU, "numba")
    assert record.keep(CPU, "reference")
    assert record.is_verified(CPU, "numba")
    assert not record.is_verified(CPU, "triton")
    monkeypatch.setattr(record, "_kernels_digest", lambda: "others")
    assert not record.is_verified(CPU, "numba")
    record.record_path().write_text("damaged")
    assert not record.is_verified(CPU, "numba")


def test_a_device_without_a_passed_check_is_named(cache, monkeypatch):
    monkeypatch.setattr(record, "device_title", lambda device: "Some GPU")
    device = torch.device("cuda", 1)
    (notice,) = record.unverified(device, "reference")
    assert dict(notice.facts) == {"device": "cuda", "title": "Some GPU", "backend": "reference"}
    assert record.unverified(CPU, "numba") == ()
    record.keep(device, "reference")
    assert record.unverified(device, "reference") == ()


def test_a_run_on_such_a_device_says_so(monkeypatch):
    facts = {"device": "cuda", "title": "Some GPU", "backend": "numba"}
    monkeypatch.setattr(registration, "unverified", lambda *_: (Notice(record.UNVERIFIED_DEVICE, facts),))
    made = pair((16, 16, 16))
    with pytest.warns(UserWarning, match=r"experimental, not yet verified on this device \(Some GPU\); run .*cuda"):
        wf.register(made.fixed, made.moving, overrides=QUICK)


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(check, "check_backend", partial(check_backend, shapes=ODD[:1], timed_shape=(6, 7, 8)))


def test_the_command_prints_a_page_and_keeps_what_passed(cache, short):
    page = run("info", "--check-device", "cpu").stdout
    assert "Backend numba: " in page
    assert "smooth_gaussian" in page
    assert str(record.record_path()) in page
    assert record.is_verified(CPU, "numba")
    found = json.loads(run("info", "--check-device", "cpu", "--json").stdout)
    assert found["passed"]
    assert found["milliseconds"]["lncc"] > 0


def test_the_command_fails_where_a_kernel_does(cache, short, monkeypatch):
    monkeypatch.setitem(
        kernels.BACKENDS, "bad", kernels.Backend("bad", ("cpu",), lambda: Changed(norms=lambda *_: (1.0, 2.0, 3.0)))
    )

    def absent():
        raise ImportError("no module named triton")

    monkeypatch.setitem(kernels.BACKENDS, "absent", kernels.Backend("absent", ("cpu",), absent))
    done = run("info", "--check-device", "cpu", code=1)
    assert "norms, 7x9x11 and 8x7x10, float32: error" in done.stdout
    assert "Some kernels differ" in done.stderr
    assert "Backend 'absent' is not checked, it cannot be loaded here (no module named triton)" in done.stderr
    assert record.is_verified(CPU, "numba")
    assert not record.is_verified(CPU, "bad")


@pytest.mark.parametrize("name", ["cuda", "mps"])
def test_an_absent_device_gets_one_sentence(name):
    if (torch.cuda if name == "cuda" else torch.backends.mps).is_available():
        pytest.skip(f"there is {name} here")
    told = run("info", "--check-device", name, code=1).stderr
    assert told.startswith(f"warpfactor: Device '{name}' cannot be used here (")
    assert len(told) < 160
    assert told.count("\n") == 1


def test_a_device_of_no_kind_is_named():
    with pytest.raises(InputError, match="Device 'gpu' is unknown; use cpu, cuda, mps"):
        checked_device("gpu")

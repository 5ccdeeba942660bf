"""Backends: chosen once, by the entry point; a new one is added without touching any other file."""

import subprocess
import sys
from collections import Counter

import pytest
import torch

import warpfactor as wf
from warpfactor import kernels
from warpfactor.errors import InputError
from warpfactor.kernels import numba, reference
from warpfactor.kernels.ops import Ops
from warpfactor.phantom import phantom

OPERATIONS = {name for name in vars(Ops) if not name.startswith("_")}
QUICK = {
    "linear.levels": (2,),
    "linear.iterations": (3,),
    "linear.starts": ("identity",),
    "deformable.levels": (2, 1),
    "deformable.iterations": (2, 2),
}


class Counting:
    """The reference, which counts its calls: a backend in ten lines."""

    def __init__(self):
        self.calls = Counter()

    def __getattr__(self, name):
        def counted(*args, **options):
            self.calls[name] += 1
            return getattr(reference, name)(*args, **options)

        return counted


@pytest.fixture
def counting():
    backend = Counting()
    kernels.add_backend(kernels.Backend("counting", ("cpu",), lambda: backend))
    yield backend
    del kernels.BACKENDS["counting"]


@pytest.fixture
def no_other(monkeypatch):
    """Every operation of the other backends fails when it is called from outside of its own backend."""

    def refused(name):
        def call(*args, **options):
            raise AssertionError(f"{name} of another backend was called")

        return call

    for name in OPERATIONS:
        monkeypatch.setattr(numba, name, refused(name))


def images():
    truth = phantom((16, 20, 18), displacement_vox=1.0)
    return truth.fixed.numpy(), truth.moving.numpy()


@pytest.mark.parametrize("recipe", ["default", "multimodal", "paper"])
def test_a_run_uses_the_chosen_backend_for_everything(counting, no_other, recipe, tmp_path):
    found = wf.register(*images(), recipe=recipe, overrides=QUICK, backend="counting")
    found.save(tmp_path / "result")
    assert found.run.backend == "counting"
    assert {"compose", "descend", "invert", "jacobian_determinant", "shrink", "sample", "tally"} <= set(counting.calls)
    assert (tmp_path / "result" / "report.html").is_file()


def test_the_reference_really_runs_on_the_reference(no_other):
    found = wf.register(*images(), overrides=QUICK, backend="reference")
    assert found.run.backend == "reference"


def test_both_backends_offer_every_operation():
    for backend in (numba, reference):
        assert all(callable(getattr(backend, name)) for name in OPERATIONS)


def test_auto_takes_the_first_that_runs_on_the_device():
    assert kernels.choose("cpu").name == "numba"
    assert kernels.choose(torch.device("meta")).name == "reference"


def test_triton_is_chosen_where_it_is_installed_and_runs(monkeypatch):
    cuda = torch.device("cuda")
    monkeypatch.setattr(kernels.importlib.util, "find_spec", lambda name: name)
    assert kernels.choose(cuda).name == "triton"
    monkeypatch.setattr(kernels.importlib.util, "find_spec", lambda name: None)
    assert kernels.choose(cuda).name == "reference"
    with pytest.raises(InputError, match=r"Backend 'triton' needs the package triton, which is not installed"):
        kernels.choose(cuda, "triton")
    with pytest.raises(InputError, match=r"Backend 'triton' runs on cuda, not on cpu"):
        kernels.choose("cpu", "triton")


def test_triton_is_not_imported_before_it_is_used():
    code = "import sys, warpfactor as wf; wf.kernels.choose('cuda'); print('triton' in sys.modules, *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert loaded[0] == "False"
    assert "warpfactor.kernels.triton" not in loaded


def test_backends_that_cannot_be_used_are_named():
    with pytest.raises(InputError, match=r"Unknown backend 'cuda-fast'; use one of auto, numba, triton, reference"):
        kernels.select("cpu", "cuda-fast")
    with pytest.raises(InputError, match=r"Backend 'numba' runs on cpu, not on meta"):
        kernels.select("meta", "numba")

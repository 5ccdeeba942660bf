"""Shared fixtures: the seeded generator and the folder of real images; and one thread in each process."""

import os
from collections.abc import Iterator
from pathlib import Path

# `make test` runs one process per core. OpenMP threads of PyTorch spin while they wait for each other, and two in each
# of two processes on two cores wait much: 1000 sums over 60x60x60 voxels took 8.0 s of processor time on a busy
# machine, with one thread 0.33 s. Processes that tests start inherit this. The threads of our own kernels do the
# same, so tests have one unless they ask for `all_threads`, and in processes that they start threads sleep while they
# wait: a small registration beside two other processes took 4 s by two threads that spin, and 2 s by one.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numba
import numpy as np
import pytest
import torch

numba.set_num_threads(1)
TESTS = Path(__file__).resolve().parent
DATA = TESTS.parents[1] / "shared" / "data"
# The files that take longest, of which `make test` gives each to one process as a whole. They come first, so that no
# process is left with one of them when the other has nothing to do any more. In a fresh checkout the second one
# compiles most CPU kernels that the others load, while the other process has files that need none.
LONG = (
    "kernels/test_triton.py",
    "stages/test_robustness.py",
    "bench/test_gpu.py",
    "docs/test_docs.py",
    "show/test_report_browser.py",
    "checks/test_device.py",
    "stages/test_invariance.py",
    "ranks/test_ranks.py",
    "cli/test_startup.py",
    "show/test_report_layout.py",
    "registration/test_memory.py",
    "scene/test_missing.py",
    "attack/test_attack.py",
    "ranks/test_places.py",
    "show/test_report.py",
    "followup/test_longitudinal.py",
    "cohort/test_engine.py",
    "stages/test_linear.py",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # in a process of pytest-xdist
        names = {TESTS / name: number for number, name in enumerate(LONG)}
        items.sort(key=lambda item: names.get(item.path, len(LONG)))


@pytest.fixture
def all_threads() -> Iterator[None]:
    """Kernels on all cores; without it they have one thread."""
    numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)
    yield
    numba.set_num_threads(1)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(7)


@pytest.fixture
def data_dir() -> Path:
    """The folder of real images; tests that need it are skipped, visibly, without it."""
    if not DATA.is_dir():
        pytest.skip("real images (../shared/data) are not on this machine")
    return DATA

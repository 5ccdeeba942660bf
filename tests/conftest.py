"""Shared fixtures: the seeded generator and the folder of real images, if it is there."""

from pathlib import Path

import numpy as np
import pytest
import torch

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


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

"""Small files under every name that the documentation uses, made once."""

from pathlib import Path

import pytest

import stand_ins


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Read them, and write elsewhere: all tests share this folder."""
    return stand_ins.make(tmp_path_factory.mktemp("files"))

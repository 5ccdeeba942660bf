"""The Triton kernels in Triton's interpreter against the reference, and what they are cut into."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from warpfactor.checks.device.problems import PROBLEMS

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")

SCRIPT = Path(__file__).parents[1] / "helpers" / "interpreted.py"


def interpreted(task):
    """What the task of tests/helpers/interpreted.py found."""
    done = subprocess.run([sys.executable, str(SCRIPT), task], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def checks():
    return interpreted("checks")


@pytest.mark.parametrize("title", [each.title for each in PROBLEMS])
def test_every_operation_agrees_with_the_reference(checks, title):
    assert len(checks[title]) >= 2
    assert [each for each in checks[title] if not each["error"] <= 1] == []

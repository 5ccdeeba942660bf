"""The attack in short: five hundred damaged files, and a few kills; the long modes are scripts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def count_of(script, *arguments):
    """The last line of a script of this folder, which must succeed."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name(script)), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_damaged_files_are_refused_or_read():
    """None ends the process, hangs it or raises anything else."""
    counts = count_of("attack.py", "--cases", "500", "--seed", "2026", "--no-workers")
    assert counts["refused"] + counts["read"] == counts["cases"] == 500
    assert counts["refused"] > 200


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_what_a_kill_leaves_is_complete_old_or_absent():
    counts = count_of("kills.py", "--kills", "6", "--per-round", "2", "--repeats", "1", "--warmups", "0", "--seed", "5")
    assert counts["kills"] == 6
    assert len(counts["by_target"]) >= 3
    assert counts["failures"] == 0

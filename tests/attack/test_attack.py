"""Five hundred damaged files: each is refused or read; none ends the process, hangs it or raises anything else."""

import json
import os
import subprocess
import sys
from pathlib import Path


def test_damaged_files_are_refused_or_read():
    script = Path(__file__).with_name("attack.py")
    done = subprocess.run(
        [sys.executable, str(script), "--cases", "500", "--seed", "2026"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = json.loads(done.stdout.splitlines()[-1])
    assert counts["refused"] + counts["read"] == counts["cases"] == 500
    assert counts["refused"] > 200

"""A benchmark that is asked to end does so at once, with its processes, and says how to go on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from warpfactor.bench.data.example import write_example

ENDLESS = "endless=rigid+linear.levels=1+linear.iterations=1000000"
# Without compiling all kernels first, which `bench speed` does before it measures.
START = "from warpfactor.cli import app, warmup; warmup.command = lambda quiet: None; app.main()"
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes in /proc")


def children(pid):
    return [int(c) for task in Path(f"/proc/{pid}/task").glob("*") for c in (task / "children").read_text().split()]


def running(pid):
    """Whether there is such a process, and not only its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for(what, seconds):
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)
    return found


@pytest.mark.parametrize("kind", ["accuracy", "speed"])
def test_sigterm_ends_a_benchmark_and_its_processes(kind, tmp_path):
    table = write_example(tmp_path / "ex", pairs=1, shape=(1, 32, 32))
    options = {"accuracy": ["--data", str(table), "--methods", ENDLESS], "speed": ["--sizes", "96"]}[kind]
    command = [sys.executable, "-c", START, "bench", kind, *options, "-o", str(tmp_path / "out")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        lines = []
        while not any("exist already" in line or " 1 of " in line for line in lines):
            lines.append(process.stderr.readline())
        (child,) = wait_for(lambda: children(process.pid), 60)
        began = time.monotonic()
        os.kill(process.pid, signal.SIGTERM)
        said = process.communicate(timeout=60)[1]
        assert time.monotonic() - began < 10
    assert process.returncode == 128 + signal.SIGTERM
    assert f"warpfactor: Stopped; finished runs are in {tmp_path / 'out'}, and the same command resumes there." in said
    wait_for(lambda: not running(child), 30)

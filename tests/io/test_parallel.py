"""Jobs in threads: none is still running when `run_together` returns or raises."""

import subprocess
import sys
import threading
import time

import pytest

from warpfactor.errors import FileError
from warpfactor.io import atomic_folder, run_together


def slow(ended, number):
    """A job that takes a while and then notes its number."""

    def job():
        time.sleep(0.05)
        ended.append(number)

    return job


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_all_jobs_have_ended_when_it_returns(threads):
    ended = []
    run_together([slow(ended, number) for number in range(4)], threads=threads)
    assert sorted(ended) == [0, 1, 2, 3]


def test_no_more_threads_run_than_allowed():
    most, running, lock = [], [], threading.Lock()

    def job():
        with lock:
            running.append(1)
            most.append(len(running))
        time.sleep(0.01)
        with lock:
            running.pop()

    run_together([job] * 6, threads=2)
    assert max(most) <= 2


def test_no_jobs_are_no_error():
    run_together([], threads=2)


def test_nothing_runs_after_an_error():
    ended, begun = [], threading.Event()

    def fail():
        assert begun.wait(timeout=10)
        raise FileError("no space")

    def other():
        begun.set()
        slow(ended, 1)()

    with pytest.raises(FileError, match="no space"):
        run_together([fail, other, *[slow(ended, number) for number in range(2, 20)]], threads=2)
    known = list(ended)
    assert 1 in known, "the job that ran was waited for"
    assert len(known) < 19, "jobs that had not started were dropped"
    time.sleep(0.15)
    assert ended == known


CTRL_C = """
import signal, time
from warpfactor.io import run_together

signal.signal(signal.SIGINT, signal.default_int_handler)  # background processes may ignore it
ended = []

def interrupt():
    time.sleep(0.05)
    signal.raise_signal(signal.SIGINT)

def job():
    time.sleep(0.05)
    ended.append(1)

try:
    run_together([interrupt, *[job] * 20], threads=2)
except KeyboardInterrupt:
    known = len(ended)
    time.sleep(0.15)
    print(0 < known < 20, len(ended) == known)
"""


def test_nothing_runs_after_ctrl_c():
    """Ctrl-C reaches the main thread while it waits; in a process of its own, as it could hit the test runner."""
    done = subprocess.run([sys.executable, "-c", CTRL_C], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["True", "True"], "some jobs ran, not all of them, and none goes on"


def test_a_folder_whose_writers_fail_leaves_nothing(tmp_path):
    def fail():
        raise OSError(28, "No space left on device")

    with pytest.raises(FileError, match="No space left"), atomic_folder(tmp_path / "new" / "result") as place:
        run_together([lambda: (time.sleep(0.05), (place / "late.txt").write_text("late")), fail], threads=2)
    assert not list(tmp_path.iterdir())

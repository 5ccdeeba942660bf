"""Jobs in threads: none is still running when `run_together` returns or raises."""

import signal
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


def test_nothing_runs_after_ctrl_c():
    """Ctrl-C reaches the main thread while it waits."""
    ended = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # background processes may ignore it
    timer = threading.Timer(0.02, signal.raise_signal, [signal.SIGINT])
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            run_together([slow(ended, number) for number in range(20)], threads=2)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    known = list(ended)
    assert len(known) < 20
    time.sleep(0.15)
    assert ended == known


def test_a_folder_whose_writers_fail_leaves_nothing(tmp_path):
    def fail():
        raise OSError(28, "No space left on device")

    with pytest.raises(FileError, match="No space left"), atomic_folder(tmp_path / "new" / "result") as place:
        run_together([lambda: (time.sleep(0.05), (place / "late.txt").write_text("late")), fail], threads=2)
    assert not list(tmp_path.iterdir())

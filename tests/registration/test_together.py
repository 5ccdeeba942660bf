"""Jobs in threads: all have ended when the main thread goes on, after errors and Ctrl-C at any moment too."""

import signal
import threading
import time

import pytest

import warpfactor as wf
from warpfactor.io.together import run_beside, run_together


@pytest.fixture(autouse=True)
def heard():
    """Ctrl-C is heard as in a terminal; what runs in the background of a script, or in CI, may ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def ended():
    """Numbers of the jobs that have ended."""
    return []


def slow(ended, number, *, signals=0):
    """A job that takes a while, and presses Ctrl-C meanwhile."""

    def job():
        for _ in range(signals):
            signal.raise_signal(signal.SIGINT)
            time.sleep(0.02)
        time.sleep(0.05)
        ended.append(number)

    return job


def test_all_jobs_have_ended_when_it_returns(ended):
    run_together([slow(ended, number) for number in range(5)], threads=2)
    assert sorted(ended) == [0, 1, 2, 3, 4]


def test_all_jobs_have_ended_when_one_fails(ended):
    def fail():
        raise wf.FileError("no room")

    with pytest.raises(wf.FileError, match="no room"):
        run_together([fail, slow(ended, 1), slow(ended, 2)], threads=2)
    assert sorted(ended) == [1, 2]


def test_what_runs_beside_the_jobs_gives_the_result(ended):
    assert run_beside(lambda: "page", [slow(ended, 1)], threads=1) == "page"
    assert ended == [1]


def test_jobs_that_have_begun_end_before_an_error_of_the_main_one_is_raised(ended):
    begun = threading.Event()

    def fail():
        assert begun.wait(timeout=10)
        raise ValueError("no page")

    with pytest.raises(ValueError, match="no page"):
        run_beside(fail, [lambda: begun.set() or slow(ended, 1)(), slow(ended, 2)], threads=1)
    assert ended == [1], "the second was not begun, and never is"
    time.sleep(0.1)
    assert ended == [1]


@pytest.mark.parametrize("signals", [1, 3])
def test_ctrl_c_is_raised_when_what_runs_has_ended(signals, ended):
    with pytest.raises(KeyboardInterrupt):
        run_together([slow(ended, 1, signals=signals), slow(ended, 2)], threads=1)
    assert ended == [1]


def test_ctrl_c_in_the_start_of_a_thread_leaves_none_behind(ended, monkeypatch):
    start = threading.Thread.start

    def interrupted(thread):
        start(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_together([slow(ended, 1), slow(ended, 2)], threads=2)
    known = list(ended)
    time.sleep(0.3)
    assert ended == known, "nothing ended after the wait"

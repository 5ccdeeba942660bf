"""Ctrl-C and SIGTERM during `register`: nothing is written, or with --keep-interrupted the best result so far."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from commands import entries, run
from small import QUICK_OPTIONS
from warpfactor.cli import app as cli
from warpfactor.cli import terminal, wording
from warpfactor.cli.stopping import stop_on_signal
from warpfactor.registration import align, finish, folder

ENDLESS = [
    part
    for setting in ("linear=none", "deformable.optimizer=adam", "deformable.levels=1", "deformable.iterations=1000000")
    for part in ("--set", setting)
]
posix = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")


@pytest.fixture(autouse=True)
def handlers():
    """The handlers of a process that was started from a terminal; in CI, Ctrl-C may be ignored."""
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.SIGTERM: signal.signal(signal.SIGTERM, cli._terminate),
    }
    yield
    assert signal.getsignal(signal.SIGTERM) is cli._terminate, "the command puts the handlers back"
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def register(images, tmp_path):
    """Registers in process; returns what was printed and result.json, None if nothing was written."""

    def registered(*options, code):
        output = tmp_path / "a" / "out"
        done = run("register", *images, "-o", output, *QUICK_OPTIONS, *options, code=code)
        left = list(tmp_path.iterdir())
        assert left == ([tmp_path / "a"] if output.is_dir() else []), "no partial output, no temporary folder"
        return done, entries(output) if left else None

    return registered


def signalled(monkeypatch, module, name, *, number=signal.SIGINT, times=1):
    """Let a function send signals to this process before it does its work, the first time it is called."""
    function, sent = getattr(module, name), []

    def send(*arguments, **options):
        if not sent:
            sent.append(number)
            for _ in range(times):
                signal.raise_signal(number)
        return function(*arguments, **options)

    monkeypatch.setattr(module, name, send)


# In the middle of the iterations, after the last one, and while files are written.
ITERATION, LATE, WRITING = (terminal.LineView, "update"), (finish, "measure"), (folder, "json_text")
CODES = {signal.SIGINT: (130, wording.INTERRUPTED), signal.SIGTERM: (143, wording.TERMINATED)}


@pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
@pytest.mark.parametrize("place", [ITERATION, LATE, WRITING], ids=lambda place: place[1])
def test_a_signal_leaves_nothing(place, number, register, monkeypatch):
    signalled(monkeypatch, *place, number=number)
    code, sentence = CODES[number]
    done, saved = register("--no-report", code=code)
    assert saved is None
    assert done.stderr.endswith(f"warpfactor: {sentence}\n")


@pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
def test_the_best_result_so_far_is_kept(number, register, monkeypatch):
    signalled(monkeypatch, *ITERATION, number=number)
    done, saved = register("--keep-interrupted", code=CODES[number][0])
    assert saved["interrupted"]
    assert saved["status"].startswith("Interrupted")
    assert saved["verdict"]["level"] == "red"
    assert len(saved["stages"][0]["history"]["cost"]) <= 2, "it ended after the current iteration"
    assert wording.STOPPING in done.stderr
    assert "nothing was written" not in done.output


@pytest.mark.parametrize("place", [LATE, WRITING], ids=lambda place: place[1])
def test_a_complete_registration_is_written(place, register, monkeypatch):
    signalled(monkeypatch, *place)
    done, saved = register("--keep-interrupted", "--no-report", code=130)
    assert not saved["interrupted"]
    assert not saved["status"].startswith("Interrupted")
    assert wording.STOPPING in done.stderr
    assert done.stderr.endswith(f"warpfactor: {wording.COMPLETE}\n")


@pytest.mark.parametrize("place", [ITERATION, LATE, WRITING], ids=lambda place: place[1])
def test_a_second_signal_ends_it_at_once(place, register, monkeypatch):
    signalled(monkeypatch, *place, times=2)
    assert register("--keep-interrupted", "--no-report", code=130)[1] is None


def test_a_quiet_run_can_be_stopped_too(register, monkeypatch):
    signalled(monkeypatch, align, "run_linear")
    done, saved = register("--keep-interrupted", "--quiet", "--no-report", code=130)
    assert saved["interrupted"]
    assert done.output == ""


def test_ignored_signals_stay_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with stop_on_signal(print, keep=True):
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is not cli._terminate


def test_other_threads_set_no_handlers():
    def use():
        with stop_on_signal(print, keep=True) as stop:
            seen.append(stop.signal)

    seen = []
    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert seen == [None]


@posix
@pytest.mark.parametrize("loop", [True, False], ids=["in a loop", "alone"])
def test_ctrl_c_ends_the_process_as_shells_expect(loop, images, tmp_path):
    command = [
        sys.executable,
        "-m",
        "warpfactor",
        "register",
        *map(str, images),
        "-o",
        str(tmp_path / "out"),
        *ENDLESS,
        "--json",
    ]
    if loop:
        command = ["bash", "-c", 'for n in 1 2; do "$@"; echo went on; done', "bash", *command]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert "iteration" in process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        said = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert "went on" not in said[0]
    assert said[1] == "warpfactor: Interrupted; nothing was written.\n"
    assert not list(tmp_path.iterdir())

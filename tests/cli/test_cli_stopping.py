"""Ctrl-C and SIGTERM at every moment of `register`: nothing is left, or with --keep-interrupted nothing is lost."""

import json
import os
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from small import QUICK_OPTIONS, write_pair
from warpfactor.cli import app as cli
from warpfactor.cli import live, stopping
from warpfactor.cli import report as reporting
from warpfactor.registration import result as result_module
from warpfactor.registration import run as api
from warpfactor.stages.linear import stage as linear

RUNNER = CliRunner()
ENDLESS = [
    part
    for setting in ("linear=none", "deformable.optimizer=adam", "deformable.levels=1", "deformable.iterations=1000000")
    for part in ("--set", setting)
]
posix = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")


@pytest.fixture(autouse=True)
def heard():
    """Ctrl-C is heard as in a terminal; what runs in the background of a script, or in CI, may ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture
def register(files, tmp_path):
    """Registers in process and returns what was printed and the result, None if there is no folder."""

    def run(*options, code):
        output = tmp_path / "a" / "out"
        images = [str(files / f"{name}.nii.gz") for name in ("fixed", "moving")]
        done = RUNNER.invoke(cli.app, ["register", *images, "-o", str(output), *QUICK_OPTIONS, *options])
        assert done.exit_code == code, done.output
        left = list(tmp_path.iterdir())
        assert left == ([tmp_path / "a"] if output.is_dir() else [])
        return done, json.loads((output / "result.json").read_text(encoding="utf-8")) if left else None

    return run


def signalled(monkeypatch, module, name, *, number=signal.SIGINT, times=1):
    """Have a function send a signal to this process before it does its work, the first time."""
    function, sent = getattr(module, name), []

    def send(*arguments, **options):
        if not sent:
            sent.append(number)
            for _ in range(times):
                signal.raise_signal(number)
        return function(*arguments, **options)

    monkeypatch.setattr(module, name, send)


LATE = [(api, "measure"), (reporting, "draw"), (result_module, "write_image"), (result_module, "write_transform")]


@pytest.mark.parametrize(("module", "name"), LATE, ids=[name for _, name in LATE])
def test_a_finished_registration_is_written_whenever_ctrl_c_comes(module, name, register, monkeypatch):
    signalled(monkeypatch, module, name)
    done, entries = register("--keep-interrupted", code=130)
    assert not entries["interrupted"]
    assert entries["status"].startswith("Finished")
    assert "interrupted" not in [check["value"] for check in entries["verdict"]["checks"]]
    assert stopping.STOPPING in done.stderr
    assert done.stderr.endswith("The registration was done when it was to stop; all of it is written.\n")


@pytest.mark.parametrize(("module", "name"), LATE, ids=[name for _, name in LATE])
def test_without_the_option_nothing_is_left(module, name, register, monkeypatch):
    signalled(monkeypatch, module, name)
    done, entries = register(code=130)
    assert entries is None
    assert done.stderr.endswith("warpfactor: Interrupted; nothing was written.\n")


def test_ctrl_c_during_iterations_keeps_the_best_so_far(register, monkeypatch):
    signalled(monkeypatch, live.Lines, "update")
    _, entries = register("--keep-interrupted", code=130)
    assert entries["interrupted"]
    assert entries["status"].startswith("Interrupted")
    assert entries["verdict"]["level"] == "red"


def test_the_quiet_and_programs_can_stop_too(register, monkeypatch):
    signalled(monkeypatch, linear, "LinearRecord")
    done, entries = register("--keep-interrupted", "--quiet", code=130)
    assert entries["interrupted"]
    assert done.output == ""


def test_while_starts_are_tried_there_is_nothing_to_keep(register, monkeypatch):
    signalled(monkeypatch, linear, "_search")
    assert register("--keep-interrupted", code=130)[1] is None


def test_a_second_ctrl_c_ends_it_at_once(register, monkeypatch):
    signalled(monkeypatch, reporting, "draw", times=2)
    assert register("--keep-interrupted", code=130)[1] is None


def test_sigterm_keeps_the_result_as_ctrl_c_does(register, monkeypatch):
    before = signal.signal(signal.SIGTERM, cli._terminate)
    try:
        signalled(monkeypatch, live.Lines, "update", number=signal.SIGTERM)
        done, entries = register("--keep-interrupted", code=143)
        assert entries["interrupted"]
        assert "nothing was written" not in done.output
        assert signal.getsignal(signal.SIGTERM) is cli._terminate, "the handler is put back"
    finally:
        signal.signal(signal.SIGTERM, before)


def test_sigterm_says_that_nothing_was_written(register, monkeypatch):
    before = signal.signal(signal.SIGTERM, cli._terminate)
    try:
        signalled(monkeypatch, live.Lines, "update", number=signal.SIGTERM)
        done, entries = register(code=143)
        assert entries is None
        assert "Terminated; nothing was written." in done.output
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_signal_that_was_swallowed_is_heeded_at_the_next_iteration():
    """What is raised while Python clears objects away is ignored by it."""
    told = []
    stop = stopping.Stop(told.append, keep=False)
    stop._before[signal.SIGINT] = lambda *_: None
    stop.receive(signal.SIGINT, None)
    with pytest.raises(KeyboardInterrupt):
        stop.watched(told.append)("update")
    assert told == ["update"]


def test_ignored_signals_stay_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stopping.stoppable(print, keep=True):
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@posix
@pytest.mark.parametrize("loop", [True, False], ids=["in a loop", "alone"])
def test_ctrl_c_ends_the_process_as_shells_expect(loop, files, tmp_path):
    images = [str(files / f"{name}.nii.gz") for name in ("fixed", "moving")]
    command = [sys.executable, "-m", "warpfactor", "register", *images, "-o", str(tmp_path / "out"), *ENDLESS, "--json"]
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

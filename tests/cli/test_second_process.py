"""The second process of a first run: when there is one, what it does, and that it always ends with the first."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from warpfactor.bench.run import machine
from warpfactor.cli import second
from warpfactor.kernels.numba._compile import cache

PARTS = """
import os, pathlib, time
def parts(folder):
    folder = pathlib.Path(folder)
    def write(name, text=""):
        (folder / (name + ".part")).write_text(text)
        os.replace(folder / (name + ".part"), folder / name)
    def stay():
        print("noise", flush=True)
        write("pid", str(os.getpid()))
        time.sleep(60)
    return [("first", lambda: write("first")), ("stay", stay), ("last", lambda: write("last"))]
"""
FIRST = """
import pathlib, signal, sys, time
from warpfactor.cli import second
signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
second._pays_off = lambda threads: True
with second.second_process("stand_in_parts:parts", sys.argv[1]) as helped:
    assert helped
    while not pathlib.Path(sys.argv[1], "pid").exists():
        time.sleep(0.01)
    print("both run", flush=True)
    {then}
"""
posix = pytest.mark.skipif(os.name != "posix", reason="signals and process numbers of POSIX")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where the stand-in for the kernels' parts is found and leaves its traces."""
    (tmp_path / "stand_in_parts.py").write_text(PARTS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    return tmp_path


def first(folder, then="time.sleep(60)", **options):
    """A process that has a second one, when both run."""
    command = [sys.executable, "-c", FIRST.format(then=then), str(folder)]
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )
    assert process.stdout.readline() == "both run\n"
    return process


def has_ended(folder, seconds=10.0):
    """Whether the second process is gone within some seconds."""
    number = int((folder / "pid").read_text())
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            os.kill(number, 0)
            if Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True  # nobody has asked how it ended
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.01)
    return False


@posix
@pytest.mark.parametrize(("then", "code"), [("pass", 0), ("raise SystemExit(2)", 2), ("raise ValueError", 1)])
def test_it_ends_with_the_block(then, code, folder):
    process = first(folder, then)
    output, errors = process.communicate(timeout=30)
    assert process.returncode == code
    assert output == ""
    assert ("ValueError" in errors) == (code == 1)
    assert has_ended(folder)


@posix
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_when_the_first_process_is_killed(number, folder):
    process = first(folder)
    process.send_signal(number)
    assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == -number
    assert has_ended(folder)


@posix
def test_it_says_nothing_at_ctrl_c_and_ends(folder):
    process = first(folder)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == 0
    assert has_ended(folder)


@posix
def test_it_begins_at_the_end_and_leaves_nothing_behind(folder):
    first(folder, "pass").communicate(timeout=30)
    assert {path.name for path in folder.iterdir()} == {"stand_in_parts.py", "last", "pid"}


def test_modules_of_the_working_folder_are_not_mistaken_for_its_own(folder, monkeypatch):
    """A second process that imported them would not come as far as its parts."""
    work = folder / "work"
    work.mkdir()
    for name in ("json", "signal", "warpfactor"):
        (work / f"{name}.py").write_text("raise SystemExit")
    monkeypatch.chdir(work)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(second, "_pays_off", lambda threads: True)
    with second.second_process("stand_in_parts:parts", str(folder)):
        until = time.monotonic() + 30
        while not (folder / "pid").exists() and time.monotonic() < until:
            time.sleep(0.01)
    assert (folder / "last").exists()


def test_a_file_that_is_being_written_is_finished_first(folder, tmp_path):
    """The pipe ends while the lock is held: the process goes when it is given back."""
    code = (
        "import threading, time, os; from warpfactor.cli import second\n"
        "from warpfactor.kernels.numba._compile import cache\n"
        "cache.writing.acquire(); threading.Thread(target=second._end_with_the_first).start()\n"
        "time.sleep(0.3); open('done', 'w').close(); cache.writing.release(); time.sleep(60)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdin=subprocess.DEVNULL, cwd=tmp_path, timeout=50)
    assert (tmp_path / "done").exists()


@pytest.fixture
def started(monkeypatch):
    """The processes that would have been started, on a machine with two cores and no kernels."""
    found = []
    monkeypatch.setattr(second, "_start", lambda: found.append(True))
    monkeypatch.setattr(machine, "cores", lambda: 2)
    monkeypatch.setattr(cache, "is_empty", lambda: True)
    return found


def helped(threads=None):
    with second.second_process("none:none", threads=threads):
        pass


def test_there_is_one_when_nothing_is_kept(started):
    helped()
    helped(threads=2)
    assert len(started) == 2


def test_there_is_none_for_a_user_who_wants_one_thread(started):
    helped(threads=1)
    assert not started


def test_there_is_none_on_one_core(started, monkeypatch):
    monkeypatch.setattr(machine, "cores", lambda: 1)
    helped()
    assert not started


def test_there_is_none_when_kernels_are_kept(started, monkeypatch):
    monkeypatch.setattr(cache, "is_empty", lambda: False)
    helped()
    assert not started


def test_a_system_without_room_for_it_is_no_error(monkeypatch):
    def full(*_, **__):
        raise BlockingIOError

    monkeypatch.setattr(second, "_pays_off", lambda threads: True)
    monkeypatch.setattr(subprocess, "Popen", full)
    with second.second_process("none:none") as found:
        assert not found

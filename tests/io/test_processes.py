"""Several runs at once, runs that are killed, disks that are full, files that block."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch

import warpfactor as wf
from warpfactor.errors import FileError
from warpfactor.io import atomic_folder, atomic_path, exchange, reserved_folder

OWN = ("warp.txt", "result.txt")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs the locks and signals of POSIX")


def child(script: str, *arguments: object) -> subprocess.Popen:
    """Another Python that knows how folders are written; it prints a line when it is in the middle."""
    head = "import os, sys, time\nfrom pathlib import Path\nfrom warpfactor.io import atomic\n"
    return subprocess.Popen(
        [sys.executable, "-c", head + textwrap.dedent(script), *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def fill(folder: Path, text: str) -> None:
    with atomic_folder(folder, force=True, own=OWN) as place:
        for name in OWN:
            (place / name).write_text(text)


def content(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_only_one_run_writes_into_a_folder_and_what_a_killed_one_leaves_is_removed(tmp_path):
    folder = tmp_path / "out"
    fill(folder, "old")
    (folder / "notes.txt").write_text("theirs")
    other = child(
        """
        with atomic.atomic_folder(sys.argv[1], force=True, own=("warp.txt", "result.txt")) as place:
            (place / "warp.txt").write_text("new")
            print("writing", flush=True)
            time.sleep(60)
        """,
        folder,
    )
    assert other.stdout.readline() == "writing\n"
    with pytest.raises(FileError, match=r"out: another run is writing there; wait for it"):
        fill(folder, "second")
    with pytest.raises(FileError, match="another run"), reserved_folder(folder, force=True):
        raise AssertionError("must not come here")
    other.send_signal(signal.SIGKILL)
    other.communicate()
    assert content(folder) == {"warp.txt": "old", "result.txt": "old", "notes.txt": "theirs"}
    assert len(list(tmp_path.iterdir())) == 3  # what it was writing, and its lock
    fill(folder, "next")
    assert content(folder) == {"warp.txt": "next", "result.txt": "next", "notes.txt": "theirs"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("exchanging", [True, False])
def test_a_folder_is_replaced_as_a_whole_at_every_moment(tmp_path, monkeypatch, exchanging):
    """Every step of a replacement is made the last one; what is there then is old, new, or put back by the next run."""
    folder = tmp_path / "out"
    steps = 0

    class KilledError(BaseException):
        pass

    def counted(function, stop):
        def call(*arguments, **options):
            nonlocal steps
            steps += 1
            if steps == stop:
                raise KilledError
            return function(*arguments, **options)

        return call

    for stop in range(1, 12):
        fill(folder, "old")
        steps = 0
        with monkeypatch.context() as patch:
            if not exchanging:
                patch.setattr(exchange, "_exchange", lambda *_: False)
            for module, name in ((exchange.Path, "replace"), (exchange.shutil, "rmtree"), (exchange.os, "link")):
                patch.setattr(module, name, counted(getattr(module, name), stop))
            with contextlib.suppress(KilledError):
                fill(folder, "new")
        if folder.exists():
            assert set(content(folder).values()) in ({"old"}, {"new"})
        with reserved_folder(folder, force=True):  # the next run
            assert set(content(folder).values()) in ({"old"}, {"new"})
        assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_working_folder_stays_the_same_folder(tmp_path, monkeypatch):
    fill(tmp_path / "out", "old")
    identity = (tmp_path / "out").stat().st_ino
    monkeypatch.chdir(tmp_path / "out")
    fill(Path(), "new")
    assert (tmp_path / "out").stat().st_ino == identity
    assert content(tmp_path / "out") == {"warp.txt": "new", "result.txt": "new"}


def test_what_is_left_of_a_killed_write_of_a_file_is_removed(tmp_path):
    (tmp_path / ".0123abcd-x.txt").write_text("half")
    (tmp_path / ".0123abcd-other.txt").write_text("of somebody else")
    with atomic_path(tmp_path / "x.txt") as temporary:
        temporary.write_text("whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".0123abcd-other.txt", "x.txt"]


@pytest.mark.parametrize("suffix", [".tif", ".mha", ".nrrd", ".png", ".nii.gz", ".nii"])
def test_a_full_disk_is_noticed_whatever_the_format(tmp_path, suffix):
    shape = (64, 64) if suffix == ".png" else (8, 64, 64)
    noise = torch.from_numpy(np.random.default_rng(1).integers(0, 255, shape).astype(np.uint8))
    image = wf.Image.from_array(noise)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500, hard))
    try:
        with pytest.raises(FileError, match="written"):
            wf.write_image(image, tmp_path / f"x{suffix}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", [".tif", ".mha", ".nrrd", ".nii.gz"])
def test_a_write_that_failed_frees_its_space_at_once(tmp_path, suffix):
    """A file that was removed keeps its space as long as a writer has it open, and ITK's TIFF never closes it."""
    noise = torch.from_numpy(np.random.default_rng(1).integers(0, 255, (8, 64, 64)).astype(np.uint8))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500, hard))
    try:
        with pytest.raises(FileError):
            wf.write_image(wf.Image.from_array(noise), tmp_path / f"x{suffix}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []
    if sys.platform == "linux":
        assert sum(held_bytes(tmp_path)) == 0


@pytest.mark.parametrize("suffix", [".h5", ".mnc"])
def test_formats_whose_library_ends_the_process_are_refused_before_the_disk_is_full(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10_000_000}))
    with pytest.raises(FileError, match="the disk has 9 MB left, but 16 MB are needed"):
        wf.write_image(wf.Image.from_array(torch.zeros(40, 320, 320)), tmp_path / f"x{suffix}")
    assert list(tmp_path.iterdir()) == []
    wf.write_image(wf.Image.from_array(torch.ones(4, 5, 6)), tmp_path / f"x{suffix}")


def test_what_fails_inside_a_folder_is_named_by_its_final_place(tmp_path):
    """The name of the temporary folder is of no use to anybody."""
    with pytest.raises(FileError) as caught, atomic_folder(tmp_path / "out") as place:
        wf.write_image(wf.Image.from_array(torch.ones(4, 5, 6)), place / "x.png")
    assert str(caught.value).startswith(f"{tmp_path / 'out' / 'x.png'}: this format")
    assert list(tmp_path.iterdir()) == []


def held_bytes(folder):
    """Sizes of the open files below a folder, those that were removed as well."""
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if link.readlink().is_relative_to(folder):
                yield link.stat().st_size


@pytest.mark.parametrize("names", [(".mhd", ".mha"), (".nhdr", ".nrrd"), (".hdr", ".nii"), (".img", ".nii")])
def test_formats_of_two_files_are_not_written(tmp_path, names):
    """The second file would keep the name under which it was written, and stay when the first one fails."""
    suffix, whole = names
    with pytest.raises(FileError, match=f"write {whole}"):
        wf.write_image(wf.Image.from_array(torch.rand(4, 5, 6)), tmp_path / f"x{suffix}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["pipe.nii", "pipe.nii.gz", "pipe.mha", "pipe.tif", "pipe.dcm"])
def test_a_pipe_is_no_image(tmp_path, name):
    os.mkfifo(tmp_path / name)
    signal.alarm(30)  # ends the test run instead of hanging it
    try:
        with pytest.raises(FileError):
            wf.read_image(tmp_path / name)
    finally:
        signal.alarm(0)


FORKED = """
import os, signal, sys, torch
import warpfactor as wf
torch.set_num_threads(2)
values = torch.rand(400_000)
(values * values).exp().sum()  # starts threads, which a forked child does not have
made = wf.phantom.phantom((16, 18, 16))
quick = {"linear": None, "deformable.levels": [1], "deformable.iterations": [2]}
first = wf.register(made.fixed, made.moving, overrides=quick, threads=2)
pid = os.fork()
if pid == 0:
    signal.alarm(100)
    (values * values).exp().sum()
    again = wf.register(made.fixed, made.moving, overrides=quick, threads=2)
    os._exit(0 if torch.equal(first.warped.data, again.warped.data) else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_a_forked_child_computes_after_its_parent_has():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    assert done.returncode == 0


def test_the_threading_layer_that_is_absent_is_named():
    script = """
import warpfactor as wf
made = wf.phantom.phantom((16, 18, 16))
try:
    wf.register(made.fixed, made.moving, recipe="rigid", overrides={"linear.iterations": [1, 1, 1]})
except wf.InputError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NUMBA_THREADING_LAYER": "tbb"},
        capture_output=True,
        text=True,
    )
    if done.returncode == 0 and not done.stdout:
        pytest.skip("this machine has the threading layer tbb")
    assert "cannot use the threading layer 'tbb'" in done.stdout, done.stderr

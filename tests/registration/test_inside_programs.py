"""Inside other programs: nothing is printed, runs are cancelled from elsewhere, errors have codes."""

import errno
import logging
import threading

import pytest
import torch

import warpfactor as wf
from small import QUICK, image, pair
from warpfactor import errors, memory
from warpfactor.memory import memory_errors
from warpfactor.registration.plan import needed_bytes


@pytest.fixture(scope="module")
def images():
    made = pair()
    return image(made.fixed, name="fixed"), image(made.moving, name="moving")


def test_nothing_is_printed_and_the_log_tells_what_happened(images, caplog, capfd, tmp_path):
    with caplog.at_level(logging.DEBUG, logger="warpfactor"):
        wf.register(*images, overrides=QUICK).save(tmp_path / "out", report=False)
        wf.read_image(tmp_path / "out" / "warped.nii.gz")
    assert capfd.readouterr() == ("", "")
    told = [record.getMessage() for record in caplog.records]
    assert told[0].startswith("registering moving (24 x 26 x 24 voxels")
    assert "recipe default, backend numba on cpu" in told[1]
    assert [text.partition(":")[0] for text in told[2:4]] == ["affine", "deformable"]
    assert told[4].startswith("wrote the result into")
    assert told[5].startswith("reading")
    assert {record.levelname for record in caplog.records} == {"INFO", "DEBUG"}


def test_without_a_handler_the_log_goes_nowhere():
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("warpfactor").handlers)


@pytest.mark.parametrize("where", ["linear", "deformable"])
def test_a_second_thread_stops_a_run(images, where):
    """The run waits for the other thread, so that the moment does not depend on how fast the machine is."""
    running, stop = threading.Event(), threading.Event()

    def press_stop():
        running.wait()
        stop.set()

    other = threading.Thread(target=press_stop)
    other.start()

    def progress(event):
        if (event.stage == "deformable") == (where == "deformable"):
            running.set()
            stop.wait()

    result = wf.register(*images, overrides=QUICK, progress=progress, stop=stop)
    other.join()
    assert result.interrupted
    assert bool(torch.isfinite(result.warped.data).all())


def test_a_run_in_a_second_thread_is_cancelled_from_the_first(images):
    wanted, outcome = threading.Event(), []

    def progress(_):
        wanted.wait()
        raise wf.Cancelled("The user closed the window.")

    def work():
        try:
            wf.register(*images, overrides=QUICK, progress=progress)
        except wf.WarpfactorError as error:
            outcome.append(error.code)

    thread = threading.Thread(target=work)
    thread.start()
    wanted.set()
    thread.join()
    assert outcome == ["cancelled"]
    assert wf.register(*images, overrides=QUICK).warp is not None  # nothing was left locked


def test_every_error_has_a_code_of_its_own():
    classes = [wf.InputError, wf.FileError, wf.FolderInUseError, wf.OutOfMemoryError, wf.Cancelled]
    codes = [each.code for each in classes]
    assert codes == ["input", "file", "in_use", "memory", "cancelled"]
    assert all(issubclass(each, errors.WarpfactorError) for each in classes)


def test_a_run_that_cannot_fit_is_refused_before_it_begins(images, monkeypatch):
    recipe = wf.recipe("default")
    needed = needed_bytes(wf.register(*images, overrides=QUICK).images, recipe)
    monkeypatch.setattr(memory, "available_bytes", lambda: needed - 1)
    monkeypatch.setattr("warpfactor.registration.run.make_scene", None)  # it must not come so far
    with pytest.raises(wf.OutOfMemoryError, match=r"This registration needs about .* are available; crop the images"):
        wf.register(*images)


def test_a_stage_with_two_warps_needs_more(images):
    found = wf.register(*images, overrides=QUICK).images
    assert needed_bytes(found, wf.recipe("symmetric")) > 1.5 * needed_bytes(found, wf.recipe("default"))


def test_torch_without_memory_is_a_sentence(images, monkeypatch):
    def full(*_, **__):
        raise RuntimeError(
            "[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory: " + "x" * 900
        )

    monkeypatch.setattr("warpfactor.registration.run.make_scene", full)
    with pytest.raises(wf.OutOfMemoryError, match=r"^Out of memory; crop the images to the region of interest, or"):
        wf.register(*images)


@pytest.mark.parametrize(
    "error",
    [
        ImportError("_SimpleITK.abi3.so: failed to map segment from shared object"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
    ],
)
def test_a_library_or_a_process_without_memory_is_a_sentence(error):
    with pytest.raises(wf.OutOfMemoryError, match=r"^Out of memory; do less\.$"), memory_errors("do less"):
        raise error


@pytest.mark.parametrize(
    "error",
    [
        ImportError("x.so: failed to map segment from shared object: Operation not permitted"),
        ImportError("No module named x"),
        OSError(errno.ENOENT, "No such file or directory"),
    ],
)
def test_other_errors_of_libraries_and_files_stay_what_they_are(error):
    with pytest.raises(type(error), match=str(error)[-20:]), memory_errors("do less"):
        raise error


def test_other_errors_of_torch_stay_what_they_are(images, monkeypatch):
    def wrong(*_, **__):
        raise RuntimeError("a defect")

    monkeypatch.setattr("warpfactor.registration.run.make_scene", wrong)
    with pytest.raises(RuntimeError, match="a defect"):
        wf.register(*images)

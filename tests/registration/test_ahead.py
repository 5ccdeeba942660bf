"""Kernels are compiled by another process before memory is planned; if they cannot be stored, the plan counts it."""

import subprocess
from types import SimpleNamespace

import pytest

import warpfactor as wf
from warpfactor.kernels.numba._compile import cache, compilation
from warpfactor.registration import ahead
from warpfactor.registration.plan import own_bytes


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """No note of compiled kernels anywhere; the commands of processes that are started, which end at once."""
    found = []
    names = [note.name for note in ahead._notes()]
    assert len(set(names)) == 1
    assert cache.IMPORTED[:16] in names[0]
    places = [tmp_path / "readonly" / names[0], tmp_path / "made" / names[0]]
    monkeypatch.setattr(ahead, "_notes", lambda: places)
    (tmp_path / "readonly").touch()  # no folder can be made in it
    stand_in = SimpleNamespace(run=lambda command, **_: found.append(command[1:]), DEVNULL=subprocess.DEVNULL)
    monkeypatch.setattr(ahead, "subprocess", stand_in)
    return found


def test_kernels_are_compiled_by_another_process_once(runs):
    told = []
    compilation.tell_once(lambda: told.append("compiling"))
    ahead.compile_ahead()
    assert runs == [["-m", "warpfactor", "warmup", "--quiet"]]
    assert told == ["compiling"]
    ahead.mark_compiled()
    ahead.compile_ahead()
    assert len(runs) == 1


def test_kernels_that_are_not_stored_are_planned_for(runs):
    before = own_bytes()
    ahead.mark_compiled()
    assert before - own_bytes() == pytest.approx(ahead.COMPILING, rel=0.2)


@pytest.mark.parametrize(("memory", "compiled"), [("8GB", 1), (None, 0)])
def test_a_limit_has_kernels_compiled(runs, memory, compiled):
    made = wf.phantom.phantom((24, 24, 24))
    wf.register(made.fixed, made.moving, recipe="rigid", memory=memory, threads=1)
    assert len(runs) == compiled


def test_a_limit_that_is_none_is_refused_before_kernels_are_compiled(runs):
    made = wf.phantom.phantom((24, 24, 24))
    with pytest.raises(wf.InputError, match="not an amount of memory"):
        wf.register(made.fixed, made.moving, memory="lots")
    assert not runs


def test_a_missing_image_is_told_before_kernels_are_compiled(runs, tmp_path):
    made = wf.phantom.phantom((24, 24, 24))
    with pytest.raises(wf.FileError, match="no such"):
        wf.register(made.fixed, tmp_path / "moving.nii.gz", memory="8GB")
    assert not runs

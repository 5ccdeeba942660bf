"""Compiled kernels on disk: they are found again, and never confused with others."""

import multiprocessing
import os
import subprocess
import sys
import types

import numba
import pytest

from warpfactor.kernels.numba._compile import cache

SOURCE = "def double(x):\n    return 2 * x\n"


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Two empty folders in place of the package's and the user's cache."""
    found = types.SimpleNamespace(own=tmp_path / "package" / "__pycache__", user=tmp_path / "home" / "cache")
    monkeypatch.setattr(cache, "_package_folder", found.own)
    monkeypatch.setattr(cache, "AppDirs", lambda *_: types.SimpleNamespace(user_cache_dir=str(found.user)))
    monkeypatch.setattr(cache.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    forget()
    yield found
    monkeypatch.undo()
    forget()


def forget():
    for function in (cache.folders, cache._warn_that_nothing_is_stored, cache._warn_of_stranger):
        function.cache_clear()


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """A function that makes the same kernel anew, as a new process would."""
    path = tmp_path / "warpfactor_kernel_for_a_test.py"
    path.write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    module = __import__(path.stem)
    yield lambda: cache.cached(numba.njit)(module.double)
    del sys.modules[path.stem]


def hits(dispatcher):
    """Number of signatures that were loaded from disk."""
    return sum(dispatcher.stats.cache_hits.values())


def files(folder):
    return sorted(folder.rglob(f"*{cache.SUFFIX}")) if folder.exists() else []


def block(folder):
    """Make it impossible to write to a folder, even for the superuser."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("in the way")


def test_a_kernel_is_compiled_once(places, kernel):
    first, second = kernel(), kernel()
    assert first(4) == second(4) == 8
    assert (hits(first), hits(second)) == (0, 1)
    assert len(files(places.own)) == 1
    assert not places.user.exists()
    assert first(4.5) == second(4.5) == 9.0
    assert len(files(places.own)) == 2


def test_the_user_cache_is_used_if_the_package_is_read_only(places, kernel):
    block(places.own)
    assert kernel()(4) == 8
    assert len(files(places.user)) == 1
    again = kernel()
    again(4)
    assert hits(again) == 1


def test_a_prepared_package_needs_no_user_cache(places, kernel):
    kernel()(4)
    block(places.user)
    prepared = kernel()
    prepared(4)
    assert hits(prepared) == 1


def test_numba_cache_dir_takes_precedence(places, kernel, tmp_path, monkeypatch):
    kernel()(4)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "chosen"))
    forget()
    chosen = kernel()
    chosen(4)
    assert hits(chosen) == 0
    assert len(files(tmp_path / "chosen")) == len(files(places.own)) == 1


def test_without_a_home_a_private_temporary_folder_is_used(places, kernel, tmp_path):
    block(places.own)
    block(places.user.parent)
    kernel()(4)
    private = tmp_path / f"warpfactor-{os.getuid()}"
    assert len(files(private)) == 1
    assert private.stat().st_mode & 0o077 == 0


def test_a_folder_that_others_can_write_is_not_used(places, kernel, tmp_path):
    block(places.own)
    block(places.user.parent)
    (tmp_path / f"warpfactor-{os.getuid()}").mkdir(mode=0o777)
    (tmp_path / f"warpfactor-{os.getuid()}").chmod(0o777)
    with pytest.warns(UserWarning, match="NUMBA_CACHE_DIR"):
        assert kernel()(4) == 8
    assert kernel()(4) == 8  # said once
    assert not files(tmp_path)


def test_a_damaged_file_is_compiled_again(places, kernel):
    kernel()(4)
    (path,) = files(places.own)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    again = kernel()
    assert again(4) == 8
    assert hits(again) == 0
    assert cache._read(path) is not None


def test_kernels_of_other_sources_are_not_loaded(places, kernel, monkeypatch):
    kernel()(4)
    monkeypatch.setattr(cache, "IMPORTED", "changed" * 8)
    monkeypatch.setattr(cache, "source_digest", lambda: "changed" * 8)
    changed = kernel()
    changed(4)
    assert hits(changed) == 0
    assert len(files(places.own)) == 2


def test_a_kernel_is_not_stored_if_its_sources_changed_since_they_were_imported(places, kernel, monkeypatch):
    early = kernel()
    monkeypatch.setattr(cache, "source_digest", lambda: "later" * 8)
    assert early(4) == 8
    assert not files(places.own)


# Compiled in one fork of a process that has not imported the compiler, loaded in the next.
ALLOCATING = """
import os, sys
import numba, numpy as np
from warpfactor.kernels.numba._compile import cache
from warpfactor.kernels.numba._compile.jit import OPTIONS

def total(n):
    return np.ones(n, np.float32).sum()

def use():
    kernel = cache.cached(numba.njit(**OPTIONS))(total)
    print(kernel(5), sum(kernel.stats.cache_hits.values()), "numba.np.arrayobj" in sys.modules)
    try:
        kernel(-1)
    except ValueError as error:
        print(error, flush=True)

for _ in range(2):
    child = os.fork()
    if not child:
        use()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks processes")
def test_a_stored_kernel_is_loaded_without_importing_the_compiler(tmp_path):
    (tmp_path / "allocating.py").write_text(ALLOCATING)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "kernels")}
    command = [sys.executable, str(tmp_path / "allocating.py")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    refused = "negative dimensions not allowed"
    assert done.stdout.splitlines() == ["5.0 0 True", refused, "5.0 1 False", refused]


def test_kernels_with_bounds_checks_are_stored_separately(places, kernel, monkeypatch):
    kernel()(4)
    monkeypatch.setattr(numba.config, "BOUNDSCHECK", 1)
    checked = kernel()
    checked(4)
    assert hits(checked) == 0


def test_old_files_of_other_sources_are_removed(places, kernel):
    kernel()(4)
    (path,) = files(places.own)
    stem, _, call = path.name.rsplit("-", 2)
    new, old = (path.with_name(f"{stem}-{sources * 16}-{call}") for sources in "ab")
    for other, age in ((new, 0), (old, 2 * cache.OUTDATED_SECONDS)):
        other.write_bytes(b"")
        os.utime(other, (other.stat().st_mtime - age,) * 2)
    kernel()(4.5)
    assert new.exists()
    assert not old.exists()


def test_what_a_killed_process_left_half_written_is_removed_by_the_next_that_stores(places, kernel):
    kernel()(4)
    (stored,) = files(places.own)
    young, old = (stored.with_name(f"{cache._UNFINISHED}{name}") for name in ("young", "old"))
    for path, age in ((young, 0), (old, 2 * cache._ABANDONED_SECONDS)):
        path.write_bytes(b"half")
        os.utime(path, (path.stat().st_mtime - age,) * 2)
    kernel()(4.5)
    assert young.exists(), "its process may still be writing"
    assert not old.exists()


def write_often(path, letter):
    for _ in range(40):
        assert cache._write(path, letter * 200_000)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that start at once")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")  # the children only write
def test_processes_that_write_at_once_leave_a_complete_file(tmp_path):
    path = tmp_path / f"lncc.f-{'0' * 16}-{'0' * 16}{cache.SUFFIX}"
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=write_often, args=(path, letter)) for letter in (b"a", b"b", b"c")]
    for writer in writers:
        writer.start()
    seen, torn = set(), 0
    while any(writer.exitcode is None for writer in writers):
        there, payload = path.exists(), cache._read(path)
        torn += there and payload is None
        seen.add(payload)
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert not torn
    assert seen - {None} <= {letter * 200_000 for letter in (b"a", b"b", b"c")}
    assert len(seen - {None}) > 0
    assert list(tmp_path.iterdir()) == [path]


def test_a_numba_without_our_hooks_stores_kernels_in_its_own_cache(places, kernel, tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "NUMBA_HAS_OUR_HOOKS", False)
    first, second = kernel(), kernel()
    assert first(4) == second(4) == 8
    assert (hits(first), hits(second)) == (0, 1)
    assert list((tmp_path / "__pycache__").glob("*.nbc"))
    assert not files(tmp_path)


def test_with_numba_disabled_functions_are_not_changed():
    assert cache.cached(lambda function: function)(len) is len


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs owners and modes of files")
@pytest.mark.parametrize("what", ["file", "folder"])
@pytest.mark.parametrize("how", ["mode", "owner"])
def test_a_kernel_that_another_user_may_have_planted_is_refused_and_named(places, kernel, monkeypatch, what, how):
    kernel()(1)
    (stored,) = files(places.own)
    planted = stored if what == "file" else stored.parent
    if how == "mode":
        planted.chmod(planted.stat().st_mode | 0o020)
    else:
        other = os.getuid() + 1
        stat = os.stat_result

        def owned_by_another(found):
            return stat([*found[:4], other, *found[5:]])

        plain_fstat, plain_lstat = os.fstat, cache.Path.lstat
        if what == "file":
            monkeypatch.setattr(cache.os, "fstat", lambda number: owned_by_another(plain_fstat(number)))
        else:
            monkeypatch.setattr(cache.Path, "lstat", lambda path: owned_by_another(plain_lstat(path)))
    loaded = kernel()
    with pytest.warns(UserWarning, match="no compiled kernel is loaded from there") as found:
        assert loaded(1) == 2
    assert hits(loaded) == 0
    assert str(planted) in str(found[0].message)

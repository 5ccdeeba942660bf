"""Starting up: what is imported when, and compiled kernels that are kept, found again, and never mixed up."""

import ast
import ctypes
import importlib
import os
import subprocess
import sys
import types
from pathlib import Path

import numba
import numpy as np
import pytest
import torch
from numba import prange
from numba.core.registry import CPUDispatcher
from typer.testing import CliRunner

from warpfactor.cli import app, show, warmup
from warpfactor.kernels import numba as cpu
from warpfactor.kernels.numba._compile import cache, whole
from warpfactor.kernels.numba._compile.compilation import counted

SOURCE = "def double(x):\n    return 2 * x\n"
HEAVY = ("torch", "numba", "SimpleITK", "matplotlib")


def loaded_after(statement):
    """Which of the heavy packages a fresh process has loaded after a statement."""
    code = f"{statement}\nimport sys; print(*[name for name in {HEAVY} if name in sys.modules])"
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()


def test_importing_the_package_loads_nothing_heavy():
    assert loaded_after("import warpfactor") == []


def test_the_command_line_loads_nothing_heavy_before_a_command_runs():
    assert loaded_after("import warpfactor.cli.app") == []


def test_a_registration_loads_no_plotting():
    assert "matplotlib" not in loaded_after("import warpfactor; warpfactor.register; import warpfactor.register.api")


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Two empty folders as the package's and the user's cache, and nothing remembered of others."""
    found = types.SimpleNamespace(own=tmp_path / "package" / "__pycache__", user=tmp_path / "home" / "cache")
    monkeypatch.setattr(cache, "_own", found.own)
    monkeypatch.setattr(cache, "AppDirs", lambda *_: types.SimpleNamespace(user_cache_dir=str(found.user)))
    monkeypatch.setattr(cache.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    forget()
    yield found
    monkeypatch.undo()
    forget()


def forget():
    for function in (cache.folders, cache._warn_that_nothing_is_kept):
        function.cache_clear()


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """A function that makes a kernel anew, as a new process would."""
    path = tmp_path / "warpfactor_kernel_for_a_test.py"
    path.write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    module = __import__(path.stem)
    yield lambda: cache.kept(numba.njit)(module.double)
    del sys.modules[path.stem]


def hits(dispatcher):
    """How many signatures came from disk."""
    return sum(dispatcher.stats.cache_hits.values())


def files(folder):
    return sorted(folder.rglob(f"*{cache.SUFFIX}")) if folder.exists() else []


def block(folder):
    """Make it impossible to write a folder, for the superuser too."""
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


def test_the_users_cache_serves_where_the_package_is_read_only(places, kernel):
    block(places.own)
    assert kernel()(4) == 8
    assert len(files(places.user)) == 1
    again = kernel()
    again(4)
    assert hits(again) == 1


def test_a_package_that_was_prepared_needs_no_cache_of_the_user(places, kernel):
    kernel()(4)
    block(places.user)
    prepared = kernel()
    prepared(4)
    assert hits(prepared) == 1


def test_numbas_own_variable_wins(places, kernel, tmp_path, monkeypatch):
    kernel()(4)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "chosen"))
    forget()
    chosen = kernel()
    chosen(4)
    assert hits(chosen) == 0
    assert len(files(tmp_path / "chosen")) == len(files(places.own)) == 1


def test_without_a_home_a_private_folder_serves(places, kernel, tmp_path):
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


def test_other_sources_are_other_kernels(places, kernel, monkeypatch):
    kernel()(4)
    monkeypatch.setattr(cache, "IMPORTED", "changed" * 8)
    monkeypatch.setattr(cache, "digest", lambda: "changed" * 8)
    changed = kernel()
    changed(4)
    assert hits(changed) == 0
    assert len(files(places.own)) == 2


def test_a_kernel_is_not_kept_if_its_sources_changed_since_it_was_imported(places, kernel, monkeypatch):
    """Some modules may be of the old sources and some of the new ones: it belongs to neither."""
    early = kernel()
    monkeypatch.setattr(cache, "digest", lambda: "later" * 8)
    assert early(4) == 8
    assert not files(places.own)


MAKING = """
import sys
import numba, numpy as np
from warpfactor.kernels.numba._compile import cache
from warpfactor.kernels.numba._compile.jit import LOOSE

def total(n):
    return np.ones(n, np.float32).sum()

kernel = cache.kept(numba.njit(**LOOSE))(total)
print(kernel(5), sum(kernel.stats.cache_hits.values()), "numba.np.arrayobj" in sys.modules)
try:
    kernel(-1)
except ValueError as error:
    print(error)
"""


def test_a_kept_kernel_is_loaded_without_the_compiler(tmp_path):
    """And still says what is wrong as one that was just compiled does."""
    (tmp_path / "making.py").write_text(MAKING)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "kernels")}
    command = [sys.executable, str(tmp_path / "making.py")]
    found = [subprocess.run(command, check=True, capture_output=True, text=True, env=environment) for _ in range(2)]
    first, second = (done.stdout.splitlines() for done in found)
    assert first == ["5.0 0 True", "negative dimensions not allowed"]
    assert second == ["5.0 1 False", "negative dimensions not allowed"]


def test_checked_kernels_are_others(places, kernel, monkeypatch):
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


WRITE_OFTEN = """
import importlib.util, pathlib, sys
found = importlib.util.spec_from_file_location("cache", sys.argv[1])
cache = importlib.util.module_from_spec(found)
found.loader.exec_module(cache)
for _ in range(40):
    assert cache._write(pathlib.Path(sys.argv[2]), sys.argv[3].encode() * 200_000)
"""


def test_processes_that_write_at_once_leave_a_whole_file(tmp_path):
    path = tmp_path / f"lncc.f-{'0' * 16}-{'0' * 16}{cache.SUFFIX}"
    command = [sys.executable, "-c", WRITE_OFTEN, cache.__file__, path]
    writers = [subprocess.Popen([*command, letter]) for letter in "abc"]
    seen, torn = set(), 0
    while any(writer.poll() is None for writer in writers):
        there, payload = path.exists(), cache._read(path)
        torn += there and payload is None
        seen.add(payload)
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert not torn
    assert seen - {None} <= {letter * 200_000 for letter in (b"a", b"b", b"c")}
    assert len(seen - {None}) > 0
    assert list(tmp_path.iterdir()) == [path]


def test_a_numba_we_do_not_know_keeps_kernels_its_own_way():
    asked = []
    stranger = types.SimpleNamespace(enable_caching=lambda: asked.append(True))
    assert cache.kept(lambda _: stranger)(len) is stranger
    assert asked == [True]


def test_a_disabled_compiler_leaves_functions_alone():
    assert cache.kept(lambda function: function)(len) is len


def test_compiling_is_told_once(capsys):
    def compile_one():
        numba.njit(lambda x: x + 1)(1)

    show.announce_compilation(quiet=False)
    compile_one()
    compile_one()
    assert capsys.readouterr().err.count("compiling") == 1
    show.announce_compilation(quiet=False)
    show.announce_compilation(quiet=True)
    compile_one()
    assert not capsys.readouterr().err


def test_compilations_are_counted():
    inner = numba.njit(lambda x: x + 1)
    outer = numba.njit(lambda x: inner(x) + 1)
    with counted() as found:
        outer(1)
        outer(2)
    assert found.count == 1
    assert found.seconds > 0


def decorated(name):
    """The kernels that a decorator of jit.py has made, by what their sources say."""
    for path in sorted(Path(cpu.__file__).parent.glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and name in [getattr(d, "id", "") for d in node.decorator_list]:
                yield getattr(importlib.import_module(f"{cpu.__name__}.{path.stem}"), node.name)


def test_every_kernel_has_the_options_of_its_decorator():
    """Numba keeps one dictionary of options for all kernels of a decorator, and must not change it."""
    loops, parts = list(decorated("parallel")), list(decorated("serial"))
    assert len(loops) > 10
    assert len(parts) > 10
    for kernel in loops:
        assert kernel.targetoptions["parallel"] is True, kernel
    for kernel in (*loops, *parts):
        assert kernel.targetoptions["fastmath"] == {"contract", "nsz", "arcp", "reassoc", "afn"}, kernel
        assert kernel.targetoptions["error_model"] == "numpy", kernel
    assert not any(kernel.targetoptions.get("parallel") for kernel in parts)


@numba.njit(**whole.PART)
def third(x):
    if x < 0:
        raise ValueError("below zero")
    return x / 3


def thirds(values, out):
    third(values[0])
    for i in prange(values.shape[0]):
        out[i] = third(values[i])


known = pytest.mark.skipif(not whole.is_known, reason="another Numba, which compiles its own way")


@known
def test_a_kernel_compiled_as_a_whole_is_the_same():
    values = np.linspace(0, 5, 1000)
    plain, once = np.empty_like(values), np.empty_like(values)
    numba.njit(parallel=True)(thirds)(values, plain)
    kernel = numba.njit(parallel=True, **whole.KERNEL)(thirds)
    kernel(values, once)
    np.testing.assert_array_equal(once, plain)
    with pytest.raises(ValueError, match="below zero"):  # errors come from inside the parts
        kernel(-values - 1, once)


@known
def test_only_the_kernel_itself_becomes_machine_code(monkeypatch):
    finished = []
    finish = whole.JITCodeLibrary._finalize_specific
    monkeypatch.setattr(
        whole.JITCodeLibrary, "_finalize_specific", lambda self: (finished.append(self.name), finish(self))[1]
    )
    numba.njit(parallel=True, **whole.KERNEL)(thirds)(np.ones(4), np.ones(4))
    assert finished == ["thirds"]


@known
def test_a_part_is_finished_when_somebody_wants_to_call_it():
    library = whole.Part(numba.njit(lambda x: x).targetctx.codegen(), "part")
    library.add_llvm_module(whole.parse_assembly("define i32 @warpfactor_seven() { ret i32 7 }"))
    with numba.core.compiler_lock.global_compiler_lock:
        assert library.get_pointer_to_function("absent") == 0
        address = library.get_pointer_to_function("warpfactor_seven")
    assert ctypes.CFUNCTYPE(ctypes.c_int32)(address)() == 7


@known
@pytest.mark.parametrize("compiled", [False, True])
def test_a_part_called_from_python_is_an_error_and_no_crash(compiled):
    part = numba.njit(**whole.PART)(third.py_func)
    if compiled:
        numba.njit(**whole.KERNEL)(lambda x: part(x))(6.0)
    with pytest.raises(SystemError):
        part(6.0)


def test_ordinary_kernels_can_use_parts():
    """What was left unfinished in one kernel is finished in another, made by Numba alone."""
    assert numba.njit(lambda x: third(x) + 1)(6.0) == 3.0


def test_warmup_says_at_once_what_it_does(monkeypatch):
    monkeypatch.setattr(warmup, "parts", lambda: [("a part", lambda: None)])
    told = CliRunner().invoke(app.app, ["warmup"], catch_exceptions=False).stdout.splitlines()
    assert "every kernel" in told[0]
    assert told[1].startswith("a part")
    assert CliRunner().invoke(app.app, ["warmup", "--quiet"], catch_exceptions=False).stdout == ""


def test_warmup_uses_every_kernel():
    done = CliRunner().invoke(app.app, ["warmup"], catch_exceptions=False)
    assert done.exit_code == 0
    assert "multimodal" in done.stdout
    assert "are kept in" in done.stdout
    modules = [module for name, module in sys.modules.items() if name.startswith("warpfactor.kernels.numba.")]
    kernels = {v for m in modules for v in vars(m).values() if isinstance(v, CPUDispatcher)}
    idle = [k.py_func.__name__ for k in kernels if k.targetoptions.get("parallel") and not k.signatures]
    assert not idle


def test_warmup_compiles_nothing_twice():
    list(warmup.compile_all())
    with counted() as found:
        list(warmup.compile_all())
    assert found.count == 0


def test_info_tells_where_kernels_are():
    cpu.jacobian_determinant(torch.zeros(3, 4, 4, 4))
    told = CliRunner().invoke(app.app, ["info"], catch_exceptions=False).stdout
    assert str(cache.folders()[0]) in told

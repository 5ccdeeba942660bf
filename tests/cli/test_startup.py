"""Starting up: what is imported when, the message of a first run, and `warpfactor warmup`."""

import subprocess
import sys

import numba
import torch
from numba.core.registry import CPUDispatcher

from commands import run
from warpfactor.cli import terminal, warmup
from warpfactor.kernels import numba as cpu
from warpfactor.kernels.numba._compile import cache
from warpfactor.kernels.numba._compile.compilation import counted
from warpfactor.registration import ahead

HEAVY = ("numpy", "torch", "numba", "SimpleITK", "matplotlib")
HELP = "import contextlib, io, warpfactor.cli.app as cli\nwith contextlib.suppress(SystemExit), "
HELP += "contextlib.redirect_stdout(io.StringIO()): cli.main(['register', '--help'])"


def loaded_after(statement):
    """Which of the heavy packages a fresh process has loaded after a statement."""
    code = f"{statement}\nimport sys; print(*[name for name in {HEAVY} if name in sys.modules])"
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()


def test_importing_the_package_loads_nothing_heavy():
    assert loaded_after("import warpfactor") == []


def test_help_loads_nothing_heavy():
    assert loaded_after(HELP) == []


def test_a_registration_loads_no_plotting():
    assert "matplotlib" not in loaded_after("import warpfactor.registration.run")


def test_compiling_is_told_once(capsys):
    def compile_one():
        numba.njit(lambda x: x + 1)(1)

    terminal.announce_compilation(quiet=False)
    compile_one()
    compile_one()
    assert capsys.readouterr().err.count("Compiling") == 1
    terminal.announce_compilation(quiet=False)
    terminal.announce_compilation(quiet=True)
    compile_one()
    assert not capsys.readouterr().err


def test_warmup_says_at_once_what_it_does(monkeypatch):
    monkeypatch.setattr(warmup, "parts", lambda: [("a part", lambda: None)])
    monkeypatch.setattr(ahead, "mark_compiled", lambda: None)
    told = run("warmup").stdout.splitlines()
    assert "every kernel" in told[0]
    assert told[1].startswith("a part")
    assert run("warmup", "--quiet").stdout == ""


def test_warmup_uses_every_kernel_and_compiles_none_twice():
    done = run("warmup")
    assert "multimodal" in done.stdout
    assert "are stored in" in done.stdout
    modules = [module for name, module in sys.modules.items() if name.startswith("warpfactor.kernels.numba.")]
    kernels = {v for m in modules for v in vars(m).values() if isinstance(v, CPUDispatcher)}
    idle = [k.py_func.__name__ for k in kernels if k.targetoptions.get("parallel") and not k.signatures]
    assert not idle
    with counted() as found:
        for _, part in warmup.parts()[::4]:
            part()
    assert found.count == 0


def test_info_tells_where_kernels_are():
    cpu.jacobian_determinant(torch.zeros(3, 4, 4, 4))
    assert str(cache.folders()[0]) in run("info").stdout

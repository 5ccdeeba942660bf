"""Kernels are compiled before a run with a limit of memory, by a process that ends before images are read.

Compiling takes memory that has nothing to do with the images, and LLVM keeps it. When `warpfactor warmup` has run all
kernels, it leaves a note in the folder where they are stored; without that note it is run first, in another process.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

COMPILING = 400e6  # bytes that a process takes more when it compiles kernels itself
SUFFIX = ".complete"


def compile_ahead() -> None:
    """Have all kernels compiled and stored, unless they are. If they cannot be stored, nothing has changed."""
    if are_compiled() or not sys.executable:
        return
    from numba.core import event

    from warpfactor.kernels.numba._compile.compilation import EVENT

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with suppress(OSError), event.trigger_event(EVENT):  # whoever waits for compilations to begin is told
        subprocess.run(
            [sys.executable, "-m", "warpfactor", "warmup", "--quiet"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )


def compiling_bytes() -> float:
    """Memory that compiling will take in this process: none if all kernels are stored."""
    return 0.0 if are_compiled() else COMPILING


def are_compiled() -> bool:
    """Whether all kernels are stored for this processor, so that this process will compile none."""
    return any(note.exists() for note in _notes())


def mark_compiled() -> None:
    """Note that all kernels are stored, in the first folder that can be written."""
    for note in _notes():
        with suppress(OSError):
            note.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            note.touch(mode=0o644)
            return


def _notes() -> list[Path]:
    """Where the note may be; its name has what machine code depends on."""
    from numba.core.registry import cpu_target

    from warpfactor.kernels.numba._compile.cache import folders
    from warpfactor.kernels.numba._compile.digest import IMPORTED

    processor = cpu_target.target_context.codegen().magic_tuple()
    variant = hashlib.sha256(f"{processor} {importlib.metadata.version('llvmlite')}".encode()).hexdigest()[:16]
    return [folder / f"all-{IMPORTED[:16]}-{variant}{SUFFIX}" for folder in folders()]

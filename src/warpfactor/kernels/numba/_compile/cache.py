"""Compiled kernels on disk: a file per kernel, signature and processor, found again while its sources stay the same.

Numba's own cache has an index per kernel that two processes can overwrite for each other, and it does not notice when
a kernel of another file that was compiled into this one has changed. Here nothing is shared: the name of a file says
all that its content depends on, it appears whole or not at all, and whoever writes it writes the same.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import pickle
import stat
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core.compiler import CompileResult
from numba.core.runtime.nrt import rtsys
from numba.core.serialize import dumps
from numba.misc.appdirs import AppDirs

from warpfactor import __version__
from warpfactor.kernels.numba._compile.digest import IMPORTED, are_steady, digest

SUFFIX = ".kernel"
OUTDATED_SECONDS = 7 * 24 * 3600  # when files of other sources are removed; two checkouts may share a folder
_DIGEST = hashlib.sha256().digest_size
_own = Path(__file__).parent / "__pycache__"


class KernelCache:
    """What Numba asks of the cache of one kernel."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._module, self._name = function.__module__, function.__qualname__

    @property
    def cache_path(self) -> str:
        return str(folders()[0])

    def load_overload(self, signature: Any, target: Any) -> Any:
        """The compiled kernel, or None if no folder has it or nobody knows which sources it should be of."""
        if not are_steady():
            return None
        rtsys.initialize(target)  # all that loading needs; a refresh imports what a compiler needs, for half a second
        name = self._file_name(signature, target.codegen())
        for folder in folders():
            payload = _read(folder / name)
            if payload is not None:
                return CompileResult._rebuild(target, *pickle.loads(payload))
        return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keep a compiled kernel in the first folder that takes it.

        Not if the sources have changed: some modules may have been imported before, others after that.
        """
        if compiled.lifted or compiled.library.has_dynamic_globals or not are_steady() or digest() != IMPORTED:
            return
        *parts, environments = compiled._reduce()
        # One without constants is never looked at, and loading it imports what a compiler needs, for a quarter second.
        payload = dumps((*parts, tuple(each for each in environments if each.consts)))
        name = self._file_name(signature, compiled.codegen)
        if not any(_write(folder / name, payload) for folder in folders()):
            _warn_that_nothing_is_kept()

    def flush(self) -> None:
        """Nothing: files of other sources are never read."""

    def _file_name(self, signature: Any, codegen: Any) -> str:
        seen = f"{signature} {codegen.magic_tuple()} {importlib.metadata.version('llvmlite')} {_options()}"
        call = hashlib.sha256(seen.encode()).hexdigest()[:16]
        return f"{self._module.rpartition('.')[2]}.{self._name}-{IMPORTED[:16]}-{call}{SUFFIX}"


def _options() -> list[Any]:
    """What the user can tell Numba that changes the code it makes."""
    return [vars(numba.config).get(name) for name in ("BOUNDSCHECK", "OPT", "DEBUGINFO_DEFAULT")]


def kept(decorator: Callable[..., Any]) -> Callable[..., Any]:
    """A Numba decorator whose kernels are kept on disk."""

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = decorator(function)
        if hasattr(CompileResult, "_reduce") and hasattr(CompileResult, "_rebuild") and hasattr(dispatcher, "_cache"):
            dispatcher._cache = KernelCache(function)
        elif hasattr(dispatcher, "enable_caching"):  # a Numba we do not know; with its JIT disabled there is neither
            dispatcher.enable_caching()
        return dispatcher

    return decorate


@functools.cache
def folders() -> tuple[Path, ...]:
    """Where kernels are looked for, in order; they are written to the first that takes them.

    The folder that the user gave to Numba is the only one. Else the package's own, which can be filled when an image or
    a shared installation is made and may be read-only afterwards; the user's cache; a private folder for temporary
    files.
    """
    given = vars(numba.config)["CACHE_DIR"]
    tag = f"warpfactor-{__version__}-{sys.implementation.cache_tag}-numba-{numba.__version__}"
    if given:
        return (Path(given).absolute() / tag,)
    user = Path(AppDirs("warpfactor", False).user_cache_dir)
    places = [_own, user] if user.is_absolute() else [_own]  # it is relative for a user without a home
    if not any(_takes_files(place) for place in places):
        places += _private_folders()
    return tuple(place / tag for place in places)


def holdings() -> dict[Path, int]:
    """How many kernels each folder has that can still be used."""
    pattern = f"*-{IMPORTED[:16]}-*{SUFFIX}"
    return {folder: len(list(folder.glob(pattern))) if are_steady() else 0 for folder in folders()}


def _read(path: Path) -> bytes | None:
    """What `_write` wrote; None if it is not there or not whole."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, payload = content[:_DIGEST], content[_DIGEST:]
    return payload if hashlib.sha256(payload).digest() == digest else None


def _write(path: Path, payload: bytes) -> bool:
    """Whether the file could be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
    except OSError:
        return False
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(hashlib.sha256(payload).digest() + payload)
        temporary.chmod(0o644)  # others may read what an administrator compiled for them
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        return False
    _remove_outdated(path)
    return True


def _remove_outdated(path: Path) -> None:
    """Remove old files of the same kernel that come from other sources."""
    kernel, sources, _ = path.name.rsplit("-", 2)
    for other in path.parent.glob(f"{kernel}-*{SUFFIX}"):
        try:
            if other.name.rsplit("-", 2)[1] != sources and time.time() - other.stat().st_mtime > OUTDATED_SECONDS:
                other.unlink()
        except OSError:  # another process was faster
            continue


def _takes_files(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _private_folders() -> list[Path]:
    """One folder for temporary files, if there is one that nobody else can write to; code is loaded from it."""
    if not hasattr(os, "getuid"):  # Windows: the user's cache can always be written
        return []
    folder = Path(tempfile.gettempdir()) / f"warpfactor-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return []
    private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return [folder] if private else []


@functools.cache
def _warn_that_nothing_is_kept() -> None:
    warnings.warn(
        "The compiled kernels cannot be kept, so every run compiles them again; "
        "give a writable folder in the variable NUMBA_CACHE_DIR.",
        UserWarning,
        stacklevel=2,
    )

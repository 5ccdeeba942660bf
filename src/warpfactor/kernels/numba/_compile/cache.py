"""Compiled kernels on disk: one file per kernel, signature and processor, valid as long as its sources do not change.

Numba's own cache has an index file per kernel that two processes can overwrite for each other, and it does not notice
changes in other source files of which parts were compiled into the kernel. Here nothing is shared: the name of a file
contains a digest of everything its content depends on, the content has a checksum, and the file is renamed into place,
so that it is either complete or absent.

This uses `CompileResult._reduce` and `_rebuild`, and replaces a dispatcher's `_cache`, as Numba's own cache does in
versions 0.60 to 0.68. With a Numba that lacks them, kernels are stored in Numba's own cache.
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
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba
from numba.core.compiler import CompileResult
from numba.core.runtime.nrt import rtsys
from numba.core.serialize import dumps
from numba.misc.appdirs import AppDirs

from warpfactor import __version__
from warpfactor.kernels.numba._compile.digest import IMPORTED, source_digest, sources_are_unchanged

SUFFIX = ".kernel"
OUTDATED_SECONDS = 7 * 24 * 3600  # age at which files of other sources are removed; two checkouts may share a folder
NUMBA_HAS_OUR_HOOKS = hasattr(CompileResult, "_reduce") and hasattr(CompileResult, "_rebuild")
_UNFINISHED, _ABANDONED_SECONDS = "unfinished-", 600
_CHECKSUM = hashlib.sha256().digest_size
_package_folder = Path(__file__).parent / "__pycache__"


class KernelCache:
    """The cache of one kernel, with the methods that Numba calls."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._module, self._name = function.__module__, function.__qualname__

    @property
    def cache_path(self) -> str:
        return str(folders()[0])

    def load_overload(self, signature: Any, target: Any) -> Any:
        """The compiled kernel; None if no folder has it, or if the sources changed while they were imported."""
        if not sources_are_unchanged():
            return None
        # Loading needs no more than this. Refreshing the target, as Numba does, imports the compiler (half a second).
        rtsys.initialize(target)
        name = self._file_name(signature, target.codegen())
        for folder in folders():
            payload = _read(folder / name) if _is_trusted(folder) else None
            if payload is not None:
                return CompileResult._rebuild(target, *pickle.loads(payload))
        return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Store a compiled kernel in the first folder that can be written.

        Nothing is stored if the sources have changed since they were imported: the kernel may contain parts of both.
        """
        if compiled.lifted or compiled.library.has_dynamic_globals:
            return
        if not sources_are_unchanged() or source_digest() != IMPORTED:
            return
        *parts, environments = compiled._reduce()
        # An environment without constants is never used, and loading one imports the compiler (a quarter of a second).
        payload = dumps((*parts, tuple(each for each in environments if each.consts)))
        name = self._file_name(signature, compiled.codegen)
        if not any(_is_trusted(folder) and _write(folder / name, payload) for folder in folders()):
            _warn_that_nothing_is_stored()

    def flush(self) -> None:
        """Do nothing: files of other sources are never read."""

    def _file_name(self, signature: Any, codegen: Any) -> str:
        variant = f"{signature} {codegen.magic_tuple()} {importlib.metadata.version('llvmlite')} {_numba_options()}"
        digest = hashlib.sha256(variant.encode()).hexdigest()[:16]
        return f"{self._module.rpartition('.')[2]}.{self._name}-{IMPORTED[:16]}-{digest}{SUFFIX}"


def _numba_options() -> list[Any]:
    """The settings of Numba that a user can change and that change the machine code."""
    return [vars(numba.config).get(name) for name in ("BOUNDSCHECK", "OPT", "DEBUGINFO_DEFAULT")]


def cached(decorator: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator of Numba, changed so that its kernels are stored on disk."""

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = decorator(function)
        if not hasattr(dispatcher, "enable_caching"):  # with NUMBA_DISABLE_JIT it is the function itself
            return dispatcher
        if NUMBA_HAS_OUR_HOOKS and hasattr(dispatcher, "_cache"):
            dispatcher._cache = KernelCache(function)
        else:
            dispatcher.enable_caching()
        return dispatcher

    return decorate


@functools.cache
def folders() -> tuple[Path, ...]:
    """The folders in which kernels are searched, in order; they are stored in the first that can be written.

    If NUMBA_CACHE_DIR is set, it is the only one. Otherwise these are the package's own folder, which can be filled
    when a container image or a shared installation is made and may be read-only afterwards; the user's cache; and, if
    neither can be written, a private folder for temporary files.
    """
    given = vars(numba.config)["CACHE_DIR"]
    versions = f"warpfactor-{__version__}-{sys.implementation.cache_tag}-numba-{numba.__version__}"
    if given:
        return (Path(given).absolute() / versions,)
    user = Path(AppDirs("warpfactor", False).user_cache_dir)
    places = [_package_folder]
    if user.is_absolute():  # it is relative for a user without a home folder
        places.append(user)
    if not any(_is_writable(place) for place in places):
        places += _private_folders()
    return tuple(place / versions for place in places)


def holdings() -> dict[Path, int]:
    """For every folder, the number of stored kernels that this process can use."""
    pattern = f"*-{IMPORTED[:16]}-*{SUFFIX}"
    return {folder: len(list(folder.glob(pattern))) if sources_are_unchanged() else 0 for folder in folders()}


def _read(path: Path) -> bytes | None:
    """The payload that `_write` has written; None if the file is absent, damaged or not trusted."""
    try:
        with path.open("rb") as stream:
            if not _is_ours(os.fstat(stream.fileno()), path):
                return None
            content = stream.read()
    except OSError:
        return None
    checksum, payload = content[:_CHECKSUM], content[_CHECKSUM:]
    return payload if hashlib.sha256(payload).digest() == checksum else None


def _write(path: Path, payload: bytes) -> bool:
    """Write checksum and payload to a temporary file and rename it; returns whether that was possible."""
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)  # only the user writes, whatever the umask
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=_UNFINISHED)
    except OSError:
        return False
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(hashlib.sha256(payload).digest() + payload)
        temporary.chmod(0o644)  # other users may read what an administrator has compiled for them
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        return False
    _remove_outdated(path)
    _remove_abandoned(path.parent)
    return True


def _remove_outdated(path: Path) -> None:
    """Remove old files of the same kernel that were compiled from other sources."""
    kernel, sources, _ = path.name.rsplit("-", 2)
    for other in path.parent.glob(f"{kernel}-*{SUFFIX}"):
        try:
            if other.name.rsplit("-", 2)[1] != sources and time.time() - other.stat().st_mtime > OUTDATED_SECONDS:
                other.unlink()
        except OSError:  # another process has removed it
            continue


def _remove_abandoned(folder: Path) -> None:
    """Remove what processes left that were killed while they wrote; nobody writes for that long."""
    for other in folder.glob(f"{_UNFINISHED}*"):
        with suppress(OSError):  # another process has removed it
            if time.time() - other.stat().st_mtime > _ABANDONED_SECONDS:
                other.unlink()


def _is_trusted(folder: Path) -> bool:
    """Whether only this user and the superuser can have put files into a folder; one that is absent will be made so.

    Compiled kernels are code. Whoever can write to their folder could have it run by this user.
    """
    try:
        found = folder.lstat()
    except OSError:
        return True
    return _is_ours(found, folder)


def _is_ours(found: os.stat_result, path: Path) -> bool:
    """Whether a file or folder belongs to this user or the superuser and nobody else can write to it; else warn."""
    if not hasattr(os, "getuid"):  # on Windows the user's cache is private
        return True
    if found.st_uid not in (os.getuid(), 0):
        _warn_of_stranger(path, f"belongs to another user ({found.st_uid})")
        return False
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        _warn_of_stranger(path, f"can be written by other users (mode {stat.S_IMODE(found.st_mode):o})")
        return False
    return True


@functools.cache
def _warn_of_stranger(path: Path, reason: str) -> None:
    warnings.warn(
        f"{path}: {reason}, so no compiled kernel is loaded from there; remove it, or give it permissions by which "
        "only you can write to it.",
        UserWarning,
        stacklevel=2,
    )


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _private_folders() -> list[Path]:
    """A folder among the system's temporary files, unless other users can write to it: code is loaded from there."""
    if not hasattr(os, "getuid"):  # on Windows the user's cache can always be written
        return []
    folder = Path(tempfile.gettempdir()) / f"warpfactor-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return []
    is_private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return [folder] if is_private else []


@functools.cache
def _warn_that_nothing_is_stored() -> None:
    warnings.warn(
        "The compiled kernels cannot be stored, so every run compiles them again; "
        "set the environment variable NUMBA_CACHE_DIR to a folder that can be written.",
        UserWarning,
        stacklevel=2,
    )

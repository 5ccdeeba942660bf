"""Which backends have passed their check on which device, kept in the user's cache.

What passed is forgotten when the kernels or PyTorch change.
"""

from __future__ import annotations

import hashlib
import json
import platform
import time
from pathlib import Path
from typing import Any

import torch
from numba.misc.appdirs import AppDirs

from warpfactor import kernels
from warpfactor.errors import FileError, Notice
from warpfactor.io.atomic import atomic_path
from warpfactor.io.jsontext import json_text

UNVERIFIED_DEVICE = "unverified_device"
FILE = "devices.json"


def device_title(device: torch.device) -> str:
    """The device as its maker calls it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return platform.processor() or platform.machine()


def record_path() -> Path:
    """The file in which passed checks are kept."""
    folders: Any = AppDirs
    return Path(folders("warpfactor", False).user_cache_dir).absolute() / FILE


def keep(device: torch.device, backend: str) -> bool:
    """Keep that a backend has passed on a device; returns whether that was possible."""
    entries = {**_entries(), _key(device, backend): {"passed": time.strftime("%Y-%m-%d %H:%M:%S")}}
    try:
        with atomic_path(record_path(), force=True) as path:
            path.write_text(json_text(entries), encoding="utf-8")
    except FileError:
        return False
    return True


def is_verified(device: torch.device, backend: str) -> bool:
    """Whether these kernels have passed on this device."""
    return _key(device, backend) in _entries()


def unverified(device: torch.device, backend: str) -> tuple[Notice, ...]:
    """A notice if a run on this device cannot rely on a check; the CPU's kernels are checked by our own tests."""
    if device.type == "cpu" or is_verified(device, backend):
        return ()
    return (Notice(UNVERIFIED_DEVICE, {"device": device.type, "title": device_title(device), "backend": backend}),)


def _entries() -> dict[str, Any]:
    try:
        found = json.loads(record_path().read_text(encoding="utf-8"))
    except (OSError, ValueError):  # none yet, or damaged
        return {}
    return found if isinstance(found, dict) else {}


def _key(device: torch.device, backend: str) -> str:
    return f"{backend} on {device_title(device)}, torch {torch.__version__}, kernels {_kernels_digest()}"


def _kernels_digest() -> str:
    """The first digits of a SHA-256 over the sources of all kernels."""
    folder, found = Path(kernels.__file__).parent, hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]

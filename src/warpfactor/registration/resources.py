"""The resources of a run: threads, random numbers, time, memory, versions."""

from __future__ import annotations

import importlib.metadata
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numba
import torch

from warpfactor import __version__
from warpfactor.errors import InputError
from warpfactor.memory import peak_bytes
from warpfactor.processes import is_forked

_PACKAGES = ("torch", "numba", "numpy", "SimpleITK")


class Clock:
    """Seconds by part of a run."""

    def __init__(self) -> None:
        self._began = self._last = time.perf_counter()
        self.seconds: dict[str, float] = {}

    def lap(self, part: str) -> None:
        """Add the time since the last lap to `part`."""
        now = time.perf_counter()
        self.seconds[part] = self.seconds.get(part, 0.0) + now - self._last
        self._last = now

    def with_total(self) -> dict[str, float]:
        """The seconds by part, and in total."""
        return {**self.seconds, "total": time.perf_counter() - self._began}


@contextmanager
def limited_threads(threads: int | None) -> Iterator[int]:
    """Limit the number of threads inside the block to `threads`, and yield the number in use."""
    before, before_torch = _numba_threads(), torch.get_num_threads()
    most: int = vars(numba.config)["NUMBA_NUM_THREADS"]
    if threads is not None and threads < 1:
        raise InputError(f"The number of threads must be at least 1, not {threads}.")
    try:
        if threads is not None:
            numba.set_num_threads(min(threads, most))
            if not is_forked():  # a forked child has no more than one of PyTorch's threads
                torch.set_num_threads(min(threads, most))
        yield numba.get_num_threads()
    finally:
        numba.set_num_threads(before)
        torch.set_num_threads(before_torch)


def _numba_threads() -> int:
    """The number of Numba's threads, which this starts; InputError if the layer that was asked for is absent."""
    try:
        return int(numba.get_num_threads())
    except ValueError as error:
        layer: str = vars(numba.config)["THREADING_LAYER"]
        raise InputError(
            f"Numba cannot use the threading layer {layer!r} that NUMBA_THREADING_LAYER asks for; install it, or unset "
            "that variable."
        ) from error


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed PyTorch's random numbers inside the block; the generator outside is not affected."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def named_device(name: str | torch.device) -> torch.device:
    """The device of that name, whether it is there or not; InputError if there is no such kind of device."""
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise InputError(f"Device {str(name)!r} is unknown; use cpu, cuda, mps or, for instance, cuda:1.") from error


def checked_device(name: str | torch.device) -> torch.device:
    """The device; InputError if it is not available."""
    device = named_device(name)
    try:
        torch.empty(0, device=device)
    except NotImplementedError as error:  # its message has 1500 letters
        raise InputError(_unusable(device, "this PyTorch was built without it")) from error
    except (RuntimeError, AssertionError) as error:  # an assertion if PyTorch was built without CUDA
        raise InputError(_unusable(device, str(error).partition("\n")[0])) from error
    return device


def _unusable(device: torch.device, reason: str) -> str:
    return f"Device {str(device)!r} cannot be used here ({reason}); `warpfactor info` lists the devices."


def peak_memory_mb() -> float | None:
    """Peak memory of the process so far; None where the system does not report it."""
    peak = peak_bytes()
    return None if peak is None else peak / (1 << 20)


def versions() -> dict[str, str]:
    """Versions of this package and of everything that can change its numbers."""
    found = {"warpfactor": __version__, "python": platform.python_version(), "system": platform.platform()}
    return found | {package: importlib.metadata.version(package) for package in _PACKAGES}

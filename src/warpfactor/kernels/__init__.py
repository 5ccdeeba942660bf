"""The backends: who can do the operations of `Ops`, and on which device.

`select` is called by entry points only (`register`, the methods of a transform, a command); everything below them gets
the backend as an argument and passes it on. A new backend is a package with the functions of `Ops` and one line in
`BACKENDS`, or an object given to `add_backend`.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch

from warpfactor.errors import InputError
from warpfactor.kernels.ops import Ops, Tally

if TYPE_CHECKING:  # all backends keep to the protocol, as far as types can say
    from warpfactor.kernels import numba, reference, triton

    _numba: Ops = numba
    _reference: Ops = reference
    _triton: Ops = triton


@dataclass(frozen=True)
class Backend:
    """A backend that can be chosen by its name.

    Attributes:
        name: as users write it and results record it.
        devices: types of the devices it runs on, such as "cpu" or "cuda"; none means any.
        load: returns the operations; called when the backend is first used.
        needs: a package that must be installed besides those that warpfactor brings; empty if there is none.
        half: whether its operations take images of half precision.
    """

    name: str
    devices: tuple[str, ...]
    load: Callable[[], Ops]
    needs: str = ""
    half: bool = False

    def runs_on(self, device: torch.device) -> bool:
        return not self.devices or device.type in self.devices

    def is_installed(self) -> bool:
        """Whether the package it needs is there; nothing is imported."""
        return not self.needs or importlib.util.find_spec(self.needs) is not None


def _module(name: str) -> Callable[[], Ops]:
    return lambda: cast(Ops, importlib.import_module(f"warpfactor.kernels.{name}"))


# In the order in which "auto" asks them.
BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend("numba", ("cpu",), _module("numba")),
        Backend("triton", ("cuda",), _module("triton"), needs="triton", half=True),
        Backend("reference", (), _module("reference"), half=True),
    )
}


def add_backend(backend: Backend) -> None:
    """Make a backend available under its name; "auto" does not choose it."""
    BACKENDS[backend.name] = backend


def choose(device: str | torch.device = "cpu", name: str | Backend = "auto") -> Backend:
    """The backend of that name; "auto" is the first that runs on the device and is installed; a Backend is itself."""
    place = torch.device(device)
    if isinstance(name, Backend):
        return name
    if name == "auto":
        return next(each for each in BACKENDS.values() if each.runs_on(place) and each.is_installed())
    if name not in BACKENDS:
        raise InputError(f"Unknown backend {name!r}; use one of auto, {', '.join(BACKENDS)}.")
    backend = BACKENDS[name]
    if not backend.runs_on(place):
        raise InputError(
            f"Backend {name!r} runs on {', '.join(backend.devices)}, not on {device}; "
            "choose another device, or backend 'reference', which runs on any."
        )
    if not backend.is_installed():
        raise InputError(
            f"Backend {name!r} needs the package {backend.needs}, which is not installed; install it, or choose "
            "backend 'reference', which runs on any device."
        )
    return backend


def select(device: str | torch.device = "cpu", name: str = "auto") -> Ops:
    """The operations of a backend on a device."""
    return choose(device, name).load()


__all__ = ["BACKENDS", "Backend", "Ops", "Tally", "add_backend", "choose", "select"]

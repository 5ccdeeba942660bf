"""The backends: who can do the operations of `Ops`, and on which device.

`select` is called by entry points only (`register`, the methods of a transform, a command); everything below them gets
the backend as an argument and passes it on. A new backend is a package with the functions of `Ops` and one line in
`BACKENDS`, or an object given to `add_backend`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch

from warpfactor.errors import InputError
from warpfactor.kernels.ops import Ops, Tally

if TYPE_CHECKING:  # both backends keep to the protocol, as far as types can say
    from warpfactor.kernels import numba, reference

    _numba: Ops = numba
    _reference: Ops = reference


@dataclass(frozen=True)
class Backend:
    """A backend that can be chosen by its name.

    Attributes:
        name: as users write it and results record it.
        devices: types of the devices it runs on, such as "cpu" or "cuda"; none means any.
        load: returns the operations; called when the backend is first used.
    """

    name: str
    devices: tuple[str, ...]
    load: Callable[[], Ops]

    def runs_on(self, device: torch.device) -> bool:
        return not self.devices or device.type in self.devices


def _module(name: str) -> Callable[[], Ops]:
    return lambda: cast(Ops, importlib.import_module(f"warpfactor.kernels.{name}"))


# In the order in which "auto" asks them.
BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend("numba", ("cpu",), _module("numba")),
        Backend("reference", (), _module("reference")),
    )
}


def add_backend(backend: Backend) -> None:
    """Make a backend available under its name; "auto" does not choose it."""
    BACKENDS[backend.name] = backend


def choose(device: str | torch.device = "cpu", name: str = "auto") -> Backend:
    """The backend of that name; "auto" is the first that runs on the device."""
    place = torch.device(device)
    if name == "auto":
        return next(backend for backend in BACKENDS.values() if backend.runs_on(place))
    if name not in BACKENDS:
        raise InputError(f"Unknown backend {name!r}; use one of auto, {', '.join(BACKENDS)}.")
    backend = BACKENDS[name]
    if not backend.runs_on(place):
        raise InputError(
            f"Backend {name!r} runs on {', '.join(backend.devices)}, not on {device}; "
            "choose another device, or backend 'reference', which runs on any."
        )
    return backend


def select(device: str | torch.device = "cpu", name: str = "auto") -> Ops:
    """The operations of a backend on a device."""
    return choose(device, name).load()


__all__ = ["BACKENDS", "Backend", "Ops", "Tally", "add_backend", "choose", "select"]

"""One function per operation, in two forms: `reference` (plain PyTorch: the definition) and `numba` (the CPU).

`select` is the only place that chooses between them; callers hold the module it returns and pass it down.
"""

import importlib
from types import ModuleType

import torch

from warpfactor.errors import InputError

BACKENDS = ("auto", "reference", "numba")


def select(device: str | torch.device = "cpu", backend: str = "auto") -> ModuleType:
    """The kernels for a device: `auto` takes the Numba form on a CPU and the reference elsewhere."""
    kind = torch.device(device).type
    if backend not in BACKENDS:
        raise InputError(f"Unknown backend {backend!r}; use one of {', '.join(BACKENDS)}.")
    if backend == "numba" and kind != "cpu":
        raise InputError(
            f"Backend 'numba' runs on the CPU only, not on {device}; use backend 'reference' or device 'cpu'."
        )
    name = backend if backend != "auto" else ("numba" if kind == "cpu" else "reference")
    return importlib.import_module(f"warpfactor.kernels.{name}")


def name_of(ops: ModuleType) -> str:
    """The backend's name, as recorded in results."""
    return ops.__name__.rsplit(".", 1)[-1]


__all__ = ["BACKENDS", "name_of", "select"]

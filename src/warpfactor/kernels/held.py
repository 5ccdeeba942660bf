"""Figures that stay on the device: the form of the operations for which the host does not wait.

An operation that returns numbers is written so that it returns them as one tensor on the device. `two` and `three` make
the operation of `Ops` of it, which waits for them; `Unwaited` is the same backend without waiting.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, cast

import torch
from torch import Tensor

from warpfactor.kernels.ops import DeviceOps, Ops

P = ParamSpec("P")


def two(held: Callable[P, Tensor]) -> Callable[P, tuple[float, float]]:
    """The operation with its two figures as Python's numbers, for which the host waits."""
    return _waited(held)


def three(held: Callable[P, Tensor]) -> Callable[P, tuple[float, float, float]]:
    """The operation with its three figures as Python's numbers, for which the host waits."""
    return _waited(held)


def _waited(held: Callable[P, Tensor]) -> Callable[P, Any]:
    unwaited = torch.no_grad()(held)

    @functools.wraps(held)
    def waited(*args: P.args, **options: P.kwargs) -> Any:
        return tuple(unwaited(*args, **options).tolist())

    waited.held = unwaited  # type: ignore[attr-defined]
    return waited


def held(operation: Callable[..., Any]) -> Callable[..., Tensor]:
    """The form of an operation whose figures stay on the device."""
    return cast("Callable[..., Tensor]", operation.held)  # type: ignore[attr-defined]


@functools.lru_cache(maxsize=4096)  # a captured iteration reads them: they must not go while it lives
def doubles_on(device: torch.device, numbers: tuple[float, ...]) -> Tensor:
    """Numbers in double precision on a device, copied there once."""
    return torch.tensor(numbers, dtype=torch.float64).to(device)


class Unwaited:
    """The operations of a backend with all figures left on the device, as tensors without axes.

    Args:
        backend: whose operations that return figures have a form `held`, and which has those of `DeviceOps`.
    """

    def __init__(self, backend: Callable[[], Any]) -> None:
        self._backend = backend

    @property
    def backend(self) -> Callable[[], Any]:
        """Returns the backend."""
        return self._backend

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._backend(), name)
        if not hasattr(operation, "held"):
            return operation
        return lambda *args, **options: operation.held(*args, **options).unbind()


def device_form(ops: Ops) -> DeviceOps | None:
    """The same operations without waiting for the device, if the backend has that form."""
    found = getattr(ops, "on_device", None)
    return cast(DeviceOps, found) if isinstance(found, Unwaited) else None

"""Operations over several pairs of images at once: one call, and where a backend has such kernels one launch, for all.

Every tensor has the pairs as its first axis, and figures are (B,) float64 tensors on the device. Options that all pairs
have in common are given as for one pair; those in which they differ as `Each`. What comes out for a pair is what the
operation gives for it alone, bit for bit: `one_by_one` is the definition, and what a backend without such a form does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from warpfactor.kernels.held import held

F = TypeVar("F", bound=Callable[..., Any])


class Each(tuple[Any, ...]):
    """A value for each pair; if these are numbers, it can be multiplied by one and compared with one."""

    def __mul__(self, factor: Any) -> Each:
        return Each(value * factor for value in self)

    __rmul__ = __mul__

    def __gt__(self, least: Any) -> bool:
        """Whether all are larger."""
        return all(value > least for value in self)


def shared(values: Sequence[Any]) -> Any:
    """Values of the pairs as one: tensors as one tensor, others as they are if all are equal, or Each."""
    first = values[0]
    if isinstance(first, Tensor):
        return first[None] if len(values) == 1 else torch.stack(tuple(values))
    return first if all(value == first for value in values) else Each(values)


def picked(value: Any, number: int) -> Any:
    """What a pair has of an argument: a tensor's part, its own of Each, also in a list, and everything else whole."""
    if isinstance(value, (Tensor, Each)):
        return value[number]
    if isinstance(value, list) and any(isinstance(each, Each) for each in value):
        return [each[number] if isinstance(each, Each) else each for each in value]
    return value


def one_by_one(operation: Callable[..., Any]) -> Callable[..., Any]:
    """The operation over pairs as so many calls; figures are (B, n)."""
    for_one = held(operation) if hasattr(operation, "held") else operation

    def called(*args: Any, **options: Any) -> Any:
        found = []
        for number in range(len(args[0])):
            own = {name: picked(value, number) for name, value in options.items()}
            found.append(for_one(*(picked(value, number) for value in args), **own))
        return _joined(found, (*args, *options.values()))

    return called


def _joined(found: list[Any], given: tuple[Any, ...]) -> Any:
    """Results of the pairs as one; where they were written into a tensor that was given, that tensor."""
    first = found[0]
    if not isinstance(first, Tensor):
        return None
    written = (each for each in given if isinstance(each, Tensor) and each.data_ptr() == first.data_ptr())
    into = next(written, None)
    return torch.stack(found) if into is None else into


def paired(definition: F, fits: Callable[..., bool]) -> Callable[[Callable[..., Any]], F]:
    """Make an operation of its form over pairs, which the decorated function is; alone, a pair is one of one.

    Args:
        definition: the operation of the reference, which does what does not fit.
        fits: whether the form over pairs can take its arguments.
    """
    figures = hasattr(definition, "held")

    def make(together: Callable[..., Any]) -> F:
        @torch.no_grad()
        def over_pairs(*args: Any, **options: Any) -> Any:
            if fits(*args, **options):
                return together(*args, **options)
            return one_by_one(definition)(*args, **options)

        def alone(*args: Any, **options: Any) -> Any:
            found = over_pairs(*map(_as_pairs, args), **{name: _as_pairs(value) for name, value in options.items()})
            return None if found is None else found[0]

        @functools.wraps(definition)
        def waited(*args: Any, **options: Any) -> Any:
            return tuple(alone(*args, **options).tolist())

        operation: Any = waited if figures else functools.wraps(definition)(alone)
        if figures:
            operation.held = alone
        operation.pairs = over_pairs
        return cast(F, operation)

    return make


def _as_pairs(value: Any) -> Any:
    return value[None] if isinstance(value, Tensor) else value


class PairOps:
    """The operations of a backend over pairs, with all figures left on the device.

    Args:
        backend: as for `Unwaited`.
    """

    def __init__(self, backend: Callable[[], Any]) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._backend(), name)
        called = operation.pairs if hasattr(operation, "pairs") else one_by_one(operation)
        if not hasattr(operation, "held"):
            return called
        return lambda *args, **options: called(*args, **options).unbind(-1)

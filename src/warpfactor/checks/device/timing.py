"""How long kernels take on a device, beside a copy of a field, which no kernel that moves as much can beat."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch

from warpfactor.checks.device.problems import Given, KernelProblem, given
from warpfactor.kernels.ops import Ops

REPEATS = 3  # of which the fastest counts


@dataclass(frozen=True)
class Timed:
    """The time of one operation.

    Attributes:
        seconds: of a call; NaN if it failed, for instance for want of memory.
        bytes_moved: by the call, at least.
    """

    operation: str
    seconds: float
    bytes_moved: float


def bandwidth(device: torch.device, shape: tuple[int, int, int]) -> float:
    """Bytes per second, read and written, of a scaled copy of a displacement field."""
    source = torch.ones((3, *shape), device=device)
    target = torch.empty_like(source)
    seconds = _fastest(lambda: torch.mul(source, 1.001, out=target), device)
    return 2 * source.numel() * source.element_size() / seconds


def time_problems(
    ops: Ops, device: torch.device, problems: Iterable[KernelProblem], shape: tuple[int, int, int]
) -> Iterator[Timed]:
    """The time of the first problem of every operation that says how many bytes it moves."""
    at = given((shape, shape)).on(device, torch.float32)
    for problem in problems:
        if problem.bytes_moved:
            seconds = _seconds(problem, ops, at, device)
            yield Timed(problem.operation, seconds, problem.bytes_moved * math.prod(shape))


def _seconds(problem: KernelProblem, ops: Ops, at: Given, device: torch.device) -> float:
    try:
        return _fastest(lambda: problem.run(ops, at), device)
    except Exception:  # the check at small sizes says what is wrong; a large one may lack the memory
        return math.nan


def _fastest(call: Callable[[], object], device: torch.device) -> float:
    """Seconds of the fastest of several calls, after one that may compile."""
    call()
    times = []
    for _ in range(REPEATS):
        _finish(device)
        began = time.perf_counter()
        call()
        _finish(device)
        times.append(time.perf_counter() - began)
    return min(times)


def _finish(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    wait = getattr(getattr(torch, device.type, None), "synchronize", None)
    if wait is not None:
        wait()

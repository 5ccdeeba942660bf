"""Every kernel of a backend against the reference, at several shapes and number types, and its time on a device.

The truth is the reference in double precision on the CPU; what a backend may be off is a few times what the reference
in single precision is off.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from warpfactor.checks.device.compare import relative_error
from warpfactor.checks.device.problems import PROBLEMS, STORED, Given, KernelProblem, Shapes, given
from warpfactor.checks.device.timing import Timed, bandwidth, time_problems
from warpfactor.kernels import reference
from warpfactor.kernels.held import device_form
from warpfactor.kernels.ops import Ops

SHAPES: tuple[Shapes, ...] = (
    ((7, 9, 11), (8, 7, 10)),
    ((1, 13, 9), (1, 11, 12)),
    ((3, 4, 2), (4, 3, 5)),
    ((21, 34, 40), (23, 37, 31)),
)
TIMED_SHAPE = (128, 128, 128)


@dataclass(frozen=True)
class KernelCheck:
    """One problem at one shape.

    Attributes:
        images: number type of the images.
        error: largest error over what is allowed.
        trouble: the first line of the error that was raised; empty if none was.
    """

    problem: KernelProblem
    shapes: Shapes
    images: str
    error: float
    trouble: str = ""

    @property
    def passed(self) -> bool:
        return self.error <= 1.0


@dataclass(frozen=True)
class BackendCheck:
    """All problems on one backend and device.

    Attributes:
        times: per operation; empty if nothing was timed.
        bandwidth: bytes per second that a scaled copy moves on the device; 0 if nothing was timed.
    """

    backend: str
    device: str
    checks: tuple[KernelCheck, ...]
    times: tuple[Timed, ...] = ()
    bandwidth: float = 0.0

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)


def check_backend(
    name: str,
    ops: Ops,
    device: torch.device,
    *,
    problems: Sequence[KernelProblem] = PROBLEMS,
    shapes: Sequence[Shapes] = SHAPES,
    timed_shape: tuple[int, int, int] | None = TIMED_SHAPE,
    half: bool = False,
) -> BackendCheck:
    """Check a backend on a device.

    Args:
        name: of the backend.
        timed_shape: of the images with which kernels are timed; None times nothing.
        half: whether the backend takes images of half precision; see Backend.
    """
    checks = tuple(_checks(ops, device, problems, shapes, half=half))
    if timed_shape is None:
        return BackendCheck(name, str(device), checks)
    speed = bandwidth(device, timed_shape)
    return BackendCheck(name, str(device), checks, tuple(time_problems(ops, device, problems, timed_shape)), speed)


def _checks(
    ops: Ops, device: torch.device, problems: Iterable[KernelProblem], shapes: Sequence[Shapes], *, half: bool
) -> Iterator[KernelCheck]:
    inputs = [(each, given(each)) for each in shapes]
    for problem in problems:
        if problem.unwaited and device_form(ops) is None:
            continue
        for each, floating in inputs:
            yield _check(problem, each, floating, ops, device)
            if problem.images:
                yield _check(problem, each, floating.with_whole_numbers(), ops, device)
            if problem.images and half:
                yield _check(problem, each, floating.in_half_precision(), ops, device)


def _check(problem: KernelProblem, shapes: Shapes, at: Given, ops: Ops, device: torch.device) -> KernelCheck:
    images = str(at.fixed.dtype).removeprefix("torch.") if at.fixed.dtype in STORED else "float32"
    exact = problem.run(reference, at.on("cpu", torch.float64))
    rough = problem.run(reference, at.on("cpu", torch.float32))
    try:
        found = problem.run(ops, at.on(device, torch.float32))
        outputs = zip(found, exact, rough, strict=True)
        length = max(*shapes[0], *shapes[1])
        error = max(relative_error(*each, problem, length) for each in outputs)
    except Exception as failure:  # whatever a kernel raises is what its check has found
        return KernelCheck(problem, shapes, images, math.inf, first_line(failure))
    return KernelCheck(problem, shapes, images, error)


def first_line(failure: Exception) -> str:
    """The kind of an error and the beginning of its message."""
    lines = str(failure).strip().splitlines() or [""]
    return f"{type(failure).__name__}: {lines[0][:120]}"

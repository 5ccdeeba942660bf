"""The yardstick: read three channels, multiply, write three channels. No iteration on a warp can be faster."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
from numba import prange

from warpfactor.kernels.numba._compile.jit import exclusive, parallel

FACTOR = np.float32(1.001)


@parallel
def _scale_copy(source: Any, target: Any, factor: Any) -> None:
    for i in prange(source.size):
        target[i] = factor * source[i]


class Span(NamedTuple):
    """Seconds of a stretch: on the clock, and of all threads together, which neighbours on the machine change less."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> Span:
        return cls(time.perf_counter(), time.process_time())

    def __sub__(self, other: Span) -> Span:
        return Span(self.wall - other.wall, self.cpu - other.cpu)


class ScaleCopy:
    """Two fields of three channels, and the time it takes to copy one to the other."""

    def __init__(self, voxels: int) -> None:
        self._source = np.ones(3 * voxels, np.float32)
        self._target = np.ones(3 * voxels, np.float32)
        self.time()  # compiled and in memory from here on

    @exclusive
    def time(self) -> Span:
        began = Span.now()
        _scale_copy(self._source, self._target, FACTOR)
        return Span.now() - began

"""The decorators with which every CPU kernel is compiled, and the lock under which kernels are entered.

The fast-math flags allow fused and reassociated arithmetic but keep NaN and infinity meaningful. Kernels run in
parallel over rows, planes or blocks that do not depend on each other. Sums are taken within each of these and then
added in a fixed order, so a result is bit-identical for any number of threads.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numba
from numba import njit

from warpfactor.errors import InputError
from warpfactor.kernels.numba._compile.cache import cached
from warpfactor.kernels.numba._compile.whole import ALLOCATING_PART, KERNEL, PART
from warpfactor.processes import renew_after_fork

# OpenMP's threads spin at the end of every parallel loop. On a machine that has anything else to do this costs a time
# slice of the scheduler: at 80x96x80 with one other busy process, a form of LNCC with two loops per plane took 1430 ns
# per voxel with OpenMP and 94 with Numba's own work queue (two cores). A layer chosen by the user is kept.
_config: Any = numba.config
if _config.THREADING_LAYER == "default":
    _config.THREADING_LAYER = "workqueue"
_work_queue = threading.RLock()  # the work queue serves one caller at a time
renew_after_fork(_work_queue)

FAST_MATH = {"contract", "nsz", "arcp", "reassoc", "afn"}
OPTIONS: Any = {"fastmath": FAST_MATH, "error_model": "numpy", "nogil": True}

# A kernel: called from Python, parallel, stored on disk once it is compiled.
parallel = cached(njit(parallel=True, **OPTIONS, **KERNEL))
strict = cached(njit(parallel=True, error_model="numpy", nogil=True))  # the same without fast-math
# Parts of kernels, which run in one thread. Python cannot call them.
serial = njit(**OPTIONS, **PART)
ordered = njit(
    **{**OPTIONS, "fastmath": FAST_MATH - {"reassoc"}}, **PART
)  # sums keep the order in which they are written
allocating = njit(**OPTIONS, **ALLOCATING_PART)  # may create arrays
inline = njit(fastmath=FAST_MATH, error_model="numpy", inline="always")

# The type of indices that are sums. A sum of signed indices might be negative, and Numba's test for that (negative
# indices count from the end) keeps a loop off the vector unit.
unsigned = numba.uint64

P = ParamSpec("P")
R = TypeVar("R")


def exclusive(kernel: Callable[P, R]) -> Callable[P, R]:
    """The same function, entered by one Python thread at a time."""

    @functools.wraps(kernel)
    def entered(*args: P.args, **kwargs: P.kwargs) -> R:
        with _work_queue:
            try:
                return kernel(*args, **kwargs)
            except ValueError as error:
                if "threading layer" not in str(error):
                    raise
                raise InputError(
                    f"Numba cannot use the threading layer {_config.THREADING_LAYER!r} that NUMBA_THREADING_LAYER asks "
                    "for; install it, or unset that variable."
                ) from error

    return entered

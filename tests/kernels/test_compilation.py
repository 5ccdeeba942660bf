"""Counting compilations. That a first run announces them is tested with the command line."""

import numba

from warpfactor.kernels.numba._compile.compilation import counted


def test_a_kernel_and_its_parts_count_as_one():
    inner = numba.njit(lambda x: x + 1)
    outer = numba.njit(lambda x: inner(x) + 1)
    with counted() as found:
        outer(1)
        outer(2)
    assert found.count == 1
    assert found.seconds > 0

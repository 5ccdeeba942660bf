"""Sums over windows along x, against sums of slices."""

import numba
import numpy as np
import pytest

from warpfactor.kernels.numba._compile.jit import OPTIONS
from warpfactor.kernels.numba.windows import window_rows


@numba.njit(**OPTIONS)
def sums_of(lines, r, out, x0, x1):
    window_rows(lines, r, np.ones(2 * r + 1), True, out, x0, x1)


@pytest.mark.parametrize("r", [1, 2, 3, 4, 7, 11])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 31, 64])
def test_windows_are_sums_of_slices(r, width):
    lines = np.random.default_rng(width).normal(size=(6, width + 2 * r)) + 5
    for x0, x1 in {(0, width), (min(3, width - 1), width), (0, max(1, width - 2))}:
        out = np.full((6, width), np.nan)
        sums_of(lines, r, out, x0, x1)
        true = np.array([[line[x : x + 2 * r + 1].sum() for x in range(x0, x1)] for line in lines])
        np.testing.assert_allclose(out[:, x0:x1], true, rtol=1e-13)
        assert np.isnan(np.delete(out, range(x0, x1), axis=1)).all()  # nothing else is written


def test_a_long_line_does_not_drift():
    lines = np.random.default_rng(0).normal(size=(3, 20000 + 14)) ** 2
    out = np.empty((3, 20000))
    sums_of(lines, 7, out, 0, 20000)
    true = np.lib.stride_tricks.sliding_window_view(lines, 15, axis=1).sum(axis=2)
    np.testing.assert_allclose(out, true, rtol=0, atol=1e-11)

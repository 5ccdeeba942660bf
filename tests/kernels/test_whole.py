"""Kernels compiled as a whole: the same results, less work, and an ordinary way for other versions of Numba."""

import ctypes
import hashlib
import os
import subprocess
import sys

import numba
import numpy as np
import pytest
import torch
from numba import prange

from warpfactor.kernels import numba as cpu
from warpfactor.kernels.numba._compile import whole


@numba.njit(**whole.PART)
def third(x):
    if x < 0:
        raise ValueError("below zero")
    return x / 3


def thirds(values, out):
    third(values[0])
    for i in prange(values.shape[0]):
        out[i] = third(values[i])


supported = pytest.mark.skipif(not whole.is_supported(), reason="this version of Numba compiles as usual")


@supported
def test_a_kernel_compiled_as_a_whole_gives_the_same_result():
    values = np.linspace(0, 5, 1000)
    plain, once = np.empty_like(values), np.empty_like(values)
    numba.njit(parallel=True)(thirds)(values, plain)
    kernel = numba.njit(parallel=True, **whole.KERNEL)(thirds)
    kernel(values, once)
    np.testing.assert_array_equal(once, plain)
    with pytest.raises(ValueError, match="below zero"):  # errors come from inside the parts
        kernel(-values - 1, once)


@supported
def test_machine_code_is_generated_for_the_kernel_only(monkeypatch):
    finished = []
    finish = whole.JITCodeLibrary._finalize_specific
    monkeypatch.setattr(
        whole.JITCodeLibrary, "_finalize_specific", lambda self: (finished.append(self.name), finish(self))[1]
    )
    numba.njit(parallel=True, **whole.KERNEL)(thirds)(np.ones(4), np.ones(4))
    assert finished == ["thirds"]


@supported
def test_a_part_is_completed_when_its_address_is_requested():
    library = whole.Part(numba.njit(lambda x: x).targetctx.codegen(), "part")
    library.add_llvm_module(whole.parse_assembly("define i32 @warpfactor_seven() { ret i32 7 }"))
    with numba.core.compiler_lock.global_compiler_lock:
        assert library.get_pointer_to_function("absent") == 0
        address = library.get_pointer_to_function("warpfactor_seven")
    assert ctypes.CFUNCTYPE(ctypes.c_int32)(address)() == 7


@supported
@pytest.mark.parametrize("compiled", [False, True])
def test_calling_a_part_from_python_is_an_error(compiled):
    part = numba.njit(**whole.PART)(third.py_func)
    if compiled:
        numba.njit(**whole.KERNEL)(lambda x: part(x))(6.0)
    with pytest.raises(SystemError):
        part(6.0)


def test_ordinary_kernels_can_call_parts():
    assert numba.njit(lambda x: third(x) + 1)(6.0) == 3.0


def test_other_versions_of_numba_are_not_supported():
    assert not whole.is_supported("0.67.0")
    assert not whole.is_supported("1.0.0")


@supported
def test_a_numba_without_a_needed_method_is_not_supported(monkeypatch):
    monkeypatch.setitem(whole.NEEDED, numba.core.compiler.Compiler, ("a_method_that_is_gone",))
    assert not whole.is_supported()


OTHER_VERSION = """
import hashlib, numba, torch
numba.__version__ = "99.0.0"  # before the kernels are imported
from warpfactor.kernels import numba as cpu
from warpfactor.kernels.numba._compile import whole
assert not whole.KERNEL and not whole.PART and not whole.ALLOCATING_PART
field = torch.linspace(-1, 1, 3 * 5 * 6 * 7).sin().reshape(3, 5, 6, 7)
found = cpu.smooth_box(field.clone(), (1, 1, 1)), cpu.shrink(field, (3, 6, 7), (1.0, 0.0, 0.0))
print(hashlib.sha256(b"".join(each.numpy().tobytes() for each in found)).hexdigest())
"""


def test_kernels_compiled_by_another_version_of_numba_give_the_same_bits(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", OTHER_VERSION]
    told = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    field = torch.linspace(-1, 1, 3 * 5 * 6 * 7).sin().reshape(3, 5, 6, 7)
    found = cpu.smooth_box(field.clone(), (1, 1, 1)), cpu.shrink(field, (3, 6, 7), (1.0, 0.0, 0.0))
    assert told.split() == [hashlib.sha256(b"".join(each.numpy().tobytes() for each in found)).hexdigest()]

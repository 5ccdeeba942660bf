"""Options for Numba's decorators that compile a kernel as a whole, in less than half the time.

Numba makes a library of every function that a kernel calls, and of every layer around a parallel loop. It optimises
each library, with everything it calls, and generates its machine code before it links it into the next one: the inner
loops of LNCC five times over. With the options below, all libraries but the kernel's own are linked without being
optimised, and are completed only if somebody asks for the address of a function in them. Compiling the ten kernels that
a registration may use takes 40 s of processor time instead of 87, LNCC alone 12 instead of 35 (Numba 0.68.1), and the
results are the same bit for bit.

This relies on the inside of Numba 0.68: on methods of `JITCodeLibrary` and of the compiler, and on options that are not
documented. With other versions, or if one of the methods is missing, the options are empty and Numba compiles as usual.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numba
from llvmlite.binding import Linkage, parse_assembly
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

TRIED_VERSIONS = ("0.68.",)
NEEDED = {
    JITCodeLibrary: (
        "get_pointer_to_function",
        "get_defined_functions",
        "_ensure_finalized",
        "_optimize_final_module",
        "_finalize_final_module",
        "_finalize_dynamic_globals",
    ),
    Compiler: ("_compile_core",),
}
PYTHON_WRAPPER = "_ZN7cpython"  # how the names of functions begin through which Python calls compiled code


@ctypes.PYFUNCTYPE(*4 * [ctypes.c_void_p])
def _refuse(*_: Any) -> None:
    """Called if Python calls a part: returning NULL without an exception raises a SystemError there."""


class Part(JITCodeLibrary):
    """A library that is linked into others as it is, and completed when one of its functions is to be called."""

    _is_incomplete = False

    def get_pointer_to_function(self, name: str) -> Any:
        self._ensure_finalized()
        if name.startswith(PYTHON_WRAPPER):
            return ctypes.cast(_refuse, ctypes.c_void_p).value
        if self._is_incomplete and any(function.name == name for function in self.get_defined_functions()):
            self._is_incomplete = False
            super()._optimize_final_module()
            super()._finalize_final_module()
        return super().get_pointer_to_function(name)

    def _optimize_final_module(self) -> None:
        """Do nothing yet."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._define_environments()
        self._finalized = self._is_incomplete = True

    def _define_environments(self) -> None:
        """Define the variables for environments, which Numba sets right after this and which later libraries share."""
        names = [v.name for v in self._final_module.global_variables if v.linkage == Linkage.common]
        new = [name for name in names if not self._codegen._engine.is_symbol_defined(name)]
        if new:
            text = "".join(f'@"{name}" = common global i8* null\n' for name in new)
            self._codegen._add_module(parse_assembly(text))


class WholeCompiler(Compiler):
    """Numba's compiler for a kernel, which Python calls."""

    def _compile_core(self) -> Any:
        codegen = self.state.targetctx.codegen()
        self.state.library = codegen.create_library(self.state.func_id.func_qualname)
        self.state.library.enable_object_caching()
        with _libraries_are_parts(codegen):
            return super()._compile_core()


class PartCompiler(Compiler):
    """Numba's compiler for a part of kernels."""

    def _compile_core(self) -> Any:
        self.state.library = Part(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
        return super()._compile_core()


@contextmanager
def _libraries_are_parts(codegen: Any) -> Iterator[None]:
    """Make every library that is created in the block a `Part`; Numba's lock lets one thread compile at a time."""
    codegen.create_library = lambda name, **options: Part(codegen, name, **options)
    try:
        yield
    finally:
        del codegen.create_library


def is_supported(version: str = numba.__version__) -> bool:
    """Whether this version of Numba is one of those tried, and has the methods that are overridden or called."""
    has_methods = all(hasattr(owner, name) for owner, names in NEEDED.items() for name in names)
    return version.startswith(TRIED_VERSIONS) and has_methods


# KERNEL is for functions that Python calls, PART for those that kernels call. A part has no wrappers for calls from C
# and from Python, and it does not count references to arrays: with two counts for every slice, interpolating a row of
# 40 voxels takes twice as long. A part therefore must not return an array. One that creates arrays has to count
# references.
KERNEL: Any = {}
PART: Any = {}
ALLOCATING_PART: Any = {}
if is_supported():
    KERNEL = {"pipeline_class": WholeCompiler, "no_cfunc_wrapper": True}
    ALLOCATING_PART = {
        "pipeline_class": PartCompiler,
        "no_cfunc_wrapper": True,
        "no_cpython_wrapper": True,
        "_nrt": True,
    }
    PART = {**ALLOCATING_PART, "_nrt": False}

"""A kernel compiled as a whole: what it consists of is optimised and turned into machine code once, inside it.

Numba makes a library of every function that a kernel calls and of every layer around a parallel loop. It optimises each
and makes machine code of it, together with all it calls, before it links it into the next one: the inner loops of LNCC
five times over, for half of the time that compiling takes. Here all libraries but the kernel's own wait. They are
linked as they are, and one is finished only if somebody asks for the address of a function in it.

This knows Numba from the inside, so it is for the versions it was tried with; others compile as they always do.
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

KNOWN = ("0.68.",)
FROM_PYTHON = "_ZN7cpython"  # how Numba names what lets Python call a function


@ctypes.PYFUNCTYPE(*4 * [ctypes.c_void_p])
def _refuse(*_: Any) -> None:
    """What Python calls if it calls a part: to return nothing at all is a SystemError there."""


class Part(JITCodeLibrary):
    """A library that is linked into others, and finished when somebody wants to call it; Python cannot."""

    _waits = False

    def get_pointer_to_function(self, name: str) -> Any:
        self._ensure_finalized()
        if name.startswith(FROM_PYTHON):
            return ctypes.cast(_refuse, ctypes.c_void_p).value
        if self._waits and any(function.name == name for function in self.get_defined_functions()):
            self._waits = False
            super()._optimize_final_module()
            super()._finalize_final_module()
        return super().get_pointer_to_function(name)

    def _optimize_final_module(self) -> None:
        """Not yet."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._define_environments()
        self._finalized = self._waits = True

    def _define_environments(self) -> None:
        """Numba fills these variables right after this; libraries that are loaded later share them."""
        names = [v.name for v in self._final_module.global_variables if v.linkage == Linkage.common]
        new = [name for name in names if not self._codegen._engine.is_symbol_defined(name)]
        if new:
            text = "".join(f'@"{name}" = common global i8* null\n' for name in new)
            self._codegen._add_module(parse_assembly(text))


class WholeCompiler(Compiler):
    """Numba's compiler, for a kernel that is called from Python."""

    def _compile_core(self) -> Any:
        codegen = self.state.targetctx.codegen()
        self.state.library = codegen.create_library(self.state.func_id.func_qualname)
        self.state.library.enable_object_caching()
        with _parts(codegen):
            return super()._compile_core()


class PartCompiler(Compiler):
    """Numba's compiler, for a function that kernels call."""

    def _compile_core(self) -> Any:
        self.state.library = Part(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
        return super()._compile_core()


@contextmanager
def _parts(codegen: Any) -> Iterator[None]:
    """Libraries that are made in the block are parts; Numba's lock lets one thread compile at a time."""
    codegen.create_library = lambda name, **options: Part(codegen, name, **options)
    try:
        yield
    finally:
        del codegen.create_library


# Options of Numba's decorators. The wrappers that are left out let C call a function, or Python. Few parts make arrays,
# and in the others nobody counts who holds one: with two counts for every slice an interpolated row of 40 voxels takes
# twice as long. Parts must not return arrays.
is_known = numba.__version__.startswith(KNOWN)
KERNEL: Any = {"pipeline_class": WholeCompiler, "no_cfunc_wrapper": True} if is_known else {}
MAKER: Any = (
    {"pipeline_class": PartCompiler, "no_cfunc_wrapper": True, "no_cpython_wrapper": True, "_nrt": True}
    if is_known
    else {}
)
PART: Any = {**MAKER, "_nrt": False} if is_known else {}

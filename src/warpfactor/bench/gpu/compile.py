"""Compilation ahead of time: registers, shared memory and spills of every kernel, on a machine without a GPU."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from warpfactor.errors import InputError
from warpfactor.kernels.triton.catalogue import KERNELS
from warpfactor.kernels.triton.decide import Place, decision
from warpfactor.kernels.triton.kernel import Constants, Kernel
from warpfactor.optim import DampingState
from warpfactor.recipebook.table import RECIPES
from warpfactor.stages.decisions import Decisions, State

TARGETS = {
    "sm_80": ("A100", GPUTarget("cuda", 80, 32)),
    "sm_86": ("A6000, RTX 30", GPUTarget("cuda", 86, 32)),
    "sm_90": ("H100", GPUTarget("cuda", 90, 32)),
    "gfx942": ("MI300", GPUTarget("hip", "gfx942", 64)),
}
MOST_SPILLED = 16  # bytes a thread that a kernel may keep in memory for want of registers


@dataclass(frozen=True)
class Compiled:
    """What a compiler made of a kernel.

    Attributes:
        kernel, variant, target: which one.
        registers: of a thread.
        shared: bytes of shared memory of a program.
        spilled: bytes of a thread that did not fit into registers.
    """

    kernel: str
    variant: str
    target: str
    registers: int
    shared: int
    spilled: int


def compile_all(targets: Iterable[str] = tuple(TARGETS)) -> Iterator[Compiled]:
    """Every variant of every kernel, for every target."""
    for target in targets:
        if target not in TARGETS:
            raise InputError(f"Unknown target {target!r}; use one of {', '.join(TARGETS)}.")
        for kernel in (*KERNELS, *decisions()):
            for variant, constants in kernel.variants.items():
                yield _compiled(kernel, variant, constants, target)


def decisions() -> Iterator[Kernel]:
    """What kernels are made of the decisions of a level, by the rules of the default recipe and of the paper."""
    for name in ("default", "paper"):
        settings = RECIPES[name].deformable
        assert settings is not None
        looks = settings.damping.looks(DampingState(1.0), final=True)
        rules = Decisions(settings, 10, 1.0, copies=False, undoes=looks, every=4, rows=8, parts=0)
        at, state = Place(1), (Place(1),) * (len(State._fields) - 1 + rules.recent)
        figures = {"arrive": (at, at, at, at, 0), "stride": (at,) * 3, "judge": (at,) * (8 if looks else 5)}
        for part, given in figures.items():
            made = decision(getattr(rules, part), (*given, *(() if part == "stride" else state)))
            yield replace(made.kernel, variants={f"{name}, {part}": {}})


def compile_usual(target: str) -> Iterator[Compiled]:
    """The usual variant of every kernel, for one target."""
    for kernel in (*KERNELS, *decisions()):
        variant, constants = next(iter(kernel.variants.items()))
        yield _compiled(kernel, variant, constants, target)


def _compiled(kernel: Kernel, variant: str, constants: Constants, target: str) -> Compiled:
    binary = triton.compile(
        _source(kernel, constants),
        target=TARGETS[target][1],
        options={"num_warps": kernel.warps, "enable_fp_fusion": True},
    )
    registers, spilled = _amd(binary.asm) if "amdgcn" in binary.asm else _nvidia(binary.asm)
    return Compiled(kernel.name, variant, target, registers, binary.metadata.shared, spilled)


def _source(kernel: Kernel, constants: Constants) -> ASTSource:
    names = kernel.function.arg_names
    kinds = iter(kernel.types)
    signature = {name: "constexpr" if name in constants else next(kinds) for name in names}
    aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if signature[name].startswith("*")}
    return ASTSource(fn=kernel.function, signature=signature, constexprs=dict(constants), attrs=aligned)


def _nvidia(asm: Mapping[str, Any]) -> tuple[int, int]:
    """Registers and bytes of stack, from NVIDIA's tool that comes with Triton."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder) / "kernel.cubin"
        binary.write_bytes(asm["cubin"])
        text = subprocess.run([tool, "-res-usage", binary], capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", text)
    if found is None:
        raise RuntimeError(f"cuobjdump said nothing about registers: {text}")
    return int(found[1]), int(found[2])


def _amd(asm: Mapping[str, Any]) -> tuple[int, int]:
    """Vector registers, and bytes of those that spilled."""
    text = asm["amdgcn"]
    registers, spills = (
        int(re.findall(rf"\.{name}:\s+(\d+)", text)[-1]) for name in ("vgpr_count", "vgpr_spill_count")
    )
    return registers, 4 * spills

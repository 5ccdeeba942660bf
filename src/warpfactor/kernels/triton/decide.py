"""A rule for numbers as one kernel: its code is written from what the rule does with symbols.

Damping rules, the longest step, the tests for an end are some two hundred operations on single numbers; as so many
launches they would take longer than an iteration of a coarse level. The rules stay what they are, in Python, once.
"""

from __future__ import annotations

import functools
import linecache
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from warpfactor.kernels.held import doubles_on
from warpfactor.kernels.symbols import Symbol, is_flag
from warpfactor.kernels.triton.kernel import Kernel

Rule = Callable[..., Sequence[Any]]


class Decision(NamedTuple):
    """A rule as a kernel.

    Attributes:
        kernel: called with the table of results, the constants and the figures; a program decides for a pair.
        constants: Python's numbers in the rule. They are no part of the code, so that settings share a kernel.
        results: how many numbers come out.
    """

    kernel: Kernel
    constants: tuple[float, ...]
    results: int


@torch.no_grad()
def decide(rule: Rule, *figures: Any) -> Tensor:
    """See DeviceOps."""
    held = [figure for figure in figures if isinstance(figure, Tensor)]
    made = decision(rule, tuple(_known(figure) for figure in figures))
    shape, device = held[0].shape, held[0].device
    found = torch.empty((*shape, made.results), dtype=torch.float64, device=device)
    made.kernel.launch((shape.numel(),), found, doubles_on(device, made.constants or (0.0,)), *held)
    return found


decide.pairs = decide  # type: ignore[attr-defined]


class Place(NamedTuple):
    """Where a figure of several pairs is: so many numbers apart."""

    apart: int


def _known(figure: Any) -> Any:
    """What is known of a figure when the kernel is made: one of Python's numbers, or where those of the device are."""
    if not isinstance(figure, Tensor):
        return figure
    if figure.dtype != torch.float64:
        raise TypeError(f"Figures must be float64; one is {figure.dtype}.")
    return Place(figure.stride(0) if figure.ndim else 0)


@functools.lru_cache(maxsize=256)
def decision(rule: Rule, figures: tuple[Any, ...]) -> Decision:
    """The kernel of a rule; Python's numbers among the figures become constants."""
    places = [each for each in figures if isinstance(each, Place)]
    given = iter([Symbol("figure", number) for number in range(len(places))])
    found = rule(*(next(given) if isinstance(each, Place) else each for each in figures))
    text = _Text()
    names = [text.number(value) for value in found]
    lines = [
        *(f"figure{number} = tl.load(p{number} + pair * {place.apart})" for number, place in enumerate(places)),
        *text.lines,
        *(f"tl.store(found + pair * {len(names)} + {column}, {name})" for column, name in enumerate(names)),
    ]
    return Decision(_kernel(len(places), tuple(lines)), tuple(text.constants), len(names))


class _Text:
    """The lines of a kernel that compute expressions."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.constants: list[float] = []
        self.names: dict[int, str] = {}

    def number(self, value: Any) -> str:
        """The name of a value in double precision; 1 for true."""
        name = self.name(value)
        return f"tl.where({name}, 1.0, 0.0).to(tl.float64)" if is_flag(value) and isinstance(value, Symbol) else name

    def name(self, value: Any) -> str:
        """The name of a value, which is computed if it was not before."""
        if isinstance(value, bool):
            return self._new("pair == pair" if value else "pair != pair")
        if not isinstance(value, Symbol):
            self.constants.append(float(value))
            return self._new(f"tl.load(constants + {len(self.constants) - 1})")
        if id(value) not in self.names:
            self.names[id(value)] = self._computed(value)
        return self.names[id(value)]

    def _computed(self, value: Symbol) -> str:
        parts = value.parts
        match value.operation:
            case "figure":
                return f"figure{parts[0]}"
            case "not":
                return self._new(f"{self.name(parts[0])} == 0")
            case "&" | "|" as sign:
                return self._new(f"{self.name(parts[0])} {sign} {self.name(parts[1])}")
            case "where":
                name_of = self.name if value.is_flag else self.number
                return self._new(f"tl.where({self.name(parts[0])}, {name_of(parts[1])}, {name_of(parts[2])})")
            case "sqrt" | "abs" as function:
                return self._new(f"tl.{function}({self.number(parts[0])})")
            case "%":
                a, b = map(self.number, parts)
                return self._new(f"{a} - {b} * tl.floor({a} / {b})")
            case sign:
                return self._new(f"{self.number(parts[0])} {sign} {self.number(parts[1])}")

    def _new(self, expression: str) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {expression}")
        return name


@functools.lru_cache(maxsize=64)
def _kernel(figures: int, lines: tuple[str, ...]) -> Kernel:
    """The kernel of this code. Triton reads the code of a function where Python's own messages do."""
    arguments = ("found", "constants", *(f"p{number}" for number in range(figures)))
    head = (f"def decide_numbers({', '.join(arguments)}):", "    pair = tl.program_id(0)")
    source = "\n".join((*head, *(f"    {line}" for line in lines), ""))
    file = f"<warpfactor decision {len(linecache.cache)}, {hash(source):x}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    space: dict[str, Any] = {"tl": tl, "__name__": __name__}
    exec(compile(source, file, "exec"), space)
    kinds = ("*fp64",) * len(arguments)
    return Kernel("decide_numbers", triton.jit(space["decide_numbers"]), kinds, {"usual": {}}, 1)

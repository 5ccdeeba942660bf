"""Numbers that are not known yet: what is done with them is written down, and a backend makes one kernel of it.

They are the third kind of number of `numbers.py`, beside Python's own and those that stay on a device. A rule that is
called with them returns expressions, whose parts are symbols and Python's numbers; no branch of it can depend on one.
"""

from __future__ import annotations

from typing import Any

COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


class Symbol:
    """A figure that a kernel is given, or an operation on others.

    Attributes:
        operation: "figure", one of Python's signs, "sqrt", "abs", "not" or "where".
        parts: what it is applied to; for a figure its number.
    """

    __slots__ = ("operation", "parts")

    def __init__(self, operation: str, *parts: Any) -> None:
        self.operation, self.parts = operation, parts

    @property
    def is_flag(self) -> bool:
        """Whether it is true or false."""
        if self.operation in ("&", "|", "where"):
            return all(is_flag(part) for part in self.parts[-2:])
        return self.operation in ("not", *COMPARISONS)

    def __bool__(self) -> bool:
        raise TypeError("A number that is not known yet cannot decide a branch; use kernels/numbers.py.")

    def __add__(self, other: Any) -> Symbol:
        return Symbol("+", self, other)

    def __radd__(self, other: Any) -> Symbol:
        return Symbol("+", other, self)

    def __sub__(self, other: Any) -> Symbol:
        return Symbol("-", self, other)

    def __rsub__(self, other: Any) -> Symbol:
        return Symbol("-", other, self)

    def __mul__(self, other: Any) -> Symbol:
        return Symbol("*", self, other)

    def __rmul__(self, other: Any) -> Symbol:
        return Symbol("*", other, self)

    def __truediv__(self, other: Any) -> Symbol:
        return Symbol("/", self, other)

    def __rtruediv__(self, other: Any) -> Symbol:
        return Symbol("/", other, self)

    def __mod__(self, other: Any) -> Symbol:
        return Symbol("%", self, other)

    def __pow__(self, exponent: float) -> Symbol:
        if exponent != 0.5:
            raise ValueError(f"Only the square root of such a number can be taken, not its power {exponent}.")
        return Symbol("sqrt", self)

    def __abs__(self) -> Symbol:
        return Symbol("abs", self)

    def __lt__(self, other: Any) -> Symbol:
        return Symbol("<", self, other)

    def __le__(self, other: Any) -> Symbol:
        return Symbol("<=", self, other)

    def __gt__(self, other: Any) -> Symbol:
        return Symbol(">", self, other)

    def __ge__(self, other: Any) -> Symbol:
        return Symbol(">=", self, other)

    def __eq__(self, other: object) -> Symbol:  # type: ignore[override]
        return Symbol("==", self, other)

    def __ne__(self, other: object) -> Symbol:  # type: ignore[override]
        return Symbol("!=", self, other)

    __hash__ = object.__hash__

    def __and__(self, other: Any) -> Symbol:
        return Symbol("&", self, other)

    __rand__ = __and__

    def __or__(self, other: Any) -> Symbol:
        return Symbol("|", self, other)

    __ror__ = __or__

    def __invert__(self) -> Symbol:
        return Symbol("not", self)


def is_flag(value: Any) -> bool:
    """Whether a symbol or one of Python's numbers is true or false."""
    return value.is_flag if isinstance(value, Symbol) else isinstance(value, bool)

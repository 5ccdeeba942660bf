"""Numbers that are not known yet: what a rule does with them is what it does with numbers."""

import math
import operator

import pytest

from warpfactor.kernels.numbers import chosen, finite, inverse, larger, quotient, smaller
from warpfactor.kernels.symbols import Symbol, is_flag

SIGNS = {
    **{"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne},
    **{"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "%": operator.mod},
    **{"&": operator.and_, "|": operator.or_, "not": operator.not_, "sqrt": math.sqrt, "abs": abs},
}


def value_of(expression, figures):
    """What an expression is for these figures."""
    if not isinstance(expression, Symbol):
        return expression
    if expression.operation == "figure":
        return figures[expression.parts[0]]
    parts = [value_of(part, figures) for part in expression.parts]
    if expression.operation == "where":
        return parts[1] if parts[0] else parts[2]
    return SIGNS[expression.operation](*parts)


def rule(a, b):
    """Everything that can be done with numbers, from both sides."""
    flags = (a < 2) & (b <= a) | (b > 3) & (a >= b) | inverse(a == 1) & (b != 5), True & (a > b), False | (a > b)
    numbers = 1 + a - b * 2 + (3 - a) * (2 * b) / (1 / b), abs(a - b) ** 0.5, b % 3
    return *flags, *numbers, chosen(flags[0], a, 7.0), larger(a, b), smaller(a, 1.5), quotient(a, b - 4), finite(a)


@pytest.mark.parametrize("figures", [(1.0, 2.0), (4.0, 4.0), (2.5, 0.5), (-1.0, 5.0), (math.inf, 3.0)])
def test_a_rule_of_symbols_is_the_rule_of_numbers(figures):
    found = rule(Symbol("figure", 0), Symbol("figure", 1))
    assert [value_of(one, figures) for one in found] == pytest.approx(rule(*figures), nan_ok=True)
    assert [is_flag(one) for one in found] == [True] * 3 + [False] * 7 + [True]


def test_no_branch_depends_on_one():
    with pytest.raises(TypeError, match="cannot decide a branch"):
        max(Symbol("figure", 0), 1.0)
    with pytest.raises(ValueError, match="Only the square root of such a number can be taken, not its power 2"):
        Symbol("figure", 0) ** 2

"""Roots, powers of constant exponents and magnitudes in the form that other compilers prefer, or that they leave."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.ops.structure import moved_constant
from ...ir.tools.pattern import P, match
from ..check.retype import limits_of

_EXPONENTS = (0.5, 1, 2, 3)


def expand_roots(module: Module) -> bool:
    """Replaces `rsqrt` by 1 / sqrt, powers with few constant exponents, needless `abs` and sums with the least normal
    number (of `jax.random.uniform`); returns whether there were any.

    before:  y = rsqrt(x), z = power(x, half), u = abs(abs(x)), r = sqrt(abs(x)), v = multiply(r, r)
    after:   y = divide(one, sqrt(x)), z = sqrt(x), u = abs(x), v = abs(x)
    """
    found = [(c, i, form) for c in module for i in c if (form := _FORMS.get(i.opcode)) and i.shape.element.is_float]
    return sum(_expanded(computation, i, form) for computation, i, form in found) > 0


def _expanded(computation: Computation, i: Instruction, form: _Form) -> bool:
    made = form(computation, i)
    if made is None:
        return False
    computation.replace_all_uses(i, made)
    return True


def _inverse_root(computation: Computation, i: Instruction) -> Instruction | None:
    return _power(computation, i, -0.5)


def _constant_power(computation: Computation, i: Instruction) -> Instruction | None:
    numbers = moved_constant(i.operands[1])
    if numbers is None or not numbers.size or (numbers != numbers.flat[0]).any():
        return None
    exponent = float(numbers.flat[0])
    return _power(computation, i, exponent) if abs(exponent) in _EXPONENTS else None


def _power(computation: Computation, i: Instruction, exponent: float) -> Instruction:
    (x, *_), shape = i.operands, i.shape.without_layout()
    with computation.at(before=i):
        made = computation.build("sqrt", x) if abs(exponent) < 1 else x
        for _ in range(int(abs(exponent)) - 1):
            made = computation.build("multiply", made, x)
        if exponent < 0:
            one = computation.constant(1, shape.element.name)
            made = computation.build("divide", computation.build("broadcast", one, dimensions=(), shape=shape), made)
    return made


def _magnitude(computation: Computation, i: Instruction) -> Instruction | None:
    found = match(i, P("abs", P("abs").bind("magnitude")))
    return None if found is None else found["magnitude"]


def _square(computation: Computation, i: Instruction) -> Instruction | None:
    root = P("sqrt", P("abs").bind("magnitude")).bind("root")
    found = match(i, P("multiply", root, root))
    return None if found is None else found["magnitude"]


def _sum(computation: Computation, i: Instruction) -> Instruction | None:
    found = match(i, P("add", P.any("x"), P.any().where(_is_tiny)).any_order())
    return None if found is None else found["x"]


def _is_tiny(x: Instruction) -> bool:
    numbers = moved_constant(x)
    return numbers is not None and bool((np.abs(numbers) <= limits_of(numbers.dtype).smallest_normal).all())


_Form = Callable[[Computation, Instruction], Instruction | None]
_FORMS: dict[str, _Form] = {
    "rsqrt": _inverse_root, "power": _constant_power, "abs": _magnitude, "multiply": _square, "add": _sum,
}  # fmt: skip

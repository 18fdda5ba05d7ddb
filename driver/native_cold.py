"""Adds other work to programs of the calibration, after which caches no longer hold the code of Python.

A program repeated alone finds all of it in place; a step of a model runs hundreds of kernels between two of its parts
that Python runs. So some programs are measured with and without kernels of many kinds that touch more than the second
cache holds.
"""

from __future__ import annotations

import re

_KINDS = ("exponential", "tanh", "logistic", "negate", "abs", "log", "sqrt", "cosine")
_COUNT, _ROWS, _INNER = 16, 4, 512  # of products, their rows, and what they sum over


def with_others(text: str) -> str:
    """Returns a program that also computes products of a few rows with matrices of 128 to 600 KB, and a function and a
    sum of each.
    """
    before, root = text.rsplit("ROOT ", 1)
    name, shape = re.findall(r"^(\w+) = (\([^()]*\)|\S+) ", root)[0]
    first = text.rsplit("ENTRY", 1)[1].count(" parameter(")
    lines = [f"other = f32[{_ROWS},{_INNER}] parameter({first})", "nothing = f32[] constant(0)"]
    for n in range(_COUNT):
        weight, made = f"f32[{_INNER},{64 + 16 * n}]", f"f32[{_ROWS},{64 + 16 * n}]"
        lines += [
            f"ow{n} = {weight} parameter({first + 1 + n})",
            f"od{n} = {made} dot(other, ow{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
            f"oe{n} = {made} {_KINDS[n % len(_KINDS)]}(od{n})",
            f"os{n} = f32[{_ROWS}] reduce(oe{n}, nothing), dimensions={{1}}, to_apply=add",
        ]
    shapes, names = ", ".join([f"f32[{_ROWS}]"] * _COUNT), ", ".join(f"os{n}" for n in range(_COUNT))
    lines.append(f"ROOT both = ({shape}, {shapes}) tuple({name}, {names})")
    return before + root[:-1] + "\n".join(lines) + "\n}"

"""Adds other work to programs of the calibration, after which caches no longer hold the code of Python.

A program repeated alone finds all of it in place; a step of a model runs hundreds of kernels between two of its parts
that Python runs. So some programs are measured with and without kernels of many kinds that touch more than the second
cache holds, and some with and without small updates by Python, whose code takes their place in the first caches.
"""

from __future__ import annotations

import re

_KINDS = ("exponential", "tanh", "logistic", "negate", "abs", "log", "sqrt", "cosine")
_UPDATED, _UPDATES = 64, 24  # numbers in an array, and how many there are
_COUNT, _ROWS, _INNER = 16, 4, 512  # of products, their rows, and what they sum over


def with_others(text: str) -> str:
    """Returns a program that also computes products of a few rows with matrices of 128 to 600 KB, and a function and a
    sum of each.
    """
    before, name, shape, first = _parts(text)
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
    return before + "\n".join(lines) + "\n}"


def with_updates(text: str) -> str:
    """Returns a program that also computes small arrays, each with an element that Python puts into the one before:
    machine code reads no unsigned indices of 64 bits.
    """
    before, name, shape, first = _parts(text)
    lines = [f"us0 = f32[{_UPDATED}] parameter({first})", "at = u64[] constant(0)"]
    for n in range(_UPDATES):
        lines += [
            f"un{n} = f32[{_UPDATED}] negate(us{n})", f"up{n} = f32[1] slice(un{n}), slice={{[0:1]}}",
            f"ue{n} = f32[1] exponential(up{n})", f"us{n + 1} = f32[{_UPDATED}] dynamic-update-slice(un{n}, ue{n}, at)",
        ]  # fmt: skip
    lines.append(f"ROOT both = ({shape}, f32[{_UPDATED}]) tuple({name}, us{_UPDATES})")
    return before + "\n".join(lines) + "\n}"


def _parts(text: str) -> tuple[str, str, str, int]:
    """Returns a program without ROOT and its end, the name and the shape of its result, and the number of parameters.
    """
    before, root = text.rsplit("ROOT ", 1)
    name, shape = re.findall(r"^(\w+) = (\([^()]*\)|\S+) ", root)[0]
    return before + root[:-1], name, shape, text.rsplit("ENTRY", 1)[1].count(" parameter(")

"""Adds other work to programs of the calibration, after which caches no longer hold the code of Python.

A program repeated alone finds all of it in place; a step of a model runs hundreds of kernels between two of its parts
that Python runs. So some programs are measured with and without kernels of many kinds that touch more than the second
cache holds, and some with and without small updates by Python, whose code takes their place in the first caches.
"""

from __future__ import annotations

import re

_KINDS = ("exponential", "tanh", "logistic", "negate", "abs", "log", "sqrt", "cosine")
_UPDATED, _UPDATES = 64, 24  # numbers in an array, and how many there are
OTHERS, OTHER_ROWS, _INNER = 16, 4, 512  # products, their rows, and what they sum over


def with_others(text: str) -> str:
    """Returns a program that also computes products of a few rows with matrices of 128 to 600 KB, and a function and a
    sum of each.
    """
    before, name, shape, first = _parts(text)
    given = [f"other = f32[{OTHER_ROWS},{_INNER}] parameter({first})", "nothing = f32[] constant(0)"]
    lines, sums = others("", "other", _INNER, first + 1)
    shapes = ", ".join([f"f32[{OTHER_ROWS}]"] * len(sums))
    lines.append(f"ROOT both = ({shape}, {shapes}) tuple({name}, {', '.join(sums)})")
    return before + "\n".join([*given, *lines]) + "\n}"


def others(end: str, rows: str, inner: int, first: int) -> tuple[list[str], list[str]]:
    """Returns the lines of such products of a few rows of so many numbers, whose names end so, with parameters from the
    first one on, and the names of their sums. Each adds to the constant `nothing`.
    """
    lines, sums = list[str](), [f"os{n}{end}" for n in range(OTHERS)]
    for n, made_sum in enumerate(sums):
        weight, made = f"f32[{inner},{64 + 16 * n}]", f"f32[{OTHER_ROWS},{64 + 16 * n}]"
        lines += [
            f"ow{n}{end} = {weight} parameter({first + n})",
            f"od{n}{end} = {made} dot({rows}, ow{n}{end}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
            f"oe{n}{end} = {made} {_KINDS[n % len(_KINDS)]}(od{n}{end})",
            f"{made_sum} = f32[{OTHER_ROWS}] reduce(oe{n}{end}, nothing), dimensions={{1}}, to_apply=add",
        ]
    return lines, sums


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

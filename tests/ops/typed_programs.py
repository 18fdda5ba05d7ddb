"""Programs of every op with elements of every type: templates, and what a type makes of them.

A template is the text of a module, written for one element type E: `E[3,4]` is an array of it. Result shapes that
follow from the operands are left out. Other words depend on E too:

- `B[` the unsigned type as wide as E, or E itself if it is complex;
- `ZERO`, `LIST` literals of E: zero (or one, where there is none), and an array of two numbers;
- `MAXIMUM` that op, or `multiply` for complex numbers, of which XLA finds no maximum among devices.

Which types an op takes is not written here: the verifier says so. Element-wise ops need no templates of their own.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache

from hloom.frontends import parse
from hloom.ir.diagnostics import CompileError
from hloom.ir.graph.module import Module
from hloom.ir.graph.op import OPS
from hloom.ir.ops.elementwise import Elementwise
from hloom.ir.tools.verifier import verify
from hloom.ir.types.element_type import ELEMENT_TYPES
from ops import templates_control, templates_data, templates_numbers
from ops.template import one

# Types that compute alike, or might; every type that numpy has and XLA runs (see `type_gaps`).
CLASSES: dict[str, tuple[str, ...]] = {
    "pred": ("pred",),
    "signed": ("s8", "s16", "s32", "s64"),
    "unsigned": ("u8", "u16", "u32", "u64"),
    "sub-byte": ("s2", "s4", "u2", "u4"),
    "small float": (
        "f4e2m1fn",
        "f8e3m4",
        "f8e4m3",
        "f8e4m3fn",
        "f8e4m3b11fnuz",
        "f8e4m3fnuz",
        "f8e5m2",
        "f8e5m2fnuz",
        "f8e8m0fnu",
    ),
    "bf16": ("bf16",),
    "f16": ("f16",),
    "f32": ("f32",),
    "f64": ("f64",),
    "complex": ("c64", "c128"),
}


def _element_wise() -> dict[str, tuple[str, ...]]:
    arities = {opcode: op.arity[0] for opcode, op in OPS.items() if isinstance(op, Elementwise)}
    return {
        opcode: tuple(one(opcode, " ".join([shape] * arity), inputs="special") for shape in ("E[64]", "E[5,9]"))
        for opcode, arity in arities.items()
    }


TEMPLATES = {
    **_element_wise(),
    **templates_data.TEMPLATES,
    **templates_numbers.TEMPLATES,
    **templates_control.TEMPLATES,
}


@dataclass(frozen=True, eq=False)
class Program:
    """A template with an element type in it, and its module."""

    element: str
    text: str
    module: Module


def text_of(template: str, element: str) -> str:
    """The template for one type."""
    own = ELEMENT_TYPES[element]
    bits = element if own.is_complex else f"u{own.bits}"
    zero = "(0, 0)" if own.is_complex else "1" if element == "f8e8m0fnu" else "0"
    two = "{(1, 0), (0, 1)}" if own.is_complex else f"{{1, {zero}}}"
    text = re.sub(r"\bE\[", f"{element}[", template.replace("MAXIMUM", "multiply" if own.is_complex else "maximum"))
    return re.sub(r"\bB\[", f"{bits}[", text).replace("LIST", two).replace("ZERO", zero)


@cache
def accepted(opcode: str) -> dict[str, tuple[Program, ...]]:
    """The programs of an op that are right, by type: those that the verifier has nothing to say about."""
    found: dict[str, tuple[Program, ...]] = {}
    for element in (e for elements in CLASSES.values() for e in elements):
        programs = [_program(template, element) for template in TEMPLATES[opcode]]
        if any(programs):
            found[element] = tuple(p for p in programs if p)
    return found


def first_accepted(opcode: str, element: str) -> Program | None:
    """The first program of an op that is right for a type."""
    return next(filter(None, (_program(template, element) for template in TEMPLATES[opcode])), None)


def _program(template: str, element: str) -> Program | None:
    text = text_of(template, element)
    try:
        module = parse(text)
    except CompileError:
        return None
    return None if verify(module) else Program(element, text, module)


def one_of_each(opcode: str, without: Collection[str] = ()) -> dict[str, Program]:
    """A program of each class, by class: other types for the next op, other templates for the next class."""
    found: dict[str, Program] = {}
    for number, (name, elements) in enumerate(CLASSES.items()):
        taken = [accepted(opcode)[e] for e in elements if e in accepted(opcode) and e not in without]
        if taken:
            programs = taken[list(TEMPLATES).index(opcode) % len(taken)]
            found[name] = programs[number % len(programs)]
    return found


def chosen(opcode: str, without: Collection[str] = ()) -> dict[str, list[Program]]:
    """Programs of all types, by class: each of the types and of the templates at least once."""
    found: dict[str, list[Program]] = {}
    for name, elements in CLASSES.items():
        taken = [accepted(opcode)[e] for e in elements if e in accepted(opcode) and e not in without]
        count = max(len(taken), *map(len, taken)) if taken else 0
        found[name] = [programs[n % len(programs)] for n in range(count) for programs in [taken[n % len(taken)]]]
    return found

"""Patterns: small trees of ops to look for.

    found = match(instruction, P("add", P("dot").bind("d"), P.any("bias")))
    found["d"], found["bias"]

A pattern looks at an instruction and, through its operands, at what it is computed from. Matching tries every way (an
`any_order` pattern has several) and takes the first. A name bound twice must be the same instruction both times.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..graph.computation import Computation
from ..graph.instruction import Instruction

Bindings = Mapping[str, Instruction]
_NOTHING: Bindings = {}


@dataclass(frozen=True, init=False)
class P:
    """A pattern: `P("dot")` is any dot, `P("add", P("dot"), P.any())` an add whose first operand is a dot.

    Operand patterns, if there are any, must be as many as the operands. Keywords are attributes that must have these
    values (`P("compare", direction="LT")`); enums and words are compared by their text, lists as tuples. `P(("add",
    "subtract"))` takes either opcode.
    """

    opcodes: frozenset[str] | None
    operands: tuple[P, ...] | None
    attributes: tuple[tuple[str, Any], ...]
    name: str | None = None
    ordered: bool = True
    conditions: tuple[Callable[[Instruction], bool], ...] = ()

    def __init__(self, opcode: str | Iterable[str], *operands: P, **attributes: Any) -> None:
        opcodes = frozenset([opcode] if isinstance(opcode, str) else opcode)
        values = {"opcodes": opcodes, "operands": operands or None, "attributes": tuple(attributes.items())}
        for field, value in values.items():
            object.__setattr__(self, field, value)

    @staticmethod
    def any(name: str | None = None) -> P:
        """Any instruction; bound to `name` if there is one."""
        return P(())._with(opcodes=None, name=name)

    def bind(self, name: str) -> P:
        """The same pattern; what it matches is called `name` in the answer."""
        return self._with(name=name)

    def any_order(self) -> P:
        """The same pattern; the operands may come in any order, as those of `add` and `multiply` do."""
        return self._with(ordered=False)

    def where(self, condition: Callable[[Instruction], bool]) -> P:
        """The same pattern, for instructions of which the condition is true."""
        return self._with(conditions=(*self.conditions, condition))

    def used_once(self) -> P:
        """The same pattern, for instructions that one operand of one instruction refers to: safe to fold away."""
        return self.where(lambda i: sum(i.users.values()) == 1)

    def _with(self, **changes: Any) -> P:
        copy = object.__new__(P)
        for field in dataclasses.fields(self):
            object.__setattr__(copy, field.name, changes.get(field.name, getattr(self, field.name)))
        return copy

    def _fits(self, instruction: Instruction) -> bool:
        """Whether the instruction fits, its operands left aside."""
        return (
            (self.opcodes is None or instruction.opcode in self.opcodes)
            and all(_same(getattr(instruction.attributes, name, None), value) for name, value in self.attributes)
            and all(condition(instruction) for condition in self.conditions)
        )

    def bindings(self, instruction: Instruction, known: Bindings = _NOTHING) -> Iterator[Bindings]:
        """Every way to match the instruction that agrees with the names bound so far."""
        if not self._fits(instruction):
            return
        if self.name is not None:
            if known.get(self.name, instruction) is not instruction:
                return
            known = {**known, self.name: instruction}
        if self.operands is None:
            yield known
        elif len(self.operands) == len(instruction.operands):
            orders = [self.operands] if self.ordered else itertools.permutations(self.operands)
            for patterns in orders:
                yield from _operands(list(zip(patterns, instruction.operands, strict=True)), known)


def _operands(pairs: list[tuple[P, Instruction]], known: Bindings) -> Iterator[Bindings]:
    if not pairs:
        yield known
        return
    pattern, operand = pairs[0]
    for found in pattern.bindings(operand, known):
        yield from _operands(pairs[1:], found)


def _same(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, str) and not isinstance(value, str):
        return str(getattr(value, "value", value)) == wanted
    return value == (tuple(wanted) if isinstance(wanted, list) else wanted)  # pyright: ignore[reportUnknownArgumentType]


def match(instruction: Instruction, pattern: P) -> Bindings | None:
    """What the names of the pattern stand for if it matches at this instruction, else None."""
    return next(pattern.bindings(instruction), None)


def find_all(computation: Computation, pattern: P) -> list[tuple[Instruction, Bindings]]:
    """Every instruction at which the pattern matches, in order, each with what the names stand for. It is safe to edit
    the computation while going through the list; whoever removes what a later match holds must look out for that.
    """
    found = ((i, match(i, pattern)) for i in computation)
    return [(i, bindings) for i, bindings in found if bindings is not None]

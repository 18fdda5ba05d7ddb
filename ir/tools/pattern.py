"""Patterns: small trees of ops to search for.

    found = match(instruction, P("add", P("dot").bind("d"), P.any("bias")))
    found["d"], found["bias"]

A pattern matches an instruction and, through its operands, its producers. Matching tries every assignment of operands
(an `any_order` pattern has several) and takes the first. A name bound twice must be the same instruction both times.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..checked_call import checked
from ..graph.computation import Computation
from ..graph.instruction import Instruction
from ..graph.module import Module, clone_module

Bindings = Mapping[str, Instruction]
_NOTHING: Bindings = {}


@dataclass(frozen=True, init=False)
@checked
class P:
    """A pattern: `P("dot")` is any dot, `P("add", P("dot"), P.any())` an add whose first operand is a dot.

    Operand patterns, if given, must be as many as the operands. Keywords are attributes that must have these values
    (`P("compare", direction="LT")`); enums and identifiers are compared as text, lists as tuples. `P(("add",
    "subtract"))` matches either opcode.
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
        """Returns a pattern that matches any instruction, bound to `name` if given."""
        return P(())._with(opcodes=None, name=name)

    def bind(self, name: str) -> P:
        """Returns this pattern with its instruction bound to `name` in the result."""
        return self._with(name=name)

    def any_order(self) -> P:
        """Returns this pattern with operands in any order, as for the commutative `add` and `multiply`."""
        return self._with(ordered=False)

    def where(self, condition: Callable[[Instruction], bool]) -> P:
        """Returns this pattern restricted to instructions that satisfy the condition."""
        return self._with(conditions=(*self.conditions, condition))

    def used_once(self) -> P:
        """Returns this pattern restricted to instructions with exactly one use, which are safe to fold away."""
        return self.where(lambda i: sum(i.users.values()) == 1)

    def _with(self, **changes: Any) -> P:
        copy = object.__new__(P)
        for field in dataclasses.fields(self):
            object.__setattr__(copy, field.name, changes.get(field.name, getattr(self, field.name)))
        return copy

    def _fits(self, instruction: Instruction) -> bool:
        """Whether the instruction matches, ignoring its operands."""
        return (
            (self.opcodes is None or instruction.opcode in self.opcodes)
            and all(_same(getattr(instruction.attributes, name, None), value) for name, value in self.attributes)
            and all(condition(instruction) for condition in self.conditions)
        )

    def bindings(self, instruction: Instruction, known: Bindings = _NOTHING) -> Iterator[Bindings]:
        """Yields the bindings of every match of the instruction that agrees with the names bound so far."""
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


@checked
def match(instruction: Instruction, pattern: P) -> Bindings | None:
    """Returns the bindings of the pattern's names if it matches at this instruction, else None."""
    return next(pattern.bindings(instruction), None)


@checked
def find_all(computation: Computation, pattern: P) -> list[tuple[Instruction, Bindings]]:
    """Returns every instruction at which the pattern matches, in order, with the bindings of the names.

    The computation may be edited while iterating over the list, but later matches may then hold removed instructions.
    """
    found = ((i, match(i, pattern)) for i in computation)
    return [(i, bindings) for i, bindings in found if bindings is not None]


def edited(module: Module, pattern: P, edit: Callable[[Computation, Instruction, Bindings], None]) -> Module:
    """Returns a copy in which a function has changed every match of a pattern; the module itself if there is none."""
    if not any(find_all(computation, pattern) for computation in module):
        return module
    copy = clone_module(module)
    for computation in copy:
        for instruction, bindings in find_all(computation, pattern):
            edit(computation, instruction, bindings)
    return copy

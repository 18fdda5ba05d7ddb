"""The generic local form: runs an op on tiles, and leaves results partial over divided reduction factors.

Every op passes through this module. An op whose tile needs more than the same op on smaller operands (an offset, a
mask, other attributes, data of other devices) has a *local form*: a function that emits the instruction, given
operands in the tilings of the assignment. A form that communicates also returns how long that takes. Everything else
about the op stays generic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ....cost.machine import Transfer
from ....ir import origin
from ....ir.brief import brief
from ....ir.diagnostics import CompileError, InternalError, fail
from ....ir.factors.sharding_rule import FactorKind, Monoid, ShardingRule
from ....ir.graph.host_memory import placed
from ....ir.graph.instruction import Instruction
from ....ir.graph.monoid import exact_identity
from ....ir.graph.op import Role
from ....ir.ops.calls.custom_call import has_fixed_layout
from ....ir.ops.structure import GetTupleElementAttributes
from ....ir.sharding.digit import Digits
from ....ir.sharding.tiling import Tiling
from ....ir.tools.mixed_precision import computed
from ....ir.types.shape import Shape, tuple_shape
from ...op_sharding.assignment import Assignment, LocalForm, OpSharding
from .emitter import Emitter, LocalValue
from .resharder import Resharder


@brief
@dataclass(frozen=True, slots=True)
class LocalOp:
    """An op about to be emitted: the global instruction, its rule, the chosen assignment, operands in their tilings.

    `results` are the tilings of the result's leaves, without partial digits. Forms communicate through `resharder`;
    `why` names the op in the causes of their collectives.
    """

    instruction: Instruction
    rule: ShardingRule
    assignment: Assignment
    operands: Sequence[LocalValue]
    results: Sequence[Tiling]
    emitter: Emitter
    resharder: Resharder
    why: str

    def local_shape(self) -> Shape:
        """Returns the shape of the local result."""
        whole = list(self.instruction.shape.leaves())
        leaves = tuple(t.local_shape(s) for s, t in zip(whole, self.results, strict=True))
        if has_fixed_layout(self.instruction):
            leaves = tuple(replace(leaf, layout=s.layout) for leaf, s in zip(leaves, whole, strict=True))
        return with_leaves(self.instruction.shape, iter(leaves))

    def emit(self, operands: Sequence[Instruction] | None = None, shape: Shape | None = None) -> Instruction:
        """Emits the op on tiles (or on `operands` with a result of `shape`), with attributes for the local sizes."""
        given = self._packed() if operands is None else operands
        shape = shape or self.local_shape()
        op = self.instruction.op
        attributes = op.localize(self.instruction.call, [o.shape for o in given], shape)
        made = self.emitter.add(op.opcode, given, attributes, shape, name=self.instruction.name)
        made.backend_config = self.instruction.backend_config
        if place := placed(self.instruction):
            made.frontend_attributes = place
        return made

    def _packed(self) -> list[Instruction]:
        """Returns the tiles of the operands; those of a tuple as one value."""
        leaves = iter([v.instruction for v in self.operands])
        return [pack(self.emitter, operand.shape, leaves) for operand in self.instruction.operands]

    def only_first(self, value: Instruction) -> Instruction:
        """Returns `value` on the first of the devices that reduce together, the monoid's identity on the others."""
        assert self.rule.monoid is not None
        identity = exact_identity(self.rule.monoid, value.shape.element)
        return self.emitter.only_first(self.reduced_digits(), value, identity)

    def rounds(self, digits: Digits) -> Transfer:
        """Returns the cost of a collective-permute along these digits."""
        return self.resharder.machine.collective("collective-permute", digits, self.emitter.order)

    def reduced_digits(self) -> Digits:
        """Returns the digits by which reduction factors are divided."""
        return tuple(d for f in self.reduced_factors() for d in self.assignment[f])

    def reduced_factors(self) -> list[int]:
        """Returns the reduction factors that are divided."""
        return [f for f, d in self.assignment.items() if d and self.rule.factors[f].kind is FactorKind.REDUCTION]


def with_leaves(shape: Shape, leaves: Iterator[Shape]) -> Shape:
    """Replaces the leaves of the shape by the next ones of `leaves`."""
    return tuple_shape(tuple(with_leaves(part, leaves) for part in shape.elements)) if shape.is_tuple else next(leaves)


def pack(emitter: Emitter, shape: Shape, parts: Iterator[Instruction]) -> Instruction:
    """Packs the next leaves of `parts` into the structure of this (global) shape: an array, or (nested) tuples."""
    if not shape.is_tuple:
        return next(parts)
    elements = [pack(emitter, element, parts) for element in shape.elements]
    return emitter.add("tuple", elements, shape=tuple_shape(tuple(e.shape.plain() for e in elements)))


def emit_local(op: OpSharding, local: LocalOp) -> list[LocalValue]:
    """Emits one op; returns its result leaves, unreduced over the digits of divided reduction factors."""
    operands = [masked(local, i) for i in range(len(local.operands))]
    clean = local if operands == local.operands else replace(local, operands=operands)
    result = _formed(op.form, clean) if op.form is not None else clean.emit()
    reduced = op.reduced(local.assignment)
    leaves = list(local.instruction.shape.leaves())
    monoid = Monoid.ADD if op.partial_digits else local.rule.monoid
    parts = elements(local.emitter, result, local.instruction.shape)
    return [
        LocalValue(part, shape, t.partial(reduced, op.order) if reduced else t, monoid)
        for part, shape, t in zip(parts, leaves, local.results, strict=True)
    ]


def _formed(form: LocalForm, local: LocalOp) -> Instruction:
    """Runs a local form. Raises InternalError with the name of a form that fails or gives another shape than that of
    the tile, and CompileError if that is an op of mixed precision, for which forms are not made.
    """
    name = f"local form of {local.instruction.opcode}" + (
        f" ({origin.described(form.emit)})" if origin.is_foreign(form.emit) else "")
    try:
        result: Any = form.emit(local)
    except (CompileError, InternalError, MemoryError):
        raise
    except Exception as error:
        _refuse_mixed(local.instruction)
        raise InternalError(f"raised {type(error).__name__}: {error}", name) from error
    wanted = local.local_shape()
    if not isinstance(result, Instruction):
        raise InternalError(f"gives {result!r:.60}, not an Instruction", name)
    if not result.shape.compatible(wanted):
        _refuse_mixed(local.instruction)
        raise InternalError(f"gives {result.shape.without_layout()}, the tile is {wanted.without_layout()}", name)
    return result


def _refuse_mixed(instruction: Instruction) -> None:
    if computed(instruction) is not None:
        fail(f"pass spmd-partition cannot divide {instruction.opcode} {instruction.name}, which is of mixed precision",
             instruction.location, help="run pass uniform-precision before it")


def elements(emitter: Emitter, value: Instruction, shape: Shape) -> list[Instruction]:
    """Returns the leaves of a local value whose global shape is `shape`."""
    if not shape.is_tuple:
        return [value]
    if value.op.role is Role.TUPLE:  # reading through a tuple would keep its unused elements alive
        parts = list(value.operands)
    else:
        numbers = range(len(shape.elements))
        shapes = [element.plain() for element in value.shape.elements]
        parts = [emitter.add("get-tuple-element", (value,), GetTupleElementAttributes(n), shapes[n]) for n in numbers]
    return [leaf for part, inner in zip(parts, shape.elements, strict=True) for leaf in elements(emitter, part, inner)]


def masked(local: LocalOp, number: int) -> LocalValue:
    """Returns the operand with the monoid's identity as padding in dimensions reduced across devices or in a padded
    tile.
    """
    value = local.operands[number]
    masked = local.rule.masked
    if local.rule.monoid is None or (masked is not None and number not in masked):
        return value
    reduced = set(local.reduced_factors())
    dims = [d for d, factors in enumerate(local.rule.operands[number]) if reduced.intersection(factors)]
    if not dims:
        return value
    return local.emitter.fill_outside(value, dims, local.rule.monoid)

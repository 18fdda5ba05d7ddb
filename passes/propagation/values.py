"""The graph of propagation: the leaves of values, and relations between them.

A `Leaf` is one array inside a value (an array value has one, a tuple value one per element); its `LeafState` holds the
digits found so far for each dimension. A `RuleRelation` ties leaves together by a sharding rule. Every op adds a
relation; data flow through tuples and control flow adds identities. Leaves that must be sharded alike (the state of a
loop as seen by the loop, its condition and its body; an element of a tuple and the tuple's own leaf) are one object.

Every digit of every dimension is either annotated or came through one op from one dimension of another leaf (`Cause`).
In a conflict two leaves want the same factor divided differently, or the same digits for different factors: one of them
is resharded there.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Flag
from typing import Any, NamedTuple

from ...ir.brief import brief
from ...ir.factors.sharding_rule import ShardingRule, elementwise_rule
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.graph.op import OpCall, Role
from ...ir.ops.control import WhileAttributes
from ...ir.ops.structure import ParameterAttributes, element_index
from ...ir.sharding.digit import Digits
from ...ir.sharding.sharding import Sharding, leaf_shardings
from ...ir.sharding.tiling import Tiling, known_tiling
from ...ir.types.shape import Shape
from ..op_sharding.anywhere import is_made_of_scalars
from ..op_sharding.rules import Rules, rule_of


class PropagationDirection(Flag):
    """Directions in which shardings pass through a relation: from operands to results, from results to operands."""

    NONE = 0
    FORWARD = 1
    BACKWARD = 2
    BOTH = 3


class LeafState(NamedTuple):
    """The properties of a leaf that decide a propagation step, as a hashable value, so that equal steps run once.

    `dims` has the digits of each dimension, which grow unless the dimension is `closed`. No dimension may use `blocked`
    digits. `sizes` are the array's dimensions, `width` the bytes of an element. A `receive_only` value accepts offers
    and makes none.
    """

    dims: tuple[Digits, ...]
    closed: tuple[bool, ...]
    blocked: Digits
    sizes: tuple[int, ...]
    width: int
    receive_only: bool = False


Pending = tuple[int, Digits, bool]  # dimension, digits, whether the dimension is closed


@brief
@dataclass(eq=False, slots=True)
class Leaf:
    """One array inside a value.

    `instruction` computes the value. `causes` records per dimension where its digits came from, major first.
    `annotation` is the annotated instruction, if any. `pending` holds the annotations with a priority: per priority,
    (dimension, digits, closed). Until its round such a dimension is empty and closed, and its digits are blocked. The
    value is a partial sum over `unreduced` digits; the program itself divides work by `manual` digits. A leaf with a
    `fixed_sharding` (another device order, a single device) keeps it and takes no part in propagation.
    """

    shape: Shape
    instruction: Instruction
    dims: tuple[Digits, ...]
    closed: tuple[bool, ...]
    causes: list[list[Gain]]
    made_of_scalars: bool = False
    replicated: Digits = ()
    unreduced: Digits = ()
    manual: Digits = ()
    pending: dict[int, list[Pending]] = field(default_factory=dict[int, list[Pending]])
    fixed_sharding: Sharding | None = None
    annotation: Instruction | None = None
    relations: list[RuleRelation] = field(default_factory=list["RuleRelation"])

    @property
    def annotated(self) -> bool:
        return self.annotation is not None

    def blocked(self) -> Digits:
        """Returns the digits that propagation may not use for any dimension."""
        if not (self.replicated or self.unreduced or self.manual or self.pending):
            return ()
        waiting = tuple(d for dims in self.pending.values() for _, digits, _ in dims for d in digits)
        return self.replicated + self.unreduced + self.manual + waiting

    def state(self) -> LeafState:
        width = self.shape.element.byte_size
        return LeafState(self.dims, self.closed, self.blocked(), self.shape.dims, width, self.receive_only)

    @property
    def receive_only(self) -> bool:
        """Whether the value makes no offers: any device can compute any tile of it, and nobody annotated it.

        Such a value does not tie its users together, as each could have its own.
        """
        return self.made_of_scalars and self.annotation is None

    @property
    def is_replicated(self) -> bool:
        """Whether every device holds all of it, under the digits found so far."""
        if self.fixed_sharding is not None:
            return self.tiling(None).is_replicated
        return not any(self.dims) and not self.unreduced

    def tiling(self, order: tuple[int, ...] | None) -> Tiling:
        """Returns the tiling with the digits found so far."""
        if self.fixed_sharding is not None:
            return self.fixed_sharding.tiling(self.shape.rank)
        return known_tiling(self.dims, self.unreduced, order, self.manual)


class Cause(NamedTuple):
    """The op that brought digits, and the dimension of the leaf that they came from."""

    via: Instruction
    source: Leaf
    dim: int


class Gain(NamedTuple):
    """Digits that a dimension got at one time, major to minor; `cause` is None for annotated digits."""

    digits: Digits
    cause: Cause | None


@dataclass(frozen=True, slots=True)
class LeafDigits:
    """Digits on one dimension of a leaf."""

    leaf: Leaf
    dim: int
    digits: Digits


@dataclass(frozen=True, slots=True)
class Conflict:
    """At the op `via`, the digits of `lost` give way to those of `kept`.

    `kept` has other digits for the same factor, or the same digits for another factor, or is closed without digits.
    `received` estimates the bytes that each device receives because of the conflict.
    """

    relation: RuleRelation
    kept: LeafDigits
    lost: LeafDigits
    received: int

    @property
    def via(self) -> Instruction:
        return self.relation.instruction


@brief
@dataclass(eq=False, slots=True)
class RuleRelation:
    """A sharding rule that ties leaves: the operands' leaves, then the results', as the rule numbers them.

    `allowed` are the directions that the program permits (a propagation barrier forbids one or both). At the border of
    a manual region `outer` has the number of the value outside, and for each of its dimensions the digits that the
    region divides manually. `depth` is that of the instruction (see `ValueGraph`). `call` is that of the relation of an
    op between its operands and results, one object for equal calls; None for other ties.
    """

    rule: ShardingRule
    leaves: list[Leaf]
    instruction: Instruction
    depth: tuple[int, ...]
    call: OpCall[Any] | None = None
    allowed: PropagationDirection = PropagationDirection.BOTH
    outer: tuple[int, tuple[Digits, ...]] | None = None

    @property
    def is_group(self) -> bool:
        """Whether this ties values of a sharding group, none of which is computed from the others."""
        return self.call is None and not self.rule.operands


class ValueGraph:
    """The leaves of all instructions of a module, and the relations between them; `solve` fills in `conflicts`.

    `depths` holds the length of the longest path to an instruction from the start of its computation, after the depth
    of the control-flow op that calls the computation. Operands come first in this order, whatever the order of
    instructions.

    `stands` maps instructions of the entry to equal ones before them, whose leaves they get; they add no relations, and
    only the root uses them with those that they stand for.

    Assumption: every control-flow op owns the computations it calls (see the call inliner), and calls are inlined.
    """

    def __init__(
        self, module: Module, rules: Rules | None = None, stands: Mapping[Instruction, Instruction] | None = None
    ) -> None:
        self.rules = rules or {}
        self._stands = stands or {}
        self._known_rules: dict[tuple[str, OpCall[Any]], tuple[ShardingRule, OpCall[Any]]] = {}
        self._kinds: dict[Hashable, _Kind] = {}  # by the identities of what instructions of equal layers share
        self.leaves: dict[Instruction, list[Leaf]] = {}
        self.relations: list[RuleRelation] = []
        self.conflicts: list[Conflict] = []
        self.depths: dict[Instruction, tuple[int, ...]] = {}
        self._visit(module.entry, None, ())

    def _visit(
        self, computation: Computation, parameters: Sequence[list[Leaf]] | None, around: tuple[int, ...]
    ) -> list[Leaf]:
        depths = self.depths
        for instruction in computation:
            above = 0
            for operand in instruction.operands:
                if (depth := depths[operand][-1]) > above:
                    above = depth
            depths[instruction] = (*around, above + 1)
            if (stand := self._stands.get(instruction)) is not None:
                self.leaves[instruction] = self.leaves[stand]
            elif instruction.op.role is Role.PARAMETER and parameters is not None:
                self.leaves[instruction] = parameters[instruction.attributes_as(ParameterAttributes).number]
            elif (index := element_index(instruction)) is not None:
                self.leaves[instruction] = self._element(instruction, index)
            else:
                kind = self._kind(instruction)
                self.leaves[instruction] = kind.leaves(instruction)
                self._relate(instruction, kind)
        return self.leaves[computation.root]

    def _element(self, instruction: Instruction, index: int) -> list[Leaf]:
        """Returns the leaves of a tuple element: the tuple's own, or new ones for an annotated result of control flow,
        and for one whose annotation is not that of the tuple.

        The annotation of a loop's result must not decide how the loop shards the value inside.
        """
        (value,) = instruction.operands
        start, end = value.shape.leaf_range(index)
        inside = self.leaves[value][start:end]
        if instruction.annotation is None:
            return inside
        own = leaf_shardings(value.annotation, value.shape.num_leaves)[start:end]
        if not value.op.is_control and (None in own or own == leaf_shardings(instruction.annotation, len(inside))):
            return inside
        outside = _new_leaves(instruction)
        for source, result in zip(inside, outside, strict=True):
            self._identity(instruction, source, result)
        return outside

    def _kind(self, instruction: Instruction) -> _Kind:
        """Returns the kind of an instruction. Readers make one object of equal attributes, and of equal shapes."""
        key = (
            instruction.op, id(instruction.attributes), id(instruction.shape),
            *[id(operand.shape) for operand in instruction.operands], *instruction.config_and_rule,
        )  # fmt: skip
        found = self._kinds.get(key)
        if found is None:
            found = self._kinds[key] = _Kind(instruction)
        return found

    def _relate(self, instruction: Instruction, kind: _Kind) -> None:
        results = self.leaves[instruction]
        operands = [self.leaves[o] for o in instruction.operands]
        if instruction.op.is_control:
            self._relate_control(instruction, operands, results)
        elif kind.passes_tuples:
            # A done or an outfeed has other leaves than its operand; corresponding leaves of equal shape are alike.
            is_tuple = instruction.op.role is Role.TUPLE
            first = _shared(instruction, results, self._stands) if is_tuple and self._stands else results
            for source, result, same in zip([x for leaves in operands for x in leaves], results, first, strict=False):
                if source.shape.dims == result.shape.dims and result is same:
                    self._identity(instruction, source, result)
            self.leaves[instruction] = first
        elif kind.has_rule:
            if kind.tie is None:
                kind.tie = self._rule(instruction)
            rule, call = kind.tie
            flat = [x for leaves in operands for x in leaves] + results
            self.relate(RuleRelation(rule, flat, instruction, self.depths[instruction], call))

    def _rule(self, instruction: Instruction) -> tuple[ShardingRule, OpCall[Any]]:
        """Returns the rule and the call of an instruction: the same objects for equal uses of an op."""
        call = instruction.call
        if not instruction.operands:  # a constant: the key would compare its value
            return rule_of(instruction.op, call, self.rules, instruction.location), call
        known = self._known_rules.get((instruction.opcode, call))
        if known is None:
            rule = rule_of(instruction.op, call, self.rules, instruction.location)
            known = self._known_rules[instruction.opcode, call] = rule, call
        return known

    def _relate_control(self, instruction: Instruction, operands: list[list[Leaf]], results: list[Leaf]) -> None:
        called = instruction.called()
        if instruction.op.role is Role.LOOP:
            state = results
            for source, leaf in zip(operands[0], state, strict=True):
                self._identity(instruction, source, leaf)
            for computation in called:
                roots = self._visit(computation, [state], self.depths[instruction])
                if computation is instruction.attributes_as(WhileAttributes).body:
                    for source, leaf in zip(roots, state, strict=True):
                        self._identity(instruction, source, leaf)
            return
        # A call or a conditional: operands reach the parameters, roots the result.
        is_call = instruction.op.role is Role.CALL
        arguments = operands if is_call else operands[1:]
        for index, computation in enumerate(called):
            given = arguments if is_call else [arguments[index]]
            parameters = [_new_leaves(p) for p in computation.parameters]
            for sources, leaves in zip(given, parameters, strict=True):
                for source, leaf in zip(sources, leaves, strict=True):
                    self._identity(instruction, source, leaf)
            roots = self._visit(computation, parameters, self.depths[instruction])
            for source, leaf in zip(roots, results, strict=True):
                self._identity(instruction, source, leaf)

    def _identity(self, instruction: Instruction, source: Leaf, result: Leaf) -> None:
        if source is not result and source.shape.is_array:
            rule = elementwise_rule([source.shape], [result.shape])
            self.relate(RuleRelation(rule, [source, result], instruction, self.depths[instruction]))

    def relate(self, relation: RuleRelation) -> None:
        """Adds a relation."""
        self.relations.append(relation)
        for leaf in dict.fromkeys(relation.leaves):
            leaf.relations.append(relation)


class _Kind:
    """The properties that uses of an op with equal attributes and shapes share. `tie` has their rule and their call."""

    def __init__(self, instruction: Instruction) -> None:
        self.shapes = tuple(instruction.shape.leaves())
        self.made_of_scalars = is_made_of_scalars(instruction)
        operands = [o.shape for o in instruction.operands]
        self.passes_tuples = any(s.is_tuple for s in operands) or instruction.op.role is Role.TUPLE
        leaves = [leaf for s in operands for leaf in s.leaves()]
        self.has_rule = bool(self.shapes) and all(s.is_array for s in (*leaves, *self.shapes))
        self.tie: tuple[ShardingRule, OpCall[Any]] | None = None

    def leaves(self, instruction: Instruction) -> list[Leaf]:
        """Returns new leaves for an instruction of this kind."""
        free = self.made_of_scalars
        return [
            Leaf(shape, instruction, ((),) * shape.rank, (False,) * shape.rank, [[] for _ in shape.dims], free)
            for shape in self.shapes
        ]


def _shared(tie: Instruction, leaves: list[Leaf], stands: Mapping[Instruction, Instruction]) -> list[Leaf]:
    """Returns the leaves of a tuple: where other operands stand for some, theirs."""
    parts: list[list[Leaf]] = []
    of: dict[Instruction, list[list[Leaf]]] = {}
    start = 0
    for operand in tie.operands:
        parts.append(leaves[start : start + operand.shape.num_leaves])
        start += operand.shape.num_leaves
        of.setdefault(operand, []).append(parts[-1])
    rest = {operand: iter(of[stand]) for operand in of if (stand := stands.get(operand)) is not None}
    return [x for o, part in zip(tie.operands, parts, strict=True) for x in (next(rest[o]) if o in rest else part)]


def _new_leaves(instruction: Instruction) -> list[Leaf]:
    return _Kind(instruction).leaves(instruction)

"""Chains: a product, ops on rows of its result, and a product that reads their results.

    s = f32[8,512,512] dot(q, k)
    p = f32[8,512,512] ...            a softmax of s
    o = f32[8,512,64] dot(p, v)

Sharding rules say which dimensions of the values count the same index. Along one that all ops of a chain only carry,
parts of a chain can be computed one after the other, each from parts of its operands.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...ir.analysis.fusion_values import FusionValues
from ...ir.analysis.loop_form import LoopForm, form_of
from ...ir.brief import brief
from ...ir.factors.sharding_rule import FactorKind
from ...ir.graph.instruction import Instruction
from ...ir.ops.dot import Dot, DotAttributes

_RESULT = -1
Node = tuple[Instruction, int, int]
"""A dimension of a value: whose operand (or `_RESULT`) it is, and its number."""


@brief
@dataclass(eq=False)
class Indices:
    """The dimensions that count the same index, joined by the rules of ops. A value that no member makes has other
    indices in each of its uses: one counter may count rows and columns.
    """

    members: Mapping[Instruction, None]
    _added: list[Instruction] = field(default_factory=list["Instruction"])
    _above: dict[Node, Node] = field(default_factory=dict["Node", "Node"])
    _refused: set[Node] = field(default_factory=set["Node"])
    folded: dict[Node, list[Instruction]] = field(default_factory=dict["Node", "list[Instruction]"])

    def add(self, instruction: Instruction) -> None:
        """Joins the dimensions that share a factor."""
        self._added.append(instruction)
        rule = instruction.op.sharding_rule(instruction.call)
        values = [*((n, v) for n, v in enumerate(rule.operands)), (_RESULT, rule.results[0])]
        nodes: dict[int, list[Node]] = {}
        for number, value in values:
            for dim, factors in enumerate(value):
                for factor in factors:
                    nodes.setdefault(factor, []).append(self._node(instruction, number, dim))
        for factor, found in nodes.items():
            for node in found[1:]:
                one, other = self._root(node), self._root(found[0])
                if one != other:
                    self._above[one] = other
            if factor in rule.compound:
                self._refused.add(found[0])
            if rule.factors[factor].kind is FactorKind.REDUCTION:
                self.folded.setdefault(found[0], []).append(instruction)

    def _node(self, user: Instruction, number: int, dim: int) -> Node:
        if number != _RESULT and user.operands[number] in self.members:
            return user.operands[number], _RESULT, dim
        return user, number, dim

    def _root(self, node: Node) -> Node:
        while node in self._above:
            node = self._above[node]
        return node

    def index(self, user: Instruction, number: int, dim: int) -> Node:
        """Returns the index that a dimension of an operand counts."""
        return self._root(self._node(user, number, dim))

    def dim(self, value: Instruction, index: Node, reader: Instruction | None = None, number: int = -1) -> int | None:
        """Returns the dimension of a value that counts an index, as operand `number` of a reader if there is one."""
        user = value if reader is None else reader
        found = (d for d in range(value.shape.rank) if self.index(user, number, d) == index)
        return next(found, None)

    def is_refused(self, index: Node) -> bool:
        """Returns whether an op splits or joins the dimension, or a value has it twice."""
        twice = any(sum(self.index(i, _RESULT, d) == index for d in range(i.shape.rank)) > 1 for i in self._added)
        return twice or any(self._root(node) == index for node in self._refused)

    def folds(self, index: Node) -> list[Instruction]:
        """Returns the ops that combine the elements along an index."""
        return [i for node, found in self.folded.items() if self._root(node) == index for i in found]


@brief
@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """A chain up to `product`, whose operand number `side` it makes. `members` are the ops before it, in order; `first`
    the products among them.
    """

    product: Instruction
    side: int
    members: tuple[Instruction, ...]
    indices: Indices

    @property
    def first(self) -> list[Instruction]:
        return [m for m in self.members if is_product(m)]

    @property
    def size(self) -> int:
        """The bytes of the largest value between the products."""
        return max(p.shape.byte_size for p in self.first)

    @property
    def made(self) -> Instruction:
        """The operand of the product that the chain makes."""
        return self.product.operands[self.side]

    @property
    def columns(self) -> Node | None:
        """The index over which the last product sums, if it is one."""
        dims = contracted(self.product, self.side)
        return self.indices.index(self.product, self.side, dims[0]) if len(dims) == 1 else None


def is_product(instruction: Instruction) -> bool:
    """Whether an instruction is a product of matrices, which blocks of rows can make."""
    return isinstance(instruction.op, Dot)


def contracted(product: Instruction, side: int) -> tuple[int, ...]:
    """Returns the dimensions of an operand over which a dot sums."""
    attributes = product.attributes_as(DotAttributes)
    return (attributes.lhs_contracting_dims, attributes.rhs_contracting_dims)[side]


def batched(product: Instruction, side: int) -> tuple[int, ...]:
    """Returns the dimensions of an operand that both operands and the result of a dot have."""
    attributes = product.attributes_as(DotAttributes)
    return (attributes.lhs_batch_dims, attributes.rhs_batch_dims)[side]


def chain_of(product: Instruction, values: FusionValues, number: Mapping[Instruction, int]) -> Chain | str:
    """Returns the chain that ends in a product, or why there is none. `number` is the place of each instruction."""
    reason = "no other product makes its operands, by ops on rows whose results nothing else needs"
    for side in range(2):
        inside = _behind(product, side, values, number)
        members = dict.fromkeys(sorted(inside, key=number.__getitem__))
        if not any(is_product(m) for m in members):
            continue
        indices = Indices(members)
        for member in (*members, product):
            indices.add(member)
        return Chain(product, side, tuple(members), indices)
    return reason


def _behind(
    product: Instruction, side: int, values: FusionValues, number: Mapping[Instruction, int]
) -> dict[Instruction, None]:
    """Returns the ops that make an operand, as far back as nothing else needs their results, and up to products."""
    inside = dict[Instruction, None]()
    waiting = [(-number[product.operands[side]], product.operands[side])]
    seen = set[Instruction]()
    while waiting:
        _, instruction = heapq.heappop(waiting)
        if instruction in seen:
            continue
        seen.add(instruction)
        is_own = all(user is product or user in inside for user in instruction.users)
        is_root = instruction is values.computation.root
        if is_root or not _carries(instruction) or not (is_own or values.is_free(instruction)):
            continue
        inside[instruction] = None
        if not is_product(instruction):
            waiting += [(-number[o], o) for o in instruction.operands if o not in seen]
            heapq.heapify(waiting)
    return inside


def _carries(instruction: Instruction) -> bool:
    """Returns whether an op computes elements from elements of the same indices, or combines these."""
    if not instruction.operands or instruction.control_predecessors:
        return False
    shapes = (*instruction.call.operands, instruction.shape)
    if any(not s.is_array or s.is_dynamic or 0 in s.dims for s in shapes):
        return False
    if not is_product(instruction) and not (instruction.op.is_fusible and _has_loops(instruction)):
        return False
    rule = instruction.op.sharding_rule(instruction.call)
    return not rule.reads and all(f.kind in (FactorKind.PASS, FactorKind.REDUCTION) for f in rule.factors)


def _has_loops(instruction: Instruction) -> bool:
    form = form_of(instruction)
    return isinstance(form, LoopForm) and not form.windows and not form.joint

"""Follows values through a per-device program, to see on which devices each of them is the same.

A value is a variation, a tuple the tuple of those of its elements. Computations are followed once per arguments; loops
until their state no longer changes. Numbers that follow from the device number are computed, where values follow from
such numbers and from data:

    i = u32[] partition-id()          0 1 2 3
    h = u32[] divide(i, two)          0 0 1 1: the same on devices 0 and 1, which the variation of i does not show
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..brief import brief
from ..graph.attributes import Attributes, Callee, ParameterAttributes
from ..graph.computation import Computation
from ..graph.instruction import Instruction
from ..graph.interfaces import DeviceNumber, Draws, Exchange, PassesOn
from ..graph.module import Module, Stage
from ..graph.op import AnyOp, Kernel, Role
from ..ops.collectives import CollectiveBroadcast
from ..ops.control import ConditionalAttributes, WhileAttributes
from ..ops.ragged_all_to_all import RaggedAllToAll
from ..ops.starts import Starts
from ..sharding.replica_groups import Groups
from ..sharding.sharding import Sharding, leaf_shardings
from ..sharding.tiling import Tiling
from ..tools.process_grid import ProcessGrid
from ..types.shape import Shape
from .per_device import PerDevice
from .variation import Variation, Variations

Tree = Any  # a variation, or the tuple of the trees of a tuple's elements
Calls = tuple[tuple[Instruction, int], ...]  # callers from the entry on, and the argument that they pass on; -1: all

# The kernels of these ops work on trees as on values.


@brief
@dataclass(frozen=True)
class DeviceChoice:
    """A conditional or a loop whose devices decide by this variation of its predicate, on one way from the entry."""

    instruction: Instruction
    predicate: Variation
    calls: Calls


class DeviceAgreement:
    """The variations of a program's values: of each, on all ways from the entry to it.

    `decide` sees each conditional and loop whose devices may choose differently.
    """

    def __init__(self, module: Module, decide: Callable[[DeviceChoice], None] | None = None) -> None:
        self.module = module
        self.grid = ProcessGrid.of(module)
        self.variations = Variations(self.grid.size)
        self._decide = decide
        self._numbers = PerDevice(self.grid)
        self._known: set[Instruction] = set()
        self._values: dict[Instruction, Tree] = {}
        self._placements: dict[Tiling, Variation] = {}
        self._done: dict[tuple[Computation, Hashable], Tree] = {}
        arguments = [self._argument(parameter) for parameter in module.entry.parameters]
        self._run(module.entry, tuple(arguments), ())

    def __contains__(self, value: Instruction) -> bool:
        """Whether a value was in the program, and reached, when it was followed."""
        return value in self._values

    def holds(self, value: Instruction, groups: Groups) -> bool:
        """Whether an array is bitwise equal on all members of each group. A tuple is not: ask for its elements."""
        found = self._values.get(value)
        return isinstance(found, Variation) and all(map(found.is_same_on, groups))

    def _run(self, computation: Computation, arguments: tuple[Tree, ...], calls: Calls) -> Tree:
        """Returns the tree of the root."""
        key = computation, arguments
        if key not in self._done:
            values: dict[Instruction, Tree] = {}
            for instruction in computation:
                operands = [values[o] for o in instruction.operands]
                values[instruction] = found = self._refined(
                    instruction, self._value(instruction, operands, arguments, calls)
                )
                seen = self._values.get(instruction)
                self._values[instruction] = found if seen is None else self._joined(seen, found)
            self._done[key] = values[computation.root]
        return self._done[key]

    def _refined(self, instruction: Instruction, found: Tree) -> Tree:
        """Returns the variation of a scalar by its numbers, where these follow from the device; else the given one."""
        if not instruction.shape.is_scalar or not self._known.issuperset(instruction.operands):
            return found
        numbers = self._numbers.value(instruction)
        if numbers is None:
            return found
        self._known.add(instruction)
        if found.is_same:
            return found
        bits = np.ascontiguousarray(numbers).view(f"u{min(numbers.itemsize, 8)}").reshape(self.grid.size, -1)
        return self.variations.together(*map(self.variations.of, bits.T))

    def _value(
        self, instruction: Instruction, operands: list[Tree], arguments: tuple[Tree, ...], calls: Calls
    ) -> Tree:
        op, attributes = instruction.op, instruction.attributes
        if op.role is Role.PARAMETER:
            return arguments[instruction.attributes_as(ParameterAttributes).number]
        if op.interface(PassesOn):
            return op.kernel(instruction.call, _refuse)(*operands)
        if op.role is Role.LOOP:
            return self._loop(instruction, instruction.attributes_as(WhileAttributes), operands[0], calls)
        if op.role is Role.BRANCH:
            return self._branches(instruction, instruction.attributes_as(ConditionalAttributes), operands, calls)
        if (start := op.interface(Starts)) is not None:
            form, (wrapped, inner) = start.form_of(instruction.shape), start.unwrap(attributes)
            result = self._computed(instruction, wrapped, inner, form.result_of(instruction.shape), operands, calls)
            contexts = [filled(shape, self.variations.same) for shape in form.contexts_of(instruction.shape)]
            return start.arrange(instruction.call, operands, result, contexts, tuple)
        return self._computed(instruction, op, attributes, instruction.shape, operands, calls)

    def _computed(
        self, instruction: Instruction, op: AnyOp, attributes: Attributes, shape: Shape, operands: list[Tree],
        calls: Calls,
    ) -> Tree:  # fmt: skip
        variations = self.variations
        if op.role in (Role.CALL, Role.FUSION):
            return self._run(instruction.called()[0], tuple(operands), (*calls, (instruction, -1)))
        if op.is_collective:
            return self._exchanged(instruction, op, shape, operands)
        if op.interface(DeviceNumber) or op.interface(Draws) or op.has_side_effect(attributes):
            return filled(shape, variations.different)  # hidden states and the world outside differ
        return filled(shape, variations.together(variations.same, *leaves(tuple(operands))))

    def _exchanged(self, instruction: Instruction, op: AnyOp, shape: Shape, operands: list[Tree]) -> Tree:
        groups, pairs = self.grid.members(instruction)
        exchange = op.interface(Exchange)
        variations, alike = self.variations, exchange is not None and exchange.gives_all
        if isinstance(op, CollectiveBroadcast):
            pairs = tuple((group[0], device) for group in groups for device in group)

        def result(operand: Tree) -> Variation:
            own = variations.together(variations.same, *leaves(operand))
            return variations.sent(own, pairs) if pairs or not groups else variations.grouped(own, groups, alike)

        if alike and shape.is_tuple:
            return tuple(map(result, operands))
        found = result(tuple(operands))
        if getattr(instruction.attributes, "slice_sizes", ()) or isinstance(op, RaggedAllToAll):
            found = variations.together(found, *leaves(tuple(operands)))  # where nothing arrives, elements stay
        return filled(shape, found)

    def _loop(self, loop: Instruction, attributes: WhileAttributes, state: Tree, calls: Calls) -> Tree:
        inside = (*calls, (loop, 0))
        while True:
            predicate = self._run(attributes.condition, (state,), inside)
            results = self._run(attributes.body, (state,), inside)
            before, state = state, self._joined(self._joined(state, results), predicate)
            if state == before:
                break
        self._choose(loop, predicate, calls)
        return state

    def _branches(
        self, instruction: Instruction, attributes: ConditionalAttributes, operands: list[Tree], calls: Calls
    ) -> Tree:
        result: Tree = filled(instruction.shape, operands[0])
        for number, branch in enumerate(attributes.branches, 1):
            result = self._joined(result, self._run(branch, (operands[number],), (*calls, (instruction, number))))
        self._choose(instruction, operands[0], calls)
        return result

    def _choose(self, instruction: Instruction, predicate: Variation, calls: Calls) -> None:
        if self._decide is not None and not predicate.is_same:
            self._decide(DeviceChoice(instruction, predicate, calls))

    def _joined(self, one: Tree, other: Tree) -> Tree:
        """Joins two trees of the same form, or a tree and one variation that all its leaves depend on."""
        if isinstance(one, Variation):
            return self.variations.together(one, other)
        others: Sequence[Tree] = (other,) * len(one) if isinstance(other, Variation) else other
        return tuple(self._joined(a, b) for a, b in zip(one, others, strict=True))

    def _argument(self, parameter: Instruction) -> Tree:
        found = leaf_shardings(parameter.annotation, parameter.shape.num_leaves)
        rest = iter([self._placed(sharding, leaf) for sharding, leaf in zip(found, parameter.shape.leaves())])

        def build(shape: Shape) -> Tree:
            return tuple(build(element) for element in shape.elements) if shape.is_tuple else next(rest)

        return build(parameter.shape)

    def _placed(self, sharding: Sharding | None, leaf: Shape) -> Variation:
        """Returns the variation of an array of the program's inputs. Replicas of a LOCAL program get the same inputs;
        of a foreign one nothing is known unless it says so.
        """
        is_own = self.module.stage is not Stage.GLOBAL
        if sharding is None:
            return self.variations.same if is_own else self.variations.different
        if sharding.has_manual or not leaf.is_array:
            return self.variations.different
        tiling = sharding.tiling(leaf.rank)
        if tiling.device is not None:
            return self.variations.different
        if tiling not in self._placements:
            place = np.arange(self.grid.partitions) if tiling.order is None else np.argsort(np.asarray(tiling.order))
            tile = np.zeros_like(place)
            for digit in tiling.used():
                tile = tile * digit.size + place // digit.stride % digit.size
            apart = np.arange(self.grid.replicas) * (0 if is_own else int(tile.max()) + 1)
            self._placements[tiling] = self.variations.of(np.add.outer(apart, tile).ravel())
        return self._placements[tiling]


def leaves(tree: Tree) -> Iterator[Variation]:
    """Yields the variations of a tree."""
    if isinstance(tree, Variation):
        yield tree
    else:
        for part in tree:
            yield from leaves(part)


def filled(shape: Shape, variation: Variation) -> Tree:
    """Returns the tree of a value whose leaves all vary alike."""
    return tuple(filled(element, variation) for element in shape.elements) if shape.is_tuple else variation


def _refuse(callee: Callee) -> Kernel:
    raise AssertionError(f"{callee.name} is applied to elements")

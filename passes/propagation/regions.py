"""Manual regions: the parts of a program that divide work by themselves (`shard_map`).

A region begins at `SPMDFullToShardShape`, which makes a value local along the manual axes, and ends at
`SPMDShardToFullShape`; annotations may put parameters into a region from the beginning. It contains the values computed
from local values, the values that only they use, and all computations that it calls. Shardings of values inside may not
use manual axes (`Leaf.manual`). Free axes propagate inside as elsewhere, and through the borders: a dimension outside
has the manual digits first, followed by its digits inside.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from ...ir.brief import brief
from ...ir.diagnostics import Diagnostics, fail
from ...ir.factors.sharding_rule import elementwise_rule
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.graph.op import Role
from ...ir.ops.calls.custom_call import custom_calls, target_of
from ...ir.sharding.digit import Digits, cut, disjoint, merge, product, refine
from .shardy_regions import INTO, OUT_OF, SHARDY_INTO, SHARDY_OUT_OF, check_sides
from .values import RuleRelation, ValueGraph

Stack = tuple[Digits, ...]  # the manual digits of the regions around a value, outermost first


def mark_regions(
    module: Module, graph: ValueGraph, marked: Collection[Instruction], diagnostics: Diagnostics
) -> None:
    """Sets the manual digits of leaves inside manual regions, and relates both sides of the borders. `marked` are all
    annotated instructions, and all custom-calls.
    """
    targets = {i: target for i in custom_calls(marked) if (target := target_of(i)) is not None}
    for instruction, target in targets.items():
        if target in (SHARDY_INTO, SHARDY_OUT_OF):
            diagnostics.error(f"{instruction.name} is the border of a manual region in Shardy's form",
                              instruction.location, help="run the pass shardy-regions before propagation")
    borders = [i for i, target in targets.items() if target in (INTO, OUT_OF)]
    if not borders and not any(leaf.manual for instruction in marked for leaf in graph.leaves[instruction]):
        return
    for border in borders:
        if not border.shape.is_array or len(border.operands) != 1:
            fail(f"{border.name} is the border of a manual region for {len(border.operands)} operands and the result "
                 f"{border.shape}", border.location, help="a border takes one array and gives one")
        check_sides(border, border.operands[0], border.shape)
    regions = _Regions(graph)
    regions.visit(module.entry, ())
    for instruction, stack in regions.stacks.items():
        for leaf in graph.leaves.get(instruction, ()) if stack else ():
            cuts = refine(stack)
            leaf.manual = merge(sorted({d for part in stack for d in cut(part, cuts)}, key=lambda d: -d.stride))
            if not all(disjoint(digits, leaf.manual) for digits in (*leaf.dims, leaf.unreduced)):
                diagnostics.error(f"{instruction.name} is divided or summed along axes of the manual region it lies in",
                                  instruction.location, help="inside, only the other axes are free for shardings")
    for border in borders:
        _tie(border, graph, diagnostics)


@brief
@dataclass
class _Regions:
    """Finds the manual regions around each value.

    `by_annotation` are the values that are in a region because of annotations alone; another annotation ends it.
    """

    graph: ValueGraph
    stacks: dict[Instruction, Stack] = field(default_factory=dict[Instruction, Stack])
    by_annotation: set[Instruction] = field(default_factory=set[Instruction])

    def visit(self, computation: Computation, around: Stack) -> None:
        """Finds the stacks of all values of a computation whose parameters are within `around`."""
        for instruction in computation:
            stack = self._forward(instruction, around)
            if stack is not None:
                self.stacks[instruction] = stack
        for instruction in reversed(list(computation)):
            if instruction not in self.stacks:
                # It depends on no parameter: it belongs to the region of its users, if they share one.
                users = {self._as_operand(u) for u in instruction.users if u in self.stacks}
                if users or instruction is computation.root or target_of(instruction) in (INTO, OUT_OF):
                    self.stacks[instruction] = users.pop() if len(users) == 1 else around
        for instruction in computation:
            if instruction not in self.stacks:
                # Nothing reads it, as nothing reads a sharding group: it belongs to the region of its operands.
                self.stacks[instruction] = max((self.stacks[o] for o in instruction.operands), key=len, default=around)
        for instruction in computation:
            for called in instruction.called() if instruction.op.is_control else ():
                self.visit(called, self.stacks[instruction])

    def _forward(self, instruction: Instruction, around: Stack) -> Stack | None:
        """Returns the stack that follows from the operands; None if none of them has any."""
        if instruction.op.role is Role.PARAMETER:
            return around or self._annotated_region(instruction)
        found = [s for o in instruction.operands if (s := self.stacks.get(o)) is not None]
        target = target_of(instruction)
        if target == INTO:
            own = self.graph.leaves[instruction][0].manual
            return (*max(found, key=len, default=around), own)
        if target == OUT_OF:
            return max(found, key=len)[:-1] if found else None
        if not found:
            return None
        stack = max(found, key=len)
        by_annotation = any(o in self.by_annotation for o in instruction.operands)
        if not stack or (by_annotation and instruction.annotation is not None):
            return self._annotated_region(instruction)
        if by_annotation:
            self.by_annotation.add(instruction)
        return stack

    def _annotated_region(self, instruction: Instruction) -> Stack:
        """Returns the region that a value's annotation names, for a value that entered none through a border."""
        manual = {leaf.manual for leaf in self.graph.leaves.get(instruction, ())}
        stack = (digits,) if len(manual) == 1 and (digits := manual.pop()) else ()
        if stack:
            self.by_annotation.add(instruction)
        return stack

    def _as_operand(self, user: Instruction) -> Stack:
        """Returns the stack of the operands of a user."""
        stack, target = self.stacks[user], target_of(user)
        if target == OUT_OF:
            return (*stack, self.graph.leaves[user.operands[0]][0].manual)
        return stack[:-1] if target == INTO else stack


def _tie(border: Instruction, graph: ValueGraph, diagnostics: Diagnostics) -> None:
    source, result = graph.leaves[border.operands[0]][0], graph.leaves[border][0]
    outside, inside = (source, result) if target_of(border) == INTO else (result, source)
    parts = [_split(digits, inside.manual) for digits in outside.dims]
    prefixes = tuple(prefix for prefix, _ in parts)
    left = [digit for _, rest in parts for digit in rest if not disjoint((digit,), inside.manual)]
    sizes = tuple(n // product(p) for n, p in zip(outside.shape.dims, prefixes, strict=True))
    if left or sizes != inside.shape.dims:
        tiles = "x".join(str(product(p)) for p in prefixes)
        diagnostics.error(
            f"{border.name}: {outside.shape.without_layout()} outside of the manual region and "
            f"{inside.shape.without_layout()} inside do not fit its sharding by {tiles} along manual axes",
            border.location, help="in every dimension the manual axes come first, and their product divides it; "
                                  "a region's shapes are those of the mesh that it was written for")  # fmt: skip
        return
    # The value outside may use the region's axes only as its annotation says: others must stay unused.
    cuts = refine([*outside.dims, inside.manual])
    taken = [d for digits in outside.dims for d in digits]
    outside.replicated += tuple(d for d in cut(inside.manual, cuts) if disjoint((d,), taken))
    rule = elementwise_rule([inside.shape], [inside.shape])
    number = 0 if outside is source else 1
    graph.relate(RuleRelation(rule, [source, result], border, graph.depths[border], outer=(number, prefixes)))


def _split(digits: Digits, manual: Digits) -> tuple[Digits, Digits]:
    """Returns the manual digits at the beginning of a dimension, and the rest."""
    pieces = cut(digits, refine([manual]))
    count = next((i for i, d in enumerate(pieces) if disjoint((d,), manual)), len(pieces))
    return merge(pieces[:count]), pieces[count:]

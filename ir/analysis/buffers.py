"""Alias analysis: whether an instruction's results share memory with its operands, or have memory of their own.

Leaves of operands are numbered through all operands. Tuples, elements of tuples, views and barriers share memory, and
so do moves that keep the order of the elements in memory. Starts hold their operands and their result, which the done
returns. Updates of slices, loops and fusions that end in an update may write in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate, pairwise
from typing import Any

from ..graph.computation import Computation
from ..graph.instruction import Instruction
from ..graph.interfaces import Memory, Movement, PassesOn, memory, sources_of
from ..graph.op import AnyOp, OpCall, Role
from ..graph.source import RowMajor
from ..ops.async_ops import AsyncDone, form_of
from ..ops.control import WhileAttributes
from ..ops.starts import Starts
from ..ops.structure import GetTupleElementAttributes, ParameterAttributes
from ..tools.aliases import aliases, leaf_number
from ..types.shape import first_leaves

Leaf = int | None
"""The number of a leaf of the operands; None for new memory."""

_PASS_ON = (Role.ELEMENT, Role.CALL, Role.LOOP, Role.FUSION)
_NAMES_MEMORY = "output_to_operand_aliasing"  # the attribute that may say where results lie


@cache
def makes_anew(op: AnyOp) -> bool:
    """Whether all uses of an op allocate their results, as far as the op alone decides it."""
    if op.interface(Memory) or op.is_control or op.role in _PASS_ON:
        return False
    if hasattr(op.attributes, _NAMES_MEMORY) or op.interface(Starts) or op.interface(PassesOn):
        return False
    moves = op.interface(Movement)
    return moves is None or type(moves).sources is Movement.sources


@cache
def _moves_alone(op: AnyOp) -> bool:
    """Whether the result of an op is the array of its operand or new memory, and nothing in the program says which."""
    if memory(op).shares_memory or op.role in (*_PASS_ON, Role.DONE):
        return False
    return not (hasattr(op.attributes, _NAMES_MEMORY) or op.interface(Starts))


def shared(instruction: Instruction, results: Mapping[Computation, Sequence[Leaf]]) -> Sequence[Leaf]:
    """Maps each leaf of the result to the leaf of the operands that it is, or that the program says it aliases; None
    for its own memory.

    `results` maps the roots of called computations to their parameters in the same way.
    """
    if _moves_alone(instruction.op):
        return _moved(instruction)
    found = _shared(instruction, results)
    aliasing = getattr(instruction.attributes, _NAMES_MEMORY, None)
    if aliasing is None:
        return found
    changed, firsts = list(found), _first_leaves(instruction)
    for alias in aliases(str(aliasing)):
        result = leaf_number(instruction.shape, alias.result)
        if alias.operand < len(instruction.operands) and result is not None:
            part = leaf_number(instruction.operands[alias.operand].shape, alias.part)
            changed[result] = None if part is None else firsts[alias.operand] + part
    return changed


def _shared(instruction: Instruction, results: Mapping[Computation, Sequence[Leaf]]) -> Sequence[Leaf]:
    op, shape = instruction.op, instruction.shape
    if memory(op).shares_memory:
        return range(shape.num_leaves)
    if op.role is Role.ELEMENT:
        firsts = first_leaves(instruction.operands[0].shape)
        index = instruction.attributes_as(GetTupleElementAttributes).index
        return range(firsts[index], firsts[index + 1])
    if (start := op.interface(Starts)) is not None:
        return _started(start, instruction)
    if isinstance(op, AsyncDone):
        operand = instruction.operands[0].shape
        place = form_of(op.form, operand).result
        return range(shape.num_leaves) if place is None else range(*operand.leaf_range(place))
    if op.role is Role.CALL:
        return results[instruction.called()[0]]
    if op.role is Role.LOOP:
        passed = results[body_of(instruction)]
        return [n if passed[n] == n else None for n in range(shape.num_leaves)]
    return _moved(instruction)


def _moved(instruction: Instruction) -> Sequence[Leaf]:
    """Returns the operand's leaf where an op shows it in its order, else new memory."""
    if instruction.operands and (memory(instruction.op).is_view or _keeps_order(instruction)):
        return (0,)
    return (None,) * instruction.shape.num_leaves


def body_of(loop: Instruction) -> Computation:
    """Returns the computation that a loop applies to its state."""
    return loop.attributes_as(WhileAttributes).body


def _first_leaves(instruction: Instruction) -> list[int]:
    """Returns the number of the first leaf of each operand, and the total."""
    return list(accumulate((o.shape.num_leaves for o in instruction.operands), initial=0))


def _started(op: Starts, instruction: Instruction) -> Sequence[Leaf]:
    """Returns the leaves of a start's value: its operands, which it aliases, the result, contexts of the back end."""
    operands = [tuple[Leaf, ...](range(a, b)) for a, b in pairwise(_first_leaves(instruction))]
    form = op.form_of(instruction.shape)
    result: tuple[Leaf, ...] = (None,) * form.result_of(instruction.shape).num_leaves
    contexts: list[tuple[Leaf, ...]] = [(None,) * c.num_leaves for c in form.contexts_of(instruction.shape)]
    return op.arrange(instruction.call, operands, result, contexts, _joined)


def _joined(parts: tuple[tuple[Leaf, ...], ...]) -> tuple[Leaf, ...]:
    return tuple(leaf for part in parts for leaf in part)


def _keeps_order(instruction: Instruction) -> bool:
    """Whether an op only moves elements, and keeps their order in memory."""
    operand, result = instruction.operands[0].shape, instruction.shape
    if len(instruction.operands) != 1 or not operand.is_array or operand.num_elements != result.num_elements:
        return False
    sources = sources_of(instruction)
    if sources is None or len(sources) != 1:
        return False
    (source,) = sources
    if isinstance(source, RowMajor):
        return True
    if any(along.stride != 1 or along.offset for along in source):
        return False
    placed = [source[d].dim for d in reversed(operand.minor_to_major) if operand.dims[d] != 1]
    return placed == [d for d in reversed(result.minor_to_major) if result.dims[d] != 1]


@cache
def _may_rewrite(op: AnyOp) -> bool:
    """Whether results of an op may overwrite operands, as far as the op alone decides it."""
    if op.is_elementwise:
        return False
    return op.role in (Role.LOOP, Role.FUSION) or bool(op.interface(Starts) or op.interface(Memory))


def rewritten(instruction: Instruction) -> dict[int, int]:
    """Maps leaves of the result to leaves of the operands that they may overwrite, if nothing reads these later."""
    op = instruction.op
    if not _may_rewrite(op):
        return {}
    if op.role is Role.LOOP:
        return {n: n for n in range(instruction.shape.num_leaves)}
    if op.role is Role.FUSION:
        firsts = _first_leaves(instruction)
        return {leaf: firsts[number] for leaf, number in _updated(instruction.called()[0])}
    start = op.interface(Starts)
    if start is None:
        return _overwritten(op, instruction.call)
    call = instruction.call
    form, (started, attributes) = start.form_of(call.shape), start.unwrap(call.attributes)
    inner = replace(call, attributes=attributes, shape=form.result_of(call.shape))
    first = 0 if form.result is None else call.shape.leaf_range(form.result)[0]
    return {first + leaf: operand for leaf, operand in _overwritten(started, inner).items()}


def _overwritten(op: AnyOp, call: OpCall[Any]) -> dict[int, int]:
    """Maps leaves of the result to the operands, all arrays, that they overwrite."""
    taken = memory(op).overwritten(call)
    return dict(enumerate(n for n in range(len(call.operands)) if n in taken))


def _updated(fused: Computation) -> Iterator[tuple[int, int]]:
    """Yields the results of a fusion that update a parameter in place, which nothing else in the fusion reads."""
    root = fused.root
    results = root.operands if root.op.role is Role.TUPLE else [root]
    for leaf, result in enumerate(results):
        update, _ = _behind_views(result)
        taken = _overwritten(update.op, update.call)
        source, is_alone = _behind_views(update.operands[taken[0]]) if len(taken) == 1 else (update, False)
        if is_alone and isinstance(source.attributes, ParameterAttributes) and source.shape.is_array:
            yield leaf, source.attributes.number


def _behind_views(value: Instruction) -> tuple[Instruction, bool]:
    """Looks through views to the value, and returns whether it has no other user on the way."""
    is_alone = len(value.users) == 1
    while memory(value.op).is_view and value.operands:
        value = value.operands[0]
        is_alone &= len(value.users) == 1
    return value, is_alone

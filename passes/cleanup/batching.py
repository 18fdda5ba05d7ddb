"""Indices that count along a batch dimension: makes them batching dimensions of gathers and scatters.

    Before:  gather(x, concatenate(iota, i)), where the iota (or a constant) counts the rows of x   x[row, i[row, ..]]
    After:   gather(x, i) with the rows as a batching dimension of both

Each row then indexes only its own row, which concatenated indices hide: rows can be divided without communication.
Programs from before gather had batching dimensions are written that way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.graph.op import AnyOp
from ...ir.ops.conversion import Convert, Copy
from ...ir.ops.gather import Indexed, Indexing
from ...ir.ops.shaping import Broadcast, BroadcastAttributes, ConcatenateAttributes, IotaAttributes, Reshape
from ...ir.ops.structure import constant_array
from ...ir.types.shape import Shape
from ..base import Pass, PassContext

_COUNT_ON = (Convert, Copy, Broadcast, Reshape)  # ops whose result counts along a dimension if their operand does


@dataclass(frozen=True)
class IndexBatching(Pass):
    """Turns index components that are iotas into batching dimensions."""

    name: ClassVar[str] = "index-batching"

    def run(self, module: Module, context: PassContext) -> bool:
        changed = 0
        for computation in module:
            found = [(i, i.attributes) for i in computation.having(_is_indexed) if isinstance(i.attributes, Indexed)]
            done = sum(_rewrite(computation, *use) for use in found)
            if done:
                computation.sort()
            changed += done
        return changed > 0


def _is_indexed(op: AnyOp) -> bool:
    return issubclass(op.attributes, Indexed)


def _rewrite(computation: Computation, user: Instruction, attributes: Indexed) -> bool:
    place = len(user.operands) // 2  # the indices stand in the middle
    indices, operand = user.operands[place], user.operands[0].shape
    if indices.attributes != ConcatenateAttributes((attributes.index_vector_dim,)):
        return False
    tied = _ties(attributes, list(indices.operands), operand)
    if len(tied) == len(indices.operands):
        # An index vector has at least one entry: the smallest dimension, the least worth dividing, keeps its index.
        del tied[min(tied, key=lambda number: operand.dims[tied[number][0]])]
    if not tied:
        return False
    rest = [part for number, part in enumerate(indices.operands) if number not in tied]
    joined = rest[0]
    if len(rest) > 1:
        joined = computation.add("concatenate", rest, indices.attributes, like=indices)
    computation.set_operand(user, place, joined)
    old, ties = attributes.indexing, dict(tied.values())
    index_map, single = (tuple(d for d in dims if d not in ties) for dims in (old.index_map, old.single))
    batching = tuple(sorted((*old.batching, *ties.items())))
    user.attributes = attributes.with_indexing(Indexing(index_map, single, batching))
    return True


def _ties(attributes: Indexed, parts: list[Instruction], operand: Shape) -> dict[int, tuple[int, int]]:
    """Returns for each part that counts the operand dimension that it indexes and the dimension along which it counts.
    """
    index_map, single = attributes.indexing.index_map, attributes.indexing.single
    taken = {attributes.index_vector_dim, *(counted for _, counted in attributes.indexing.batching)}
    found: dict[int, tuple[int, int]] = {}
    component = 0
    for number, part in enumerate(parts):
        components = part.shape.dims[attributes.index_vector_dim]
        dim = index_map[component] if components == 1 else None
        component += components
        counted = _counted_dim(part) if dim in single else None
        if dim is None or counted is None or counted in taken or part.shape.dims[counted] != operand.dims[dim]:
            continue
        found[number] = dim, counted
        taken.add(counted)
    return found


def _counted_dim(value: Instruction) -> int | None:
    """Returns the dimension along which a value is 0, 1, 2, .., and constant along all others; None if that is not
    known.
    """
    chain = [value]
    while isinstance(chain[-1].op, _COUNT_ON):
        chain.append(chain[-1].operands[0])
    if any(not v.shape.element.is_integer or v.shape.element.bits < 32 for v in chain):
        return None  # the numbers could wrap around
    dim = _counted_from(chain.pop())
    while chain and dim is not None:
        dim = _counted_on(chain.pop(), dim)
    return dim


def _counted_from(value: Instruction) -> int | None:
    """Returns the dimension along which an iota or a constant counts."""
    if isinstance(value.attributes, IotaAttributes):
        return value.attributes.iota_dimension
    array = constant_array(value)
    if array is None:
        return None
    for dim, size in enumerate(array.shape):
        rows = np.moveaxis(array, dim, -1)
        if size > 1 and np.array_equal(rows, np.broadcast_to(np.arange(size, dtype=np.int64), rows.shape)):
            return dim
    return None


def _counted_on(value: Instruction, inner: int) -> int | None:
    """Returns the dimension along which a value counts whose operand counts along `inner`."""
    if isinstance(value.attributes, BroadcastAttributes):
        return value.attributes.dimensions[inner]
    if not isinstance(value.op, Reshape):
        return inner
    source = value.operands[0].shape.dims
    before = [d for d, n in enumerate(source) if n > 1]
    after = [d for d, n in enumerate(value.shape.dims) if n > 1]
    alike = [source[d] for d in before] == [value.shape.dims[d] for d in after]
    return after[before.index(inner)] if alike and inner in before else None

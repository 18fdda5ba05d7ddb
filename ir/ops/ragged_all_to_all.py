"""ragged-all-to-all: devices exchange slices of different sizes along the first dimension.

Operands: input, output, input_offsets, send_sizes, output_offsets, recv_sizes. For each device of the group in order,
the lists give the rows of the input to send there, the rows of *its* output to fill, and the number of rows to receive
from it. With several slices per device the lists have several entries for each. Other rows keep the values of the
operand `output`. Source: XLA's shape inference, and the documentation of jax.lax.ragged_all_to_all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..graph.attributes import Dims
from ..graph.op import Op, ShapeError, register
from ..types.shape import Shape
from .checks import require_array, require_same_element, text
from .collective_groups import GroupAttributes, check_equal_groups, check_groups, known_group_size

_LISTS = ("input_offsets", "send_sizes", "output_offsets", "recv_sizes")


@dataclass(frozen=True, slots=True, kw_only=True)
class RaggedAllToAllAttributes(GroupAttributes):
    dimensions: Dims = ()


@register
class RaggedAllToAll(Op[RaggedAllToAllAttributes]):
    """Sends rows of each device's input, given by offsets and sizes, to the outputs of the others."""

    opcode = "ragged-all-to-all"
    attributes = RaggedAllToAllAttributes
    arity = (6, 6)
    is_collective = True

    def infer_shape(
        self, operands: Sequence[Shape], attributes: RaggedAllToAllAttributes, declared: Shape | None
    ) -> Shape:
        given, result = operands[:2]
        for what, shape in (("input", given), ("output", result)):
            require_array(self.opcode, shape, what)
            if not shape.rank:
                raise ShapeError(f"{self.opcode}: the {what} is a scalar: it has no rows")
        require_same_element(self.opcode, given, result)
        if given.dims[1:] != result.dims[1:]:
            raise ShapeError(f"{self.opcode}: rows differ: the input is {text(given)}, the output {text(result)}")
        check_groups(self.opcode, attributes.replica_groups)
        check_equal_groups(self.opcode, attributes.replica_groups)
        self._check_lists(operands[2:], known_group_size(attributes.replica_groups))
        return result

    def _check_lists(self, lists: Sequence[Shape], group: int | None) -> None:
        first = lists[0]
        for what, shape in zip(_LISTS, lists, strict=True):
            require_array(self.opcode, shape, what)
            if shape.rank not in (1, 2) or not shape.element.is_integer:
                raise ShapeError(f"{self.opcode}: {what} must be a list of integers, it is {text(shape)}")
            if shape.dims != first.dims:
                raise ShapeError(f"{self.opcode}: {what} is {text(shape)}, input_offsets is {text(first)}")
        if group is not None and first.num_elements % group:
            raise ShapeError(
                f"{self.opcode}: {text(first)} has {first.num_elements} entries, not a multiple of group size {group}"
            )

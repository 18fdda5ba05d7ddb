"""One block of a chain: copies of its ops for some rows, and for the columns that a mask lets through.

In all other columns each value of a row is the same (`mask.Uniform`), so it is computed once, in a column of size 1.
A reduction takes it as often as there are such columns. The last product multiplies it with the sum of the other
operand there: in a softmax it is 0, and the result is NaN where that operand is not finite, as without blocks. An
infinite one is multiplied with the sign that all of the other operand's numbers have there, or with 0, which is NaN, as
the sum of infinities of both signs is, and of an infinity times 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...ir.brief import brief
from ...ir.factors.sharding_rule import Monoid
from ...ir.graph.attributes import SliceDim
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from .chain import Chain, Node, batched, contracted
from .mask import Masks, Span


@brief
@dataclass(eq=False)
class Sums:
    """Sums of the rows of the last product's other operand in spans between `borders`, scaled so that they cannot
    overflow: each span is summed once for all blocks.
    """

    chain: Chain
    borders: tuple[int, ...]
    _parts: dict[tuple[Span, bool], Instruction] = field(default_factory=dict[tuple["Span", bool], Instruction])

    @property
    def count(self) -> float:
        """The power of two, not below the number of rows, by which sums are divided."""
        return float(1 << (self.borders[-1] - 1).bit_length())

    def without(self, columns: Span, signs: bool = False) -> Instruction:
        """Returns the sum of all rows but these, or of their signs."""
        low, high = columns
        spans = [s for s in zip(self.borders, self.borders[1:], strict=False) if s[1] <= low or s[0] >= high]
        total = self._part(spans[0], signs)
        for span in spans[1:]:
            total = computation_of(self.chain).build("add", total, self._part(span, signs))
        return total

    def sign(self, columns: Span) -> Instruction:
        """Returns the sign of all rows but these, where they have the same; 0 where they have not."""
        computation, total = computation_of(self.chain), self.without(columns, signs=True)
        count = self.borders[-1] - (columns[1] - columns[0])
        share = times(computation.build("abs", total), self.count)
        every = computation.build("floor", computation.build("divide", share, filled(share, count)))
        return computation.build("multiply", every, computation.build("sign", total))

    def _part(self, span: Span, signs: bool) -> Instruction:
        if (span, signs) not in self._parts:
            self._parts[span, signs] = self._sum(span, signs)
        return self._parts[span, signs]

    def _sum(self, span: Span, signs: bool) -> Instruction:
        computation, product, side = computation_of(self.chain), self.chain.product, 1 - self.chain.side
        (dim,) = contracted(product, side)
        part = sliced(product.operands[side], {dim: span})
        part = computation.build("sign", part) if signs else part
        scale = computation.constant(1 / self.count, part.shape.element.name)
        scales = computation.build("broadcast", scale, shape=scale.shape.with_dims((span[1] - span[0],)), dimensions=())
        return computation.build("dot", scales, part, lhs_contracting_dims=(0,), rhs_contracting_dims=(dim,))


@brief
@dataclass(eq=False)
class RowBlock:
    """The block of a chain for some `rows`, all columns being computed if `columns` is None."""

    chain: Chain
    index: Node
    rows: Span
    masks: Masks | None = None
    columns: Span | None = None
    sums: Sums | None = None
    _inside: dict[Instruction, Instruction] = field(default_factory=dict[Instruction, Instruction])
    _outside: dict[Instruction, Instruction] = field(default_factory=dict[Instruction, Instruction])

    def result(self) -> Instruction:
        """Appends the block's part of the last product, and returns it."""
        product = self.chain.product
        operands = [self._operand(product, n) for n in range(2)]
        found = self._copy(product, operands, self._sizes(product, product, -1, None))
        if self.columns is None or self.sums is None:
            return found
        return self._with_rest(found, self._operand(product, self.chain.side, outside=True), self.sums)

    # -- values

    def _operand(self, user: Instruction, number: int, outside: bool = False) -> Instruction:
        value = user.operands[number]
        if value in self.chain.indices.members:
            return self._out(value) if outside and self._column(value) is not None else self._in(value)
        spans = {} if self._row(value, user, number) is None else {self._row(value, user, number): self.rows}
        column = self._column(value, user, number)
        if column is not None and self.columns is not None:
            spans[column] = self.columns
        return sliced(value, {dim: span for dim, span in spans.items() if dim is not None})

    def _in(self, member: Instruction) -> Instruction:
        if member not in self._inside:
            operands = [self._operand(member, n) for n in range(len(member.operands))]
            found = self._copy(member, operands, self._sizes(member, member, -1, self.columns))
            self._inside[member] = self._folded(member, found)
        return self._inside[member]

    def _out(self, member: Instruction) -> Instruction:
        """Returns the values of the other columns, in a column of size 1."""
        if member not in self._outside:
            assert self.masks is not None
            assert self.columns is not None
            chosen = self.masks.chosen(member, self.rows, self.columns) if self._selects(member) else None
            if chosen is not None:
                found = self._operand(member, chosen, outside=True)
            else:
                operands = [self._operand(member, n, outside=True) for n in range(len(member.operands))]
                found = self._copy(member, operands, self._sizes(member, member, -1, (0, 1)))
            self._outside[member] = found
        return self._outside[member]

    def _selects(self, member: Instruction) -> bool:
        return self.masks is not None and self.masks.selects(member)

    def _folded(self, member: Instruction, found: Instruction) -> Instruction:
        """Returns a reduction's result with the other columns."""
        if self.columns is None or self.masks is None or member not in self.chain.indices.folds(self.masks.columns):
            return found
        computation, monoid = computation_of(self.chain), member.op.sharding_rule(member.call).monoid
        assert monoid is not None
        rest = computation.build("reshape", self._operand(member, 0, outside=True), shape=found.shape.without_layout())
        if monoid is Monoid.ADD:
            rest = times(rest, self._size() - (self.columns[1] - self.columns[0]))
        return computation.build(monoid.value, found, rest, like=member)

    def _with_rest(self, found: Instruction, value: Instruction, sums: Sums) -> Instruction:
        """Adds the contribution of the other columns to the last product's result."""
        assert self.columns is not None
        computation, side = computation_of(self.chain), self.chain.side
        factor = self._spread(value, side, found)
        total = self._spread(sums.without(self.columns), 1 - side, found)
        sign = self._spread(sums.sign(self.columns), 1 - side, found)
        finite = times(computation.build("multiply", factor, total), sums.count)
        infinite = computation.build("multiply", factor, sign)
        rest = computation.build("select", computation.build("is-finite", factor), finite, infinite)
        return computation.build("add", found, rest, like=self.chain.product)

    def _spread(self, part: Instruction, side: int, found: Instruction) -> Instruction:
        """Returns an operand's values, without the contracted dimension, at all elements of the last product's
        result.
        """
        product, computation, shape = self.chain.product, computation_of(self.chain), found.shape.without_layout()
        (dim,) = contracted(product, side)
        to = tuple(d for n, d in enumerate(_places(product, side)) if n != dim)
        small = part.shape.without_layout().with_dims(tuple(shape.dims[d] for d in to))
        return computation.build(
            "broadcast", computation.build("reshape", part, shape=small), shape=shape, dimensions=to
        )

    # -- shapes

    def _row(self, value: Instruction, user: Instruction | None = None, number: int = -1) -> int | None:
        return self.chain.indices.dim(value, self.index, user, number)

    def _column(self, value: Instruction, user: Instruction | None = None, number: int = -1) -> int | None:
        return None if self.masks is None else self.chain.indices.dim(value, self.masks.columns, user, number)

    def _size(self) -> int:
        """Returns the number of columns."""
        (dim,) = contracted(self.chain.product, self.chain.side)
        return self.chain.made.shape.dims[dim]

    def _sizes(self, value: Instruction, user: Instruction, number: int, columns: Span | None) -> tuple[int, ...]:
        dims = list(value.shape.dims)
        row, column = self._row(value, user, number), self._column(value, user, number)
        if row is not None:
            dims[row] = self.rows[1] - self.rows[0]
        if column is not None and columns is not None:
            dims[column] = columns[1] - columns[0]
        return tuple(dims)

    def _copy(self, old: Instruction, operands: Sequence[Instruction], dims: tuple[int, ...]) -> Instruction:
        """Appends an op of a chain for these operands, with a result of these sizes."""
        shape = old.shape.without_layout().with_dims(dims)
        attributes = old.op.localize(old.call, [o.shape for o in operands], shape)
        return computation_of(self.chain).add(old.op, operands, attributes, shape, old.name, old)


def filled(like: Instruction, number: float) -> Instruction:
    """Returns an array of the shape of another, filled with a number."""
    assert like.parent is not None
    value = like.parent.constant(int(number), like.shape.element.name)
    return like.parent.build("broadcast", value, shape=like.shape.without_layout(), dimensions=())


def times(value: Instruction, number: float) -> Instruction:
    """Returns an array times a number."""
    assert value.parent is not None
    return value.parent.build("multiply", value, filled(value, number))


def computation_of(chain: Chain) -> Computation:
    """Returns the computation of a chain."""
    found = chain.product.parent
    assert found is not None
    return found


def sliced(value: Instruction, spans: dict[int, Span]) -> Instruction:
    """Returns some parts of dimensions of a value, or the value itself if these are the whole."""
    if all(span == (0, value.shape.dims[dim]) for dim, span in spans.items()):
        return value
    assert value.parent is not None
    parts = tuple(SliceDim(*spans.get(dim, (0, size))) for dim, size in enumerate(value.shape.dims))
    return value.parent.build("slice", value, slice=parts, like=value)


def _places(product: Instruction, side: int) -> list[int]:
    """Returns the dimension of a dot's result for each dimension of an operand; -1 for contracted ones."""
    batch, gone = batched(product, side), contracted(product, side)
    free = [d for d in range(product.operands[side].shape.rank) if d not in (*batch, *gone)]
    start = product.shape.rank - len(free) if side else len(batch)
    return [-1 if d in gone else batch.index(d) if d in batch else start + free.index(d)
            for d in range(product.operands[side].shape.rank)]  # fmt: skip

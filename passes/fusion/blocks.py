"""Products in blocks: rewrites chains (`chain.Chain`) so that parts of them are computed one after the other.

    before:  s = f32[8,512,512] dot(q, k)        p = a softmax of s where a mask is true        o = dot(p, v)
    after:   s0 = f32[8,64,64] dot(q[:, 0:64], k[:, 0:64])  ..  o0 = dot(p0, v[:, 0:64])
             s1 = f32[8,64,128] dot(q[:, 64:128], k[:, 0:128])  ..  o = concatenate(o0, o1, ..)

Where the mask proves that rows need not all columns, blocks of rows leave the others out: half of the work of causal
attention. Else blocks save memory only, so they are made where the values between the products are large, along a batch
dimension if there is one: a product of few rows is slower.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ...cost.host import HOST
from ...ir.analysis.fusion_values import FusionValues
from ...ir.analysis.segments import segments
from ...ir.brief import brief
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from .block import RowBlock, Sums
from .chain import Chain, Node, batched, chain_of, contracted, is_product
from .mask import Masks, Span

MOST = 8  # blocks: more would save little of a mask's triangle, and programs grow with them
WORTH = 0.9  # of the columns: a mask that lets more through saves less than the blocks cost


@brief
@dataclass(frozen=True, slots=True, eq=False)
class BlockPlan:
    """How to make a chain in blocks of rows along an index: the columns of each are None if all are computed."""

    chain: Chain
    index: Node
    rows: tuple[Span, ...]
    masks: Masks | None = None
    columns: tuple[Span, ...] | None = None

    def __str__(self) -> str:
        if self.columns is None:
            return f"in {len(self.rows)} blocks, because the values between them are large"
        part = sum((b - a) * (d - c) for (a, b), (c, d) in zip(self.rows, self.columns, strict=True))
        share = part / (self.rows[-1][1] * max(d for _, d in self.columns))
        return f"in {len(self.rows)} blocks of rows, because a mask lets only {share:.0%} of the elements through"


@dataclass(frozen=True, slots=True)
class BlockSizes:
    """Sizes below which blocks do not pay: elements of a product, rows of a block, and bytes between the products."""

    least: int = 1 << 16
    rows: int = 32
    streamed: int = HOST.streamed


BLOCK_SIZES = BlockSizes()


@brief
@dataclass(eq=False)
class Blocks:
    """The chains of one computation that are made in blocks."""

    computation: Computation
    is_scheduled: bool = False
    sizes: BlockSizes = BLOCK_SIZES
    plans: dict[Instruction, BlockPlan] = field(default_factory=dict[Instruction, BlockPlan])
    refusals: dict[Instruction, str] = field(default_factory=dict[Instruction, str])

    def __post_init__(self) -> None:
        values = FusionValues(self.computation)
        number = {instruction: n for n, instruction in enumerate(self.computation)}
        parts = segments(self.computation, values) if self.is_scheduled else {}
        plans: list[BlockPlan] = []
        for product in [i for i in self.computation if is_product(i)]:
            chain = None if product.control_predecessors else chain_of(product, values, number)
            if isinstance(chain, Chain) and len({parts.get(m) for m in (*chain.first, product)}) > 1:
                chain = "in the schedule a collective starts or is awaited between the products"
            found = _plan(chain, self.sizes) if isinstance(chain, Chain) else chain or "it has to wait for others"
            if isinstance(found, BlockPlan):
                plans.append(found)
            else:
                self.refusals[product] = found
        self._choose(plans)

    def _choose(self, plans: Sequence[BlockPlan]) -> None:
        """Keeps the plans that save most where the last product of one is the first of another: it is made once."""
        taken = set[Instruction]()
        for plan in sorted(plans, key=lambda p: (p.columns is None, -p.chain.size)):
            ends = {plan.chain.product, *plan.chain.first}
            if taken.isdisjoint(ends):
                taken |= ends
                self.plans[plan.chain.product] = plan
            else:
                self.refusals[plan.chain.product] = "one of them is computed in blocks with another product"

    def why(self, product: Instruction) -> str | None:
        """Returns a sentence about a dot of the computation; None for other ops."""
        for plan in self.plans.values():
            if product is plan.chain.product or product in plan.chain.first:
                names = [i.name for i in (*plan.chain.first, plan.chain.product) if i is not product]
                return f"{product.name} is computed together with {', '.join(names)} {plan}"
        reason = self.refusals.get(product)
        return None if reason is None else f"{product.name} is not fused, and not computed in blocks: {reason}"

    def make(self) -> bool:
        """Rewrites all planned chains; their ops stay, without users. Returns whether there are any."""
        for product, plan in self.plans.items():
            with self.computation.at(before=product):
                result = _made(plan)
            self.computation.replace_all_uses(product, result)
            result.sharding, result.shardy = product.sharding, product.shardy
        return bool(self.plans)


def _made(plan: BlockPlan) -> Instruction:
    """Appends the blocks of a chain, and their concatenation."""
    chain, product = plan.chain, plan.chain.product
    sums = None
    if plan.columns is not None:
        size = chain.made.shape.dims[contracted(product, chain.side)[0]]
        sums = Sums(chain, tuple(sorted({0, size, *(place for span in plan.columns for place in span)})))
    parts: list[Instruction] = []
    for n, rows in enumerate(plan.rows):
        columns = None if plan.columns is None else plan.columns[n]
        is_whole = sums is None or columns == (0, sums.borders[-1])
        block = RowBlock(chain, plan.index, rows, None if is_whole else plan.masks, None if is_whole else columns, sums)
        parts.append(block.result())
    dim = chain.indices.dim(product, plan.index)
    assert product.parent is not None
    return product.parent.build("concatenate", *parts, dimensions=(dim,), shape=product.shape, like=product)


def _plan(chain: Chain, sizes: BlockSizes) -> BlockPlan | str:
    """Returns how to make a chain in blocks, or why not."""
    if max(p.shape.num_elements for p in chain.first) < sizes.least:
        return "it is small"
    return _masked(chain, sizes) or _large(chain, sizes) or _reason(chain, sizes)


def _reason(chain: Chain, sizes: BlockSizes) -> str:
    small = f"the {chain.size / 2**20:.1f} MiB between the products are less than {sizes.streamed >> 20}"
    return f"no mask is known to leave out columns of whole blocks of rows, and {small}"


def _masked(chain: Chain, sizes: BlockSizes) -> BlockPlan | None:
    """Returns the blocks of rows that a mask makes worthwhile."""
    columns, element = chain.columns, chain.product.shape.element
    exact = all(v.shape.element is element for v in chain.product.operands) and element.is_float and element.bits >= 32
    if columns is None or not exact or chain.indices.is_refused(columns):
        return None
    size = chain.made.shape.dims[contracted(chain.product, chain.side)[0]]
    for dim, index in _indices(chain):
        if dim in batched(chain.product, chain.side) or index == columns:
            continue
        rows = _spans(chain.made.shape.dims[dim], sizes.rows)
        masks = Masks(chain, index, columns)
        found = tuple(masks.kept(span) or (0, size) for span in rows)
        if len(rows) > 1 and _share(rows, found, size) < WORTH:
            return BlockPlan(chain, index, rows, masks, found)
    return None


def _share(rows: tuple[Span, ...], columns: tuple[Span, ...], size: int) -> float:
    needed = sum((b - a) * (d - c) for (a, b), (c, d) in zip(rows, columns, strict=True))
    return needed / (rows[-1][1] * size)


def _large(chain: Chain, sizes: BlockSizes) -> BlockPlan | None:
    """Returns the blocks that keep large values between the products from being in memory at once."""
    if chain.size < sizes.streamed:
        return None
    batch = batched(chain.product, chain.side)
    found = sorted(_indices(chain), key=lambda i: (i[0] not in batch, -chain.made.shape.dims[i[0]]))
    for dim, index in found:
        rows = _spans(chain.made.shape.dims[dim], 1 if dim in batch else 8 * sizes.rows)
        if len(rows) > 1 and index != chain.columns:
            return BlockPlan(chain, index, rows)
    return None


def _indices(chain: Chain) -> Iterator[tuple[int, Node]]:
    """Yields the dimensions of the last product's operand along which all products of a chain can be cut, with their
    indices.
    """
    for dim, size in enumerate(chain.made.shape.dims):
        index = chain.indices.index(chain.product, chain.side, dim)
        is_cut = not chain.indices.is_refused(index) and not chain.indices.folds(index)
        if size > 1 and is_cut and all(chain.indices.dim(p, index) is not None for p in (*chain.first, chain.product)):
            yield dim, index


def _spans(size: int, fewest: int) -> tuple[Span, ...]:
    """Cuts a dimension into at most `MOST` blocks of a multiple of `fewest`, but for the last."""
    step = math.ceil(size / MOST / fewest) * fewest
    return tuple((start, min(start + step, size)) for start in range(0, size, step))

"""Divides the batch of a step into parts that are computed independently of each other, up to the sums of gradients.

    before:  g = all-gather(x)   h = dot(g, a)   r = all-reduce(h)   y = dot(r, b)   loss = sum(y)
    after:   for each part of the rows i:  g_i = all-gather(x_i)   h_i = dot(g_i, a)   r_i = all-reduce(h_i)  ..
             loss = sum(y_1) + sum(y_2)

The order of the text takes a step of one part after that of the other, so that each part's collectives run beside the
products of the other one; the list scheduler does better still. DeepSeek's DualPipe and Domino (Wang et al., 2024) do
this by hand. Unlike `in-pieces` it joins nothing before the end of the step, if ops allow that. Collectives name their
part, and those of several parts are not combined.

The batch is the dimension of an input along which most of the products can be computed in pieces (`batch_cuts`). What
combines rows, such as gradients of weights, is added up; what needs all rows at once, such as a normalization over the
batch, gets them joined. So the numbers are those of the whole batch, but for the order of sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from ...cost.seconds import Clock
from ...cost.sizes import sized
from ...ir.brief import brief
from ...ir.diagnostics import fail
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module, Stage
from ...ir.graph.op import Role
from ...ir.ops.control import WhileAttributes
from ...ir.ops.structure import GetTupleElementAttributes
from ...ir.tools.control_flow import computations_run
from ...ir.types.shape import Shape, tuple_shape
from ..annotating.sharded_optimizer import new_values
from ..cleanup.loop_state import editable_loops, element, elements
from .batch_cuts import BatchCuts, LoopCuts, cut_along, products
from .combining import PART
from .cuts import Cut, joined, operand_cuts, piece_shape, sliced
from .rewrites.base import Edits, Rewrite, RewriteProgram, adds_in_place
from .rewrites.loops import renumber


@brief
@dataclass(frozen=True)
class SplitBatch(Rewrite):
    """Computes a step in `count` parts of the batch, if at least this share of the products' time waits for no other
    part.
    """

    name: ClassVar[str] = "split-batch"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.LOCAL})
    count: int = 2
    least: float = 0.6

    def rewrite(self, program: RewriteProgram, computation: Computation) -> bool:
        if self.count < 2:
            fail(f"pass {self.name} cannot make {self.count} parts", help="count is 2 or more")
        if computation is not program.module.entry:
            return False
        clock = Clock.of(program.module, program.context.machine)
        found = self._found(program, clock)
        if isinstance(found, str):
            program.remark(computation.root, f"the batch stays whole: {found}")
            return False
        (batch, cut), rows, joins = found.batch, found.rows(), list(found.joined())
        share = found.independent(clock)[0] / (products(clock, computation) or 1)
        _Divider(program, found, [rows * n // self.count for n in range(self.count + 1)]).divide()
        text = (f"dimension {cut.dim} of {batch.name} in {self.count} parts: {share:.0%} of the products wait for no "
                "other part")  # fmt: skip
        if joins:
            text += f"; others need {len(joins)} values as a whole ({sized(sum(i.shape.byte_size for i in joins))})"
        program.remark(batch, text)
        return True

    def _found(self, program: RewriteProgram, clock: Clock) -> BatchCuts | str:
        """Returns the division with the most products that wait for no other part, or why there is none."""
        whole, most, few = products(clock, program.module.entry), 0.0, ""
        why = "no product reads an input that can be divided"
        for tried in batch_cuts(program.module, clock):
            for found in tried:
                seconds, rows, (batch, cut) = found.independent(clock)[0], found.rows(), found.batch
                if seconds < self.least * whole or (self.least and not whole):
                    if seconds > most:
                        most = seconds
                        why = (f"in parts of dimension {cut.dim} of {batch.name} only {seconds / whole:.0%} of the "
                               "products wait for no other part")  # fmt: skip
                    break
                if rows >= self.count:
                    return found
                few = f"dimension {cut.dim} of {batch.name} has too few rows on a device: {rows}"
        return few or why


def batch_cuts(module: Module, clock: Clock) -> Iterator[list[BatchCuts]]:
    """Yields the divisions along dimensions of inputs, those with the most products that wait for no other part first:
    of inputs without a new value among the results, then of the others. Of those of one shape, as weights of equal
    layers, the first and the last count.
    """
    entry, loops = module.entry, {i for c in computations_run(module) for i in editable_loops(module, c)}
    updated = new_values(module) if entry.root.op.role is Role.TUPLE else {}
    arrays = [p for p in entry.parameters if p.shape.is_array and p.users]
    for group in ([p for p in arrays if p not in updated], [p for p in arrays if p in updated]):
        first, last = ({p.shape.dims: p for p in order} for order in (reversed(group), group))
        inputs = dict.fromkeys((*first.values(), *last.values()))
        tried = [cut_along(entry, p, dim, loops) for p in inputs for dim, n in enumerate(p.shape.dims) if n > 1]
        yield sorted(tried, key=lambda found: found.independent(clock), reverse=True)


@brief
@dataclass(slots=True)
class _Divider:
    """Emits a division with parts between these `ends`, of units of rows."""

    program: RewriteProgram
    division: BatchCuts
    ends: Sequence[int]
    pieces: dict[Instruction, list[Instruction]] = field(default_factory=dict[Instruction, "list[Instruction]"])
    wholes: dict[Instruction, Instruction] = field(default_factory=dict[Instruction, Instruction])
    entries: dict[tuple[Instruction, Cut], list[Instruction]] = field(
        default_factory=dict[tuple[Instruction, Cut], "list[Instruction]"])

    @property
    def computation(self) -> Computation:
        return self.division.computation

    def divide(self) -> None:
        """Emits the pieces and removes what they replace."""
        edits, division = Edits(self.computation), self.division
        old = list(self.computation)
        tuples = [i.operands[0] for i in (*division.loops, *division.barriers)]
        removed = {i for i in (*division.cuts, *division.sums, *division.barriers, *tuples) if i.operands}
        for i in old:
            with self.computation.at(after=i):
                if i in division.sums:
                    edits.replace(i, self._sum(i))
                elif i in division.loops:
                    self._loop(i, division.loops[i])
                elif i in division.barriers:
                    self._barriers(i, division.barriers[i])
                elif i in division.cuts and i not in self.pieces:
                    self.pieces[i] = self._pieces(i, division.cuts[i])
        for i in (i for i in old if i in division.cuts and i.operands):
            for user in [u for u in i.users if u not in removed]:
                for n in (n for n, o in enumerate(user.operands) if o is i):
                    self.computation.set_operand(user, n, self._whole(i))
            if i is self.computation.root:
                edits.replace(i, self._whole(i))
        edits.unused([i for i in old if i in removed])
        edits.finish()

    def _pieces(self, i: Instruction, cut: Cut) -> list[Instruction]:
        """Emits a value in pieces: a parameter's are slices."""
        if not i.operands:
            return self._slices(i, cut)
        needed = operand_cuts(i, cut)
        assert needed is not None
        parts = [self._operand(o, c) for o, c in zip(i.operands, needed, strict=True)]
        made = [self._piece(i, [p[n] for p in parts], self._shape(i, cut, n)) for n in range(len(self.ends) - 1)]
        for n, one in enumerate(made if i.op.is_collective else ()):
            one.frontend_attributes = {**one.frontend_attributes, PART: str(n)}
        return made

    def _shape(self, i: Instruction, cut: Cut, number: int) -> Shape:
        begin, end = self.ends[number : number + 2]
        return piece_shape(i.shape, cut, cut.rows(i.shape) * (end - begin) // self.ends[-1])

    def _piece(self, i: Instruction, operands: Sequence[Instruction], shape: Shape) -> Instruction:
        attributes = i.op.localize(i.call, [o.shape for o in operands], shape)
        made = self.computation.add(i.op, operands, attributes, shape, i.name, i)
        made.frontend_attributes, made.backend_config = i.frontend_attributes, i.backend_config
        renumber(self.program, made)
        return made

    def _operand(self, value: Instruction, cut: Cut | None) -> list[Instruction]:
        """Returns the operand of each piece."""
        if cut is None:
            return [self._whole(value)] * (len(self.ends) - 1)
        return self.pieces[value] if value in self.pieces else self._slices(value, cut)

    def _whole(self, value: Instruction) -> Instruction:
        cut = self.division.cuts.get(value)
        if cut is None or not value.operands:
            return value
        if value not in self.wholes:
            with self.computation.at(after=value):
                self.wholes[value] = joined(self.computation, self.pieces[value], cut)
        return self.wholes[value]

    def _slices(self, value: Instruction, cut: Cut) -> list[Instruction]:
        """Emits the parts of a whole value. What every row of a broadcast repeats is broadcast anew."""
        if (found := self.entries.get((value, cut))) is not None:
            return found
        rows, found = cut.rows(value.shape), list[Instruction]()
        repeats = value.op.is_fusible and len(value.operands) == 1 and operand_cuts(value, cut) == [None]
        for n, (begin, end) in enumerate(zip(self.ends, self.ends[1:], strict=False)):
            if repeats:
                found.append(self._piece(value, value.operands, self._shape(value, cut, n)))
            else:
                first, last = (rows * e // self.ends[-1] for e in (begin, end))
                found.append(sliced(self.computation, value, cut, first, last))
        self.entries[value, cut] = found
        return found

    def _sum(self, i: Instruction) -> Instruction:
        """Emits a value that combines rows: of one part after the other, or of each part and then of these."""
        parts = [self._operand(o, c) for o, c in zip(i.operands, self.division.sums[i], strict=True)]
        monoid = i.op.sharding_rule(i.call).monoid
        assert monoid is not None
        total: Instruction | None = None
        for n in range(len(self.ends) - 1):
            operands = [p[n] for p in parts]
            if total is None:
                total = self._piece(i, operands, i.shape)
            elif adds_in_place(i):
                total = self._piece(i, [total, *operands[1:]], i.shape)
            else:
                total = self.computation.add(monoid.value, (total, self._piece(i, operands, i.shape)), like=i)
        assert total is not None
        return total

    def _barriers(self, barrier: Instruction, cuts: Mapping[int, Cut]) -> None:
        """Emits a barrier for each part, so that parts do not wait for each other."""
        given = [self._operand(v, cuts.get(n)) for n, v in enumerate(barrier.operands[0].operands)]
        made = [self._tuple([g[k] for g in given]) for k in range(len(self.ends) - 1)]
        made = [self.computation.add(barrier.op, (values,), barrier.attributes, like=barrier) for values in made]
        for taken in list(barrier.users):
            if taken in self.division.cuts:
                index = taken.attributes_as(GetTupleElementAttributes).index
                with self.computation.at(after=taken):
                    self.pieces[taken] = [element(self.computation, one, index) for one in made]
            else:
                self.computation.set_operand(taken, 0, made[0])

    def _tuple(self, values: Sequence[Instruction]) -> Instruction:
        return self.computation.add("tuple", values, shape=tuple_shape(tuple(v.shape for v in values)))

    def _loop(self, loop: Instruction, found: LoopCuts) -> None:
        """Gives a loop a state of pieces: the first in the place of the whole, the others behind all elements."""
        body = loop.attributes_as(WhileAttributes).body
        inner = _Divider(self.program, found.body, self.ends)
        (start,) = loop.operands
        count, others = len(loop.shape.elements), len(self.ends) - 2
        places = {
            n: [n, *range(count + k * others, count + (k + 1) * others)] for k, n in enumerate(sorted(found.state))
        }
        new = self._state([self._operand(v, found.state.get(n)) for n, v in enumerate(start.operands)], places)
        self.computation.set_operand(loop, 0, new)
        loop.shape = new.shape
        for called in loop.called():
            (parameter,) = called.parameters
            parameter.shape = new.shape
        (parameter,) = body.parameters
        inner._take(parameter, places)
        inner._divide_body(places)
        self._take(loop, places)

    def _take(self, state: Instruction, places: Mapping[int, Sequence[int]]) -> None:
        """Takes the pieces of elements of a loop's state where these were taken."""
        for n, numbers in places.items():
            for taken in elements(state, n):
                if taken in self.division.cuts:
                    with self.computation.at(after=taken):
                        self.pieces[taken] = [element(self.computation, state, place) for place in numbers]

    def _divide_body(self, places: Mapping[int, Sequence[int]]) -> None:
        """Divides the body of a loop, whose results become pieces as its state does."""
        root = self.computation.root
        results = list(root.operands)
        self.divide()
        parts = [self.pieces[results[n]] if n in places else [o] for n, o in enumerate(root.operands)]
        edits = Edits(self.computation)
        edits.replace(root, self._state(parts, places))
        edits.unused([root])
        edits.finish()

    def _state(self, parts: Sequence[Sequence[Instruction]], places: Mapping[int, Sequence[int]]) -> Instruction:
        """Emits the state of a loop, given the parts of each element."""
        return self._tuple([p[0] for p in parts] + [v for n in places for v in parts[n][1:]])

"""Prefetches all-gathers across the trips of a loop: each trip starts the gather of the next trip's operand.

    before:  body:  g = all-gather(slice(stack, i))              after:  first: g0 = all-gather(slice(stack, 0))
                    y = dot(x, g)                                body:   next = all-gather(slice(stack, i + 1))
                                                                         y = dot(x, carried)   -- returns next

A loop over layers whose weights are divided gathers the weights of each layer just before they are used. Here a gather
overlaps the computation of a whole trip: it starts at the top of the body and is awaited at its end, where it becomes a
new element of the state. Its operands must depend on the counter and loop-invariant values alone, as slices of stacked
weights do, forwards (i) or backwards (n - 1 - i). With `barriers`, what they read behind a barrier, as rematerialized
layers do, they read before it. The state grows by the gathered values.

The last trip has nothing to prefetch. With `peel` it runs after the loop, by itself, if the loop's limit is a constant;
otherwise it gathers once more than needed, at an index past the end, and nobody reads the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ....ir.graph.computation import Computation
from ....ir.graph.instruction import Instruction
from ....ir.graph.module import Module
from ....ir.graph.op import Role
from ....ir.ops.collectives import AllGather
from ....ir.tools.control_flow import computations_run
from ....ir.tools.trip_count import trip_count
from ...cleanup.loop_state import editable_loops
from .ahead import carry_ahead, last_trip
from .base import Edits, Rewrite, RewriteProgram, amount, remove_unused, time_text
from .groups import device_groups
from .loops import (
    Foreseen,
    adjustable_counter,
    behind_barriers,
    body_of,
    run_one_trip_less_at_the_end,
    to_the_top,
)


@dataclass(frozen=True)
class PrefetchGathers(Rewrite):
    """Starts the all-gathers of a loop one trip ahead, also those of values behind `barriers`. `most_bytes` limits the
    carried bytes of a loop.
    """

    name: ClassVar[str] = "prefetch-gathers"
    peel: bool = True
    most_bytes: int = 1 << 62
    barriers: bool = True

    def passes_barriers(self, module: Module) -> bool:
        """Whether gathers of a loop read values behind barriers that would be foreseen without these."""
        bodies = [body_of(loop) for c in computations_run(module) for loop in editable_loops(module, c)]
        return any(behind_barriers(body, _gathers(body)) for body in bodies)

    def rewrite(self, program: RewriteProgram, computation: Computation) -> bool:
        loops = editable_loops(program.module, computation)
        return sum(self._prefetch(program, computation, loop) for loop in loops) > 0

    def _prefetch(self, program: RewriteProgram, computation: Computation, loop: Instruction) -> bool:
        body = body_of(loop)
        trips = trip_count(loop)
        gathers = _gathers(body)
        if not gathers:
            return False
        if trips is not None and trips < 2:
            program.remark(loop, f"runs {trips} time{'s' * (trips != 1)}: nothing to prefetch")
            return False
        changed = False
        while self.barriers and (read := behind_barriers(body, gathers)):
            changed = True
            for value, source in read.items():
                body.replace_all_uses(value, source)
                body.remove(value)
        foreseen = Foreseen.of(body)
        found = self._chosen(program, body, foreseen, gathers)
        if not found:
            return changed
        values = [v for gather in found for v in _arrays(gather)]
        size = sum(v.shape.byte_size for v in values)
        end = adjustable_counter(loop) if self.peel else None
        edits = Edits(computation)
        _, following, count = carry_ahead(program, computation, loop, foreseen, values)
        to_the_top(body, following)
        if end is not None:
            run_one_trip_less_at_the_end(loop, end)
            last_trip(program, edits, loop, count)
        edits.finish()
        time = sum(program.time("all-gather", g.shape.byte_size, device_groups(g, program.module)) for g in found)
        how = "the last trip runs after the loop" if end is not None else "the last trip gathers for nobody"
        program.remark(
            loop, f"{len(found)} all-gathers start one trip ahead: {amount(size)} more in its state, "
            f"{time_text(time)} beside each trip; {how}",
        )  # fmt: skip
        remove_unused(body, [*values, *found])
        return True

    def _chosen(
        self, program: RewriteProgram, body: Computation, foreseen: Foreseen, gathers: Sequence[Instruction]
    ) -> list[Instruction]:
        """Returns the gathers to prefetch, in order, and remarks on the others."""
        varying, found, size = foreseen.varying(body), list[Instruction](), 0
        for gather in gathers:
            if gather not in foreseen.values:
                other = next(o for o in gather.operands if o not in foreseen.values)
                program.remark(gather, f"is not prefetched: {other.name} depends on more than the counter")
            elif gather not in varying:
                program.remark(gather, "is not prefetched: it is the same in all trips", help="hoist-gathers moves it")
            elif not _is_last(gather, foreseen):
                continue
            elif size + gather.shape.byte_size > self.most_bytes:
                program.remark(gather, f"is not prefetched: {amount(size + gather.shape.byte_size)} are more than "
                               f"{amount(self.most_bytes)}")  # fmt: skip
            else:
                found.append(gather)
                size += gather.shape.byte_size
        return found


def _gathers(body: Computation) -> list[Instruction]:
    return [i for i in body if isinstance(i.op, AllGather)]


def _arrays(gather: Instruction) -> list[Instruction]:
    """Returns the arrays in a gather's result."""
    return [gather] if gather.shape.is_array else [u for u in gather.users if u.op.role is Role.ELEMENT]


def _is_last(gather: Instruction, foreseen: Foreseen) -> bool:
    """Whether a gather has uses other than foreseen gathers."""
    stack, seen = list(gather.users), set[Instruction]()
    while stack:
        user = stack.pop()
        if user not in foreseen.values or user.parent is None or user is user.parent.root:
            return True
        if user not in seen and not isinstance(user.op, AllGather):
            seen.add(user)
            stack += user.users
    return False

"""Decides which collectives go through shared memory, and opens that memory, the same on all ranks.

A set of ranks on one node shares memory unless a collective is too large for the segments. They hold the program's
collectives in flight, up to `_IN_FLIGHT` in addition to the largest one, and one more up to `_AHEAD`, so that a rank
can post it while others read the last ones. If the node has less, the collectives that do not fit go through MPI; if
memory is refused, all do.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from ...ir.brief import brief
from ...ir.diagnostics import fail
from ...ir.types.element_type import ElementType
from ...ir.types.memory import ALIGNMENT
from ..ranks.mode import MPI, SHARED
from ..ranks.watch import RankWatch
from .collective import GridCollective, Group
from .shared import words_for
from .transport import Placing
from .window import SharedWindow, WindowRefused, free_abandoned, room_per_rank

_IN_FLIGHT, _AHEAD = 64 << 20, 8 << 20  # bytes
_reported: set[str] = set()  # remarks are made once
ItemSize = Callable[[ElementType], int]  # of the arrays that hold an element type


@brief
@dataclass(frozen=True)
class Sharing:
    """Shared memory of a node: its window, with `data` bytes of data per rank, and its users: these sets of ranks of
    the node, and these collectives.
    """

    window: SharedWindow
    data: int
    sets: tuple[Group, ...]
    collectives: frozenset[GridCollective]


def place_ranks(mpi: Any, watch: RankWatch, rank_of: Sequence[int]) -> tuple[Placing, Any]:
    """Returns where the ranks are, and the communicator of this rank's node."""
    comm = watch.comm
    node = comm.Split_type(mpi.COMM_TYPE_SHARED, key=comm.rank)
    nodes = comm.allgather(node.bcast(comm.rank))
    return Placing(comm.rank, rank_of, nodes), node


def share(
    mpi: Any, watch: RankWatch, node: Any, placing: Placing, collectives: Sequence[GridCollective],
    in_flight: Sequence[Collection[GridCollective]], itemsize: ItemSize, mode: str,
) -> Sharing | None:  # fmt: skip
    """Opens the memory of this rank's node. Returns None if no ranks share any. `in_flight` lists the program's
    collectives that are in flight at the same time.

    Rank 0 prints why collectives go through MPI although memory could be shared. With `mode` "shared" that is an error.
    """
    near = {c: found for c in collectives if (found := _near(c, placing))}
    if not near or mode == MPI:
        return None
    needs = {collective: _posted_bytes(collective, placing, itemsize) for collective in near}
    most = max(needs.values())
    sets = tuple(dict.fromkeys(s for found in near.values() for s in found if placing.rank in s or _here(s, placing)))
    words = words_for(sets)
    free_abandoned(mpi, node)
    room = max(0, watch.comm.allreduce(room_per_rank(node) - 8 * words - (1 << 16), mpi.MIN))
    together = max((sum(needs.get(c, 0) for c in started) for started in in_flight), default=0)
    data = min(max(most, min(together, most + _IN_FLIGHT)) + min(most, _AHEAD), room)
    shared = frozenset(collective for collective, size in needs.items() if size <= data)
    window, problem = None, f"the largest needs {most:,} bytes per rank, there are {room:,}" if most > data else ""
    if shared:
        try:
            window = SharedWindow(mpi, node, words, data)
        except WindowRefused as error:
            problem = str(error)
    refused = [text for text in watch.comm.allgather("" if window is not None else problem) if text]
    if refused and window is not None:  # another node has none, and all must agree
        window.close()
        window = None
    problem = refused[0] if refused else problem
    if problem:
        _report(problem, mode, watch, all_of_them=bool(refused))
    return None if window is None else Sharing(window, data, sets, shared)


def _report(problem: str, mode: str, watch: RankWatch, all_of_them: bool) -> None:
    what = "collectives" if all_of_them else "some collectives"
    if mode == SHARED:
        fail(f"{what} cannot go through shared memory: {problem}")
    text = f"hloom: remark: {what} go through MPI, not shared memory: {problem}"
    if watch.comm.rank == 0 and what not in _reported:
        _reported.add(what)
        print(text, file=sys.stderr, flush=True)


def _near(collective: GridCollective, placing: Placing) -> list[Group]:
    """Returns the sets of ranks, each on one node, that exchange something for a collective."""
    sets = [placing.ranks(group) for group in (*collective.groups, *(send[:2] for send in collective.sends))]
    return [tuple(sorted(ranks)) for ranks in sets if placing.is_near(ranks)]


def _here(ranks: Group, placing: Placing) -> bool:
    return placing.nodes[ranks[0]] == placing.nodes[placing.rank]


def _posted_bytes(collective: GridCollective, placing: Placing, itemsize: ItemSize) -> int:
    """Returns how many bytes a rank posts at most for a collective."""
    leaves = [leaf for operand in collective.instruction.operands for leaf in operand.shape.leaves() if leaf.is_array]
    size = sum(prod(leaf.dims) * itemsize(leaf.element) + ALIGNMENT for leaf in leaves)
    sources = [device for group in collective.groups for device in collective.sources(group)]
    sources += [source for source, _, _ in collective.sends]
    return size * max(Counter(placing.rank_of[device] for device in sources).values())

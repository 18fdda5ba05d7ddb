"""Runs collectives between ranks of one node through memory that they share.

Each rank copies its operands to its segment and tells the others where they are; then each rank computes the results
of its own devices by the reference code, which reads the operands of the others where they lie. Only large all-reduces
have two stages: one rank per part combines the part, in its own segment, and all copy the combined parts. Members
combine in group order in both ways, so ranks and simulator have the same bits.

Operands that already lie in the segment would only need their place posted: nothing else depends on the copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...cost.host import HOST
from ...ir.types.literal import Array
from ...ir.types.memory import aligned, aligned_array
from ..ranks.watch import RankWatch
from .channel import WORDS, Channel, Heap, Uses
from .collective import GridCollective, Group, Operands, Send
from .reference import perform, reduce_members
from .transport import Arrived, Finish, FinishSends, Placing
from .window import SharedWindow

_DIRECT_BYTES = HOST.direct_reduction  # larger all-reduces of more than two ranks have two stages


Key = int | Send  # a device whose operands are posted, or a pair over which pieces are sent
Values = dict[Key, Operands]


@dataclass(frozen=True)
class _Layout:
    """Where the data of one collective lies that the ranks of a channel exchange. `slots` are the arrays per key and
    rank, each with its offset from the start of that rank's data; `size` is the size of this rank's data, `senders`
    are the other ranks that have any. `unit` is the bytes of one slot. `members` are the ranks of the channel as MPI
    numbers them; all other ranks here are those of the window.
    """

    collective: GridCollective
    channel: Channel
    members: Group
    tag: int
    groups: tuple[Group, ...]
    slots: tuple[tuple[Key, int, tuple[tuple[int, Array], ...]], ...]
    size: int
    senders: tuple[int, ...]
    unit: int

    @property
    def has_two_stages(self) -> bool:
        return self.collective.is_all_reduce and self.unit > _DIRECT_BYTES and len(self.channel.ranks) > 2


Exchange = tuple[_Layout, int]  # the number is that of the exchange in its channel


class SharedMemory:
    """Connects the ranks of this node. `sets` are the sets of ranks that exchange something, the same list on all ranks
    of the node; `tags` are the numbers of the collectives. `finish_open` completes all collectives that this rank has
    started.
    """

    def __init__(
        self, window: SharedWindow, data: int, watch: RankWatch, placing: Placing, sets: Sequence[Group],
        tags: dict[GridCollective, int], finish_open: Callable[[], None],
    ) -> None:  # fmt: skip
        self.window = window
        self.watch = watch
        self.placing = placing
        self.tags = tags
        self.finish_open = finish_open
        self._number = {rank: number for number, rank in enumerate(placing.neighbours)}  # in the window
        self._channels = {
            ranks: Channel(window, index, [self._number[rank] for rank in ranks])
            for index, ranks in enumerate(sets)
            if placing.rank in ranks
        }
        self._heap = Heap(data)
        self._layouts: dict[tuple[GridCollective, Sequence[Any]], list[_Layout]] = {}

    def close(self) -> None:
        """Frees the memory; all ranks of the node must call it."""
        self.window.close()

    def abandon(self) -> None:
        """Gives up the memory, after an error."""
        self.window.abandon()

    def start_groups(self, collective: GridCollective, groups: tuple[Group, ...], arrived: Arrived) -> Finish:
        """Starts a collective of these groups, which have members on this rank and on others."""
        layouts = self._layouts.get((collective, groups))
        if layouts is None:
            layouts = self._layouts[collective, groups] = self._layouts_of_groups(collective, groups, arrived)
        exchanges = self._begin(layouts, arrived)
        return lambda: self._finish_groups(exchanges, arrived)

    def start_sends(self, collective: GridCollective, sends: tuple[Send, ...], pieces: list[Operands]) -> FinishSends:
        """Starts to send over these pairs, each with one end on this rank: the pieces, or on the target arrays like
        them.
        """
        values = dict(zip(sends, pieces, strict=True))
        layouts = self._layouts.get((collective, sends))
        if layouts is None:
            layouts = self._layouts[collective, sends] = self._layouts_of_sends(collective, values)
        exchanges = self._begin(layouts, values)
        return lambda: self._finish_sends(exchanges, values)

    def _layouts_of_groups(
        self, collective: GridCollective, groups: tuple[Group, ...], arrived: Arrived
    ) -> list[_Layout]:
        parts: dict[Group, list[Group]] = {}
        for group in groups:
            parts.setdefault(tuple(sorted(self.placing.ranks(group))), []).append(group)
        return [
            self._layout(collective, ranks, tuple(found), [
                (device, self.placing.rank_of[device], arrived[self.placing.local(group)[0]])
                for group in found
                for device in collective.sources(group)
            ])
            for ranks, found in parts.items()
        ]  # fmt: skip

    def _layouts_of_sends(self, collective: GridCollective, values: Mapping[Send, Operands]) -> list[_Layout]:
        parts: dict[Group, list[tuple[Key, int, Operands]]] = {}
        for send, pieces in values.items():
            source, target = (self.placing.rank_of[device] for device in send[:2])
            parts.setdefault((min(source, target), max(source, target)), []).append((send, source, pieces))
        return [self._layout(collective, ranks, (), items) for ranks, items in parts.items()]

    def _layout(
        self,
        collective: GridCollective,
        ranks: Group,
        groups: tuple[Group, ...],
        items: list[tuple[Key, int, Operands]],
    ) -> _Layout:
        ends: Counter[int] = Counter()
        slots: list[tuple[Key, int, tuple[tuple[int, Array], ...]]] = []
        for key, rank, arrays in items:
            places: list[tuple[int, Array]] = []
            for array in arrays:
                places.append((ends[rank], np.broadcast_to(np.zeros((), array.dtype), array.shape)))  # no memory
                ends[rank] += aligned(array.nbytes)
            slots.append((key, self._number[rank], tuple(places)))
        senders = tuple(sorted(self._number[rank] for rank in ends if rank != self.placing.rank))
        unit = max(sum(array.nbytes for array in arrays) for _, _, arrays in items)
        return _Layout(
            collective, self._channels[ranks], ranks, self.tags[collective], groups, tuple(slots),
            ends[self.placing.rank], senders, unit,
        )  # fmt: skip

    def _begin(self, layouts: list[_Layout], values: Mapping[Any, Operands]) -> list[Exchange]:
        """Posts this rank's messages."""
        place, uses = self._take(layouts)
        exchanges: list[Exchange] = []
        for layout in layouts:
            for key, rank, places in layout.slots:
                if rank == self.window.own:
                    for (offset, like), array in zip(places, values[key], strict=True):
                        self.window.array(rank, place + offset, like)[...] = array
            number = layout.channel.post(place, layout.tag)
            place += layout.size
            uses.append((layout.channel, number))
            exchanges.append((layout, number))
        return exchanges

    def _take(self, layouts: list[_Layout]) -> tuple[int, Uses]:
        """Allocates memory for this rank's messages. While there is none, other ranks must first read earlier messages.
        They do so once they have completed as much as this rank, so this rank completes all that it has started.
        """
        size = sum(layout.size for layout in layouts)
        found = self._try_to_take(layouts, size)
        if found is None:
            self.finish_open()
            awaited = {rank for layout in layouts for rank in layout.members}
            awaited |= {self.placing.neighbours[rank] for channel in self._heap.channels() for rank in channel.ranks}
            results: list[tuple[int, Uses]] = []

            def ready() -> bool:
                results.extend(filter(None, [self._try_to_take(layouts, size)]))
                return bool(results)

            self._wait(ready, layouts[0].collective, tuple(sorted(awaited)))
            found = results[0]
        return found

    def _try_to_take(self, layouts: list[_Layout], size: int) -> tuple[int, Uses] | None:
        for layout in layouts:
            if not layout.channel.may_begin():
                return None
        return self._heap.take(size)

    def _wait(self, ready: Callable[[], bool], collective: GridCollective, members: Group) -> None:
        self.watch.wait_until(ready, collective.instruction, members)
        self.window.order()

    def _read(self, exchange: Exchange) -> Values:
        """Waits for the data of other ranks, and returns all arrays where they lie."""
        layout, number = exchange
        channel = layout.channel
        self._wait(lambda: channel.has_posted(layout.senders, number), layout.collective, layout.members)
        starts: dict[int, int] = {}
        for rank in (*layout.senders, self.window.own):
            starts[rank], tag = channel.posted(rank, number)
            if tag != layout.tag:
                other = next(c.instruction.name for c, n in self.tags.items() if n == tag)
                name = f"rank {self.placing.neighbours[rank]}"
                layout.collective.fail(f"{name} has come to {other} instead; devices took different paths")
        array = self.window.array
        return {
            key: [array(rank, starts[rank] + offset, like) for offset, like in places]
            for key, rank, places in layout.slots
        }

    def _finish_groups(self, exchanges: list[Exchange], arrived: Arrived) -> dict[int, Operands]:
        large = [(*e, self._read(e)) for e in exchanges if e[0].has_two_stages]
        for layout, number, found in large:
            for group in layout.groups:
                self._combine(layout, [found[device] for device in group], found[self._first(group, self.window.own)])
            layout.channel.mark_combined(number)
        results: dict[int, Operands] = {}
        for layout, number, found in large:
            channel = layout.channel
            self._wait(lambda c=channel, n=number: c.has_combined(c.ranks, n), layout.collective, layout.members)
            for group in layout.groups:
                results.update(dict.fromkeys(self.placing.local(group), self._join(layout, group, found)))
            channel.mark_read(number)
        for layout, number in exchanges:
            if not layout.has_two_stages:
                found = self._read((layout, number))
                for group in layout.groups:
                    results.update(self._results(layout.collective, group, found, arrived))
                layout.channel.mark_read(number)
        return results

    def _results(
        self, collective: GridCollective, group: Group, found: Values, arrived: Arrived
    ) -> dict[int, Operands]:
        """Computes the results of this rank's members of a group."""
        mine = self.placing.local(group)
        like = arrived[mine[0]]
        members = [arrived.get(device) or found.get(device, like) for device in group]
        outcome = perform(collective, members, [group.index(device) for device in mine])
        return {device: _private(arrays) for device, arrays in zip(mine, outcome, strict=True)}

    def _finish_sends(
        self, exchanges: list[Exchange], values: Mapping[Send, Operands]
    ) -> list[tuple[Send, Operands]]:
        come: list[tuple[Send, Operands]] = []
        for layout, number in exchanges:
            found = self._read((layout, number))
            come += [
                (send, _private(found[send])) for send, rank, _ in layout.slots
                if isinstance(send, tuple) and rank != self.window.own
            ]
            layout.channel.mark_read(number)
        return come

    def _first(self, group: Group, rank: int) -> int:
        """Returns the first device of a group on a rank of the window: its operand holds the combined part."""
        return next(device for device in group if self._number[self.placing.rank_of[device]] == rank)

    def _combine(self, layout: _Layout, members: list[Operands], into: Operands) -> None:
        """Combines this rank's part of the operands. Nobody else reads that part of its own operand."""
        ranks = layout.channel.ranks
        for number, result in enumerate(into):
            flat = [member[number].reshape(-1) for member in members]
            start, end = _part(result.size, ranks.index(self.window.own), len(ranks))
            step = max(1, HOST.combined_block // result.itemsize)
            for first in range(start, end, step):
                block = slice(first, min(first + step, end))
                result.reshape(-1)[block] = reduce_members(layout.collective, [[x[block]] for x in flat])[0]

    def _join(self, layout: _Layout, group: Group, found: Values) -> Operands:
        """Returns a copy of the parts that all ranks have combined."""
        ranks = layout.channel.ranks
        results = [aligned_array(array.shape, array.dtype) for array in found[group[0]]]
        for index, rank in enumerate(ranks):
            for result, array in zip(results, found[self._first(group, rank)], strict=True):
                part = slice(*_part(result.size, index, len(ranks)))
                result.reshape(-1)[part] = array.reshape(-1)[part]
        return results


def words_for(sets: Sequence[Group]) -> int:
    """Returns the number of words that the marks of these sets of ranks take."""
    return WORDS * len(sets)


def _part(size: int, index: int, count: int) -> tuple[int, int]:
    """Returns the first and the last element, exclusive, of one of `count` parts."""
    return size * index // count, size * (index + 1) // count


def _private(arrays: Operands) -> Operands:
    """Copies the arrays that are views: they may lie in shared memory."""
    return [array if array.base is None else array.copy() for array in arrays]

"""Orders the writes of a node's ranks to their segments, and the reads by others.

A `Channel` counts the exchanges of some ranks. In each exchange a rank posts the place of its data, and marks when it
has combined its part (for reductions in two stages) and when it has read the data of the others. The marks are words
that only one rank writes, so no operation has to be atomic. A `Heap` allocates places in a rank's own segment; one is
free again when all ranks of its channels have read it. Since several places may be taken, a rank posts the next
operands while others still read the last ones. Reading counts for the rank itself, too: with open exchanges whose data
the others have read already, it must not overwrite data that it still needs to finish them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .window import SharedWindow

_DEPTH = 8  # exchanges of a channel that may be open at a time
_POSTED, _COMBINED, _READ, _ENTRIES = range(4)
WORDS = 24  # of a channel in each segment: three counters, then place and tag of each open exchange


class Channel:
    """The exchanges of these ranks of a window, which all take part in each, in the same order."""

    def __init__(self, window: SharedWindow, index: int, ranks: Sequence[int]) -> None:
        self.ranks = tuple(ranks)
        self.begun = 0
        self._window = window
        self._own = window.words[window.own]
        self._base = WORDS * index
        self._words = [window.words[rank] for rank in ranks]

    def may_begin(self) -> bool:
        """Whether the entry of the next exchange is free."""
        return self.is_read(self.begun - _DEPTH)

    def is_read(self, number: int) -> bool:
        """Whether all ranks, this one too, have read the data of an exchange."""
        word = self._base + _READ
        return all(words[word] > number for words in self._words)

    def post(self, place: int, tag: int) -> int:
        """Begins an exchange with data at this place, and returns its number. The tag says what the data is for."""
        number, entry = self.begun, self._entry(self.begun)
        self._own[entry], self._own[entry + 1] = place, tag
        self.begun += 1
        self._mark(_POSTED, number)
        return number

    def mark_combined(self, number: int) -> None:
        """Tells the others that this rank has combined its part."""
        self._mark(_COMBINED, number)

    def mark_read(self, number: int) -> None:
        """Tells the others that this rank needs their data no longer."""
        self._mark(_READ, number)

    def has_posted(self, ranks: Iterable[int], number: int) -> bool:
        """Whether these ranks have posted their data."""
        return self._have(ranks, _POSTED, number)

    def has_combined(self, ranks: Iterable[int], number: int) -> bool:
        """Whether these ranks have combined their parts."""
        return self._have(ranks, _COMBINED, number)

    def posted(self, rank: int, number: int) -> tuple[int, int]:
        """Returns the place and the tag that a rank has posted."""
        words, entry = self._window.words[rank], self._entry(number)
        return words[entry], words[entry + 1]

    def _entry(self, number: int) -> int:
        return self._base + _ENTRIES + 2 * (number % _DEPTH)

    def _mark(self, word: int, number: int) -> None:
        self._window.order()
        self._own[self._base + word] = number + 1

    def _have(self, ranks: Iterable[int], word: int, number: int) -> bool:
        words, index = self._window.words, self._base + word
        return all(words[rank][index] > number for rank in ranks)


Uses = list[tuple[Channel, int]]  # exchanges that a place is used in


class Heap:
    """The places of a segment's data, each taken at the lowest address where there is room."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._taken: list[tuple[int, int, Uses]] = []  # start and end of places, in order

    def take(self, size: int) -> tuple[int, Uses] | None:
        """Takes a place of this size, and returns it with the list of its uses, to be filled by the caller. Returns
        None while there is no room.
        """
        self._taken = [place for place in self._taken if not all(c.is_read(number) for c, number in place[2])]
        start, index = 0, len(self._taken)
        for number, (other, end, _) in enumerate(self._taken):
            if other - start >= size:
                index = number
                break
            start = end
        if index == len(self._taken) and self.size - start < size:
            return None
        uses: Uses = []
        self._taken.insert(index, (start, start + size, uses))
        return start, uses

    def channels(self) -> list[Channel]:
        """Returns the channels whose exchanges use places."""
        return [channel for _, _, uses in self._taken for channel, _ in uses]



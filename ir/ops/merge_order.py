"""Sorting rows by any comparator: a stable merge sort of all rows at once, with few evaluations of the comparator.

Each level merges adjacent runs. Each merge is divided into pieces of `_PIECE` elements of its result, whose ends in
both runs are found by binary search (Odeh, Green, Mwassi, Shmueli, Birk, "Merge path", 2012). All pieces of a level
then advance in lockstep: one evaluation of the comparator per element, vectorized over the pieces.

An inconsistent comparator gives an arbitrary permutation: the ends of pieces are made monotone, so that no element is
lost or taken twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Before = Callable[[Array, Array], Array]  # indices -> whether the element at the first must precede the second

_PIECE = 64


def merged_order(arrays: Sequence[Array], comparator: Callable[..., Array]) -> Array:
    """Returns the sorting permutation of each row of arrays with shape [rows, length], as [rows, length].

    `comparator` takes two elements of each array, as arrays.
    """
    rows, length = arrays[0].shape
    flat = [array.reshape(-1) for array in arrays]
    order = np.arange(rows * length, dtype=np.intp)
    run = 1
    while run < length:
        values = [array[np.append(order, order[-1:])] for array in flat]  # pieces read one element beyond their ends

        def before(i: Array, j: Array, values: list[Array] = values) -> Array:
            return comparator(*(value[at] for value in values for at in (i, j)))

        order = order[_merge(rows, length, run, before)]
        run *= 2
    return (order % length).reshape(rows, length)


def _merge(rows: int, length: int, run: int, before: Before) -> Array:
    """Merges the sorted runs of each row in pairs. Returns the source index of each element."""
    start = np.arange(0, length - run, 2 * run)
    end = np.minimum(start + 2 * run, length)
    first = length * np.arange(rows)[:, None]
    start, end = (first + start).reshape(-1), (first + end).reshape(-1)
    middle = start + run
    pieces = -(-(end - start) // _PIECE)
    pair = np.repeat(np.arange(start.size), pieces)
    done = _PIECE * (np.arange(pair.size) - np.repeat(np.cumsum(pieces) - pieces, pieces))
    taken = _consistent(_split(start[pair], middle[pair], end[pair], done, before), done, pair, 2 * run + 1)
    left, right = start[pair] + taken, middle[pair] + done - taken
    left_end, right_end = np.append(left[1:], 0), np.append(right[1:], 0)
    last = np.append(pair[1:] != pair[:-1], True)
    left_end[last], right_end[last] = middle, end
    places = np.arange(rows * length)
    _merge_pieces(places, start[pair] + done, left, left_end, right, right_end, before)
    return places


def _split(start: Array, middle: Array, end: Array, done: Array, before: Before) -> Array:
    """Returns how many of the first `done` elements of each merged pair come from its left run, by binary search."""
    low = np.maximum(done - (end - middle), 0)
    high = np.minimum(done, middle - start)
    while (search := np.flatnonzero(low < high)).size:
        half = (low[search] + high[search]) // 2
        after = before(middle[search] + done[search] - 1 - half, start[search] + half)
        high[search] = np.where(after, half, high[search])
        low[search] = np.where(after, low[search], half + 1)
    return low


def _consistent(taken: Array, done: Array, pair: Array, step: int) -> Array:
    """Makes `taken` and `done - taken` nondecreasing along each pair; returns `taken` unchanged if they are."""
    base = pair * step
    taken = np.maximum.accumulate(base + taken) - base
    return done - (np.maximum.accumulate(base + done - taken) - base)


def _merge_pieces(
    places: Array, out: Array, left: Array, left_end: Array, right: Array, right_end: Array, before: Before
) -> None:
    """Writes the source indices of each piece's elements to `places[out:]`. Takes from the left run on ties."""
    sizes = left_end - left + right_end - right
    if (sizes[1:] > sizes[:-1]).any():
        longest = np.argsort(-sizes, kind="stable")
        columns = (out, left, left_end, right, right_end, sizes)
        out, left, left_end, right, right_end, sizes = (column[longest] for column in columns)
    rising = np.sort(sizes)
    for step in range(int(sizes[0]) if sizes.size else 0):
        count = sizes.size - int(np.searchsorted(rising, step, "right"))  # unfinished pieces
        i, j = left[:count], right[:count]
        i_left, j_left = i < left_end[:count], j < right_end[:count]
        from_right = ~i_left | (j_left & before(j, i))
        places[out[:count] + step] = np.where(from_right, j, i)
        j += from_right
        i += ~from_right

"""The steps of a resharding search: all moves that may lead from a state towards the goal.

States stay few because steps only build towards the goal. Digits leave from the minor end of a dimension, and arrive
only where the goal wants them next, or wants a multiple of as many tiles; a permutation of whole tiles then corrects
the digits. A sum may be scattered in a dimension that is gathered later anyway. Digits of a dimension whose padding has
to change may wait in any dimension. On detours all digits may, with any padding. The number of steps depends on the
number of digits, not of devices.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from ....cost.formulas import Kind, largest_group, received
from ....ir.sharding.digit import Digits, disjoint, product
from ....ir.sharding.tiling import Tiling
from ..base.moves import (
    AllGatherMove,
    AllReduceMove,
    AllToAllMove,
    Mask,
    Move,
    Permute,
    ReduceScatterMove,
    Shift,
    SliceMove,
    Spread,
)
from .state import FEW_DIGITS, SearchSpace, TilingState

_MOST_PERMUTES = 24  # arrangements of unused digits tried per state
_MOST_SHIFTS = 64  # combinations of several shifts tried per state


class SearchStep(NamedTuple):
    """A step from one state to the state `after`: a `move`, or an all-to-all of some `shifts`, of which most are too
    dear to be made a move. Each device receives `received` elements in a collective over `digits`.

    A step with neither only describes the same tiles by other digits.
    """

    move: Move | None
    after: TilingState
    received: float = 0.0
    digits: Digits = ()
    shifts: tuple[Shift, ...] = ()

    @property
    def kind(self) -> Kind | None:
        """The collective, if it is one."""
        return AllToAllMove.kind if self.shifts else self.move.kind if self.move else None

    def move_from(self, state: TilingState) -> Move | None:
        """Returns the move from a state."""
        if not self.shifts:
            return self.move
        return AllToAllMove(self.shifts, _padded(state, self.after, self.shifts), self.after.tile)


def steps(
    state: TilingState, space: SearchSpace, most: float = math.inf, most_exchanged: float = math.inf
) -> Iterator[SearchStep]:
    """Yields the steps from a state. May omit steps in which a device receives more than `most` elements, and
    all-to-alls in which it receives more than `most_exchanged`.
    """
    if state.unreduced != space.goal.unreduced:
        yield from _reductions(state, space)
        yield from _partials(state, space)
    if not space.goal.unreduced:
        yield from _sparse(state, space)
    yield from (SearchStep(None, recut) for recut in space.recut(state))
    yield from _slices(state, space)
    yield from _gathers(state, space, most)
    yield from _all_to_alls(state, space, most_exchanged)
    if state.elements() <= most:
        yield from _permutes(state, space)


def _used(state: TilingState) -> list[Digits]:
    return [*state.dims, state.unreduced]


def _is_free(digits: Digits, state: TilingState) -> bool:
    return all(disjoint(digits, used) for used in _used(state))


def _wanted(state: TilingState, space: SearchSpace, dim: int) -> list[Digits]:
    """Returns the runs of digits that the goal has next in a dimension, if the state's digits are a prefix of the
    goal's.
    """
    have, want = state.dims[dim], space.goal.dims[dim]
    if want[: len(have)] != have:
        return []
    rest = want[len(have) :]
    return [rest[:n] for n in range(1, len(rest) + 1)]


def _arrivals(
    state: TilingState, space: SearchSpace, dim: int, digits: Digits, since: Digits = ()
) -> Iterator[TilingState]:
    """Yields the states with more digits on a dimension; it counts as undivided if all its digits arrived `since`.

    Its padding is the goal's, or the one that the tiles need until they leave; on detours either, or the one that more
    digits need.
    """
    choices: Collection[int] = (state.padded[dim],)
    if state.dims[dim] == since:
        state, digits = state.leave(dim, len(since), space.dims[dim]), since + digits
        choices = space.paddings(dim, product(digits))
    for padded in choices:
        if after := state.arrive(dim, digits, padded):
            yield after


def _fits(state: TilingState, space: SearchSpace, dim: int, count: int) -> bool:
    """Whether the goal has a multiple of the tiles of a dimension divided `count` times further, or detours are
    allowed.
    """
    return space.detours or space.tiles[dim] % (product(state.dims[dim]) * count) == 0


def _reductions(state: TilingState, space: SearchSpace) -> Iterator[SearchStep]:
    done = tuple(d for d in state.unreduced if d not in space.goal.unreduced)
    if not done:
        return
    reduced = state.with_unreduced(d for d in state.unreduced if d not in done)
    yield SearchStep(AllReduceMove(done), reduced, received("all-reduce", state.elements(), product(done)), done)
    # Where the goal has fewer digits, a dimension is gathered anyway, and with it what is scattered there before.
    leaving = [len(have) > len(want) and have[: len(want)] == want for have, want in zip(state.dims, space.goal.dims)]
    for dim in space.unlike(state):
        for digits in dict.fromkeys((*_wanted(state, space, dim), *((d,) for d in done))):
            count = product(digits)
            if not all(d in done for d in digits) or not (leaving[dim] or _fits(state, space, dim, count)):
                continue
            rest = state.with_unreduced(d for d in state.unreduced if d not in digits)
            for after in _arrivals(rest, space, dim, digits):
                move = ReduceScatterMove(dim, digits, after.tile[dim] * count)
                yield SearchStep(move, after, received("reduce-scatter", after.elements() * count, count), digits)


def _partials(state: TilingState, space: SearchSpace) -> Iterator[SearchStep]:
    """Yields steps to an unreduced value: one device keeps the value, or each device embeds its tile among identities.
    """
    missing = tuple(d for d in space.goal.unreduced if d not in state.unreduced)
    if missing and _is_free(missing, state):
        yield SearchStep(Mask(missing, space.order), state.with_unreduced((*state.unreduced, *missing)))
    for dim, digits in enumerate(state.dims):
        if digits and digits[-1] in missing:
            after = state.leave(dim, 1, space.dims[dim]).with_unreduced((*state.unreduced, digits[-1]))
            yield SearchStep(Spread(dim, digits[-1:], after.tile[dim]), after)


def _sparse(state: TilingState, space: SearchSpace) -> Iterator[SearchStep]:
    """Yields steps for tiles that are mostly padding: each device embeds its tile among identities, which are summed
    later.
    """
    for dim, digits in enumerate(state.dims):
        for count in range(1, len(digits) + 1):
            leaving = digits[len(digits) - count :]
            after = state.leave(dim, count, space.dims[dim])
            if 2 * after.tile[dim] < state.tile[dim] * product(leaving):
                summed = after.with_unreduced((*after.unreduced, *leaving))
                yield SearchStep(Spread(dim, leaving, after.tile[dim]), summed)


def _slices(state: TilingState, space: SearchSpace) -> Iterator[SearchStep]:
    free_digits = [digit for digit in reversed(space.unit_digits) if _is_free((digit,), state)]
    fillers = free_digits if space.detours else {digit.size: digit for digit in free_digits}.values()
    for dim in space.unlike(state):
        wanted = _wanted(state, space, dim)
        free = [digits for digits in wanted if _is_free(digits, state)]
        if not free or space.detours:
            # The goal's digits are in use elsewhere: others take their place until tiles are permuted.
            free += [(d,) for d in fillers if _fits(state, space, dim, d.size)]
        for digits in dict.fromkeys(free):
            for after in _arrivals(state, space, dim, digits):
                yield SearchStep(SliceMove(dim, digits, after.tile[dim] * product(digits)), after)


def _gathers(state: TilingState, space: SearchSpace, most: float) -> Iterator[SearchStep]:
    held = state.elements()
    for dim, digits in enumerate(state.dims):
        for count in range(1, len(digits) + 1):
            leaving = digits[len(digits) - count :]
            tiles = product(leaving)
            arriving = received("all-gather", held * tiles, tiles)
            if arriving > most:
                break
            after = state.leave(dim, count, space.dims[dim])
            yield SearchStep(AllGatherMove(dim, leaving, after.tile[dim]), after, arriving, leaving)


def _all_to_alls(state: TilingState, space: SearchSpace, most: float) -> Iterator[SearchStep]:
    """Yields all-to-alls of one shift, and of several at once, which cost less than one after the other."""
    most_parts = largest_group(state.elements(), most)
    single = list(_shifted(state, space, SearchStep(None, state), most_parts))
    yield from single
    several = (more for shifted in single for more in _extended(state, space, shifted, most_parts))
    yield from islice(several, _MOST_SHIFTS)


def _extended(state: TilingState, space: SearchSpace, now: SearchStep, most_parts: float) -> Iterator[SearchStep]:
    for longer in _shifted(state, space, now, most_parts):
        yield longer
        yield from _extended(state, space, longer, most_parts)


def _shifted(state: TilingState, space: SearchSpace, now: SearchStep, most_parts: float) -> Iterator[SearchStep]:
    """Yields all-to-alls with each possible next shift. Digits that arrived stay, and no digits arrive in a dimension
    that others left.

    Shifts between different dimensions commute, so only increasing source dimensions are tried.
    """
    before, shifts, moved = now.after, now.shifts, now.digits
    parts, targets, sources = product(moved), {s.target for s in shifts}, {s.source for s in shifts}
    others = space.unlike(before, sources)
    last = shifts[-1] if shifts else None
    for dim, digits in enumerate(before.dims):
        if dim in targets:
            continue
        for count in range(1, len(digits) + 1):
            leaving = digits[len(digits) - count :]
            more = parts * product(leaving)
            if more > most_parts:
                break
            left = before.leave(dim, count, space.dims[dim])
            for other in others:
                if other == dim or (last and dim < last.source and other != last.target):
                    continue
                if not _fits(before, space, other, product(leaving)) and not _may_wait(state, space, dim, leaving):
                    continue
                since = () if state.dims[other] else before.dims[other]
                if since and before.padded[other] != space.paddings(other, product(since))[0]:
                    continue  # arrivals choose its padding again, so only one of the paddings needs to continue
                for after in _arrivals(left, space, other, leaving, since):
                    longer = (*shifts, Shift(dim, other, leaving))
                    whole = math.prod(_padded(state, after, longer))
                    yield SearchStep(None, after, received("all-to-all", whole, more), moved + leaving, longer)


def _may_wait(state: TilingState, space: SearchSpace, dim: int, leaving: Digits) -> bool:
    """Whether digits may wait in any dimension: theirs must be undivided before it can have the goal's padding."""
    return leaving == state.dims[dim] and state.padded[dim] != space.goal.padded[dim]


def _padded(state: TilingState, after: TilingState, shifts: Sequence[Shift]) -> tuple[int, ...]:
    """Returns the local dimensions that an all-to-all divides."""
    padded = list(state.tile)
    for shift in shifts:
        padded[shift.target] = after.padded[shift.target] // product(state.dims[shift.target])
    return tuple(padded)


def _permutes(state: TilingState, space: SearchSpace) -> Iterator[SearchStep]:
    """Yields permutations of whole tiles to tilings whose digits begin as the goal's and continue with unused digits.

    The tile counts stay those of the state. A later all-gather or all-to-all removes the digits that the goal does not
    want. On a detour all digits are arbitrary.
    """
    if state.unreduced:
        return
    counts = [product(digits) for digits in state.dims]
    if space.detours and len(space.unit_digits) <= FEW_DIGITS:
        yield from _permuted(state, space, [()] * len(counts), counts)
        return
    begins: list[Digits] = []
    for have, want, padded, wanted, count in zip(
        state.dims, space.goal.dims, state.padded, space.goal.padded, counts, strict=True
    ):
        if have and padded != wanted:
            return
        begins.append(next(want[:n] for n in range(len(want), -1, -1) if count % product(want[:n]) == 0))
    yield from _permuted(state, space, begins, [n // product(d) for n, d in zip(counts, begins, strict=True)])


def _permuted(
    state: TilingState, space: SearchSpace, begins: Sequence[Digits], counts: Sequence[int]
) -> Iterator[SearchStep]:
    """Yields permutations of tiles to digits with the given prefixes and per-dimension counts."""
    free = tuple(d for d in space.unit_digits if all(disjoint((d,), digits) for digits in begins))
    held = float(state.elements())
    for ends in islice(_arrangements(free, counts), _MOST_PERMUTES):
        dims = tuple(begin + end for begin, end in zip(begins, ends, strict=True))
        if dims != state.dims:
            move = Permute(Tiling(state.dims, (), space.order), Tiling(dims, (), space.order))
            changed = tuple({d for digits in (*state.dims, *dims) for d in digits})
            yield SearchStep(move, state.with_dims(dims), held, changed)


def _arrangements(free: Digits, counts: Sequence[int]) -> Iterator[tuple[Digits, ...]]:
    """Yields the ways to choose disjoint digits whose sizes multiply to each of the counts."""
    if not counts:
        yield ()
    elif counts[0] == 1:
        yield from (((), *rest) for rest in _arrangements(free, counts[1:]))
    for digit in free if counts and counts[0] > 1 else ():
        if counts[0] % digit.size == 0:
            left = (counts[0] // digit.size, *counts[1:])
            others = tuple(d for d in free if not d.overlaps(digit))
            for first, *rest in _arrangements(others, left):
                yield ((digit, *first), *rest)

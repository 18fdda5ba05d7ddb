"""Follows references, such as operands or calls, without recursion: programs are deep."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def reached(start: Iterable[T], following: Callable[[T], Iterable[T]]) -> dict[T, None]:
    """Returns the start and all that follows from it, directly or indirectly, in the order in which it is found."""
    found = dict.fromkeys(start)
    stack = list(found)
    while stack:
        for new in following(stack.pop()):
            if new not in found:
                found[new] = None
                stack.append(new)
    return found


def followers_first(start: Iterable[T], following: Callable[[T], Iterable[T]]) -> list[T]:
    """Returns the start and all that follows from it, each after all that follows from it; in circles in any order."""
    done: dict[T, None] = {}
    opened: set[T] = set()
    for first in start:
        stack = [first]
        while stack:
            is_new = stack[-1] not in opened
            opened.add(stack[-1])
            waiting = [item for item in following(stack[-1]) if item not in opened] if is_new else []
            if waiting:
                stack += reversed(waiting)
            else:
                done[stack.pop()] = None
    return list(done)

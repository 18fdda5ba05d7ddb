"""Causes: why a dimension has the digits it has, and what was given up for them.

Every digit of every dimension is either annotated or came through one op from one dimension of another leaf; `trace`
follows that back to the annotation. A conflict is a place where two leaves want the same factor divided differently, or
the same digits for different factors: one of them is resharded there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...ir.graph.instruction import Instruction
from ...ir.sharding.digit import Digit, Digits, disjoint

if TYPE_CHECKING:
    from .values import Leaf


@dataclass(frozen=True, slots=True)
class Cause:
    """The op that brought digits, and the dimension of the leaf that they came from."""

    via: Instruction
    source: Leaf
    dim: int


@dataclass(frozen=True, slots=True)
class Gain:
    """Digits that a dimension got at one time, major to minor; `cause` is None where an annotation said them."""

    digits: Digits
    cause: Cause | None


@dataclass(frozen=True, slots=True)
class Place:
    """These digits on this dimension of this leaf."""

    leaf: Leaf
    dim: int
    digits: Digits


@dataclass(frozen=True, slots=True)
class Conflict:
    """At `via`, `lost` gives way to `kept`: the digits of `lost` cannot be used there, because `kept` has other digits
    for the same dimension of the op's index space, or the same digits for another one, or is fixed without any.

    `received` estimates the bytes that each device receives because of it.
    """

    via: Instruction
    kept: Place
    lost: Place
    received: int


def trace(leaf: Leaf, dim: int, digit: Digit) -> Iterator[tuple[Leaf, int, Cause | None]]:
    """The way of (a part of) a digit back to where it was annotated: leaf, dimension, and the cause that brought it.

    The last entry has no cause: it is the annotated leaf.
    """
    while True:
        gain = next((g for g in leaf.causes[dim] if not disjoint((digit,), g.digits)), None)
        if gain is None:
            return
        yield leaf, dim, gain.cause
        if gain.cause is None:
            return
        leaf, dim = gain.cause.source, gain.cause.dim

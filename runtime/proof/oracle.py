"""The random choices of a trial: functions of field elements, an order of them, and their rounding.

A function is a keyed hash: equal arguments have equal values, and nothing else is known of it. Hashing stands for a
random oracle; it is mixing, not cryptography, since programs do not choose their constants to defeat a key.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import numpy as np

from ...ir.ops.numerics import numpy_type
from ...ir.types.element_type import ElementType
from ...ir.types.literal import Array
from .embedding import held, is_small
from .field import (
    GREATEST,
    LEAST,
    NAN_ABOVE,
    NAN_BELOW,
    ONE,
    PRIME,
    UNDEFINED,
    ZERO,
    P,
    inverse,
    is_nan,
    is_special,
    product,
    reduced,
    shifted,
)  # fmt: skip
from .field_native import native_field
from .memo import ElementSet, Memo

Place = Literal["least", "middle", "greatest"]  # of an element in the order

_MIXING = [(np.uint64(shift), np.uint64(factor)) for shift, factor in (
    (30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 0xD6E8FEB86659FD93))]  # fmt: skip
_PLACES: dict[Place, np.uint64] = {"least": ZERO, "middle": P >> ONE, "greatest": P - ONE}
_FIRST, _LAST = ZERO, np.uint64(1 << 62)  # keys of the infinities; those of elements lie between
_BEFORE = np.uint64(2)  # keys of NaN before LEAST in the total order; as many follow GREATEST
_END = _LAST + _BEFORE + _BEFORE
_COUNT = 20  # bits of counts, which have exact inverses
UNCOUNTED_BITS = 61 - _COUNT - 4 - 1  # a random element is a count, or a fraction of one, once in two to this


@dataclass
class Counts:
    """Counts the values of functions in a trial: those of each function, and of reciprocals; and the executed
    comparisons of floats.
    """

    hashed: Counter[str] = field(default_factory=Counter[str])
    cases: Counter[int] = field(default_factory=Counter[int])  # of each of so many functions
    inverted: int = 0
    compared: int = 0
    coincidence: float = 0.0  # the chance that an element that was looked at is a number that it does not stand for

    @property
    def pairs(self) -> float:
        """The number of pairs of values of one function, which may have the same argument."""
        of_cases = sum(count * n * n / 2 for count, n in self.cases.items())
        return of_cases + sum(n * n / 2 for n in self.hashed.values())


class Oracle:
    """The random choices of a trial; the same seed makes the same ones. `is_free` says that comparisons may take their
    answers from a function instead of the order; `zero` is the place of 0 in the order, if that is not random too; `pi`
    is half of a turn, for cosine and sine. `exhausted` says why a difference may be none: some choice is not as random
    as it has to be. `made` counts the random elements.
    """

    def __init__(self, seed: np.random.SeedSequence, is_free: bool = False, zero: Place | None = None) -> None:
        self.begin(seed, is_free, zero)

    def begin(self, seed: np.random.SeedSequence, is_free: bool = False, zero: Place | None = None) -> None:
        """Makes the choices of another trial, and forgets earlier ones. Kernels keep their oracle."""
        self.is_free = is_free
        self.made = Counts()
        self.exhausted = ""
        words = [int(w) % (PRIME - 1) + 1 for w in np.random.PCG64(seed).random_raw(5)]
        self._added, self._factor = np.uint64(words[0]), np.uint64(words[1] | 1)
        self._slope, self.pi = np.uint64(words[2]), np.uint64(words[4])
        self._shift = np.uint64(words[3]) if zero is None else _PLACES[zero]
        self._inverse = np.uint64(pow(words[2], -1, PRIME))
        self._memos: dict[tuple[str, ...], Memo] = {}
        self._sets: dict[str, ElementSet] = {}
        self._fresh = 0

    def memo(self, *name: str) -> Memo:
        """A lazily drawn function of this name."""
        return self._memos.setdefault(name, Memo())

    def set(self, name: str) -> ElementSet:
        """A growing set of this name."""
        if name not in self._sets:
            self._sets[name] = ElementSet()
        return self._sets[name]

    @property
    def poison(self) -> Literal["least", "greatest"]:
        """The end of their order at which padding is, where it may be at either."""
        return "least" if self.is_free else "greatest"

    @property
    def has_made_up(self) -> bool:
        """Whether there are elements of which nothing is known."""
        return self._fresh > 0

    def value(self, name: str, *arguments: Array) -> Array:
        """A random function of this name: field elements; UNDEFINED where an argument is NaN."""
        found = self.uncounted(name, *arguments)
        self.made.hashed[name] += found.size
        return found

    def uncounted(self, name: str, *arguments: Array) -> Array:
        """The same, for whoever counts the values."""
        native = native_field()
        if native is not None and len(arguments) <= len(native.values):
            return native.values[len(arguments) - 1](self._added, self._factor, _number(name), *arguments)
        state: Any = _number(name)
        undefined: Any = False
        for argument in arguments:
            undefined = undefined | is_nan(argument)
            state = self._mixed(state ^ self._mixed(argument))
        return np.where(undefined, UNDEFINED, reduced(state >> np.uint64(3)))

    def fresh(self, dims: tuple[int, ...]) -> Array:
        """New, independent random elements."""
        first = self._fresh
        self._fresh += math.prod(dims)
        return self.value("fresh", np.arange(first, self._fresh, dtype=np.uint64).reshape(dims))

    def reciprocal(self, x: Array) -> Array:
        """A random function that inverts counts, and the fractions of 16 between them, exactly; of infinities it is 0.

        Nothing is known of 1 / 0. True inverses of all numbers would make values fractions of ever higher degrees, and
        programs hardly use their laws.
        """
        native = native_field()
        if native is not None:
            self.made.inverted += x.size
            self.made.hashed["reciprocal"] += x.size
            return native.reciprocal(self._added, self._factor, _number("reciprocal"), x)
        special = is_special(x)
        is_known = special | is_small(shifted(np.where(special, ZERO, x), 4), _COUNT + 4)
        self.made.inverted += x.size
        found = self.value("reciprocal", x)
        if is_known.any():
            found[is_known] = inverse(x[is_known])
        return found

    def keys(self, x: Array, total: bool = False) -> Array:
        """Returns keys in the order of the elements. LEAST comes first, GREATEST after all elements, NaN last.

        In the total order NaN with a sign is at an end. UNDEFINED may be any number: it comes next to one of the ends.
        """
        if total:
            undefined = ONE if self.poison == "least" else _END - ONE
            of_nan = np.where(x == NAN_BELOW, ZERO, np.where(x == NAN_ABOVE, _END, undefined))
            return np.where(is_nan(x), of_nan, np.add(self.keys(x), _BEFORE))
        native = native_field()
        if native is not None:
            return native.keys(self._slope, self._shift, x)
        special = is_special(x)
        line = reduced(product(np.where(special, ZERO, x), self._slope) + self._shift) + ONE
        return np.where(special, np.where(x == LEAST, _FIRST, np.where(x == GREATEST, _LAST, UNDEFINED)), line)

    def elements(self, keys: Array, total: bool = False) -> Array:
        """Returns the elements with these keys."""
        if total:
            found = self.elements(np.subtract(keys, _BEFORE))  # UNDEFINED, too, for keys without an element
            return np.where(keys == ZERO, NAN_BELOW, np.where(keys == _END, NAN_ABOVE, found))
        native = native_field()
        if native is not None:
            return native.elements(self._inverse, self._shift, keys)
        special = (keys == _FIRST) | (keys >= _LAST)
        found = product(reduced(np.where(special, ONE, keys) - ONE + (P - self._shift)), self._inverse)
        infinite = np.where(keys == _FIRST, LEAST, np.where(keys == _LAST, GREATEST, UNDEFINED))
        return np.where(special, infinite, found)

    def rounded(self, element: ElementType, x: Array) -> Array:
        """A random rounding to a type: rounding twice is rounding once, and short numbers of the type stay."""
        known = self.set(f"rounded to {element}")
        stays = is_special(x) | held(x, numpy_type(element)) | known.has(x)
        found = np.where(stays, x, self.value(f"round to {element}", x))
        known.add(found[~stays])
        self.set(f"rounded from more than {element}").add(x[~stays])
        return found

    def widened(self, element: ElementType, x: Array) -> Array:
        """Notes that numbers are of a type, so that rounding to it leaves them as they are, unless they have been
        rounded to it before.
        """
        x = np.asarray(x)
        other = is_special(x) | self.set(f"rounded from more than {element}").has(x)
        self.set(f"rounded to {element}").add(x[~other])
        return x

    def _mixed(self, x: Array) -> Array:
        x = x + self._added
        x *= self._factor
        for shift, factor in _MIXING:
            x ^= x >> shift
            x *= factor
        return x ^ (x >> np.uint64(32))


@cache
def _number(name: str) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little"))

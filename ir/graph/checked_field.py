"""Fields of a class with slots that refuse values of another type where they are assigned.

A wrong value would be met much later, by a pass that knows nothing of the assignment. Reading such a field costs about
as much as reading a slot, assigning it one check of the type.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

T = TypeVar("T")
_LONGEST = 60

if TYPE_CHECKING:

    class Field(Generic[T]):
        """What a type checker sees of a checked field; it is a property."""

        def __get__(self, instance: object, owner: type | None = None) -> T: ...
        def __set__(self, instance: object, value: T) -> None: ...


def checked_field(slot: str, kinds: tuple[type, ...], help: Callable[[Any], str]) -> Any:
    """A property over a slot, called as the slot is but for the underscore. Assigning anything but an instance of
    `kinds` raises TypeError; `help` says what to write instead of a value.
    """
    name = slot.removeprefix("_")
    words = [kind.__name__ if kind is not type(None) else "None" for kind in kinds]
    wanted = " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))

    def assign(self: Any, value: Any) -> None:
        if not isinstance(value, kinds):
            shown = repr(value)
            shown = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}.."
            raise TypeError(f"{name} must be {wanted}, found {type(value).__name__} {shown}; {help(value)}")
        setattr(self, slot, value)

    return property(attrgetter(slot), assign)

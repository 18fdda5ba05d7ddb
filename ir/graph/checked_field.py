"""Type-checked fields for classes with slots: assigning a value of a wrong type raises TypeError.

Without the check a pass would meet the wrong value much later, far from the assignment. Reading such a field costs
about as much as reading a slot; assigning it costs one type check.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..checked_call import wrong_type

T = TypeVar("T")

if TYPE_CHECKING:

    class Field(Generic[T]):
        """The type of a checked field for type checkers; at run time it is a property."""

        def __get__(self, instance: object, owner: type | None = None) -> T: ...
        def __set__(self, instance: object, value: T) -> None: ...


def checked_field(
    slot: str, kinds: tuple[type, ...], help: Callable[[Any], str], then: Callable[[Any], None] | None = None
) -> Any:
    """Returns a property over a slot, named like the slot without its underscore.

    Assigning anything but an instance of `kinds` raises TypeError. `help` returns advice for a rejected value. After an
    assignment the object is given to `then`.
    """
    name = slot.removeprefix("_")

    def assign(self: Any, value: Any) -> None:
        if not isinstance(value, kinds):
            raise wrong_type(name, value, kinds, help(value))
        setattr(self, slot, value)
        if then is not None:
            then(self)

    return property(attrgetter(slot), assign)

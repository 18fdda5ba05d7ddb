"""Short representations of objects that hold parts of programs, for messages and debuggers.

The representation that `@dataclass` generates follows every field: from one leaf of propagation through all that it
reaches, which is the whole program, many times. A brief one names the fields and looks no further than these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from .shown import shortened

C = TypeVar("C")

_LONGEST_FIELD, _LONGEST = 80, 500


def brief(cls: type[C]) -> type[C]:
    """Class decorator over `@dataclass`: gives the class a brief representation."""
    cls.__repr__ = _repr
    return cls


def _repr(self: Any) -> str:
    shown = (f"{f.name}={_shown(getattr(self, f.name, None))}" for f in fields(self) if f.repr)
    return shortened(f"{type(self).__name__}({', '.join(shown)})", _LONGEST)


def _shown(value: Any) -> str:
    """Shows scalars, and objects with brief representations of their own; of others their type and size."""
    if isinstance(value, str | bytes):
        return repr(value[:_LONGEST_FIELD])
    if isinstance(value, Sequence | Mapping | AbstractSet):
        return f"<{type(value).__name__} of {len(value)}>"  # pyright: ignore[reportUnknownArgumentType]
    if is_dataclass(value):
        return f"<{type(value).__name__}>"
    return shortened(repr(value), _LONGEST_FIELD)

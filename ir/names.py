"""What users call values: names of instructions, `op_name`s of their metadata (JAX's paths), patterns of either."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from .instruction import Instruction


def names_of(instruction: Instruction) -> tuple[str, ...]:
    """The names by which users know a value: its own, and its `op_name` if it has one, such as `params['w']`."""
    path = instruction.metadata.op_name if instruction.metadata is not None else ""
    return tuple(dict.fromkeys(filter(None, (instruction.name, path))))


def name_pattern(text: str) -> re.Pattern[str]:
    """The expression for names that a pattern means, in which `*` stands for any characters."""
    return re.compile(".*".join(map(re.escape, text.split("*"))), re.DOTALL)


def fits(pattern: re.Pattern[str], names: Iterable[str]) -> bool:
    """Whether a pattern fits one of these names."""
    return any(pattern.fullmatch(name) for name in names)


def suggestions(text: str, names: Iterable[str]) -> str:
    """The names that look most like a text, or else the first ones, for a message about a name that nothing has."""
    known = sorted(set(names))
    return ", ".join(difflib.get_close_matches(text, known, 3, 0.3) or known[:5])

"""Names by which users refer to values: instruction names, `op_name`s of metadata (JAX's paths), and patterns."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ..diagnostics import fail
from ..graph.instruction import Instruction
from ..graph.module import Module
from ..graph.op import Role
from .aliases import aliases, leaf_number

T = TypeVar("T")


def names_of(instruction: Instruction) -> tuple[str, ...]:
    """Returns the names of a value: its own, and its `op_name` if it has one, such as `params['w']`."""
    path = instruction.metadata.op_name if instruction.metadata is not None else ""
    return tuple(dict.fromkeys(filter(None, (instruction.name, path))))


def name_pattern(text: str) -> re.Pattern[str]:
    """Compiles a pattern for names, in which `*` stands for any characters."""
    return re.compile(".*".join(map(re.escape, text.split("*"))), re.DOTALL)


def fits(pattern: re.Pattern[str], names: Iterable[str]) -> bool:
    """Whether a pattern matches one of these names."""
    return any(pattern.fullmatch(name) for name in names)


def matching(values: Iterable[T], patterns: Sequence[str], names: Callable[[T], Iterable[str]]) -> list[T]:
    """Returns the values of which a name fits one of the patterns; all if there are none."""
    wanted = [name_pattern(text) for text in patterns]
    return [value for value in values if not wanted or any(fits(pattern, names(value)) for pattern in wanted)]


def called(
    values: Sequence[T], patterns: Sequence[str], names: Callable[[T], Iterable[str]],
    known: Callable[[T], Iterable[str]],
) -> list[T]:  # fmt: skip
    """Returns the values of which a name fits one of the patterns; all if there are none. Raises CompileError, which
    suggests names that are `known`, if none fits.
    """
    found = matching(values, patterns, names)
    if patterns and not found:
        all_known = (name for value in values for name in known(value))
        fail(f"no value is called {' or '.join(patterns)}", help="values: " + suggestions(patterns[0], all_known))
    return found


def result_names(module: Module) -> list[str]:
    """Returns one user-visible name per array of the entry's root.

    A result that aliases a parameter is that parameter's new value, and takes its path if there is one (`state['w']`).
    Other results take the names of the root tuple's operands, `name[2]` for an array inside a tuple.
    """
    root = module.entry.root
    parts = root.operands if root.op.role is Role.TUPLE else [root]
    names: list[str] = []
    for part in parts:
        names += [f"{part.name}[{n}]" for n in range(part.shape.num_leaves)] if part.shape.is_tuple else [part.name]
    parameters = module.entry.parameters
    for result, number, part in aliases(module.input_output_alias):
        place = leaf_number(root.shape, result)
        if place is not None and number < len(parameters):
            path = names_of(parameters[number])[-1]
            names[place] = f"{path}[{part.strip()}]" if part.strip() else path
    return [name for name, leaf in zip(names, root.shape.leaves(), strict=True) if leaf.is_array]


def suggestions(text: str, names: Iterable[str]) -> str:
    """Lists the names most similar to an unknown name, or else the first ones, for an error message."""
    known = sorted(set(names))
    return ", ".join(difflib.get_close_matches(text, known, 3, 0.3) or known[:5])

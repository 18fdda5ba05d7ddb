"""Shows the differences of two programs, for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from ..ir.graph.instruction import Instruction
from ..ir.tools.difference import ModuleDifference
from ..ir.tools.printer import instruction_text

_SHOWN = 5  # differences of a computation
_LONGEST = 160  # characters of an instruction


def differences_text(found: Sequence[ModuleDifference]) -> str:
    """Returns the first differences of each pair of computations, and their number."""
    groups = ((names, list(group)) for names, group in groupby(found, key=lambda d: d.computations))
    lines = [line for names, group in groups for line in _lines(names, group)]
    return "\n".join([*lines, f"{len(found)} difference{'s' * (len(found) > 1)}"])


def _lines(names: tuple[str, str], found: Sequence[ModuleDifference]) -> Iterator[str]:
    left, right = names
    title = f"computation {left}" if left == right else f"computations {left} and {right}"
    yield f"{title}:" if left else "modules:"
    for difference in found[:_SHOWN]:
        yield f"  {difference.what}"
        for sign, instruction in (("-", difference.left), ("+", difference.right)):
            if instruction is not None:
                yield f"  {sign} {_line(instruction)}"
    if len(found) > _SHOWN:
        yield f"  and {len(found) - _SHOWN} more"


def _line(instruction: Instruction) -> str:
    text = instruction_text(instruction)
    short = text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
    return f"{instruction.location}: {short}" if instruction.location else short


def differences_record(found: Sequence[ModuleDifference]) -> dict[str, object]:
    """Returns all differences as JSON."""
    records = [{"what": d.what, "computations": list(d.computations), "left": d.left and instruction_text(d.left),
                "right": d.right and instruction_text(d.right)} for d in found]  # fmt: skip
    return {"equal": not found, "differences": records}

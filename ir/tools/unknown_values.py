"""Constants with unknown values: `constant({...})`, as XLA prints large constants by default.

Such a program can be read, verified, sharded, partitioned and printed, because none of that needs numbers. Code that
needs them calls `require_values` first.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from ..diagnostics import fail
from ..graph.attributes import Attributes, attribute_fields
from ..graph.instruction import Instruction
from ..types.literal import Literal

HOW_TO_PRINT = (
    "print it with large constants: HloModule.to_string with HloPrintOptions.print_large_constants, "
    "XlaComputation.as_hlo_text(print_large_constants=True), or a dump with XLA_FLAGS=--xla_dump_large_constants"
)


def require_values(instructions: Iterable[Instruction], purpose: str) -> None:
    """Raises CompileError at the first constant with unknown values, if any. `purpose` completes "are needed"."""
    missing = [i for i in instructions if not _has_values(i)]
    if missing:
        more = f", here and in {len(missing) - 1} more" if len(missing) > 1 else ""
        fail(f"the values of {missing[0].name} are needed {purpose}, but the text leaves them out{more}",
             missing[0].location, HOW_TO_PRINT)


def _has_values(instruction: Instruction) -> bool:
    names = _literals(instruction.op.attributes)
    literals = (getattr(instruction.attributes, name) for name in names)
    return not names or all(literal is None or literal.is_known for literal in literals)


@cache
def _literals(cls: type[Attributes]) -> tuple[str, ...]:
    """Returns the names of the fields of an attribute class that hold literals."""
    return tuple(name for name, field in attribute_fields(cls).items() if field.type is Literal)

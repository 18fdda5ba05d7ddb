"""Keeps the program of each device between processes, so that only the first one partitions a function."""

from __future__ import annotations

import linecache
import pickle
from collections.abc import Callable
from io import BytesIO
from typing import TYPE_CHECKING

from ..cost.machine import DEFAULT
from ..cost.presets import as_machine
from ..ir.diagnostics import SourceFile
from ..ir.graph import keeping
from ..ir.ops.calls.user_calls import USER_BEHAVIOURS
from ..ir.origin import is_foreign
from ..passes.result import Partitioned

if TYPE_CHECKING:
    from .program import DeviceProgram

_ROOMS = ("passes.result", "passes.resharding.base", "frontends.proto", "cost")  # with the classes of its values


def kept(program: DeviceProgram, make: Callable[[], Partitioned]) -> Partitioned:
    """Loads the result that an earlier process stored for a program, or returns `make()`."""
    key = _key_of(program)
    for value in keeping.load(key, _ROOMS) or ():
        if isinstance(value, Partitioned) and _is_current(value):
            return value
    made = make()
    keeping.store(key, lambda: (pickle.dumps(made),))
    return made


def _key_of(program: DeviceProgram) -> tuple[str, ...] | None:
    """Returns the key of a program, from the text that JAX makes of the function with the places of its ops; None if
    the user's own code decides, too: machines, rules, passes or custom-calls.
    """
    door = program.call.door
    options = {**door.options}
    machine = as_machine(options.pop("machine", DEFAULT))
    is_own = is_foreign(machine) or USER_BEHAVIOURS or not all(isinstance(v, str | None) for v in options.values())
    if is_own or program.inspecting.functions:
        return None
    code = BytesIO()
    program.lowered.compiler_ir("stablehlo").operation.write_bytecode(code)
    names = program.call.jaxpr.jaxpr.debug_info.arg_names
    decided = (options, machine, str(door.place), door.platforms, program.platform, program.devices, names)
    return keeping.key_of("jax", code.getvalue(), repr(decided))


def _is_current(program: Partitioned) -> bool:
    """Whether the user's files, if they are still there, have the text that messages will quote."""
    places = [i.location for computation in program for i in computation]
    places += [note.location for d in (*program.remarks, *program.warnings) for note in (d, *d.notes)]
    sources: set[SourceFile] = {place.source for place in places if place is not None}
    return all("".join(linecache.getlines(source.name)) in ("", source.text) for source in sources)

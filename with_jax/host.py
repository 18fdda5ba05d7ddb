"""The Python functions that a program calls: `jax.debug.print`, `jax.pure_callback`, `io_callback`, and the like.

JAX keeps the functions of a program in a list; custom-calls name them by number. What Hloom makes of a program becomes
part of another one, with a list of its own: functions are added to it, and the custom-calls get new numbers. Effects
that JAX orders are tokens, which enter the program before its arguments and leave it before its results.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..frontends.extras import INSTALL
from ..ir.diagnostics import fail
from ..ir.graph.module import Module
from ..ir.ops.calls.custom_call import behaviour_of
from ..ir.strings import BracedText

_NUMBER = re.compile(r"index = (\d+)")


@dataclass(frozen=True)
class HostFunctions:
    """The functions that a program calls, and the effects whose tokens it takes and gives."""

    functions: tuple[Callable[..., Any], ...] = ()
    ordered: tuple[Any, ...] = ()

    @staticmethod
    def of(lowered: Any) -> HostFunctions:
        """Returns those of a `jax.stages.Lowered`."""
        kept = getattr(lowered._lowering, "compile_args", {})
        if "host_callbacks" not in kept or "ordered_effects" not in kept:
            fail("this version of jax keeps the Python functions that programs call elsewhere", help=INSTALL)
        return HostFunctions(tuple(kept["host_callbacks"]), tuple(kept["ordered_effects"]))

    def add_to(self, context: Any) -> int:
        """Adds the functions to those of another program, a `jax.interpreters.mlir.ModuleContext`. Returns the number
        of the first.
        """
        first = len(context.host_callbacks)
        for function in self.functions:
            context.add_host_callback(function)
        return first


NO_HOST = HostFunctions()


def number_calls(module: Module, first: int) -> None:
    """Adds `first` to the number of the function in each call of one, in place. Raises CompileError."""
    for computation in module:
        for instruction in computation:
            known = behaviour_of(instruction)
            if known is None or not known.is_callback:
                continue
            text = str(instruction.backend_config or "")
            if _NUMBER.search(text) is None:
                fail(f"{instruction.name} does not say by number which function it calls", instruction.location)
            changed = _NUMBER.sub(lambda found: f"index = {int(found[1]) + first}", text)
            instruction.backend_config = BracedText(changed)

"""Prints the fused kernels of a program as one C file, to read and to compile ahead of time.

Equal kernels become one function, whose comment names the fusions and their ops. A function takes the addresses of its
operands, results and scratch rows; arrays are dense, in row-major order, and may not overlap.
"""

from __future__ import annotations

from ...ir.errors import NotEvaluable
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.graph.op import Role
from .c_text import c_function, c_head
from .expand import expand
from .lower import Lowered, lower
from .numpy_run import DTYPES


def c_file(module: Module) -> str:
    """Returns the C file of a module's fusions. Those that kernels do not have are named in a comment each."""
    found: dict[str, tuple[Lowered, list[Instruction]]] = {}
    refused: list[str] = []
    for fusion in (i for computation in module for i in computation if i.op.role is Role.FUSION):
        try:
            lowered = lower(fusion.called()[0])
        except NotEvaluable as error:
            refused.append(f"/* no kernel for {fusion.name}: {error.message} */\n")
            continue
        found.setdefault(c_function(expand(lowered.kernel), "kernel"), (lowered, []))[1].append(fusion)
    parts = [f"/* The fused kernels of {module.name}: cc -O2 -march=native -ffp-contract=off -fwrapv */\n", c_head()]
    for number, (lowered, fusions) in enumerate(found.values()):
        parts.append(_comment(lowered, fusions) + c_function(expand(lowered.kernel), f"kernel_{number}"))
    return "\n".join([*parts, *refused])


def _comment(lowered: Lowered, fusions: list[Instruction]) -> str:
    """Names the fusions that a kernel computes, the ops of the first, and its buffers."""
    ops = [f"{i.opcode} {i.name}" for i in fusions[0].called()[0] if i.op.role not in (Role.PARAMETER, Role.TUPLE)]
    buffers = [f"operand {shape.without_layout()}" for shape in lowered.parameters]
    buffers += [f"result {shape.without_layout()}" for shape in lowered.results]
    lanes = lowered.kernel.buffers[len(buffers) :]
    buffers += [f"scratch {DTYPES[lane]}[{size}]" for lane, size in zip(lanes, lowered.scratch, strict=True)]
    lines = [f"computes {', '.join(fusion.name for fusion in fusions)}", f"ops: {', '.join(ops)}"]
    lines += [f"buffers[{n}]: {text}" for n, text in enumerate(buffers)]
    return "/* " + "\n   ".join(lines).replace("*/", "* /") + " */\n"

"""Hloom: HLO outside XLA.

    import hloom

    module = hloom.load("step.hlo")             # or hloom.parse(text)
    local = hloom.partition(module)             # one program per device, explicit collectives
    outputs = hloom.simulate(local, inputs)     # global arrays in and out, all devices in this process
    expected = hloom.evaluate(module, inputs)   # one device

Programs are built and edited with the methods of `Module` and `Computation`, patterns (`P`, `match`, `find_all`) find
places to edit, `to_networkx` gives the graph: see docs/editing.md.

`reshard_plan` says which slices devices read when saved state moves to another mesh: see docs/resharding.md.

Errors in programs are `CompileError`, with `.diagnostics`; `run` raises `RankFailed` for those of other MPI ranks.
"""

from .cost.collectives import Collective, collectives
from .frontends import Snapshot, load, load_snapshot, parse, parse_shape, parse_sharding
from .ir.diagnostics import CompileError, Diagnostic, Severity
from .ir.graph.module import Module
from .ir.ops.calls.user_calls import custom_call
from .ir.tools.pattern import P, find_all, match
from .ir.tools.to_networkx import to_networkx
from .passes.annotating.strategy import apply_strategy, load_strategy
from .passes.api import partition, propagate, verify
from .passes.resharding.transfers import reshard_plan
from .report.budget import assert_collectives
from .report.explain import explain
from .runtime import RankFailed, evaluate, run, simulate

__version__ = "0.1.0"

__all__ = [
    "Collective",
    "CompileError",
    "Diagnostic",
    "Module",
    "P",
    "RankFailed",
    "Severity",
    "Snapshot",
    "__version__",
    "apply_strategy",
    "assert_collectives",
    "collectives",
    "custom_call",
    "evaluate",
    "explain",
    "find_all",
    "load",
    "load_snapshot",
    "load_strategy",
    "match",
    "parse",
    "parse_shape",
    "parse_sharding",
    "partition",
    "propagate",
    "reshard_plan",
    "run",
    "simulate",
    "to_networkx",
    "verify",
]

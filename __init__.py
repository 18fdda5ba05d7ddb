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

from .codegen import export
from .cost.collectives import Collective, collectives
from .cost.machine import Machine, Transfer
from .cost.presets import parse_machine
from .frontends import Snapshot, load, load_snapshot, parse, parse_shape, parse_sharding
from .ir.diagnostics import CompileError, Diagnostic, Severity
from .ir.graph.instruction import Instruction
from .ir.graph.module import Module, Stage
from .ir.graph.op import Op, OpCall, register
from .ir.ops.calls.user_calls import custom_call
from .ir.sharding.mesh import Mesh
from .ir.sharding.sharding import Sharding
from .ir.tools.pattern import P, find_all, match
from .ir.tools.to_networkx import to_networkx
from .passes.annotating.strategy import apply_strategy, load_strategy
from .passes.api import partition, propagate, verify
from .passes.base import Pass, PassContext
from .passes.op_sharding.assignment import LocalForm
from .passes.op_sharding.forms import LocalForms
from .passes.op_sharding.forms import built_in as local_forms
from .passes.pipelines import PIPELINE
from .passes.resharding.transfers import reshard_plan
from .passes.result import Partitioned
from .passes.spmd.emit.local_op import LocalOp
from .report.budget import assert_collectives
from .report.explain import explain
from .runtime import RankFailed, evaluate, run, simulate
from .runtime.proof.relations.located import prove
from .runtime.proof.relations.relate import Relations, relate
from .runtime.proof.verdict import Verdict
from .runtime.xla import run_on_xla

__version__ = "0.1.0"

__all__ = [
    "PIPELINE",
    "Collective",
    "CompileError",
    "Diagnostic",
    "Instruction",
    "LocalForm",
    "LocalForms",
    "LocalOp",
    "Machine",
    "Mesh",
    "Module",
    "Op",
    "OpCall",
    "P",
    "Partitioned",
    "Pass",
    "PassContext",
    "RankFailed",
    "Relations",
    "Severity",
    "Sharding",
    "Snapshot",
    "Stage",
    "Transfer",
    "Verdict",
    "__version__",
    "apply_strategy",
    "assert_collectives",
    "collectives",
    "custom_call",
    "evaluate",
    "explain",
    "export",
    "find_all",
    "load",
    "load_snapshot",
    "load_strategy",
    "local_forms",
    "match",
    "parse",
    "parse_machine",
    "parse_shape",
    "parse_sharding",
    "partition",
    "propagate",
    "prove",
    "register",
    "relate",
    "reshard_plan",
    "run",
    "run_on_xla",
    "simulate",
    "to_networkx",
    "verify",
]

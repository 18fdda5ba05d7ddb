"""Hloom: HLO outside XLA.

    import hloom

    module = hloom.load("step.hlo")             # or hloom.parse(text)
    local = hloom.partition(module)             # one program per device, explicit collectives
    outputs = hloom.simulate(local, inputs)     # global arrays in and out, all devices in this process
    expected = hloom.evaluate(module, inputs)   # one device

`compile` does all of it, with native code where it pays, and gives a `Program` to run and to ask: see docs/native.md.

`builder` writes programs in Python, like numpy, with the annotation functions of GShard and GSPMD: see docs/builder.md.

Programs are built and edited with the methods of `Module` and `Computation`, patterns (`P`, `match`, `find_all`) find
places to edit, `to_networkx` gives the graph: see docs/editing.md.

`reshard_plan` says which slices devices read when saved state moves to another mesh: see docs/resharding.md.

Errors in programs are `CompileError`, with `.diagnostics`; `run` raises `RankFailed` for those of other MPI ranks.
Mistakes of passes are `InternalError`, which names the pass.
"""

from typing import TYPE_CHECKING

from .ir.late import late_names

if TYPE_CHECKING:
    from . import jax as jax  # pyright: ignore  # a folder of another name in the checkout
    from .codegen import export as export
    from .cost.collectives import Collective as Collective
    from .cost.collectives import collectives as collectives
    from .cost.machine import Machine as Machine
    from .cost.machine import Transfer as Transfer
    from .cost.memory import LiveBuffer as LiveBuffer
    from .cost.memory import LiveMemory as LiveMemory
    from .cost.memory import live_memory as live_memory
    from .cost.presets import parse_machine as parse_machine
    from .cost.timeline import Timeline as Timeline
    from .cost.timeline import timeline as timeline
    from .cost.work import Contraction as Contraction
    from .cost.work import contractions as contractions
    from .driver.compile import compile as compile
    from .driver.forecast import forecast as forecast
    from .driver.paged import page as page
    from .driver.planned import plan as plan
    from .driver.planned import sweep as sweep
    from .driver.program import NativeMemory as NativeMemory
    from .driver.program import Program as Program
    from .driver.training.api import Trained as Trained
    from .driver.training.api import train as train
    from .frontends import Snapshot as Snapshot
    from .frontends import builder as builder
    from .frontends import load as load
    from .frontends import load_snapshot as load_snapshot
    from .frontends import parse as parse
    from .frontends import parse_shape as parse_shape
    from .frontends import parse_sharding as parse_sharding
    from .frontends.pipelines.orders import pipeline_schedule as pipeline_schedule
    from .frontends.pipelines.schedule import PipelineSchedule as PipelineSchedule
    from .ir.deadlock.find import find_deadlocks as find_deadlocks
    from .ir.diagnostics import CompileError as CompileError
    from .ir.diagnostics import Diagnostic as Diagnostic
    from .ir.diagnostics import InternalError as InternalError
    from .ir.diagnostics import Severity as Severity
    from .ir.errors import ShapeError as ShapeError
    from .ir.graph.algebra import Algebra as Algebra
    from .ir.graph.attributes import Attributes as Attributes
    from .ir.graph.computation import Computation as Computation
    from .ir.graph.instruction import Instruction as Instruction
    from .ir.graph.interfaces import Memory as Memory
    from .ir.graph.interfaces import Movement as Movement
    from .ir.graph.module import Module as Module
    from .ir.graph.module import Stage as Stage
    from .ir.graph.op import Op as Op
    from .ir.graph.op import OpCall as OpCall
    from .ir.graph.op import register as register
    from .ir.graph.source import Along as Along
    from .ir.graph.source import RowMajor as RowMajor
    from .ir.ops.calls.user_calls import custom_call as custom_call
    from .ir.sharding.mesh import Mesh as Mesh
    from .ir.sharding.sharding import Sharding as Sharding
    from .ir.tools.pattern import P as P
    from .ir.tools.pattern import find_all as find_all
    from .ir.tools.pattern import match as match
    from .ir.tools.to_networkx import to_networkx as to_networkx
    from .passes.annotating.remesh import remesh as remesh
    from .passes.annotating.strategy import apply_strategy as apply_strategy
    from .passes.annotating.strategy import load_strategy as load_strategy
    from .passes.annotating.strip import strip_annotations as strip_annotations
    from .passes.api import partition as partition
    from .passes.api import propagate as propagate
    from .passes.api import run_passes as run_passes
    from .passes.api import verify as verify
    from .passes.base import Pass as Pass
    from .passes.base import PassContext as PassContext
    from .passes.op_sharding.assignment import LocalForm as LocalForm
    from .passes.op_sharding.forms import LocalForms as LocalForms
    from .passes.pipelines import PIPELINE as PIPELINE
    from .passes.planning.plan import Plan as Plan
    from .passes.planning.sweep import Sweep as Sweep
    from .passes.resharding.transfers import reshard_plan as reshard_plan
    from .passes.result import Partitioned as Partitioned
    from .passes.spmd.emit.local_op import LocalOp as LocalOp
    from .passes.spmd.local_forms import local_forms as local_forms
    from .report.budget import assert_collectives as assert_collectives
    from .report.explain import explain as explain
    from .report.forecast import StepForecast as StepForecast
    from .report.html.document import Page as Page
    from .report.xla_memory import xla_memory as xla_memory
    from .runtime import RankFailed as RankFailed
    from .runtime import checkpoint as checkpoint
    from .runtime import evaluate as evaluate
    from .runtime import run as run
    from .runtime import simulate as simulate
    from .runtime.proof.relations.located import prove as prove
    from .runtime.proof.relations.relate import Relations as Relations
    from .runtime.proof.relations.relate import relate as relate
    from .runtime.proof.verdict import Verdict as Verdict
    from .runtime.xla import run_on_xla as run_on_xla

__version__ = "0.1.0"

_PLACES = {
    "jax": "jax",
    "export": "codegen:export",
    "Collective": "cost.collectives:Collective",
    "collectives": "cost.collectives:collectives",
    "Machine": "cost.machine:Machine",
    "Transfer": "cost.machine:Transfer",
    "LiveBuffer": "cost.memory:LiveBuffer",
    "LiveMemory": "cost.memory:LiveMemory",
    "live_memory": "cost.memory:live_memory",
    "parse_machine": "cost.presets:parse_machine",
    "Timeline": "cost.timeline:Timeline",
    "timeline": "cost.timeline:timeline",
    "Contraction": "cost.work:Contraction",
    "contractions": "cost.work:contractions",
    "compile": "driver.compile:compile",
    "NativeMemory": "driver.program:NativeMemory",
    "Program": "driver.program:Program",
    "Trained": "driver.training.api:Trained",
    "train": "driver.training.api:train",
    "builder": "frontends:builder",
    "Snapshot": "frontends:Snapshot",
    "load": "frontends:load",
    "load_snapshot": "frontends:load_snapshot",
    "parse": "frontends:parse",
    "parse_shape": "frontends:parse_shape",
    "parse_sharding": "frontends:parse_sharding",
    "pipeline_schedule": "frontends.pipelines.orders:pipeline_schedule",
    "PipelineSchedule": "frontends.pipelines.schedule:PipelineSchedule",
    "find_deadlocks": "ir.deadlock.find:find_deadlocks",
    "CompileError": "ir.diagnostics:CompileError",
    "Diagnostic": "ir.diagnostics:Diagnostic",
    "InternalError": "ir.diagnostics:InternalError",
    "Severity": "ir.diagnostics:Severity",
    "ShapeError": "ir.errors:ShapeError",
    "Algebra": "ir.graph.algebra:Algebra",
    "Attributes": "ir.graph.attributes:Attributes",
    "Computation": "ir.graph.computation:Computation",
    "Instruction": "ir.graph.instruction:Instruction",
    "Module": "ir.graph.module:Module",
    "Stage": "ir.graph.module:Stage",
    "Memory": "ir.graph.interfaces:Memory",
    "Movement": "ir.graph.interfaces:Movement",
    "Op": "ir.graph.op:Op",
    "OpCall": "ir.graph.op:OpCall",
    "register": "ir.graph.op:register",
    "Along": "ir.graph.source:Along",
    "RowMajor": "ir.graph.source:RowMajor",
    "custom_call": "ir.ops.calls.user_calls:custom_call",
    "Mesh": "ir.sharding.mesh:Mesh",
    "Sharding": "ir.sharding.sharding:Sharding",
    "P": "ir.tools.pattern:P",
    "find_all": "ir.tools.pattern:find_all",
    "match": "ir.tools.pattern:match",
    "to_networkx": "ir.tools.to_networkx:to_networkx",
    "remesh": "passes.annotating.remesh:remesh",
    "apply_strategy": "passes.annotating.strategy:apply_strategy",
    "load_strategy": "passes.annotating.strategy:load_strategy",
    "strip_annotations": "passes.annotating.strip:strip_annotations",
    "partition": "passes.api:partition",
    "propagate": "passes.api:propagate",
    "run_passes": "passes.api:run_passes",
    "verify": "passes.api:verify",
    "Pass": "passes.base:Pass",
    "PassContext": "passes.base:PassContext",
    "Plan": "passes.planning.plan:Plan",
    "plan": "driver.planned:plan",
    "Sweep": "passes.planning.sweep:Sweep",
    "sweep": "driver.planned:sweep",
    "LocalForm": "passes.op_sharding.assignment:LocalForm",
    "LocalForms": "passes.op_sharding.forms:LocalForms",
    "PIPELINE": "passes.pipelines:PIPELINE",
    "reshard_plan": "passes.resharding.transfers:reshard_plan",
    "Partitioned": "passes.result:Partitioned",
    "LocalOp": "passes.spmd.emit.local_op:LocalOp",
    "local_forms": "passes.spmd.local_forms:local_forms",
    "assert_collectives": "report.budget:assert_collectives",
    "explain": "report.explain:explain",
    "StepForecast": "report.forecast:StepForecast",
    "forecast": "driver.forecast:forecast",
    "Page": "report.html.document:Page",
    "page": "driver.paged:page",
    "xla_memory": "report.xla_memory:xla_memory",
    "RankFailed": "runtime:RankFailed",
    "evaluate": "runtime:evaluate",
    "run": "runtime:run",
    "simulate": "runtime:simulate",
    "prove": "runtime.proof.relations.located:prove",
    "Relations": "runtime.proof.relations.relate:Relations",
    "relate": "runtime.proof.relations.relate:relate",
    "Verdict": "runtime.proof.verdict:Verdict",
    "checkpoint": "runtime:checkpoint",
    "run_on_xla": "runtime.xla:run_on_xla",
}
_PACKAGES = ("codegen", "cost", "frontends", "ir", "passes", "report", "runtime")

__all__ = ["__version__", *_PLACES]  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__ = late_names(__name__, _PLACES | {name: name for name in _PACKAGES})

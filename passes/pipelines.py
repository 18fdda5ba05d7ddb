"""The pipelines that divide a program among devices, on one page. `scheduling` has the one after them, and `named` the
passes by name.
"""

from __future__ import annotations

from ..ir.diagnostics import Diagnostic, Severity, fail
from ..ir.graph.module import Module, Stage
from ..ir.tools.spmd import is_per_device
from .base import Pass, PassContext, run_pipeline
from .cleanup.batching import IndexBatching
from .cleanup.cse import CommonSubexpressions
from .cleanup.dce import DeadCodeElimination
from .cleanup.dead_loop_state import DeadLoopState
from .cleanup.device_forms import DeviceForms
from .cleanup.equal_computations import EqualComputations
from .cleanup.index_vectors import IndexVectors
from .cleanup.inline import CallInliner
from .cleanup.library_calls import LibraryCalls
from .cleanup.loop_invariants import LoopInvariants
from .cleanup.narrow_broadcasts import NarrowBroadcasts
from .cleanup.reshaped_sums import ReshapedSums
from .cleanup.single_replica import SingleReplica
from .cleanup.sink_broadcasts import SinkBroadcasts
from .cleanup.slice_of_pad import SliceOfPad
from .cleanup.synchronous import Synchronous
from .cleanup.uniform_precision import UniformPrecision
from .propagation.device_orders import DeviceOrders
from .propagation.one_device import OneDevice, is_undivided
from .propagation.propagate import Propagate
from .propagation.shardy_regions import ShardyRegions
from .spmd.partition import SpmdPartition
from .spmd.sort_prefix import SortPrefix

PROPAGATE: tuple[Pass, ...] = (
    LibraryCalls(),  # products and convolutions that XLA compiled have their rules again
    Synchronous(),  # sharding rules are those of the ops that starts begin
    SingleReplica(),  # partitions have no part in these collectives
    ShardyRegions(),  # one form of manual regions
    CallInliner(),  # one computation per level of control flow: shardings of a body belong to one caller
    EqualComputations(),  # what is found for one call of a reducer holds for all
    SinkBroadcasts(),  # loops would hold what they read anew in every trip
    DeadLoopState(),  # and what nobody reads, whole
    UniformPrecision(),  # local forms are made of ops of one type
    IndexVectors(),  # local forms compute with scalars
    IndexBatching(),  # rows that look into themselves alone
    NarrowBroadcasts(),  # along a divided dimension they would be exchanged, or be whole everywhere
    ReshapedSums(),  # a merged dimension cannot be divided as its minor parts are
    SliceOfPad(),  # what a pad moves along a divided dimension, a slice of it would move back
    DeadCodeElimination(),  # what nobody needs should not vote on shardings
    DeviceOrders(),  # lists of one physical mesh have digits in common
    Propagate(),
)

PARTITION: tuple[Pass, ...] = (
    SliceOfPad(),  # those that the program placed, too
    SortPrefix(),  # top-k written as a sort: tiles are sorted, and only the first of each again
    DeadCodeElimination(),  # what these two left has no costs to be told about
    SpmdPartition(),
    CommonSubexpressions(),  # equal masks, offsets and gathers of different ops
    LoopInvariants(),  # what every trip would send again
    DeadCodeElimination(),  # operands that local forms did not need
)

WHOLE: tuple[Pass, ...] = (
    LibraryCalls(),
    Synchronous(),
    SingleReplica(),
    CallInliner(),
    EqualComputations(),
    SinkBroadcasts(),
    DeadLoopState(),
    UniformPrecision(),
    DeadCodeElimination(),
    OneDevice(),
    CommonSubexpressions(),
    LoopInvariants(),
    DeadCodeElimination(),
)
"""The passes of `PROPAGATE` and `PARTITION` that a program for one device needs, whose ops nobody divides."""

COMPILED: tuple[Pass, ...] = (
    DeviceForms(),  # collectives are instructions of the program
    LibraryCalls(),  # their work is known then
)
"""The passes for the program of each device that another compiler made."""

PIPELINE: tuple[Pass, ...] = (*PROPAGATE, *PARTITION)
"""All passes that partition a GLOBAL module."""


def propagate(module: Module, context: PassContext | None = None, lent: bool = False) -> Module:
    """GLOBAL to SHARDED, in place; returns the module. The computations of one that is `lent` stay as they are. Raises
    CompileError.
    """
    if module.is_scheduled and is_per_device(module):
        fail(f"{module.name} is scheduled for several devices: it is the program of each of them already",
             help="`hloom run` runs it as it is")
    run_pipeline(PROPAGATE, module, context or PassContext(), lent)
    return module


def partition(module: Module, context: PassContext | None = None, lent: bool = False) -> Module:
    """GLOBAL or SHARDED to LOCAL, in place; returns the module. The computations of one that is `lent` stay as they
    are. Raises CompileError.
    """
    context = context or PassContext()
    if module.stage is Stage.GLOBAL and is_undivided(module, context):
        run_pipeline(WHOLE, module, context, lent)
        return module
    if module.stage is Stage.GLOBAL:
        propagate(module, context, lent)
        lent = False
    run_pipeline(PARTITION, module, context, lent)
    exchange_in_types(module, context)
    return module


def exchange_in_types(module: Module, context: PassContext) -> None:
    """Lets the devices of a LOCAL module add and gather in the types that the context asks for. Raises CompileError for
    a module whose collectives have been started apart from their ends.
    """
    if context.gather_in is not None:  # first: sums of eight bits gather scales
        from .schedule.rewrites.gather_in import GatherIn  # by rewrites, which other programs do without

        run_pipeline([GatherIn(context.gather_in)], module, context)
    if context.reduce_in is not None:
        from .schedule.rewrites.reduce_in import ReduceIn

        run_pipeline([ReduceIn(context.reduce_in)], module, context)


def require_local(module: Module) -> None:
    """Raises CompileError if the passes that ran have left no program per device."""
    if module.stage not in (Stage.LOCAL, Stage.SCHEDULED):
        fail(f"the passes leave {module.name} {module.stage.value}, not the program of each device",
             help="spmd-partition makes it")


def remarks(context: PassContext) -> list[Diagnostic]:
    """Returns the remarks and warnings of passes."""
    return [d for d in context.diagnostics.found if d.severity is not Severity.ERROR]

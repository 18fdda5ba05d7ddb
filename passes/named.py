"""All passes by name, and pipelines given as text.

A pipeline can be written as text: `propagate,spmd-partition,cse` or with options `fixed-point{limit=3}`; option names
are the fields of the pass with `-` for `_`. Order constraints are data, checked when a pipeline is read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any

from ..cost.sizes import Bytes
from ..ir.checked_call import wrong_type
from ..ir.diagnostics import fail
from .annotating.sharded_optimizer import ShardedOptimizer
from .base import Pass
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
from .cleanup.unit_transposes import UnitTransposes
from .fusion.fuse import FusionPass
from .propagation.device_orders import DeviceOrders
from .propagation.one_device import OneDevice
from .propagation.propagate import Propagate
from .propagation.shardy_regions import ShardyRegions
from .schedule.bucket import Bucket
from .schedule.combine_collectives import CombineCollectives
from .schedule.flat_parameters import FlatParameters
from .schedule.in_pieces import InPieces
from .schedule.memory_order import MemoryOrder
from .schedule.rematerialize import Rematerialize
from .schedule.rewrites.accumulate_in_place import AccumulateInPlace
from .schedule.rewrites.accumulate_stacks import AccumulateStacks
from .schedule.rewrites.carry_reduce_scatters import CarryReduceScatters
from .schedule.rewrites.common_gathers import CommonGathers
from .schedule.rewrites.gather_in import GatherIn
from .schedule.rewrites.hierarchical import HierarchicalCollectives
from .schedule.rewrites.hoist_gathers import HoistGathers
from .schedule.rewrites.prefetch_gathers import PrefetchGathers
from .schedule.rewrites.reassociate import ReassociateAllReduces
from .schedule.rewrites.reduce_in import ReduceIn
from .schedule.rewrites.reduce_scatters import AllReduceToReduceScatter
from .schedule.rewrites.sink_all_reduces import SinkAllReduces
from .schedule.rotate_loops import RotateLoops
from .schedule.save_less import SaveLess
from .schedule.schedule import Overlap, ScheduleCollectives
from .schedule.split_batch import SplitBatch
from .spmd.partition import SpmdPartition
from .spmd.sort_prefix import SortPrefix

PASSES: dict[str, type[Pass]] = {
    p.name: p
    for p in (
        LibraryCalls, Synchronous, SingleReplica, ShardyRegions, CallInliner, UniformPrecision, IndexVectors,
        IndexBatching, NarrowBroadcasts, ReshapedSums, SliceOfPad, SinkBroadcasts, DeadLoopState, DeadCodeElimination,
        CommonSubexpressions, EqualComputations, DeviceOrders, Propagate, SortPrefix, SpmdPartition, OneDevice,
        LoopInvariants, CombineCollectives, FusionPass, AllReduceToReduceScatter, ShardedOptimizer,
        ReassociateAllReduces, CommonGathers, SinkAllReduces, PrefetchGathers, CarryReduceScatters,
        HierarchicalCollectives, HoistGathers, ScheduleCollectives, Bucket, Overlap, MemoryOrder, Rematerialize,
        FlatParameters, InPieces, RotateLoops, SplitBatch, ReduceIn, GatherIn, AccumulateInPlace, UnitTransposes,
        SaveLess, DeviceForms, AccumulateStacks,
    )
}


@dataclass(frozen=True, slots=True)
class OrderRule:
    """Pass `first` must come before pass `second` where both are in a pipeline."""

    first: str
    second: str
    why: str


ORDER: tuple[OrderRule, ...] = (
    OrderRule("synchronous", "call-inliner", "a start of a computation becomes a call"),
    OrderRule("shardy-regions", "propagate", "propagation knows GSPMD's form of manual regions"),
    OrderRule("call-inliner", "propagate", "propagation ties values within one computation per caller"),
    OrderRule("call-inliner", "sharded-optimizer", "it tells states by what reads them"),
    OrderRule("sharded-optimizer", "propagate", "the tiles of states decide those of the update"),
    *(
        OrderRule(rewrite, "schedule", "what a schedule orders are the collectives that run")
        for rewrite in (
            "all-reduce-to-reduce-scatter", "reassociate-all-reduces", "common-gathers", "sink-all-reduces",
            "hoist-gathers", "prefetch-gathers", "carry-reduce-scatters", "hierarchical-collectives", "in-pieces",
            "rotate-loops", "split-batch",
            "reduce-in", "gather-in", "accumulate-in-place", "save-less",
            "accumulate-stacks",
        )
    ),
    OrderRule("sink-all-reduces", "accumulate-stacks", "it reduces stacks that begin with zeros after both loops"),
    OrderRule("gather-in", "reduce-in", "sums in eight bits gather scales, which stay as they are"),
    *(OrderRule(combining, "flat-parameters", "parameters are joined by the buckets that gather them")
      for combining in ("schedule", "bucket", "combine-collectives")),
    OrderRule("propagate", "spmd-partition", "the partitioner needs a sharding for every value"),
)


def check_order(passes: Sequence[Pass]) -> None:
    """Raises CompileError if a pipeline breaks a constraint."""
    names = [p.name for p in passes]
    for rule in ORDER:
        if rule.first in names and rule.second in names and names.index(rule.first) > names.index(rule.second):
            fail(f"pass {rule.first} must come before {rule.second}: {rule.why}")


def steps_of(passes: str | Sequence[Pass]) -> list[Pass]:
    """Returns the passes of a pipeline given as text or one by one. Raises CompileError for broken order, TypeError for
    an item that is no pass.
    """
    if isinstance(passes, str):
        return parse_pipeline(passes)
    for step in passes:
        if not isinstance(step, Pass):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise wrong_type("a pass", step, (Pass,), "passes by name are one text: 'propagate,spmd-partition'")
    check_order(passes)
    return list(passes)


_ITEM = re.compile(r"\s*([a-z][a-z0-9-]*)\s*(?:\{([^{}]*)\})?\s*(,|$)")


def parse_pipeline(text: str) -> list[Pass]:
    """The passes that a text names. Raises CompileError for unknown passes or options and for broken order."""
    passes: list[Pass] = []
    place = 0
    while place < len(text):
        match = _ITEM.match(text, place)
        if match is None:
            fail(f"cannot read pipeline at '{text[place:place + 20]}'", help="write pass,pass{option=value},..")
        passes.append(_make(match[1], match[2] or ""))
        place = match.end()
    check_order(passes)
    return passes


def _make(name: str, options: str) -> Pass:
    if name not in PASSES:
        fail(f"there is no pass '{name}'", help="passes: " + ", ".join(sorted(PASSES)))
    cls = PASSES[name]
    known = {f.name.replace("_", "-"): f for f in (fields(cls) if is_dataclass(cls) else ())}
    given: dict[str, Any] = {}
    for part in filter(None, (p.strip() for p in options.split(","))):
        key, _, value = part.partition("=")
        if key not in known:
            fail(f"pass {name} has no option '{key}'", help="options: " + (", ".join(known) or "none"))
        default = known[key].default
        if default is MISSING:
            fail(f"option '{key}' of pass {name} cannot be set from text")
        given[known[key].name] = _value(name, key, value, default)
    return cls(**given)


def _value(name: str, key: str, value: str, default: Any) -> Any:
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[value]
        made = type(default)(value)
        if not math.isfinite(made) if isinstance(made, float) else isinstance(made, int) and made < 0:
            raise ValueError(value)
        return made
    except (KeyError, ValueError):
        kind = "a number of bytes, such as 12GB" if isinstance(default, Bytes) else f"of type {type(default).__name__}"
        kind += ", finite" if isinstance(default, float) else ", not negative" if isinstance(default, int) else ""
        fail(f"option '{key}' of pass {name} cannot be '{value}'", help=f"it is {kind}")

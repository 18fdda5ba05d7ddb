"""The pipeline that schedules, on one page: `pipelines` has those that divide."""

from __future__ import annotations

from dataclasses import replace

from ..cost.sizes import Bytes
from ..ir.graph.module import Module
from .base import Pass, PassContext, run_pipeline
from .cleanup.equal_computations import EqualComputations
from .cleanup.synchronous import Synchronous
from .cleanup.unit_transposes import UnitTransposes
from .schedule.fastest import Fastest
from .schedule.flat_parameters import FlatParameters
from .schedule.rewrites.accumulate_in_place import AccumulateInPlace
from .schedule.rewrites.common_gathers import CommonGathers
from .schedule.rewrites.reassociate import ReassociateAllReduces
from .schedule.rewrites.reduce_scatters import AllReduceToReduceScatter
from .schedule.save_less import SaveLess
from .schedule.schedule import ScheduleCollectives
from .schedule.split_batch import SplitBatch

SCHEDULE: tuple[Pass, ...] = (
    Synchronous(),  # programs of other compilers: they start what they communicate
    SaveLess(),  # before others change what loops carry
    EqualComputations(),  # collectives with equal reducers can share a message
    AccumulateInPlace(),  # before sums over devices leave loops, which then know the part
    UnitTransposes(),  # which are views
    AllReduceToReduceScatter(),  # these three send less, whatever the order is
    ReassociateAllReduces(),
    CommonGathers(),
    Fastest(),  # loops that communicate ahead or behind, and collectives in pieces, if that is faster
)
"""The passes that schedule a LOCAL module. The rewrites need a program that is not scheduled yet."""


def schedule(
    module: Module, context: PassContext | None = None, memory: int = 0, form: str = "variadic", flat: bool = False,
    fastest: Fastest | None = None, split: int = 0,
) -> Module:
    """LOCAL to SCHEDULED, in place, with at most `memory` bytes on a device (0: those of the machine); returns the
    module. Combined collectives have the `form` variadic, flat or xla. With `flat`, parameters that are gathered
    together become one (`flat-parameters`). `fastest` may say which rewrites are tried, and how long its `final` pass
    looks. `split` is the number of parts in which the batch may be computed. Raises CompileError if the program does
    not fit, or has too small a batch.
    """
    given = fastest.final if fastest is not None else ScheduleCollectives()
    final = replace(given, memory=Bytes(memory), form=form)
    batch = SplitBatch(split) if split else None
    passes = [replace(fastest or p, final=final, batch=batch) if isinstance(p, Fastest) else p for p in SCHEDULE]
    passes = [final] if module.has_schedule else passes
    run_pipeline([*passes, *([FlatParameters()] if flat else [])], module, context or PassContext())
    return module

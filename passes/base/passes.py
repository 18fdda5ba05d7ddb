"""Passes and pipelines.

A pass is a frozen dataclass whose fields are its options. It edits a module in place, from the stage it consumes to
the stage it produces, and says whether it changed anything. A `Pipeline` is a pass made of passes; around each it
checks the stage, times, verifies and dumps, as the context asks. Findings go to the context's diagnostics. A mistake of
a pass, whosever it is, ends in an InternalError that names it.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from ...ir import origin
from ...ir.diagnostics import CompileError, InternalError, fail
from ...ir.gc_pause import paused_collector
from ...ir.graph.module import Module, Stage, clone_module
from ...ir.ops.starts import is_start
from ...ir.time_limit import check_time
from ...ir.tools.spmd import is_per_device
from .context import PassContext, PassRecord


class Pass(ABC):
    """Base of all passes. `consumes` lists the stages it accepts, `produces` the stage it leaves (None: the same).

    A pass that takes LOCAL modules takes the programs per device of other compilers, too, whose stage stays GLOBAL.
    """

    name: ClassVar[str] = ""
    consumes: ClassVar[frozenset[Stage]] = frozenset(Stage)
    produces: ClassVar[Stage | None] = None

    @abstractmethod
    def run(self, module: Module, context: PassContext) -> bool:
        """Edits the module; True if it changed. Raises CompileError for programs that cannot be compiled."""

    def is_idle(self, module: Module) -> bool:
        """Whether a look at the module tells that this pass would change nothing, and report nothing."""
        return False

    def renews(self, module: Module) -> bool:
        """Whether the pass puts new computations into the module, and leaves those that it has now as they are."""
        return False


@dataclass(frozen=True)
class Pipeline(Pass):
    """Runs passes one after the other."""

    name: ClassVar[str] = "pipeline"
    passes: tuple[Pass, ...]

    def run(self, module: Module, context: PassContext) -> bool:
        changed = False
        for step in self.passes:
            changed |= run_pass(step, module, context)
        return changed


@dataclass(frozen=True)
class FixedPoint(Pass):
    """Repeats a pass until it changes nothing, at most `limit` times."""

    name: ClassVar[str] = "fixed-point"
    body: Pass
    limit: int = 10

    def run(self, module: Module, context: PassContext) -> bool:
        for count in range(self.limit):
            if not run_pass(self.body, module, context):
                return count > 0
        return True


def run_pass(step: Pass, module: Module, context: PassContext, is_idle: bool = False) -> bool:
    """Runs one pass with everything around it; `is_idle` if it would change nothing. Raises CompileError if the module
    is at a stage it cannot take.
    """
    is_foreign = module.stage not in step.consumes and _takes_foreign(step, module)
    if module.stage not in step.consumes and not is_foreign:
        wanted = " or ".join(sorted(s.name for s in step.consumes))
        fail(f"pass {step.name} needs a {wanted} module, this one is {module.stage.name}")
    check_time()
    start = time.perf_counter()
    changed = not is_idle and _run(step, module, context)
    if step.produces is not None and not is_foreign:
        module.stage = step.produces
    if isinstance(step, Pipeline | FixedPoint):
        return changed
    context.records.append(PassRecord(step.name, time.perf_counter() - start, changed))
    # A foreign pass may misreport its changes.
    if (context.verify == "each" and (changed or step.produces is not None)) or (
        context.verify in ("each", "foreign") and origin.is_foreign(step)
    ):
        _verify(_named(step), module)
    if context.after is not None:
        context.after(step.name, module)
    return changed


def _run(step: Pass, module: Module, context: PassContext) -> bool:
    """Runs a pass. Wraps its exceptions in InternalError, except for errors of the program, errors that name the pass
    already, and MemoryError.
    """
    try:
        return step.run(module, context)
    except (CompileError, InternalError, MemoryError):
        raise
    except Exception as error:
        raise InternalError(f"raised {type(error).__name__}: {error}", _named(step)) from error


def _named(step: Pass) -> str:
    """Returns the name of a pass, with its class where that is not Hloom's."""
    name = step.name or type(step).__name__
    return f"pass {name} ({origin.described(step)})" if origin.is_foreign(step) else f"pass {name}"


def _takes_foreign(step: Pass, module: Module) -> bool:
    """Whether a module is the program of each device made by another compiler, which has no stage of its own and keeps
    it, and a pass takes such programs.
    """
    return module.stage is Stage.GLOBAL and Stage.LOCAL in step.consumes and is_per_device(module)


def run_pipeline(passes: Iterable[Pass], module: Module, context: PassContext, lent: bool = False) -> None:
    """Runs passes, and raises the errors that they report. The computations of a `lent` module stay as they are: it
    gets copies before the first pass that edits them.
    """
    with paused_collector():
        for step in passes:
            is_idle = lent and step.is_idle(module)
            if lent and not is_idle:
                lent = False
                if not step.renews(module):
                    module.take(clone_module(module))
            run_pass(step, module, context, is_idle)
            context.diagnostics.raise_errors()
        if context.verify == "end":
            _verify("the pipeline", module)


def refuse_starts(module: Module, by: str) -> None:
    """Raises CompileError at the first start of an op, for the pass `by`."""
    for computation in module:
        for instruction in computation.having(is_start):
            fail(f"pass {by} cannot look into {instruction.opcode} {instruction.name}", instruction.location,
                 help="run pass synchronous before it")


def _verify(name: str, module: Module) -> None:
    from ...ir.tools.verifier import check

    try:
        check(module)
    except CompileError as error:
        raise InternalError(f"left an invalid module: {error}", name) from error

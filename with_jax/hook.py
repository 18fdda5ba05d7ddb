"""`hloom.jax.passes`: Hloom's passes inside of JAX's own compilation.

XLA calls a hook with the program of each device, already partitioned and optimized, before it schedules it. Within the
block every function is compiled with a mark on its ops: so JAX compiles again what it has compiled without the passes,
keeps both apart in its caches, also on disk, and the hook knows which programs are meant.
"""

from __future__ import annotations

import hashlib
import itertools
import uuid
import warnings
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from ..cost.machine import DEFAULT, Machine
from ..cost.presets import as_machine
from ..frontends import proto
from ..frontends.extras import imported
from ..frontends.stablehlo.mlir import require_readable
from ..ir.checked_call import checked
from ..ir.diagnostics import CompileError, Diagnostic, fail
from ..ir.graph.module import Module, Stage
from ..ir.tools.verifier import check
from ..passes import named, pipelines
from ..passes.base import Pass, PassContext, run_pipeline
from . import PURPOSE
from .local import XlaDecisions, devices_named
from .taken import TRIED

_MARK, _PROBE = "hloom_passes", "hloom_probe"
_numbers = itertools.count()


@dataclass(frozen=True)
class Transformed:
    """A program that the hook has seen: its name, the passes that changed it, their remarks, and the reason why it was
    left unchanged, if there was one.
    """

    name: str
    changed: tuple[str, ...] = ()
    remarks: tuple[Diagnostic, ...] = ()
    refused: str = ""


@dataclass
class Hook:
    """The programs that JAX compiled in a block of `passes`, in order. Those that JAX found in its caches are not
    among them.
    """

    steps: tuple[Pass, ...]
    machine: Machine
    mark: bytes
    programs: list[Transformed] = field(default_factory=list[Transformed])
    probes: set[bytes] = field(default_factory=set[bytes])
    reading: str = ""

    def __call__(self, data: bytes) -> bytes | None:
        """Transforms a serialized program; None leaves it as it is. Never raises an exception."""
        try:
            self.probes -= {probe for probe in self.probes if probe in data}
            return self._transformed(data) if self.mark in data else None
        except Exception as error:  # whatever it is, the user's program can do without the passes
            self.programs.append(Transformed(self.reading, refused=f"{type(error).__name__}: {error}"))
            return None

    def _transformed(self, data: bytes) -> bytes | None:
        self.reading = "a program"
        module = proto.read_module(data, "<JAX's program>", verify=False)
        self.reading = module.name
        devices = devices_named(module)
        if not any(i.op.is_collective for computation in module for i in computation):
            return None
        module.num_partitions, module.stage = devices, Stage.LOCAL
        before = XlaDecisions(module)
        context = PassContext(machine=self.machine)
        run_pipeline(self.steps, module, context)
        changed = tuple(record.name for record in context.records if record.changed)
        done = Transformed(module.name, changed, tuple(pipelines.remarks(context)))
        if not changed:
            self.programs.append(done)
            return None
        _require_valid(module, data)
        before.require_safe(module)
        module.stage, module.num_partitions = Stage.GLOBAL, 1
        new = module.to_proto()
        require_readable(new, module.name)
        self.programs.append(done)
        return new


def _require_valid(module: Module, before: bytes) -> None:
    """Raises CompileError for violations in a module that were not there before. XLA allows more than Hloom in places,
    such as one channel for several collectives.
    """
    try:
        check(module)
    except CompileError as error:
        original = proto.read_module(before, "<JAX's program>", verify=False)
        original.num_partitions, original.stage = module.num_partitions, module.stage
        try:
            check(original)
            known = set[str]()
        except CompileError as old:
            known = {found.message for found in old.diagnostics}
        new = [found for found in error.diagnostics if found.message not in known]
        if new:
            raise CompileError(new) from error


@checked
@contextmanager
def passes(
    pipeline: str | Sequence[Pass], *, machine: Machine | str = DEFAULT, platforms: Iterable[str] = TRIED
) -> Generator[Hook]:
    """Runs passes inside of JAX's compilation: in all functions that are called, or compiled, within the block.

    `pipeline` names passes on the program of each device (`bucket{rule=xla}, cse`), as text or one by one; `machine`
    gives the times by which they decide. What nothing fits stays as it is, and a program on which a pass fails is
    compiled without it, with a warning. Yields a `Hook` whose `programs` say what was done. Functions compiled within
    the block are used only there: outside, JAX uses or compiles them without the passes.

    Raises CompileError for passes that need another stage or order the program, which XLA does itself afterwards, for a
    version of JAX without hooks, and for a backend that does not call them.
    """
    steps, machine = tuple(named.steps_of(pipeline)), as_machine(machine)
    for step in steps:
        if Stage.LOCAL not in step.consumes or step.produces not in (None, Stage.LOCAL):
            fail(f"pass {step.name} does not fit into JAX's compilation",
                 help="passes from LOCAL to LOCAL do: " + ", ".join(_fitting()))
    jax, xla = imported("jax", PURPOSE), imported("jax.extend.xla", PURPOSE)
    metadata = imported("jax.experimental.xla_metadata", PURPOSE)
    text = repr((steps, machine, _version()))
    mark = hashlib.sha256(text.encode()).hexdigest()[:24]
    hook, name = Hook(steps, machine, mark.encode()), f"hloom-{next(_numbers)}"
    stage, places = xla.PipelineStage.PRE_SCHEDULER, tuple(platforms)
    xla.register_hlo_module_transformation(hook, name=name, stage=stage, platforms=places)
    try:
        _require_called(jax, metadata, hook)
        with metadata.set_xla_metadata(**{_MARK: mark}):
            yield hook
    finally:
        xla.clear_hlo_module_transformation(name, stage=stage, platforms=places)
        for program in hook.programs:
            if program.refused:  # only here: in the hook itself an exception would fail the user's compilation
                warnings.warn(f"hloom.jax.passes left {program.name} as it was: {program.refused}", RuntimeWarning, 3)


def _require_called(jax: Any, metadata: Any, hook: Hook) -> None:
    """Raises CompileError if the backend compiles a function without calling the hook."""
    probe = uuid.uuid4().hex
    hook.probes.add(probe.encode())
    with metadata.set_xla_metadata(**{_PROBE: probe}):
        jax.jit(jax.numpy.negative)(1).block_until_ready()
    if hook.probes:
        fail(f"JAX's backend {jax.default_backend()} does not call hooks, so no pass would run",
             help=f"tried on {', '.join(TRIED)}; hloom.jax.jit needs no hook")


def _fitting() -> list[str]:
    return sorted(
        name for name, step in named.PASSES.items()
        if Stage.LOCAL in step.consumes and step.produces in (None, Stage.LOCAL)
    )  # fmt: skip


def _version() -> str:
    return str(import_module(__name__.partition(".")[0]).__version__)

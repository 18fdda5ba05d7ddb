"""Divides a program by XLA's own partitioner, to be set beside Hloom's division of it.

Both get the same annotations, and begin and end with the same tiles: parameters and results have the shardings that
Hloom's propagation finds for them, all others are for XLA to find. What its partitioner leaves is cleaned by the passes
that follow Hloom's, and all-reduces of which each device keeps a tile become reduce-scatters, as XLA makes them for
other devices than CPUs.

XLA keeps no names, but paths (`op_name`), which it gives to all that it makes for an instruction. So each instruction
goes to it with its number as path, by which the original is found again: its path, its line, and the cause of a
collective.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from ..frontends import parse
from ..ir.diagnostics import fail
from ..ir.graph.instruction import Instruction, Metadata
from ..ir.graph.module import Module, Stage, clone_module
from ..ir.ops.calls.behaviour import CustomCallAttributes
from ..ir.ops.calls.custom_call import behaviour_of
from ..ir.sharding.sharding import REPLICATED, AnySharding, Sharding, ShardingKind, Spelling, TupleSharding
from ..ir.tools.spmd import without_shardy
from ..passes.base import PassContext, run_pipeline
from ..passes.cleanup.cse import CommonSubexpressions
from ..passes.cleanup.dce import DeadCodeElimination
from ..passes.cleanup.inline import CallInliner
from ..passes.cleanup.loop_invariants import LoopInvariants
from ..passes.schedule.rewrites.reduce_scatters import AllReduceToReduceScatter
from ..report.data.plan import Reported, described, on_mesh

PASS = "spmd-partitioning"
"""XLA's name of its partitioner among its passes."""

_CHILD = Path(__file__).with_name("xla_process.py")
_TAG = re.compile(r"hloom\.(\d+)")
_CLEAN = (CommonSubexpressions(), LoopInvariants(), DeadCodeElimination(), AllReduceToReduceScatter())


@dataclass(frozen=True, slots=True)
class DividedByXla:
    """The program of each device as XLA divides it, and the shardings that its propagation has found, by the names of
    the arrays that it still has.
    """

    local: Module
    shardings: Mapping[str, Sharding]


TIMEOUT = 600.0  # seconds


def partition_by_xla(module: Module, sharded: Module, timeout: float = TIMEOUT) -> DividedByXla:
    """Divides a GLOBAL module as XLA does; `sharded` is the same with the shardings of Hloom's propagation. Raises
    CompileError if jax is missing, or XLA does not divide the program in `timeout` seconds.
    """
    if find_spec("jaxlib") is None:
        fail("jax is missing, whose XLA is to divide the program", help="pip install 'hloom[xla]'")
    given = with_fixed_ends(module, sharded)
    known = [i for computation in given for i in computation]
    paths = [i.metadata for i in known]
    for number, instruction in enumerate(known):
        instruction.metadata = Metadata.named(f"hloom.{number}")
    frames, given.stack_frames = given.stack_frames, ""
    before, local = (parse(text, f"{module.name} by XLA", verify=False)
                     for text in _divided(given.to_text(), given.num_partitions, module.name, timeout))  # fmt: skip
    for instruction, metadata in zip(known, paths, strict=True):
        instruction.metadata = metadata
    local.name, local.stack_frames = module.name, frames
    _restore(local, sharded, known)
    return DividedByXla(local, dict(_shardings(before, known)))


def reported_by_xla(
    ours: Reported, context: PassContext, label: str = "XLA", memory: int | None = None, timeout: float = TIMEOUT
) -> Reported:
    """Returns the report on a program as XLA divides it, to be set beside `ours`; the other arguments are those of
    `described`. Raises CompileError as `partition_by_xla` does, and for a program that came divided.
    """
    if ours.solved is None:
        fail(f"{ours.whole.name} is divided already: XLA can divide it no more", help="leave --xla out")
    divided = partition_by_xla(ours.whole, ours.solved.module, timeout)
    theirs = described(ours.whole, divided.local, None, context, label, memory)
    return replace(theirs, shardings=on_mesh(divided.shardings, ours.solved.mesh))


def _divided(text: str, devices: int, name: str, timeout: float) -> tuple[str, str]:
    """Returns XLA's program before and after its partitioner. Raises CompileError."""
    with TemporaryDirectory() as folder:
        flags = (f"--xla_force_host_platform_device_count={devices}", f"--xla_dump_to={folder}",
                 "--xla_dump_hlo_as_text", f"--xla_dump_hlo_pass_re={PASS}")  # fmt: skip
        environment = {**os.environ, "XLA_FLAGS": " ".join(flags), "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
        command = [sys.executable, "-P", str(_CHILD), str(devices)]
        try:
            done = subprocess.run(
                command, input=text, env=environment, capture_output=True, text=True, check=False, timeout=timeout
            )
        except subprocess.TimeoutExpired:
            fail(f"XLA has not divided {name} after {timeout:g} s")
        found = [list(Path(folder).glob(f"*{side}_{PASS}.*txt")) for side in ("before", "after")]
        if list(map(len, found)) != [1, 1]:
            lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
            fail(f"XLA does not divide {name}: {lines[-1].strip()}")
        return found[0][0].read_text(), found[1][0].read_text()


def _restore(local: Module, sharded: Module, known: Sequence[Instruction]) -> None:
    """Makes XLA's program one of Hloom's: each instruction has the metadata of the one that it was made for."""
    local.stage, local.is_scheduled = Stage.LOCAL, False
    numbers = {i: number for computation in local for i in computation if (number := _number(i)) is not None}
    for instruction, number in numbers.items():
        if instruction.op.is_collective:
            _say_cause(instruction, known[number], numbers)
        instruction.metadata = known[number].metadata
    ends = zip((*sharded.entry.parameters, sharded.entry.root), (*local.entry.parameters, local.entry.root))
    for ours, theirs in ends:
        theirs.sharding = ours.sharding
    run_pipeline(_CLEAN, local, PassContext())


def _shardings(before: Module, known: Sequence[Instruction]) -> Iterator[tuple[str, Sharding]]:
    """Yields the names of arrays with the shardings that they have before XLA's partitioner."""
    for instruction in (i for computation in before for i in computation):
        number = _number(instruction)
        if number is not None and isinstance(instruction.sharding, Sharding):
            made_for = known[number]
            if made_for.opcode == instruction.opcode and made_for.shape.dims == instruction.shape.dims:
                yield made_for.name, instruction.sharding


def _number(instruction: Instruction) -> int | None:
    """Returns the number of the instruction for which XLA made one; None if it does not say."""
    found = _TAG.findall(instruction.metadata.op_name) if instruction.metadata is not None else []
    return int(found[-1]) if found else None


def _say_cause(collective: Instruction, made_for: Instruction, numbers: Mapping[Instruction, int]) -> None:
    """Notes the op that a collective of XLA serves, as Hloom's partitioner does."""
    side = "result" if _comes_from(collective, made_for, numbers) else "operand"
    cause = f"{side} of {made_for.opcode} {made_for.name}"
    collective.frontend_attributes = {**collective.frontend_attributes, "hloom.cause": cause}


def _comes_from(collective: Instruction, made_for: Instruction, numbers: Mapping[Instruction, int]) -> bool:
    """Whether a collective moves what an op has computed, and not what it reads."""
    left = list(collective.operands)
    for value in left:  # which grows
        if numbers.get(value) == numbers[collective]:
            if value.opcode == made_for.opcode:
                return True
            left += value.operands
    return False


def with_fixed_ends(module: Module, sharded: Module, name: str = "") -> Module:
    """Returns a copy of a GLOBAL module in the form that XLA reads: its annotations, and those of its parameters and
    results that `sharded` has, as lists of devices.
    """
    copy = clone_module(module)
    run_pipeline((CallInliner(), DeadCodeElimination()), copy, PassContext())
    for computation in copy:
        for instruction in computation:
            write_listed(instruction, instruction.annotation)
    ends = zip((*copy.entry.parameters, copy.entry.root), (*sharded.entry.parameters, sharded.entry.root))
    for ours, theirs in ends:
        write_listed(ours, theirs.sharding)
    return plain(copy, name or module.name, sharded.num_partitions)


def write_listed(instruction: Instruction, sharding: AnySharding | None) -> None:
    """Puts a sharding on an instruction as a list of devices, and takes Shardy's away."""
    instruction.shardy = None
    instruction.frontend_attributes = without_shardy(instruction.frontend_attributes)
    instruction.sharding = _listed(sharding)
    known = behaviour_of(instruction)
    if known is not None and known.only_annotates:
        attributes = cast(CustomCallAttributes, instruction.attributes)
        instruction.attributes = replace(attributes, custom_call_target="Sharding")


def _listed(sharding: AnySharding | None) -> AnySharding | None:
    if isinstance(sharding, TupleSharding):
        return TupleSharding(tuple(cast(Sharding, _listed(s)) for s in sharding.elements))
    if sharding is None or sharding.kind is not ShardingKind.TILED:
        return sharding
    return REPLICATED if sharding.is_replicated else replace(sharding, spelling=Spelling.V2)


def plain(module: Module, name: str, devices: int) -> Module:
    """Takes from a module what only Hloom or Shardy read, and returns it."""
    module.name, module.num_partitions = name, devices
    module.meshes, module.frontend_attributes = {}, {}
    module.allow_propagation_to_parameters = module.allow_propagation_to_output = None
    return module

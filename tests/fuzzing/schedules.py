"""Programs per device to fuzz passes with that rewrite, combine and order collectives, each with a line of passes."""

from __future__ import annotations

import contextlib
import math
import random
import re
from functools import cache

import hloom
import numpy as np
from comm_programs.cases import programs as comm_programs
from fuzzing.mutators import GENTLE, numbers
from hloom.cost.memory import live_memory
from hloom.cost.timeline import timeline
from hloom.frontends import parse_replica_groups
from hloom.ir.graph.module import Module
from hloom.ir.sharding.replica_groups import enumerate_groups
from hloom.ir.tools.verifier import verify
from hloom.passes.base import PassContext, run_pipeline
from hloom.passes.named import parse_pipeline
from hloom.runtime.inputs.inputs import inputs_for_module
from hloom.runtime.simulator import SimulatedProgram
from support.compare import compare
from support.fsdp_steps import fsdp_step
from support.layered_programs import Model
from support.schedule_passes import BOUNDED, EXACT, in_order, is_exact

MACHINES = ("", "h100", "cpu-cluster", "tpu-v5e", "work=f32:1T;memory=100GB")


@cache
def _whole() -> tuple[str, ...]:
    """Programs to partition: layers in loops and written out, training steps, cases about communication."""
    layered = (Model.random(random.Random(seed).randint, ("dp", "fsdp", "tp", "both")[seed % 4]) for seed in range(16))
    steps = (fsdp_step(devices, 2, 8, 8) for devices in (2, 4))
    return (*(model.text() for model in layered), *steps, *comm_programs().values())


@cache
def _partitioned(text: str) -> str:
    """The partitioned program; empty if it cannot be partitioned, or has no collectives."""
    with contextlib.suppress(hloom.CompileError):
        local = hloom.partition(hloom.parse(text))
        if any(i.op.is_collective for c in local for i in c):
            return local.to_text()
    return ""


def _operand(rng: random.Random, text: str) -> str:
    """Another value of the same shape in place of one operand; it stands before in the same computation."""
    lines = text.splitlines()
    for number in rng.sample(range(len(lines)), min(len(lines), 20)):
        line = _LINE.match(lines[number])
        operands = line["operands"].split(", ") if line else [""]
        first = max((n for n in range(number) if lines[n].endswith("{")), default=number)
        known = {m["name"]: m["shape"] for m in map(_LINE.match, lines[first:number]) if m}
        place = rng.randrange(len(operands))
        same = [name for name, shape in known.items() if shape == known.get(operands[place])]
        if line and len(same) > 1:
            operands[place] = rng.choice(same)
            before, after = lines[number][: line.start("operands")], lines[number][line.end("operands") :]
            lines[number] = before + ", ".join(operands) + after
            return "\n".join(lines) + "\n"
    return text


def _groups(rng: random.Random, text: str) -> str:
    """Other devices in the groups of a collective."""
    found = list(_GROUPS.finditer(text))
    if not found:
        return text
    match = rng.choice(found)
    stated = re.search(r"num_partitions=(\d+)", text)
    try:
        rows = enumerate_groups(parse_replica_groups(match[1]), int(stated[1]) if stated else 1)
    except hloom.CompileError:
        return text
    devices = [d for row in rows for d in row]
    rng.shuffle(devices)
    size = rng.choice([len(devices) // len(rows)] * 3 + [len(devices), 1]) if devices else 1
    new = ("{" + ",".join(map(str, devices[n : n + size])) + "}" for n in range(0, len(devices), size))
    return text[: match.start(1)] + "{" + ",".join(new) + "}" + text[match.end(1) :]


def _word(rng: random.Random, text: str) -> str:
    """Another op of two operands, another comparison, or another small constant."""
    kind = rng.choice(_WORDS)
    found = list(re.finditer(kind, text))
    if not found:
        return text
    match = rng.choice(found)
    new = rng.choice(list({m[1] for m in found})) if kind is not _WORDS[0] else rng.choice(_BINARY)
    return text[: match.start(1)] + new + text[match.end(1) :]


_LINE = re.compile(r"\s+(?:ROOT )?(?P<name>%[^\s=]+) = (?P<shape>\(.*?\)|\S+) [\w\-]+\((?P<operands>[^()]*)\)")
_GROUPS = re.compile(r"replica_groups=(\S+?)(?:, |$)", re.MULTILINE)
_BINARY = ("add", "multiply", "subtract", "maximum", "minimum")
_WORDS = (rf" ({'|'.join(_BINARY)})\(", r"direction=(\w\w)", r"s32\[\] constant\((\d+)\)", r"to_apply=(%\S+?)(?:,|$)")
_EDITS = (_operand, _operand, _groups, _word, _word)


def scheduled_program(rng: random.Random) -> str:
    """A line of passes and a machine, then a program per device, most often damaged gently."""
    passes = [rng.choice((*EXACT, *BOUNDED)) for _ in range(rng.choice((1, 1, 2, 3)))]
    line = in_order(passes)
    if rng.random() < 0.1:
        line = numbers(rng, line).replace("\n", "")
    while not (text := _partitioned(rng.choice(_whole()))):
        pass
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        text = rng.choice(GENTLE if rng.random() < 0.1 else _EDITS)(rng, text) or "\n"
    return f"{line} {rng.choice(MACHINES)}\n{text}"


def differs(before: Module, after: Module, exact: bool) -> str:
    """What any device computes otherwise; nothing if the first program does not run, or has results of no use."""
    try:
        inputs = inputs_for_module(before)
        with np.errstate(all="ignore"):
            expected = SimulatedProgram(before).simulate(inputs).per_device
    except hloom.CompileError:
        return ""
    with np.errstate(all="ignore"):
        found = SimulatedProgram(after).simulate(inputs).per_device
    for device, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        result = compare(ours, theirs, scale=0 if exact else 1)
        if not result.equal:
            return f"device {device}: {result}"
    return ""


def problem_after(line: str, text: str, is_small: bool) -> str:
    """Runs the passes of a line, and returns what is wrong with their result. Raises CompileError if they refuse."""
    passes, _, name = line.partition(" ")
    before, module = hloom.parse(text), hloom.parse(text)
    machine = hloom.parse_machine(name)
    pipeline = parse_pipeline(passes)
    was_sound = not verify(before) and not hloom.find_deadlocks(before)
    old = timeline(before, machine).seconds, live_memory(before).peak
    run_pipeline(pipeline, module, PassContext(verify="each" if was_sound else "none", machine=machine))
    new = timeline(module, machine).seconds, live_memory(module).peak
    limit = getattr(pipeline[-1], "memory", 0) or math.inf
    first = pipeline[0].name
    if len(pipeline) == 1 and first == "schedule" and old[1] <= limit and new[0] > old[0] * (1 + 1e-9):
        return f"{old[0]} s become {new[0]} s"
    if pipeline and pipeline[-1].name in ("schedule", "overlap") and new[1] > limit:
        return f"{new[1]} bytes of {limit}"
    if len(pipeline) == 1 and first == "memory-order" and new[1] > old[1]:
        return f"{old[1]} bytes become {new[1]}"
    if was_sound and (found := [*verify(module), *hloom.find_deadlocks(module)]):
        return f"not sound afterwards: {found[0]}"
    again = hloom.parse(module.to_text())
    if is_small and was_sound:
        return differs(before, again, is_exact(passes))
    return ""

"""The first wrong instruction: planted mistakes are named, or what uses them directly."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import hloom
import pytest
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.module import Module
from hloom.ir.time_limit import time_limit
from hloom.ir.types.literal import Array
from hloom.runtime.evaluator import UnpartitionedProgram
from hloom.runtime.proof.oracle import Oracle
from hloom.runtime.proof.prove import prove
from hloom.runtime.proof.relations.index import Index, Source
from hloom.runtime.proof.relations.origin import Search
from hloom.runtime.proof.relations.relate import related
from hloom.runtime.proof.verdict import Origin
from hloom.runtime.simulator import SimulatedProgram
from support.command_line import EXAMPLES
from support.golden import golden_texts
from support.planted_faults import Fault, faults, some


def near(local: Module, bad: Module, fault: Fault) -> set[str]:
    """The names of the planted instruction and of what was added, and of their direct users; where a lost collective
    made a result, its operand is the result.
    """
    before = {i.name for c in local for i in c}
    found = {i.name for c in bad for i in c} - before
    for module in (local, bad):
        for planted in (i for c in module for i in c if c.name == fault.computation and i.name == fault.instruction):
            found |= {planted.name, *(u.name for u in _users(planted))}
            if fault.kind == "lost collective" and any(u.op.role is not None for u in planted.users):
                found.add(planted.operands[0].name)
            if planted.parent is not None and planted.parent.root is planted:
                found |= {o.name for o in planted.operands}
    return found


def _users(instruction: Instruction) -> Iterator[Instruction]:
    for user in instruction.users:
        yield user
        if user.op.role is not None:
            yield from _users(user)


def named(module: Module, each: int) -> list[tuple[Fault, str, bool]]:
    """Each planted mistake that is found, with the instruction that is named for it, and whether that is right."""
    local = hloom.partition(module)
    found: list[tuple[Fault, str, bool]] = []
    for fault in some(list(faults(local)), each):
        bad = fault.plant(local)
        try:
            verdict = hloom.prove(module, bad, trials=2)
        except hloom.CompileError:  # the mistake took the sharding from a result
            continue
        if verdict.outcome == "differs":
            name = verdict.origin.name if verdict.origin is not None else ""
            found.append((fault, str(verdict.origin), name in near(local, bad, fault)))
    return found


@pytest.mark.parametrize(
    ("name", "each"),
    [("mlp_named", 3), pytest.param("mlp_train", 4, marks=pytest.mark.slow)],
)
def test_mistakes_in_examples_are_named(name: str, each: int) -> None:
    found = named(hloom.load(EXAMPLES / f"{name}.hlo"), each)
    wrong = [(fault, origin) for fault, origin, right in found if not right]
    assert len(found) >= 8
    assert len(wrong) <= 0.15 * len(found), wrong


@pytest.mark.parametrize(("step", "least"), [(3, 10), pytest.param(1, 30, marks=pytest.mark.slow)])
def test_mistakes_in_halos_and_partial_sums_are_named(step: int, least: int) -> None:
    found: list[tuple[Fault, str, bool]] = []
    for text in (*golden_texts("halo", "EVAL")[: 30 : 4 * step], *golden_texts("spmd", "EVAL")[: 8 : 2 * step]):
        found += [f for f in named(hloom.parse(text), 1) if f[0].kind != "off by one"]
    wrong = [(fault, origin) for fault, origin, right in found if not right]
    assert len(found) > least
    assert len(wrong) <= 0.25 * len(found), wrong


ROWS = """HloModule m
ENTRY e { x = f32[8,6] parameter(0), sharding={mesh['a'=4], [{'a'}, {}]}
  ROOT y = f32[8,6] tanh(x), sharding={mesh['a'=4], [{}, {}]} }"""


def test_the_element_and_what_it_should_be_are_named() -> None:
    module = hloom.parse(ROWS)
    local = hloom.partition(module)
    fault = next(f for f in faults(local) if f.kind == "turned groups")
    verdict = hloom.prove(module, fault.plant(local))
    assert verdict.origin is not None
    assert (verdict.origin.opcode, verdict.origin.device, verdict.origin.element) == ("all-gather", 0, (0, 0))
    assert verdict.origin.what in ("should be element [0, 0] of y, is element [2, 0] of y",
                                   "should be element [0, 0] of x, is element [2, 0] of x")  # fmt: skip
    assert "first wrong: all-gather" in str(verdict)


def test_right_programs_have_no_origin() -> None:
    module = hloom.parse(ROWS)
    assert hloom.prove(module, hloom.partition(module), trials=1).origin is None


class _Asked(Index):
    """An index that counts how often the values of each array are asked for."""

    def __init__(self, index: Index) -> None:
        self.__dict__ |= index.__dict__
        self.times = Counter[int]()

    def candidates(self, array: Array) -> Iterator[tuple[list[Source], tuple[int, ...]]]:
        self.times[id(array)] += 1
        return super().candidates(array)


def _lost_element(name: str, instruction: str) -> tuple[Module, Module]:
    module = hloom.load(EXAMPLES / f"{name}.hlo")
    local = hloom.partition(module)
    fault = next(f for f in faults(local) if f.kind == "lost element" and f.instruction == instruction)
    return module, fault.plant(local)


def test_the_search_looks_at_each_value_once_however_many_ways_lead_to_it() -> None:
    asked, held = Counter[int](), Counter[int]()

    def locate(a: UnpartitionedProgram, b: SimulatedProgram, inputs: Sequence[Array], oracle: Oracle) -> Origin | None:
        found = related(a, b, inputs, oracle)
        index = _Asked(found.index)
        held.update(id(x) for value in found.values for run in value.runs for x in run.values())
        origin = Search(replace(found, index=index), b.results).origin()
        asked.update(index.times)
        return origin

    verdict = prove(*_lost_element("mlp_named", "xw"), locate=locate)
    assert verdict.origin is not None
    assert len(asked) > 8
    assert asked <= held  # devices and values may share an array


def test_the_search_ends_when_the_time_is_up() -> None:
    def locate(a: UnpartitionedProgram, b: SimulatedProgram, inputs: Sequence[Array], oracle: Oracle) -> Origin | None:
        found = related(a, b, inputs, oracle)
        with time_limit(0):
            return Search(found, b.results).origin()

    verdict = prove(*_lost_element("mlp_named", "xw"), locate=locate)
    assert verdict.outcome == "differs"
    assert "no more is known" in str(verdict)


@pytest.mark.slow
def test_a_search_with_many_ways_takes_seconds() -> None:
    programs = _lost_element("transformer_scan_train", "reduce_sum.162")
    start = time.process_time()
    verdict = hloom.prove(*programs, trials=1)
    assert verdict.origin is not None
    assert time.process_time() - start < 20  # some 3 s; 115 s when values were looked at again on each way

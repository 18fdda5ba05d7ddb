"""Every factor of every rule, divided: evenly and unevenly, on 1-D, 2-D and 3-D meshes with axes left over.

A *way* of an opcode is a kind of factor and the values it stands in. For each way one use is taken from the samples
of the op, its values are sharded along the factor, the choice by cost is made to prefer that, and the program gives the
numbers of one device, its padding poisoned. A way that is not divided, evenly and unevenly, on every mesh, is a
failure; of a factor that must be whole it is enough that its values are sharded along it. Ops that have handlers of
their own in place of rules are divided by annotations. What no case here is of stands in a table with the reason.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from hloom.frontends import parse
from hloom.ir.diagnostics import CompileError
from hloom.ir.factors.sharding_rule import FactorKind, ShardingRule, ValueFactors
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.module import Module
from hloom.ir.graph.op import OPS
from hloom.ir.ops.calls.custom_call import is_annotation
from hloom.ir.sharding.digit import product
from hloom.ir.sharding.mesh import AxisRef, Mesh
from hloom.ir.sharding.sharding import DimSharding, Sharding, ShardingKind, Spelling, TupleSharding
from hloom.passes.base import PassContext, run_pipeline
from hloom.passes.op_sharding.assignment import Assignment, OpSharding
from hloom.passes.op_sharding.choose import Chooser
from hloom.passes.op_sharding.costs import cost
from hloom.passes.pipelines import PROPAGATE, partition, propagate
from hloom.passes.propagation.propagate import Propagate
from hloom.runtime import evaluate, simulate
from hloom.runtime.inputs.inputs import make_inputs
from ops.test_samples import SAMPLES
from programs.random.base import one_call
from programs.random.generate import INNER
from support.compare import compare
from support.factor_samples import SAMPLES as MORE

Way = tuple[str, FactorKind, tuple[int, ...]]  # opcode or target, kind, numbers of the values that have the factor
# Values are moved rather than computed, or computed by a computation: nothing to choose.
STRUCTURE = [
    "parameter", "opt-barrier", "tuple", "get-tuple-element", "while", "conditional", "call", "fusion", "async-start",
    "async-update", "async-done", "copy-start", "copy-done", "add-dependency",
]  # fmt: skip
# What is no case here, and where it is: devices of programs that are divided already, or in manual regions
# (`test_manual`, random programs); refused (`test_unsupported`); no array.
ELSEWHERE = {
    "all-gather", "all-gather-done", "all-gather-start", "all-reduce", "all-reduce-done", "all-reduce-start",
    "all-to-all", "collective-broadcast", "collective-permute", "collective-permute-done", "collective-permute-start",
    "partition-id", "ragged-all-to-all", "reduce-scatter", "replica-id",
    "infeed", "outfeed", "recv", "recv-done", "send", "send-done",
    "after-all",
}  # fmt: skip
# Rules divide these ops.
CHOSEN = sorted(SAMPLES.keys() - {*STRUCTURE} - ELSEWHERE)
MESHES: list[Callable[[int], Mesh]] = [
    lambda tiles: Mesh((("t", tiles),)),
    lambda tiles: Mesh((("t", tiles), ("free", 2))),
    lambda tiles: Mesh((("free", 2), ("t", tiles), ("more", 2))),
]


@dataclass(frozen=True)
class Use:
    """One factor of one instruction of a sample."""

    text: str
    name: str
    factor: int

    def find(self, module: Module) -> tuple[Instruction, ShardingRule]:
        found = module.entry.find(self.name)
        assert found is not None
        return found, found.op.sharding_rule(found.call)


@cache
def _ways(opcode: str) -> dict[Way, list[Use]]:
    """All uses of each way of an opcode; the samples that mean something on one device, and are arrays throughout."""
    found: dict[Way, list[Use]] = {}
    for text in map(_cleaned, [*SAMPLES[opcode], *MORE.get(opcode, ())]):
        for i in _instructions(text, opcode):
            for number, way in _ways_of(i):
                found.setdefault(way, []).append(Use(text, i.name, number))
    return found


def _all_ways() -> Iterator[Way]:
    return itertools.chain.from_iterable(map(_ways, CHOSEN))


def _ways_of(i: Instruction) -> Iterator[tuple[int, Way]]:
    """The factors of an instruction that can be divided, and their ways."""
    if is_annotation(i):
        return  # an identity that the partitioner leaves out
    rule = i.op.sharding_rule(i.call)
    for number, factor in enumerate(rule.factors):
        if factor.size > 1:
            values = tuple(v for v, dims in enumerate(rule.values()) if any(number in d for d in dims))
            yield number, (getattr(i.attributes, "custom_call_target", i.opcode), factor.kind, values)


def _cleaned(text: str) -> str:
    """The sample as propagation and the partitioner see it."""
    module = parse(text)
    run_pipeline([p for p in PROPAGATE if not isinstance(p, Propagate)], module, PassContext())
    return module.to_text()


def _instructions(text: str, opcode: str) -> Iterator[Instruction]:
    module = parse(text)
    leaves = [s for p in module.entry.parameters for s in p.shape.leaves()]
    dynamic = any(s.is_dynamic for i in module.entry for s in i.shape.leaves())  # refused
    if module.num_partitions * module.replica_count > 1 or dynamic or not all(s.is_array for s in leaves):
        return
    for i in module.entry:
        if i.opcode == opcode and all(o.shape.is_array for o in i.operands):
            yield i


def _sharding(mesh: Mesh, dims: ValueFactors, factors: dict[int, str]) -> Sharding:
    """The axes of factors on the dimensions where they are the major one."""
    entries = tuple(
        DimSharding(tuple(AxisRef(factors[f]) for f in dim[:1] if f in factors)) for dim in dims
    )
    return Sharding(ShardingKind.TILED, mesh, entries, spelling=Spelling.NAMED)


def _annotate(use: Use, mesh: Mesh) -> tuple[Module, Instruction, ShardingRule]:
    """The sample with its op divided along the factor, and along another one if the mesh has an axis for it."""
    module = parse(use.text)
    i, rule = use.find(module)
    factors = {use.factor: "t"}
    others = [f for f, factor in enumerate(rule.factors)
              if f != use.factor and factor.kind is FactorKind.PASS and factor.size % 2 == 0]
    if others and "more" in dict(mesh.axes):
        factors[others[-1]] = "more"
    for operand, dims in zip(i.operands, rule.operands, strict=True):
        operand.sharding = _sharding(mesh, dims, factors)
    results = [_sharding(mesh, dims, factors) for dims in rule.results]
    i.sharding = TupleSharding(tuple(results)) if i.shape.is_tuple else results[0]
    return module, i, rule


def _run(use: Use, mesh: Mesh) -> bool:
    """Checks the sample; whether the factor was divided, or need not be."""
    module, i, rule = _annotate(use, mesh)
    inputs = make_inputs([p.shape for p in module.entry.parameters], seed=1)
    call = i.call
    divided: list[bool] = []

    def price(op: OpSharding, choice: Assignment) -> float:
        bonus = 1e12 * product(choice.get(use.factor, ())) if op.rule == rule else 0.0
        return cost(op, choice) - bonus

    class Noting(Chooser):
        def choose_rule(
            self, op: OpSharding, groups: Sequence[frozenset[int]], others: Callable[[], Sequence[ShardingRule]]
        ) -> tuple[OpSharding, Assignment]:
            op, choice = super().choose_rule(op, groups, others)
            if (op.call.operands, op.call.shape, op.rule) == (call.operands, call.shape, rule):
                divided.append(bool(choice.get(use.factor)))
            return op, choice

    propagate(module, PassContext(verify="each"))
    local = partition(module, PassContext(verify="each", chooser=Noting(price)))
    with np.errstate(all="ignore"):
        expected = evaluate(parse(use.text), inputs)
        result = compare(simulate(local, inputs, poison=True), expected)
    assert result.equal, f"{result}\n{module.to_text()}"
    return any(divided) or rule.factors[use.factor].kind is FactorKind.REPLICATE


def _means_something(text: str) -> bool:
    module = parse(text)
    try:
        with np.errstate(all="ignore"):
            evaluate(module, make_inputs([p.shape for p in module.entry.parameters], seed=1))
    except CompileError:
        return False
    return True


def _uses(uses: list[Use], even: bool) -> Iterator[tuple[Use, int]]:
    """Uses of a way and how many tiles cut them evenly, or do not."""
    for use in uses:
        _, rule = use.find(parse(use.text))
        size = rule.factors[use.factor].size
        tiles = next((t for t in range(2, 8) if t <= size + 1 and (size % t == 0) is even), None)
        if tiles is not None and (even or use.factor not in rule.compound) and _means_something(use.text):
            yield use, tiles


def _check(opcode: str, everywhere: bool) -> None:
    """Every way of the opcode, evenly and unevenly: on all meshes, or on one, another one for the next way."""
    assert _ways(opcode)
    missing: set[tuple[Way, bool]] = set()
    for number, (way, uses) in enumerate(_ways(opcode).items()):
        for even in (True, False):
            one = (number + even) % len(MESHES)
            meshes = MESHES if everywhere else MESHES[one : one + 1]
            if not any(all(_run(use, mesh(tiles)) for mesh in meshes) for use, tiles in _uses(uses, even)):
                missing.add((way, even))
    assert missing == set(), f"factors of {opcode} that nobody divides: {missing}"


@pytest.mark.share(3)
@pytest.mark.parametrize("opcode", CHOSEN)
def test_every_factor_divided(opcode: str) -> None:
    _check(opcode, everywhere=False)


@pytest.mark.slow
@pytest.mark.parametrize("opcode", CHOSEN)
def test_every_factor_divided_on_every_mesh(opcode: str) -> None:
    _check(opcode, everywhere=True)


@pytest.mark.slow
def test_random_programs_have_no_other_ways() -> None:
    """The samples are measured: what the families of random programs make of an op is among its ways."""
    known, others = set(_all_ways()), set[Way]()
    for seed, family in itertools.product(range(300), dict.fromkeys(f for group in INNER for f in group)):
        for i in one_call(family, random.Random(seed).randint, INNER).computation:
            if i.opcode in OPS and i.opcode not in STRUCTURE and all(o.shape.is_array for o in i.operands):
                others |= {way for _, way in _ways_of(i)} - known
    # Vectors of indices become scalars before; sizes are as many as there are dimensions; routines of LAPACK are alike.
    alike = ("dynamic-slice", "dynamic-update-slice", "dynamic-reshape", "lapack", "xla.sdy.ShardingGroup")
    assert {way for way in others if not way[0].startswith(alike)} == set()


# -- ops with handlers


def _annotated_alike(text: str, mesh: Mesh, even: bool) -> tuple[Module, int]:
    """A sample with every array of the entry divided along its first dimension of the chosen evenness, and how many
    arrays that are.
    """
    module, count = parse(text), 0
    module.num_partitions = mesh.size
    tiles = mesh.axis_size("t")
    for i in module.entry:
        found: list[Sharding] = []
        for leaf in i.shape.leaves():
            along = next((d for d, n in enumerate(leaf.dims) if n > 1 and (n % tiles == 0) is even), None)
            count += along is not None
            dims = tuple(DimSharding((AxisRef("t"),) if d == along else ()) for d in range(leaf.rank))
            found.append(Sharding(ShardingKind.TILED, mesh, dims, spelling=Spelling.NAMED))
        if all(leaf.is_array for leaf in i.shape.leaves()):
            i.sharding = TupleSharding(tuple(found)) if i.shape.is_tuple else found[0]
    return module, count


@pytest.mark.share(2)
@pytest.mark.parametrize("mesh", range(len(MESHES)))
@pytest.mark.parametrize("opcode", STRUCTURE)
def test_ops_with_handlers(opcode: str, mesh: int) -> None:
    divided: set[bool] = set()
    for text in SAMPLES.get(opcode, SAMPLES["tuple"]):
        for even, tiles in itertools.product((True, False), (2, 3)):
            if parse(text).num_partitions > 1 and "channel_id" in text:
                continue
            module, count = _annotated_alike(text, MESHES[mesh](tiles), even)
            if not count or not _means_something(text):
                continue
            inputs = make_inputs([leaf for p in module.entry.parameters for leaf in p.shape.leaves()], seed=1)
            local = partition(module, PassContext(verify="each"))
            result = compare(simulate(local, inputs, poison=True), evaluate(parse(text), inputs))
            assert result.equal, f"{result}\n{text}"
            divided.add(even)
    assert divided == {True, False}


def test_every_opcode_has_cases() -> None:
    """Nothing is forgotten: each opcode has ways (targets of custom-calls too), a handler, or stands in the table."""
    targets = {way[0] for way in _all_ways()} - set(OPS)
    assert targets
    covered = {way[0] for way in _all_ways()} - targets | {"custom-call"} | set(STRUCTURE)
    assert covered | ELSEWHERE == set(OPS)
    assert not covered & ELSEWHERE

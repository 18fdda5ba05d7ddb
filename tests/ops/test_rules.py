"""Sharding rules tell the truth: an op on the halves of a factor gives halves, or partial results, of its result.

For every sample and every factor of its rule that may be sharded: cut the operands along the factor, run the local op
(with its localized attributes) on each half, and compare with the op on everything. A pass-through factor must give the
two halves of the result, a reduction factor two results that combine to it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hloom.frontends import parse
from hloom.ir.factors.sharding_rule import FactorKind, ShardingRule, ValueFactors
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.interfaces import DeviceNumber, Draws
from hloom.ir.graph.monoid import MONOID_OPS, identity
from hloom.ir.graph.op import OPS, OpCall
from hloom.ir.ops.computations import accumulator
from hloom.ir.ops.gather import GatherAttributes
from hloom.ir.ops.scatter import ScatterAttributes
from hloom.ir.types.shape import Shape, array, tuple_shape
from hloom.passes.base import PassContext
from hloom.passes.cleanup.uniform_precision import UniformPrecision
from ops.build import compile
from ops.oracle import input_kind, random_inputs
from ops.test_samples import SAMPLES

# The local form of these needs the device's offset (it is the partitioner that adds it), so halves alone cannot tell.
_NEED_OFFSETS = {"iota", "constant", "parameter"}


def _needs_offset(i: Instruction, rule: ShardingRule, factor: int) -> bool:
    indexed: tuple[int, ...] = ()
    if isinstance(i.attributes, GatherAttributes):
        whole = i.attributes.full_dims(i.operands[0].shape)
        indexed = tuple(d for d in i.attributes.start_index_map if d not in whole)
    if isinstance(i.attributes, ScatterAttributes):
        operand, update = i.operands[0].shape, i.operands[-1].shape
        sizes = i.attributes.window_sizes(operand, update)
        indexed = tuple(d for d in i.attributes.scatter_dims_to_operand_dims if sizes[d] != operand.dims[d])
    if i.opcode.startswith("dynamic-"):
        windows = i.shape if i.opcode == "dynamic-slice" else i.operands[1].shape
        indexed = tuple(d for d, n in enumerate(i.operands[0].shape.dims) if n != windows.dims[d])
    read = any(factor in rule.operands[r.operand][r.dim] for r in rule.reads)
    return read or i.opcode in _NEED_OFFSETS or any(factor in rule.operands[0][d] for d in indexed)


def _accumulators(i: Instruction) -> range:
    """The operands that enter the result once: beside the first half they are replaced by the identity."""
    count = len(i.operands) // 2
    inits = range(count, 2 * count)
    return {"reduce": inits, "reduce-window": inits, "scatter": range(count)}.get(i.opcode, range(0))


def _cut(value: Any, factors: ValueFactors, rule: ShardingRule, factor: int, part: slice) -> Any:
    """The part of an array that holds a range of the factor."""
    # A dimension that is read may have another size than its factor.
    sizes = [rule.factors[f].size if len(d) > 1 else n for n, d in zip(value.shape, factors, strict=True) for f in d]
    order = [f for dim in factors for f in dim]
    if factor not in order:
        return value
    pieces = value.reshape(sizes)[(slice(None),) * order.index(factor) + (part,)]
    local = {f: pieces.shape[n] for n, f in enumerate(order)}
    return pieces.reshape([int(np.prod([local[f] for f in dim], dtype=int)) for dim in factors])


def _half(i: Instruction, rule: ShardingRule, factor: int, values: list[Any], part: slice) -> list[Any]:
    """The leaves of the result of the local op on one half."""
    operands = [_cut(v, f, rule, factor, part) for v, f in zip(values, rule.operands, strict=True)]
    if part.start and rule.factors[factor].kind is FactorKind.REDUCTION:
        for n in _accumulators(i):
            assert rule.monoid is not None
            operands[n] = np.full_like(operands[n], identity(rule.monoid, i.operands[n].shape.element))
    shapes = [array(o.shape.element, v.shape) for o, v in zip(i.operands, operands, strict=True)]
    leaves: list[Shape] = []
    for leaf, factors in zip(i.shape.leaves(), rule.results, strict=True):
        dims = _cut(np.empty(leaf.dims, np.bool_), factors, rule, factor, part).shape
        leaves.append(array(leaf.element, dims))
    shape = tuple_shape(tuple(leaves)) if i.shape.is_tuple else leaves[0]
    attributes = i.op.localize(i.call, shapes, shape)
    assert i.op.infer_shape(shapes, attributes, shape).compatible(shape)
    result = i.op.kernel(OpCall(tuple(shapes), attributes, shape, i.call.config), compile)(*operands)
    return [np.asarray(r) for r in (result if i.shape.is_tuple else [result])]


def _check(i: Instruction, rule: ShardingRule, factor: int, values: list[Any], whole: list[Any]) -> None:
    size, kind = rule.factors[factor].size, rule.factors[factor].kind
    parts = [slice(0, (size + 1) // 2), slice((size + 1) // 2, size)]
    halves = [_half(i, rule, factor, values, part) for part in parts]
    for n, expected in enumerate(whole):
        factors = rule.results[n]
        if kind is FactorKind.PASS:  # a result without the factor must not depend on it
            for half, part in zip(halves, parts, strict=True):
                _equal(half[n], _cut(expected, factors, rule, factor, part), 1e-6)
        else:
            assert rule.monoid is not None
            compute = accumulator(next(s.element for k, s in enumerate(i.shape.leaves()) if k == n))
            combined = MONOID_OPS[rule.monoid](*(half[n].astype(compute) for half in halves)).astype(expected.dtype)
            _equal(combined, expected, 2e-2 if expected.dtype.itemsize == 2 else 1e-5)


def _equal(ours: Any, expected: Any, tolerance: float) -> None:
    if expected.dtype.kind in "biu":
        np.testing.assert_array_equal(ours, expected)
        return
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    scale = float(np.max(np.abs(expected.astype(wide)), initial=1e-30, where=np.isfinite(expected.astype(wide))))
    np.testing.assert_allclose(ours.astype(wide), expected.astype(wide), rtol=tolerance, atol=tolerance * scale)


def _values(text: str) -> tuple[list[Instruction], dict[Instruction, Any]]:
    """The instructions of the entry, of one precision each, and their values for random inputs."""
    module = parse(text)
    UniformPrecision().run(module, PassContext())
    values: dict[Instruction, Any] = {}
    inputs = iter(random_inputs([p.shape for p in module.entry.parameters], 0, input_kind(text)))
    for i in module.entry:
        kernel = None if i.opcode == "parameter" else i.op.kernel(i.call, compile)
        values[i] = kernel(*(values[o] for o in i.operands)) if kernel else next(inputs)
    return list(module.entry), values


def _local(opcode: str) -> bool:
    op = OPS[opcode]
    return not (op.is_collective or op.is_control or op.interface(DeviceNumber) or op.interface(Draws))


@pytest.mark.share(3)
@pytest.mark.parametrize("opcode", sorted(filter(_local, SAMPLES)))
def test_halves(opcode: str) -> None:
    for text in SAMPLES[opcode]:
        entry = parse(text).entry
        if any(not p.shape.is_array for p in entry.parameters) or any(i.op.is_collective for i in entry):
            continue
        with np.errstate(all="ignore"):
            order, values = _values(text)
            for i in order:
                if i.opcode != opcode or any(not o.shape.is_array for o in i.operands) or not i.operands:
                    continue
                rule = i.op.sharding_rule(i.call)
                whole = [np.asarray(v) for v in (values[i] if i.shape.is_tuple else [values[i]])]
                for factor, it in enumerate(rule.factors):
                    combined = it.kind is FactorKind.REDUCTION and rule.monoid is not None
                    if it.size < 2 or not (it.kind is FactorKind.PASS or combined):
                        continue
                    if not _needs_offset(i, rule, factor):
                        _check(i, rule, factor, [np.asarray(values[o]) for o in i.operands], whole)

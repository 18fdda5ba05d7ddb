"""Shaping and slicing ops: rules as text, reshape factors for random shapes, local attributes, what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hloom.ir.factors.sharding_rule import FactorKind, RuleBuilder, ShardingRule, check_rule
from hloom.ir.graph.attributes import PadDim, PaddingConfig, SliceDim
from hloom.ir.graph.op import OPS, ShapeError, op_named
from hloom.ir.ops.reshape_factors import reshape_factors
from hloom.ir.types.element_type import ELEMENT_TYPES
from hloom.ir.types.shape import Shape, array
from hypothesis import given
from hypothesis import strategies as st
from ops.build import rule, run, shape, shapes, use

F32 = ELEMENT_TYPES["f32"]


def _slice(*dims: tuple[int, ...]) -> dict[str, Any]:
    return {"slice": tuple(SliceDim(*d) for d in dims)}


def _pad(*dims: tuple[int, ...]) -> dict[str, Any]:
    return {"padding": PaddingConfig(tuple(PadDim(*d) for d in dims))}


RULES: list[tuple[str, str, str | None, dict[str, Any], str]] = [
    ("broadcast", "s32[2,4]", "s32[2,3,4]", {"dimensions": (0, 2)}, "([i k]) -> [i j k] {i=2, j=3, k=4}"),
    ("broadcast", "f32[1,5]", "f32[1,5]", {"dimensions": (0, 1)}, "([1 i]) -> [1 i] {i=5}"),
    ("reshape", "f32[6,4]", "f32[24]", {}, "([i j]) -> [(i j)] {i=6, j=4}"),
    ("reshape", "f32[24]", "f32[2,3,4]", {}, "([(i j k)]) -> [i j k] {i=2, j=3, k=4}"),
    ("reshape", "f32[8,6]", "f32[4,12]", {}, "([(i j) k]) -> [i (j k)] {i=4, j=2, k=6}"),
    ("reshape", "f32[1,6,1]", "f32[6]", {}, "([1 i 1]) -> [i] {i=6}"),
    ("reshape", "f32[6,4]", "f32[8,3]", {},
     "([(i j) l]) -> [(i k) m] {i=2, j=3, k=4, l=4, m=3} need_replication={j, k, l, m}"),
    ("reshape", "f32[5,2,3,7]", "f32[5,3,2,7]", {},
     "([i j l n]) -> [i k m n] {i=5, j=2, k=3, l=3, m=2, n=7} need_replication={j, k, l, m}"),
    ("reshape", "f32[4,0]", "f32[0,3]", {}, "([i j]) -> [k l] {i=4, j=0, k=0, l=3} need_replication={i, j, k, l}"),
    ("transpose", "f32[2,3,4]", None, {"dimensions": (2, 0, 1)}, "([i j k]) -> [k i j] {i=2, j=3, k=4}"),
    ("reverse", "f32[2,3]", None, {"dimensions": (1,)}, "([i j]) -> [i j] {i=2, j=3} permutation={j}"),
    ("concatenate", "f32[2,3] f32[4,3]", None, {"dimensions": (0,)},
     "([j i], [j i]) -> [j i] {i=3, j=6} permutation={j}"),
    ("slice", "f32[8,6]", None, _slice((2, 5), (0, 6)), "([i j]) -> [i j] {i=3, j=6} permutation={i}"),
    ("pad", "f32[3,4] f32[]", None, _pad((1, 2), (0, 0)), "([i j], []) -> [i j] {i=6, j=4} permutation={i}"),
    ("iota", "", "s32[3,5]", {"iota_dimension": 0}, "() -> [i j] {i=3, j=5}"),
    ("dynamic-slice", "f32[8,6] s32[] s32[]", None, {"dynamic_slice_sizes": (3, 6)},
     "([i k], [], []) -> [j k] {i=8, j=3, k=6} reduction={i} need_replication={j}"),
    ("dynamic-update-slice", "f32[8,6] f32[3,6] s32[] s32[]", None, {},
     "([i j], [k j], [], []) -> [i j] {i=8, j=6, k=3} need_replication={k}"),
    ("bitcast-convert", "s32[3,5]", "u8[3,5,4]", {}, "([i j]) -> [i j k] {i=3, j=5, k=4} need_replication={k}"),
    ("bitcast-convert", "u8[3,4]", "f32[3]", {}, "([i j]) -> [i] {i=3, j=4} need_replication={j}"),
    ("select", "pred[] f32[4,2] f32[4,2]", None, {}, "([], [i j], [i j]) -> [i j] {i=4, j=2}"),
]  # fmt: skip


@pytest.mark.parametrize(("opcode", "operands", "declared", "attributes", "text"), RULES)
def test_rule(opcode: str, operands: str, declared: str | None, attributes: dict[str, Any], text: str) -> None:
    assert rule(opcode, use(opcode, operands, declared, **attributes)) == text


def _coordinates(rule: ShardingRule, dims: tuple[int, ...], value: tuple[tuple[int, ...], ...], factor: int) -> Any:
    """For every element of an array its place along a factor; zeros if the array does not have the factor."""
    result = np.zeros(dims, np.int64)
    for dim, factors in enumerate(value):
        if factor in factors:
            minor = math.prod(rule.factors[f].size for f in factors[factors.index(factor) + 1 :])
            along = np.arange(dims[dim]) // minor % rule.factors[factor].size
            result += along.reshape([-1 if d == dim else 1 for d in range(len(dims))])
    return result


@st.composite
def _reshapes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes of equally many elements: the same primes, grouped differently, some of them swapped, with ones."""
    primes = draw(st.lists(st.sampled_from([1, 2, 2, 3, 4, 5]), max_size=6))
    other = list(primes)
    if draw(st.booleans()):
        other = draw(st.permutations(primes))

    def grouped(numbers: list[int]) -> tuple[int, ...]:
        dims: list[int] = []
        for number in numbers:
            if dims and draw(st.booleans()):
                dims[-1] *= number
            else:
                dims.append(number)
        return tuple(dims)

    return grouped(primes), grouped(other)


@given(_reshapes())
def test_reshape_factors(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """The factors fit both shapes, and every factor that both have stands at the same elements before and after."""
    source, target = shapes
    builder = RuleBuilder()
    operand, result = reshape_factors(builder, source, target)
    rule = builder.rule([operand], [result])
    assert check_rule(rule, [array(F32, source)], [array(F32, target)]) is None
    for number, factor in enumerate(rule.factors):
        shared = all(any(number in dim for dim in value) for value in (*rule.operands, *rule.results))
        assert shared == (factor.kind is FactorKind.PASS)
        if shared:
            before = _coordinates(rule, source, rule.operands[0], number)
            after = _coordinates(rule, target, rule.results[0], number)
            np.testing.assert_array_equal(before.reshape(target), after)


@given(st.lists(st.integers(1, 6), max_size=5))
def test_reshape_to_the_same_shape_and_to_one_dimension_shares_everything(dims: list[int]) -> None:
    for target in (tuple(dims), (math.prod(dims),)):
        builder = RuleBuilder()
        reshape_factors(builder, tuple(dims), target)
        assert [f.size for f in builder.factors] == [n for n in dims if n > 1]
        assert all(f.kind is FactorKind.PASS for f in builder.factors)


@given(st.data())
def test_pad_and_slice_against_loops(data: st.DataObject) -> None:
    """Element by element: result place `low + i * (interior + 1)` holds element i, the others the filler."""
    size = data.draw(st.integers(0, 6))
    low, high, interior = (data.draw(st.integers(a, b)) for a, b in ((-7, 4), (-7, 4), (0, 3)))
    total = size + low + high + interior * max(size - 1, 0)
    if total < 0:
        with pytest.raises(ShapeError):
            use("pad", (array(F32, (size,)), array(F32)), **_pad((low, high, interior)))
        return
    wanted = np.full(total, -1, np.float32)
    for i in range(size):
        if 0 <= low + i * (interior + 1) < total:
            wanted[low + i * (interior + 1)] = i
    call = use("pad", (array(F32, (size,)), array(F32)), **_pad((low, high, interior)))
    np.testing.assert_array_equal(run("pad", call, np.arange(size, dtype=np.float32), np.float32(-1)), wanted)


def _localized(opcode: str, operands: str, declared: str | None, local: str, result: str, **attributes: Any) -> Any:
    call = use(opcode, operands, declared, **attributes)
    return op_named(opcode).localize(call, shapes(local), shape(result))


def test_localize() -> None:
    assert _localized("slice", "f32[8,6]", None, "f32[8,3]", "f32[3,3]", **_slice((2, 5), (0, 6))).slice == (
        SliceDim(2, 5), SliceDim(0, 3),
    )  # fmt: skip
    sizes = _localized(
        "dynamic-slice", "f32[8,6] s32[] s32[]", None, "f32[8,3] s32[] s32[]", "f32[2,3]", dynamic_slice_sizes=(2, 6)
    )
    assert sizes.dynamic_slice_sizes == (2, 3)
    flat = _localized("reshape", "f32[4,6]", "f32[24]", "f32[2,6]", "f32[12]", inferred_dimension=0)
    assert flat.inferred_dimension is None
    assert flat == OPS["reshape"].attributes()


def test_starts_are_moved_inside() -> None:
    x = np.arange(10, dtype=np.float32)
    call = use("dynamic-slice", "f32[10] s32[]", dynamic_slice_sizes=(4,))
    for start, first in ((-5, 0), (0, 0), (6, 6), (7, 6), (2**31 - 1, 6)):
        np.testing.assert_array_equal(run("dynamic-slice", call, x, np.int32(start)), x[first : first + 4])


def test_update_leaves_its_operand_alone() -> None:
    x = np.zeros(5, np.float32)
    call = use("dynamic-update-slice", "f32[5] f32[2] s32[]")
    got = run("dynamic-update-slice", call, x, np.ones(2, np.float32), np.int32(9))
    assert got.tolist() == [0, 0, 0, 1, 1]
    assert not x.any()


REFUSED: list[tuple[str, str, str | None, dict[str, Any], str]] = [
    ("broadcast", "f32[3]", "f32[2,4]", {"dimensions": (0,)},
     "broadcast: operand dimension 0 is 3, but result dimension 0 is 2"),
    ("broadcast", "f32[3]", "f32[2,3]", {"dimensions": ()},
     "broadcast: dimensions has 0 entries, but f32[3] has 1 dimension"),
    ("broadcast", "f32[3]", "f32[2,3]", {"dimensions": (2,)},
     "broadcast: dimensions contains 2, but f32[2,3] has 2 dimensions"),
    ("broadcast", "f32[3,3]", "f32[3,3]", {"dimensions": (1, 1)},
     "broadcast: dimensions {1,1} names a dimension twice"),
    ("broadcast", "f32[]", None, {}, "broadcast: the result shape must be given"),
    ("reshape", "f32[4,6]", "f32[5,5]", {}, "reshape: f32[4,6] has 24 elements, but f32[5,5] has 25"),
    ("reshape", "f32[4,6]", "f32[24]", {"inferred_dimension": 1},
     "reshape: inferred_dimension contains 1, but f32[24] has 1 dimension"),
    ("transpose", "f32[4,6]", None, {"dimensions": (0, 0)},
     "transpose: dimensions {0,0} does not permute the 2 of f32[4,6]"),
    ("transpose", "f32[4,6]", None, {"dimensions": (0,)},
     "transpose: dimensions {0} does not permute the 2 of f32[4,6]"),
    ("reverse", "f32[4]", None, {"dimensions": (1,)}, "reverse: dimensions contains 1, but f32[4] has 1 dimension"),
    ("concatenate", "f32[4] s32[4]", None, {"dimensions": (0,)},
     "concatenate: operand element types differ: f32[4] and s32[4]"),
    ("concatenate", "f32[4,2] f32[4,3]", None, {"dimensions": (0,)},
     "concatenate: operands differ in more than dimension 0: f32[4,2] and f32[4,3]"),
    ("concatenate", "f32[4] f32[4,1]", None, {"dimensions": (0,)},
     "concatenate: operands differ in more than dimension 0: f32[4] and f32[4,1]"),
    ("concatenate", "f32[4]", None, {"dimensions": (0, 1)}, "concatenate: needs one dimension, has 2"),
    ("slice", "f32[4]", None, _slice((1, 5)), "slice: [1:5] does not lie in dimension 0 of f32[4]"),
    ("slice", "f32[4]", None, _slice((3, 1)), "slice: [3:1] does not lie in dimension 0 of f32[4]"),
    ("slice", "f32[4]", None, _slice((0, 4, 0)), "slice: stride 0 of dimension 0 must be at least 1"),
    ("slice", "f32[4,2]", None, _slice((0, 4)), "slice: slice has 1 entry, but f32[4,2] has 2 dimensions"),
    ("pad", "f32[4] f32[1]", None, _pad((1, 1)), "pad: the padding value must be a scalar, is f32[1]"),
    ("pad", "f32[4] s32[]", None, _pad((1, 1)), "pad: operand element types differ: f32[4] and s32[]"),
    ("pad", "f32[4] f32[]", None, _pad((-3, -2)), "pad: dimension 0 of f32[4] would get the size -1"),
    ("pad", "f32[4] f32[]", None, _pad((0, 0, -1)), "pad: interior padding -1 of dimension 0 is negative"),
    ("iota", "", "f32[]", {"iota_dimension": 0}, "iota: iota_dimension contains 0, but f32[] has 0 dimensions"),
    ("iota", "", "pred[4]", {"iota_dimension": 0},
     "iota: result must have signed, unsigned, float or complex elements, is pred[4]"),
    ("dynamic-slice", "f32[4] f32[]", None, {"dynamic_slice_sizes": (2,)},
     "dynamic-slice: start index 0 must be a scalar integer, is f32[]"),
    ("dynamic-slice", "f32[4] s32[] s32[]", None, {"dynamic_slice_sizes": (2,)},
     "dynamic-slice: list of start indices has 2 entries, but f32[4] has 1 dimension"),
    ("dynamic-slice", "f32[4] s32[]", None, {"dynamic_slice_sizes": (5,)},
     "dynamic-slice: size 5 does not fit dimension 0 of f32[4]"),
    ("dynamic-slice", "f32[4,4] s32[] s64[]", None, {"dynamic_slice_sizes": (2, 2)},
     "dynamic-slice: start index element types differ: s32[] and s64[]"),
    ("dynamic-update-slice", "f32[4] f32[5] s32[]", None, {},
     "dynamic-update-slice: update f32[5] is larger than f32[4]"),
    ("dynamic-update-slice", "f32[4] f32[2,1] s32[]", None, {},
     "dynamic-update-slice: ranks differ: f32[4] and update f32[2,1]"),
]  # fmt: skip


@pytest.mark.parametrize(("opcode", "operands", "declared", "attributes", "message"), REFUSED)
def test_refused(opcode: str, operands: str, declared: str | None, attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeError) as caught:
        use(opcode, operands, declared, **attributes)
    assert caught.value.message == message


def test_dynamic_dimensions_are_refused() -> None:
    bounded = Shape(F32, (4,), None, (), (True,))
    with pytest.raises(ShapeError, match="dynamic dimensions are not supported by slice yet"):
        use("slice", (bounded,), slice=(SliceDim(0, 2, 1),))

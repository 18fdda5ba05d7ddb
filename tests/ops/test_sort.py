"""sort: any comparator, stable, against Python's sort; the rule and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import pytest
from hloom.frontends import parse
from hloom.ir.graph.attributes import Callee
from hloom.ir.graph.computation import Computation
from hloom.ir.graph.monoid import elementwise_kernel
from hloom.ir.graph.op import ShapeError
from hloom.ir.ops.sort import merged_order
from hloom.ir.ops.sort_keys import Comparator
from hloom.ir.types.shape import tuple_shape
from hypothesis import given
from hypothesis import strategies as st
from ops.build import function, rule, run, shapes, use

_COMPARATORS = """
HloModule m
up { a = s32[] parameter(0) b = s32[] parameter(1) p = s32[] parameter(2) q = s32[] parameter(3)
     ROOT r = pred[] compare(a, b), direction=LT }
down { a = s32[] parameter(0) b = s32[] parameter(1) p = s32[] parameter(2) q = s32[] parameter(3)
       ROOT r = pred[] compare(a, b), direction=GT }
by_size { a = s32[] parameter(0) b = s32[] parameter(1) p = s32[] parameter(2) q = s32[] parameter(3)
          c = s32[] abs(a) d = s32[] abs(b) ROOT r = pred[] compare(c, d), direction=GT }
never { a = s32[] parameter(0) b = s32[] parameter(1) p = s32[] parameter(2) q = s32[] parameter(3)
        ROOT r = pred[] constant(false) }
across { a = s32[] parameter(0) b = s32[] parameter(1) p = s32[] parameter(2) q = s32[] parameter(3)
         d = s32[] subtract(a, b) z = s32[] constant(0) ROOT r = pred[] compare(d, z), direction=LT }
bits { a = s32[] parameter(0) b = s32[] parameter(1) p = s32[] parameter(2) q = s32[] parameter(3)
       c = u32[] bitcast-convert(a) d = u32[] bitcast-convert(b) ROOT r = pred[] compare(d, c), direction=GT }
odd_first { a = s32[] parameter(0) b = s32[] parameter(1) p = s32[] parameter(2) q = s32[] parameter(3)
       one = s32[] constant(1) c = s32[] and(a, one) d = s32[] and(b, one)
       less = pred[] compare(a, b), direction=GT  same = pred[] compare(c, d), direction=EQ
       odd = pred[] compare(c, d), direction=GT  ROOT r = pred[] select(same, less, odd) }
negative_last { a = s32[] parameter(0) b = s32[] parameter(1) p = s32[] parameter(2) q = s32[] parameter(3)
       z = s32[] constant(0) c = pred[] compare(a, z), direction=LT  d = pred[] compare(b, z), direction=LT
       n = pred[] not(c) ROOT r = pred[] and(n, d) }
stable { a = s32[] parameter(0) b = s32[] parameter(1) p = s32[] parameter(2) q = s32[] parameter(3)
       c = s32[] abs(a) d = s32[] abs(b) x = pred[] compare(c, d), direction=LT  y = pred[] compare(d, c), direction=LT
       e = pred[] compare(x, y), direction=EQ  t = pred[] compare(p, q), direction=GT
       ROOT r = pred[] select(e, t, x) }
ENTRY e { ROOT c = s32[] constant(0) }
"""
Array = np.ndarray[Any, Any]
COMPARATORS = {c.name: c for c in parse(_COMPARATORS)}
KEYS: dict[str, Callable[[int, int], Any]] = {
    "up": lambda value, place: value,
    "down": lambda value, place: -value,
    "by_size": lambda value, place: -abs(value),
    "never": lambda value, place: 0,
    "across": lambda value, place: value,
    "bits": lambda value, place: value % 2**32,
    "odd_first": lambda value, place: (-(value % 2), -value),
    "negative_last": lambda value, place: value < 0,
    "stable": lambda value, place: (abs(value), -place),
}


def no_kernel(_: Callee) -> NoReturn:
    raise AssertionError("nothing is called")


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("up", [("a", False)]), ("down", [("a", True)]), ("by_size", [("c", True)]), ("never", []), ("across", None),
        ("bits", [("c", False)]), ("odd_first", [("c", True), ("a", True)]), ("negative_last", [("c", False)]),
        ("stable", [("c", False), ("p", True)]),
    ],
)  # fmt: skip
def test_keys_of_comparators(name: str, keys: list[tuple[str, bool]] | None) -> None:
    found = Comparator(COMPARATORS[name], no_kernel).keys
    assert (None if found is None else [(key.value.name, key.descending) for key in found]) == keys


@given(st.integers(1, 3), st.integers(1, 400), st.integers(1, 30), st.integers(0, 99))
def test_merges_any_rows_stably_with_few_comparisons(rows: int, length: int, values: int, seed: int) -> None:
    x = np.random.default_rng(seed).integers(0, values, (rows, length))
    asked: list[int] = []

    def before(a: Array, b: Array) -> Array:
        asked.append(a.size)
        return a > b

    assert np.array_equal(merged_order([x], before), np.argsort(-x, axis=1, kind="stable"))
    levels = (length - 1).bit_length()
    assert sum(asked) <= rows * length * levels * 1.5 + 1


@given(st.integers(1, 3), st.integers(1, 300), st.integers(0, 99), st.integers(1, 7))
def test_comparators_without_order_lose_nothing(rows: int, length: int, seed: int, modulus: int) -> None:
    x = np.random.default_rng(seed).integers(0, 50, (rows, length))
    orders: list[Callable[[Array, Array], Array]] = [
        lambda a, b: (a * 7 + b * 3) % modulus < 2,
        lambda a, b: (b - a) % 3 == 1,
        lambda a, b: np.ones(a.shape, bool),
    ]
    for before in orders:
        order = merged_order([x], before)
        assert np.array_equal(np.sort(order, axis=1), np.broadcast_to(np.arange(length), x.shape))


def test_comparators_on_bits_take_whole_arrays() -> None:
    asked: list[int] = []

    def kernel(a: Array, b: Array, *_: Array) -> Array:
        asked.append(a.size)
        return a < b

    x = np.arange(100, dtype=np.int32)
    elementwise_kernel(COMPARATORS["bits"], lambda _: kernel)(x, x, x, x)
    assert asked == [100]


def test_what_only_one_side_has_is_no_key() -> None:
    text = """HloModule m
    f { a = s32[] parameter(0) b = s32[] parameter(1) n = s32[] negate(b)
        ROOT r = pred[] compare(a, n), direction=LT }
    ENTRY e { ROOT z = s32[] constant(0) }"""
    (comparator,) = (c for c in parse(text) if c.name == "f")
    assert Comparator(comparator, no_kernel).keys is None


NAMES = list(KEYS)


@given(st.sampled_from(NAMES), st.lists(st.integers(-5, 5), max_size=40), st.integers(1, 3))
def test_sorts_stably_by_any_comparator(name: str, row: list[int], rows: int) -> None:
    length = len(row)
    x = np.array([np.roll(row, k) for k in range(rows)], np.int32).reshape(rows, length)
    places = np.broadcast_to(np.arange(length, dtype=np.int32), x.shape)
    call = use("sort", f"s32[{rows},{length}] s32[{rows},{length}]", dimensions=(1,), to_apply=COMPARATORS[name])
    values, order = run("sort", call, x, places)
    for k, numbers in enumerate(x.tolist()):
        wanted = sorted(range(length), key=[KEYS[name](n, place) for place, n in enumerate(numbers)].__getitem__)
        assert order[k].tolist() == wanted
        assert values[k].tolist() == [numbers[n] for n in wanted]


def test_shape_and_rule() -> None:
    call = use("sort", "s32[3,4] s32[3,4]", dimensions=(0,), to_apply=COMPARATORS["up"])
    assert call.shape == tuple_shape(shapes("s32[3,4] s32[3,4]"))
    assert rule("sort", call) == "([i j], [i j]) -> ([i j], [i j]) {i=3, j=4} permutation={i}"


@pytest.mark.parametrize(
    ("operands", "dimensions", "comparator", "message"),
    [
        ("s32[3] s32[4]", (0,), COMPARATORS["up"], "operand 1 has dimensions [4], operand 0 [3]"),
        ("s32[3] s32[3]", (1,), COMPARATORS["up"], "sort: dimension 1 is out of range for rank 1"),
        ("s32[3] s32[3]", (), COMPARATORS["up"], "sort needs one dimension, it has 0"),
        ("s32[3]", (0,), COMPARATORS["up"], "sort: the computation up takes 4 parameters, but gets 2"),
        ("s32[3]", (0,), function("sum", "s32[] s32[]", ("add", 0, 1)),
         "sort: the computation sum returns s32[], but must return pred[]"),
    ],
)  # fmt: skip
def test_refuses(operands: str, dimensions: tuple[int, ...], comparator: Computation, message: str) -> None:
    with pytest.raises(ShapeError) as error:
        use("sort", operands, dimensions=dimensions, to_apply=comparator)
    assert message in error.value.message

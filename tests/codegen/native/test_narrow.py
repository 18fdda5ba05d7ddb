"""Floats of at most 16 bits in lanes of f32: every code is widened exactly, and numbers round as in ml_dtypes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hloom.codegen.native.builder import Builder
from hloom.codegen.native.elements import NARROW, converted, from_memory, memory, to_memory
from hloom.codegen.native.loops import Kernel, Lane, Node
from hloom.ir.types.element_type import ELEMENT_TYPES, ElementType
from support.loop_kernels import elementwise, needs_llvm, ways

pytestmark = needs_llvm
Array = np.ndarray[Any, Any]
WAYS = ways()
SMALL = [name for name in NARROW if name not in ("bf16", "f16")]


def conversion(source: ElementType, target: ElementType, size: int) -> Kernel:
    def results(b: Builder, x: Node) -> list[Node]:
        return [to_memory(b, converted(b, from_memory(b, x, source), source, target), target)]

    return elementwise([memory(source)], results, size)


def converted_by(run: Callable[..., None], source: ElementType, target: ElementType, x: Array) -> Array:
    assert target.numpy is not None
    found = np.zeros(x.shape, target.numpy)
    lanes = {1: np.int8, 2: np.int16}
    views = [a.view(lanes.get(a.itemsize, a.dtype)) for a in (x, found)]
    run(conversion(source, target, len(x)), views)
    return found


def check(run: Callable[..., None], source: ElementType, target: ElementType, x: Array) -> None:
    have = converted_by(run, source, target, x)
    with np.errstate(all="ignore"):
        want = x.astype(have.dtype)
        a, b, given = (y.astype(np.float64) for y in (have, want, x))
    lost = np.isnan(given) & ~np.isnan(b)  # a zero of either sign, in formats without NaN
    wrong = ~((a == b) & ((np.signbit(a) == np.signbit(b)) | lost) | np.isnan(a) & np.isnan(b))
    assert [(float(x[n]), float(a[n]), float(b[n])) for n in np.flatnonzero(wrong)[:5]] == []


def around_ties(target: ElementType) -> Array:
    """All non-negative numbers of a type, the middles between neighbours, and the numbers of f32 next to these."""
    assert target.numpy is not None
    codes = np.arange(1 << (target.bits - 1), dtype=np.uint16 if target.bits > 8 else np.uint8)
    with np.errstate(invalid="ignore", over="ignore"):
        values = codes.view(target.numpy).astype(np.float32)
        found = np.unique(values[np.isfinite(values)])
        found = np.append(found, 2 * found[-1] - found[-2])
        middles = np.concatenate([found, (found[1:] + found[:-1]) / 2])
        near = [np.nextafter(middles, np.float32(to)) for to in (-np.inf, np.inf)]
    special = np.array([math.inf, math.nan, 3e38, 1e-45, 1e-40], np.float32)
    x = np.concatenate([middles, *near, special])
    return np.concatenate([x, -x])


@pytest.mark.share(2)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NARROW)
def test_every_code_is_widened(name: str, way: str) -> None:
    source, target = ELEMENT_TYPES[name], ELEMENT_TYPES["f32"]
    assert source.numpy is not None
    codes = np.arange(1 << source.bits, dtype=np.uint16 if source.bits > 8 else np.uint8)
    check(WAYS[way], source, target, codes.view(source.numpy))


@pytest.mark.share(2)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NARROW)
def test_numbers_round_to_the_nearest(name: str, way: str) -> None:
    check(WAYS[way], ELEMENT_TYPES["f32"], ELEMENT_TYPES[name], around_ties(ELEMENT_TYPES[name]))


@pytest.mark.parametrize("way", WAYS)
def test_f64_is_rounded_to_f16_once(way: str) -> None:
    x = around_ties(ELEMENT_TYPES["f16"]).astype(np.float64)
    near = np.concatenate([x, np.nextafter(x, -np.inf), np.nextafter(x, np.inf), x * (1 + 2.0**-40)])
    check(WAYS[way], ELEMENT_TYPES["f64"], ELEMENT_TYPES["f16"], near)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_all_numbers_of_f32_round(name: str) -> None:
    step = 1 << 25
    bits = np.arange(step, dtype=np.uint32)
    for first in range(0, 1 << 32, step):
        x = (bits + np.uint32(first)).view(np.float32)
        check(WAYS["llvm"], ELEMENT_TYPES["f32"], ELEMENT_TYPES[name], x)


def test_lanes_of_memory_are_as_wide_as_the_type() -> None:
    assert {memory(ELEMENT_TYPES[name]) for name in SMALL} == {Lane.I8}


@pytest.mark.share(2)
@pytest.mark.parametrize("size", [1, 15, 33, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 17, 65))])
@pytest.mark.parametrize("target", ["bf16", "f16", "f8e4m3fn", "s8", "s16", "pred"])
@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_written_behind_the_last_element(way: str, target: str, size: int) -> None:
    element = ELEMENT_TYPES[target]
    assert element.numpy is not None
    memory_of_result = np.full(2 * size + 64, 0xA5, np.uint8)
    count = size * element.numpy.itemsize
    found = memory_of_result[:count].view(element.numpy)
    x = np.arange(size, dtype=np.int32)
    lanes = {1: np.int8, 2: np.int16}
    WAYS[way](conversion(ELEMENT_TYPES["s32"], element, size), [x, found.view(lanes[found.itemsize])])
    np.testing.assert_array_equal(found.astype(np.float32), x.astype(element.numpy).astype(np.float32))
    assert (memory_of_result[count:] == 0xA5).all()

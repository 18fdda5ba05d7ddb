"""Complex numbers as pairs of field elements, their roots of unity and transforms, and the bits of elements."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hloom.ir.ops.fft import FftAttributes, FftType
from hloom.ir.types.element_type import ELEMENT_TYPES
from hloom.runtime.proof import bits, field, pairs, transforms
from hloom.runtime.proof.embedding import embed
from hloom.runtime.proof.field import GREATEST, LEAST, PRIME, UNDEFINED
from hloom.runtime.proof.memo import Memo
from hloom.runtime.proof.oracle import Oracle

Array = np.ndarray[Any, Any]

CODES = np.array([LEAST, GREATEST, UNDEFINED, 0, 1, PRIME - 1], np.uint64)
FFT, IFFT, RFFT, IRFFT = FftType.FFT, FftType.IFFT, FftType.RFFT, FftType.IRFFT


def drawn(seed: int, *dims: int) -> Array:
    return pairs.from_words(np.random.default_rng(seed).integers(0, PRIME, (*dims, 2), np.uint64))


def integers(x: Array) -> list[tuple[int, int]]:
    return [(int(a), int(b)) for a, b in pairs.words(x).reshape(-1, 2)]


def oracle() -> Oracle:
    return Oracle(np.random.SeedSequence(3))


def same(x: Array, y: Array) -> bool:
    return x.shape == y.shape and not pairs.differ(x, y).any()


def test_arithmetic_is_that_of_complex_numbers() -> None:
    x, y = drawn(1, 200), drawn(2, 200)
    both = list(zip(integers(x), integers(y), strict=True))
    assert integers(pairs.add(x, y)) == [((a + c) % PRIME, (b + d) % PRIME) for (a, b), (c, d) in both]
    assert integers(pairs.subtract(x, y)) == [((a - c) % PRIME, (b - d) % PRIME) for (a, b), (c, d) in both]
    products = [((a * c - b * d) % PRIME, (a * d + b * c) % PRIME) for (a, b), (c, d) in both]
    assert integers(pairs.multiply(x, y)) == products
    assert same(pairs.multiply(pairs.divide(x, y), y), x)
    assert same(pairs.add(pairs.negate(x), x), embed(np.zeros(200, np.complex64)))
    assert pairs.undefined(pairs.divide(x, embed(np.zeros(200, np.complex64)))).all()


def test_numbers_become_the_pairs_of_their_parts() -> None:
    x = np.array([3 - 2j, complex(0.5, np.inf), complex(np.nan, 1)], np.complex64)
    assert integers(embed(x)) == [(3, PRIME - 2), (1 << 60, GREATEST), (UNDEFINED, 1)]


def test_codes_survive_being_moved() -> None:
    x = pairs.from_words(np.array(list(itertools.product(CODES, CODES)), np.uint64)).reshape(6, 6)
    every = pairs.words(x)
    moved = {
        "pad": np.full((2, 6), x[1, 2]), "take": np.take(x, [2, 1], 0), "where": np.where(x.real == 0, x, x.T),
        "copy": x.astype(np.complex128), "stack": np.array([x, x])[0], "join": np.concatenate([x, x.T])[:6],
        "sort": np.take_along_axis(x, np.argsort(every[..., 0], 1), 1),
    }  # fmt: skip
    assert (pairs.words(moved["pad"]) == every[1, 2]).all()
    assert (pairs.words(moved["take"]) == every[[2, 1]]).all()
    assert (pairs.words(moved["where"]) == np.where(x.real[..., None] == 0, every, every.transpose(1, 0, 2))).all()
    assert all((pairs.words(moved[name]) == every).all() for name in ("copy", "stack", "join"))
    order = np.argsort(every[..., 0], 1)[..., None]
    assert (pairs.words(moved["sort"]) == np.take_along_axis(every, order, 1)).all()
    assert same(pairs.pair(*pairs.parts(x)), x)


def test_roots_have_their_order_and_lie_on_the_circle() -> None:
    one = embed(np.ones(1, np.complex64))
    root = transforms.roots(np.array([1]))
    assert same(pairs.multiply(transforms.roots(np.array([transforms.ORDER - 1])), root), one)
    assert same(transforms.roots(np.array([transforms.ORDER // 2])), pairs.negate(one))
    assert same(transforms.roots(np.array([7])), pairs.multiply(root, transforms.roots(np.array([6]))))
    of_two = transforms.roots(np.arange(64) * (transforms.ORDER // 64))
    assert same(pairs.conjugate(of_two), transforms.roots(-np.arange(64) * (transforms.ORDER // 64)))


@pytest.mark.parametrize("length", [1, 2, 4, 8, 16, 64, 128])
def test_transforms_are_their_definition(length: int) -> None:
    x = drawn(length, 3, length)
    powers = -np.outer(np.arange(length), np.arange(length)) * (transforms.ORDER // length)
    terms = pairs.multiply(x[:, None, :], transforms.roots(powers))
    expected = embed(np.zeros((3, length), np.complex64))
    for n in range(length):
        expected = pairs.add(expected, terms[..., n])
    found = transforms.fourier(FftAttributes(FFT, (length,)), 2, oracle())(x)
    assert same(found, expected)
    assert same(transforms.fourier(FftAttributes(IFFT, (length,)), 2, oracle())(found), x)


@pytest.mark.parametrize("length", [1, 2, 8, 64])
def test_transforms_of_reals_are_half_of_those_of_complex_numbers(length: int) -> None:
    x = field.reduced(np.random.default_rng(length).integers(0, PRIME, (4, length), np.uint64))
    half = transforms.fourier(FftAttributes(RFFT, (4, length)), 2, oracle())(x)
    whole = transforms.fourier(FftAttributes(FFT, (4, length)), 2, oracle())(pairs.pair(x, np.zeros_like(x)))
    assert same(half, whole[:, : length // 2 + 1])
    assert (transforms.fourier(FftAttributes(IRFFT, (4, length)), 2, oracle())(half) == x).all()


@pytest.mark.parametrize("kind", [FFT, IFFT, RFFT, IRFFT])
def test_transforms_of_other_lengths_are_linear(kind: FftType) -> None:
    transform = transforms.fourier(FftAttributes(kind, (6, 9)), 2, oracle())
    x, y = drawn(8, 6, 5 if kind is IRFFT else 9), drawn(9, 6, 5 if kind is IRFFT else 9)
    if kind is RFFT:
        x, y = pairs.real(x), pairs.real(y)
    add = pairs.add if kind is not RFFT else field.add
    both = transform(add(x, y))
    sums = pairs.add if pairs.is_pairs(both) else field.add
    assert same(both, sums(transform(x), transform(y)))
    assert not pairs.differ(transform(x), transform(x)).any()
    assert pairs.differ(transform(x), transform(y)).all()


def test_what_is_undefined_makes_a_whole_transform_undefined() -> None:
    x = drawn(5, 2, 24)
    x[0, 3] = pairs.from_words(CODES[2:4])
    found = pairs.undefined(transforms.fourier(FftAttributes(FFT, (24,)), 2, oracle())(x))
    assert found[0].all()
    assert not found[1].any()


def test_angles_of_roots_have_their_coordinates() -> None:

    def hashed(*x: Array) -> Array:
        return oracle().value("f", *x)

    angle, cosine, sine = (transforms.with_angles(f, hashed, oracle()) for f in (np.arctan2, np.cos, np.sin))
    pi = angle(embed(np.zeros(1)), embed(np.array([-1.0])))
    turns = embed(np.arange(-5, 60) * 2.0)
    angles = field.divide(field.multiply(turns, pi), embed(np.full(65, 64.0)))
    powers = transforms.roots(np.arange(-5, 60) * (transforms.ORDER // 64))
    assert same(pairs.pair(cosine(angles), sine(angles)), powers)
    other = np.random.default_rng(6).integers(0, PRIME, 1000, np.uint64)
    assert (cosine(other) == hashed(other)).all()


def test_a_memo_keeps_what_it_is_given_first() -> None:
    memo = Memo()
    places = np.array([[5, 1], [5, 9]], np.uint64)
    assert memo.values(places, lambda new: new * np.uint64(2)).tolist() == [[10, 2], [10, 18]]
    memo.keep(np.array([1, 7, 7], np.uint64), np.array([0, 3, 4], np.uint64))
    assert memo.values(np.array([1, 7, 8], np.uint64), lambda new: new).tolist() == [2, 3, 8]
    assert memo.values(np.zeros((0, 2), np.uint64), lambda new: new).shape == (0, 2)


@pytest.mark.parametrize("name", ["f32", "f64", "bf16", "f16", "f8e4m3fn", "f8e8m0fnu", "f4e2m1fn"])
def test_bits_are_those_of_numbers_and_lead_back(name: str) -> None:
    element, random = ELEMENT_TYPES[name], oracle()
    numbers = np.array([1, 2, 0.5, 4], element.numpy)
    own = numbers.view(f"u{element.byte_size}").astype(np.uint64)
    assert bits.bits_of(random, element, embed(numbers)).astype(np.uint64).tolist() == own.tolist()
    patterns = np.arange(16 if element.bits < 8 else 160, dtype=np.uint64)[-60:]
    there = bits.elements_of(random, element, patterns.astype(ELEMENT_TYPES[f"u{element.bits}"].numpy))
    back = bits.bits_of(random, element, there)
    assert (bits.elements_of(random, element, back) == there).all()
    known = (there < field.P) & (there != field.ZERO)
    assert (back.astype(np.uint64) == patterns)[known].all()


@pytest.mark.parametrize("name", ["f32", "bf16", "f16"])
def test_random_bits_lead_back_to_their_elements(name: str) -> None:
    element, random = ELEMENT_TYPES[name], oracle()
    x = np.concatenate([np.random.default_rng(1).integers(0, PRIME, 3000, np.uint64), CODES])
    found = bits.bits_of(random, element, x)
    assert not random.exhausted
    assert len(np.unique(found)) == len(np.unique(x))
    assert (bits.elements_of(random, element, found) == x).all()
    assert (bits.bits_of(random, element, x[::-1]) == found[::-1]).all()


def test_too_many_floats_share_patterns() -> None:
    element, random = ELEMENT_TYPES["f8e4m3fn"], oracle()
    x = np.random.default_rng(1).integers(0, PRIME, 300, np.uint64)
    found = bits.bits_of(random, element, x)
    assert "more numbers than patterns of bits for f8e4m3fn" in random.exhausted
    assert (bits.bits_of(random, element, x[::-1]) == found[::-1]).all()

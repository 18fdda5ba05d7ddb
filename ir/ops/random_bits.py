"""Counter-based random bits, bitwise equal to XLA's: Threefry-2x32 and Philox-4x32.

Both encrypt a counter with a key ("Parallel random numbers: as easy as 1, 2, 3", Salmon et al., 2011). XLA keeps key
and counter in one u64 array, the state, and each use advances the counter. The order of words follows XLA: the two
words of a Threefry counter become neighbours along one dimension of the result; the four words of a Philox counter are
consecutive.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..graph.attributes import Dims
from ..types.element_type import ElementType
from ..types.literal import Array
from .numerics import numpy_type

_MASK = np.uint64(0xFFFFFFFF)
_THREEFRY_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_THREEFRY_PARITY = np.uint32(0x1BD11BDA)
_PHILOX_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_PHILOX_WEYL = (np.uint32(0x9E3779B9), np.uint32(0xBB67AE85))
_PHILOX_ROUNDS = 10


def _words(x: Any) -> tuple[Any, Any]:
    """Returns the low and the high half of u64 numbers, as u32."""
    return (x & _MASK).astype(np.uint32), (x >> np.uint64(32)).astype(np.uint32)


def _joined(low: Any, high: Any) -> Any:
    return low.astype(np.uint64) | (high.astype(np.uint64) << np.uint64(32))


def threefry2x32(key: tuple[Any, Any], counter: tuple[Any, Any]) -> tuple[Any, Any]:
    """Encrypts u32 arrays in 20 rounds. The caller must disable overflow warnings."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ _THREEFRY_PARITY)
    x, y = counter[0] + keys[0], counter[1] + keys[1]
    for step in range(5):
        for rotation in _THREEFRY_ROTATIONS[step % 2]:
            x = x + y
            y = (y << np.uint32(rotation)) | (y >> np.uint32(32 - rotation))
            y = x ^ y
        x, y = x + keys[(step + 1) % 3], y + keys[(step + 2) % 3] + np.uint32(step + 1)
    return x, y


def philox4x32(key: tuple[Any, Any], counter: tuple[Any, Any, Any, Any]) -> tuple[Any, Any, Any, Any]:
    """Encrypts u32 arrays in 10 rounds."""
    a, b, c, d = counter
    first, second = key
    for _ in range(_PHILOX_ROUNDS):
        low_a, high_a = _words(a.astype(np.uint64) * _PHILOX_MULTIPLIERS[0])
        low_c, high_c = _words(c.astype(np.uint64) * _PHILOX_MULTIPLIERS[1])
        a, b, c, d = high_c ^ b ^ first, low_c, high_a ^ d ^ second, low_a
        first, second = first + _PHILOX_WEYL[0], second + _PHILOX_WEYL[1]
    return a, b, c, d


def threefry_bits(state: Array, element: ElementType, dims: Dims) -> tuple[Array, Array]:
    """Returns the next state u64[2] (key, counter) and integers of this type and shape."""
    key, counter = _words(state[:1]), state[1:]
    if element.bits == 64:
        count = math.prod(dims)
        low, high = threefry2x32(key, _words(counter + np.arange(count, dtype=np.uint64)))
        bits = _joined(low, high)
    else:
        bits, count = _threefry_words(key, counter, dims or (1,))
    return np.concatenate([state[:1], counter + np.uint64(count)]), _as_element(bits.reshape(dims), element)


def _threefry_words(key: tuple[Any, Any], counter: Any, dims: Dims) -> tuple[Any, int]:
    """Returns words, and the number of counters used, about half as many.

    The two words of a counter are neighbours along the first even dimension, or the longest if all are odd.
    """
    even = [d for d, n in enumerate(dims) if n % 2 == 0]
    split = even[0] if even else dims.index(max(dims))
    half = tuple(-(-n // 2) if d == split else n for d, n in enumerate(dims))
    places = np.arange(math.prod(half), dtype=np.uint64).reshape(half)
    words = np.stack(threefry2x32(key, _words(counter + places)), axis=split + 1)
    full = tuple(2 * half[d] if d == split else n for d, n in enumerate(dims))
    return words.reshape(full)[tuple(slice(n) for n in dims)], places.size


def philox_bits(state: Array, element: ElementType, dims: Dims) -> tuple[Array, Array]:
    """Returns the next state and integers of this type and shape.

    A state u64[3] is a key and a counter of 128 bits, low half first; in a state u64[2] the key is also the high half.
    """
    count = math.prod(dims)
    high = state[2] if state.size == 3 else state[0]
    calls = -(-count // (2 if element.bits == 64 else 4))
    lows = state[1:2] + np.arange(calls, dtype=np.uint64)
    highs = high + (lows < state[1]).astype(np.uint64)
    words = philox4x32(_words(state[:1]), (*_words(lows), *_words(highs)))
    if element.bits == 64:
        bits = np.stack([_joined(*words[:2]), _joined(*words[2:])], axis=1)
    else:
        bits = np.stack(words, axis=1)
    next_low = state[1:2] + np.uint64(calls)
    following = [state[:1], next_low]
    if state.size == 3:
        following.append(high + (next_low < state[1]).astype(np.uint64))
    return np.concatenate(following), _as_element(bits.reshape(-1)[:count].reshape(dims), element)


def _as_element(bits: Any, element: ElementType) -> Array:
    """Converts the low bits of words to elements of an integer type."""
    if element.bits >= 8:
        return np.asarray(bits).astype(f"u{element.byte_size}").view(numpy_type(element))
    spare = np.uint8(8 - element.bits)
    shifted = np.left_shift(bits.astype(np.uint8), spare)
    signed = shifted.view(np.int8) if element.kind.value == "signed" else shifted
    return np.right_shift(signed, spare).astype(numpy_type(element))

"""Programs of one value with a random sharding, in any spelling that XLA reads.

All of them mean something: axes are used once, lists hold each device once, and what XLA's reader takes for a bug of
its own (and then ends the process) does not come up: parts of an axis that are next to one another, device ids that
are 0, 1, 2, .., subgroups of a mesh without axes.
"""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass

_SUBGROUPS = ("replicated", "manual", "unreduced", "maximal")
_METADATA = ('metadata={op_name="x"}', 'metadata={op_type="t" op_name="a/b{c}" source_line=3}',
             'metadata={{op_name="x"}, {op_name="y"}}')  # fmt: skip


def sharded(rng: random.Random) -> str:
    """A program whose result is its parameter, annotated."""
    shape, sharding = _array(rng)
    if rng.random() < 0.25:
        leaves = [_array(rng) for _ in range(rng.choice([1, 2, 3, 7]))]
        shape = f"({', '.join(s for s, _ in leaves)})"
        sharding = "{" + ", ".join(s for _, s in leaves) + "}"
        if rng.random() < 0.2:
            sharding = _sharding(rng, 0, word=True)
    return f"HloModule m\n\nENTRY e {{\n  ROOT x = {shape} parameter(0), sharding={sharding}\n}}\n"


def _array(rng: random.Random) -> tuple[str, str]:
    rank = rng.choice([0, 1, 2, 2, 2, 3, 4])
    return f"f32[{','.join(rng.choice('0158') for _ in range(rank))}]", _sharding(rng, rank)


def _sharding(rng: random.Random, rank: int, word: bool = False) -> str:
    if not word and rng.random() < 0.4:
        return _named(rng, rank)
    main = f"maximal device={rng.randrange(5)}"
    if word or rng.random() < 0.2:
        main = rng.choice([*_SUBGROUPS[:3], "unknown", main])
    elif rng.random() < 0.95:
        main = _device_list(rng, rank)
    group = f" {rng.choice(['shard_as', 'shard_like'])} {rng.randrange(9)}" if rng.random() < 0.2 else ""
    metadata = f" {rng.choice(_METADATA)}" if rng.random() < 0.2 else ""
    return "{" + main + group + metadata + "}"


# -- device lists


def _sizes(rng: random.Random, count: int, most: int = 48) -> list[int]:
    """Sizes with a product of at most `most`; often 1."""
    sizes = [1] * count
    for place in rng.sample(range(count), count):
        sizes[place] = min(rng.choice([1, 1, 2, 2, 3, 4, 6]), most // math.prod(sizes))
    return sizes if rng.random() < 0.8 else [1] * count


def _iota(rng: random.Random, devices: int) -> str:
    """`[2,4]T(1,0)`: the devices in the order of an iota."""
    dims: list[int] = []
    while (rest := devices // math.prod(dims)) > 1 and rng.random() < 0.7:
        dims.append(rng.choice([d for d in range(1, rest + 1) if rest % d == 0]))
    dims.append(devices // math.prod(dims))
    perm = rng.sample(range(len(dims)), len(dims))
    return f"[{','.join(map(str, dims))}]" + (f"T({','.join(map(str, perm))})" if len(dims) > 1 else "")


def _device_list(rng: random.Random, rank: int) -> str:
    count = rng.choice([0, 0, 1, 1, 2, 3])
    if not rank + count:
        return "replicated"
    sizes = _sizes(rng, rank + count)
    devices, subgroups = math.prod(sizes), ""
    if count == 1 and rng.random() < 0.5:
        subgroups = " last_tile_dim_replicate"
    elif count:
        subgroups = f" last_tile_dims={{{', '.join(rng.choice(_SUBGROUPS) for _ in range(count))}}}"
    ids = f"<={_iota(rng, devices)}"
    if devices > 1 and rng.random() < 0.4:
        listed = rng.sample(range(devices), devices) if rng.random() < 0.7 else range(devices)
        ids = ",".join(map(str, listed))
    return f"devices=[{','.join(map(str, sizes))}]{ids}{subgroups}"


# -- named axes


@dataclass(frozen=True)
class _Part:
    """Of the axis of that number: all of it, or where it is cut the part between `pre` and the rest."""

    axis: int
    pre: int
    size: int
    whole: bool

    def __str__(self) -> str:
        return f"'{'abcd'[self.axis]}'" + ("" if self.whole else f":({self.pre}){self.size}")

    def precedes(self, other: _Part) -> bool:
        return self.axis == other.axis and self.pre * self.size == other.pre


def _parts(rng: random.Random, axis: int, size: int) -> list[_Part]:
    first = rng.choice([d for d in range(1, size + 1) if size % d == 0])
    if first in (1, size) or rng.random() < 0.5:
        return [_Part(axis, 1, size, whole=True)]
    return [_Part(axis, 1, first, whole=False), _Part(axis, first, size // first, whole=False)]


def _mesh(rng: random.Random, sizes: list[int]) -> str:
    mesh = f"mesh[{','.join(f'{name!r}={size}' for name, size in zip('abcd', sizes, strict=False))}]"
    devices = math.prod(sizes)
    if rng.random() < 0.3:
        return f"{mesh}, device_ids=({_iota(rng, devices)})"
    listed = rng.sample(range(devices), devices)
    if rng.random() < 0.3 and listed != list(range(devices)):
        return f"{mesh}, device_ids=({','.join(map(str, listed))})"
    return mesh


def _named(rng: random.Random, rank: int) -> str:
    if rng.random() < 0.05:
        return f"{{maximal_mesh[device_id={rng.randrange(5)}]}}"
    sizes = _sizes(rng, rng.choice([0, 1, 1, 2, 2, 3, 4]), most=64)
    if not sizes:
        return "{mesh[], replicated}"
    pieces = [_mesh(rng, sizes)]
    if rng.random() < 0.1:
        pieces.append(rng.choice(_SUBGROUPS[:3]))
    else:
        pieces += _axis_lists(rng, [p for axis, size in enumerate(sizes) for p in _parts(rng, axis, size)], rank)
    if rng.random() < 0.2:
        pieces.append(rng.choice(_METADATA))
    return "{" + ", ".join(pieces) + "}"


def _axis_lists(rng: random.Random, parts: list[_Part], rank: int) -> list[str]:
    """The dimensions and the sets of axes: each part of an axis in one of them, or in none."""
    dims: list[list[_Part]] = [[] for _ in range(rank)]
    sets: dict[str, list[_Part]] = {"replicated": [], "unreduced": [], "manual": []}
    left_out: list[_Part] = []
    for part in rng.sample(parts, len(parts)):
        places = [dim for dim in dims if not dim or not dim[-1].precedes(part)]
        rng.choice([*places, *places, *sets.values(), left_out]).append(part)
    texts = [", ".join(map(str, dim)) for dim in dims]
    for dim, text in enumerate(texts):
        if rng.random() < 0.2:
            texts[dim] = f"{text}, ?" if text else "?"
    found = [f"[{', '.join(f'{{{text}}}' for text in texts)}]"]
    for word, axes in sets.items():
        axes.sort(key=lambda part: (part.axis, part.pre))
        if axes and not any(a.precedes(b) for a, b in itertools.pairwise(axes)):
            found.append(f"{word}={{{', '.join(map(str, axes))}}}")
    return found

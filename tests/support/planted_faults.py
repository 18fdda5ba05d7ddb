"""Partitioned programs with one mistake in them, as a wrong partitioner would make: what a check has to find.

`faults` lists the mistakes that can be planted in a LOCAL module, by kind and place; `all_faults` adds those of
`planted_edits`, which tests on numbers hardly see, and those of `planted_decisions`. Each is made in a copy of its own.
Whether a mistake shows in the results is for the caller to find out (a mask may not matter, a group may hold copies).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hloom.ir.graph.attributes import Pairs, SliceDim, SliceDims
from hloom.ir.graph.computation import Computation
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.module import Module, clone_module
from hloom.ir.types.literal import Literal
from support.planted_decisions import DECISIONS
from support.planted_edits import (
    EDITS,
    Fits,
    Plant,
    attributes_of,
    change,
    groups_of,
    has_groups,
    has_order,
    is_one_of,
    literal_of,
    replace_value,
    set_groups,
)

SCALE = 1e-6


@dataclass(frozen=True)
class Fault:
    """One mistake: its kind and the instruction where it is."""

    kind: str
    computation: str
    instruction: str

    def plant(self, module: Module) -> Module:
        """A copy of the module that has the mistake."""
        copy = clone_module(module)
        computation = next(c for c in copy if c.name == self.computation)
        instruction = computation.find(self.instruction)
        assert instruction is not None
        next(plant for kind, _, plant in (*_KINDS, *EDITS, *DECISIONS) if kind == self.kind)(computation, instruction)
        return copy


def faults(module: Module) -> Iterator[Fault]:
    """The mistakes of a wrong partitioner that can be planted in a LOCAL module."""
    yield from _listed(module, _KINDS)


def all_faults(module: Module) -> Iterator[Fault]:
    """Mistakes of a wrong partitioner, and smaller ones."""
    yield from _listed(module, [*_KINDS, *EDITS])


def decision_faults(module: Module) -> Iterator[Fault]:
    """Mistakes in decisions that can be planted in a LOCAL module."""
    yield from _listed(module, DECISIONS)


def _listed(module: Module, kinds: list[tuple[str, Fits, Plant]]) -> Iterator[Fault]:
    for computation in module:
        for instruction in computation:
            for kind, fits, _ in kinds:
                if fits(instruction):
                    yield Fault(kind, computation.name, instruction.name)


def some(found: Sequence[Fault], each: int) -> list[Fault]:
    """Up to `each` faults of each kind, the same in every run."""
    kinds: dict[str, list[Fault]] = {}
    for fault in found:
        kinds.setdefault(fault.kind, []).append(fault)
    return [f for kind in kinds.values() for f in random.Random(1).sample(kind, min(each, len(kind)))]


# -- collectives


def _wrong_groups(_: Computation, instruction: Instruction) -> None:
    """The last devices of the first two groups change places."""
    groups = groups_of(instruction)
    groups[0][-1], groups[1][-1] = groups[1][-1], groups[0][-1]
    set_groups(instruction, groups)


def _turned_groups(_: Computation, instruction: Instruction) -> None:
    """The members of each group are counted from the second one on."""
    set_groups(instruction, [[*g[1:], g[0]] for g in groups_of(instruction)])


def _lost_collective(computation: Computation, instruction: Instruction) -> None:
    computation.replace_all_uses(instruction, instruction.operands[0])


def _is_sum(instruction: Instruction) -> bool:
    return instruction.opcode == "all-reduce" and instruction.shape.is_array


def _wrong_monoid(_: Computation, instruction: Instruction) -> None:
    reducer: Computation = attributes_of(instruction).to_apply
    assert reducer.parent is not None
    other = reducer.parent.clone_computation(reducer, "wrong_monoid")
    root = other.root
    made = other.build("minimum" if root.opcode == "maximum" else "maximum", *root.operands)
    other.root = made
    change(instruction, to_apply=other)


def _counted_twice(computation: Computation, instruction: Instruction) -> None:
    replace_value(computation, instruction, lambda x: computation.build("add", x, x))


def _lost_pair(_: Computation, instruction: Instruction) -> None:
    change(instruction, source_target_pairs=attributes_of(instruction).source_target_pairs[:-1])


def _turned_pairs(_: Computation, instruction: Instruction) -> None:
    """Each device gets what its neighbour should have had."""
    pairs: Pairs = attributes_of(instruction).source_target_pairs
    targets = [t for _, t in pairs]
    turned = tuple(zip((s for s, _ in pairs), [*targets[1:], targets[0]], strict=True))
    change(instruction, source_target_pairs=turned)


# -- masks, offsets, halos


def _forgotten_mask(computation: Computation, instruction: Instruction) -> None:
    computation.replace_all_uses(instruction, instruction.operands[1])


def _is_offset(instruction: Instruction) -> bool:
    array = literal_of(instruction)
    return array is not None and array.dtype.kind in "iu" and array.size > 0


def _is_scale(instruction: Instruction) -> bool:
    array = literal_of(instruction)
    return array is not None and array.dtype == np.float32 and bool(np.isfinite(array).all() and array.any())


def _with_literal(instruction: Instruction, array: Any) -> None:
    change(instruction, literal=Literal(array))


def _off_by_one(_: Computation, instruction: Instruction) -> None:
    array = literal_of(instruction)
    _with_literal(instruction, np.asarray(array + 1).astype(array.dtype))


def _wrong_scale(_: Computation, instruction: Instruction) -> None:
    array = literal_of(instruction)
    _with_literal(instruction, np.asarray(array * (1 + SCALE)).astype(array.dtype))


def _is_halo(instruction: Instruction) -> bool:
    dims: SliceDims = attributes_of(instruction).slice if instruction.opcode == "slice" else ()
    return any(
        d.start > 0 and d.stride == 1 and d.limit == n
        for d, n in zip(dims, instruction.operands[0].shape.dims if dims else (), strict=True)
    )


def _shifted_slice(_: Computation, instruction: Instruction) -> None:
    """What should begin at the end of the halo begins one element before."""
    dims: SliceDims = attributes_of(instruction).slice
    change(instruction, slice=tuple(SliceDim(d.start - 1, d.limit - 1, d.stride) if d.start else d for d in dims))


# -- numbers


def _is_float(instruction: Instruction) -> bool:
    shape = instruction.shape
    computed = instruction.opcode in ("add", "multiply", "dot", "divide", "subtract", "reduce", "tanh", "exponential")
    return computed and shape.is_array and shape.element.name == "f32" and len(instruction.users) > 0


def _scaled(computation: Computation, instruction: Instruction) -> None:
    def change(x: Instruction) -> Instruction:
        factor = computation.constant(1 + SCALE, "f32")
        if x.shape.rank:
            factor = computation.build("broadcast", factor, shape=x.shape.without_layout(), dimensions=())
        return computation.build("multiply", x, factor)

    replace_value(computation, instruction, change)


def _lost_element(computation: Computation, instruction: Instruction) -> None:
    """The last element is left out: it becomes zero."""

    def change(x: Instruction) -> Instruction:
        zero = computation.constant(0.0, "f32")
        if not x.shape.rank:
            return zero
        last = computation.build("broadcast", zero, shape=x.shape.with_dims((1,) * x.shape.rank), dimensions=())
        places = [computation.constant(n - 1) for n in x.shape.dims]
        return computation.build("dynamic-update-slice", x, last, *places)

    replace_value(computation, instruction, change)


def _keeps_shape(instruction: Instruction) -> bool:
    return instruction.opcode in ("all-reduce", "collective-permute") and instruction.shape.is_array


_KINDS: list[tuple[str, Fits, Plant]] = [
    ("wrong groups", has_groups, _wrong_groups),
    ("turned groups", has_order, _turned_groups),
    ("lost collective", _keeps_shape, _lost_collective),
    ("wrong monoid", _is_sum, _wrong_monoid),
    ("counted twice", _is_sum, _counted_twice),
    ("lost pair", is_one_of("collective-permute"), _lost_pair),
    ("turned pairs", is_one_of("collective-permute"), _turned_pairs),
    ("forgotten mask", is_one_of("select"), _forgotten_mask),
    ("off by one", _is_offset, _off_by_one),
    ("wrong constant", _is_scale, _wrong_scale),
    ("shifted halo", _is_halo, _shifted_slice),
    ("wrong scale", _is_float, _scaled),
    ("lost element", _is_float, _lost_element),
]

"""Constants that another compiler has folded, as products and reciprocals of those of the original.

XLA's compilers multiply by the rounded reciprocal of a constant instead of dividing, make one factor of several, and
compute functions of constants. Over the field a number is another one when it is rounded. So a constant of the
per-device program that the original does not have is read as the product that it rounds:

    before:  k = f32[] constant(0.111111112)    where the original divides by 9
    after:   k = f32[] divide(one, nine)

A constant that is close to one that the original states, but is none of its numbers, is a mistake: it stays as it is,
and nothing is computed from it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import combinations_with_replacement

import numpy as np

from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import DeviceNumber, Draws
from ...ir.graph.module import Module, clone_module
from ...ir.graph.op import Role
from ...ir.ops.calls.custom_call import is_custom_call
from ...ir.ops.structure import constant_array, moved_constant
from ...ir.tools.pattern import P, match
from ...ir.types.element_type import from_numpy
from ...ir.types.literal import Array
from ..check.retype import limits_of
from ..evaluator import evaluate
from ..simulator import SimulatedProgram

_FACTORS = 3  # of a constant
_ATOMS = 60  # numbers of the original of which products are tried
_UNITS = 4  # in the last place, by which a product of constants may be off
_UNITS_OF_COMPUTED = 16  # likewise, of the largest number of an array that more ops have computed
_LARGEST = 1 << 16  # elements of an array that is computed beforehand

_QUOTIENT = P("divide", P.any(), P.any("divisor"))

_ByType = Mapping[np.dtype[np.generic], Array]  # different numbers, sorted
_Atom = tuple[Array, bool]  # a number of the original, as a scalar; whether its reciprocal is meant


def explain_constants(original: Module, local: Module) -> bool:
    """Replaces constants that the original does not have by products and reciprocals of some that it has, in place;
    returns whether there were any.
    """
    return _explain(local, _Numbers(original))


def compute_constants(original: Module, local: Module) -> bool:
    """Computes the values that depend on constants and the device number alone, and makes numbers one that are equal
    up to rounding, in place; returns whether there were any.
    """
    stated = _Numbers(original).stated
    computed = _compute(original, frozenset())
    known = _Numbers(original)
    mistakes = frozenset(i for i in _all(local) if _is_mistake(constant_array(i), stated, known.stated))
    others = _compute(local, mistakes)
    if not computed and not others:
        return False
    new = [i for i in _all(local) if i not in mistakes and _distances(constant_array(i), stated).any()]
    _explain(local, known)
    _merge([*computed, *dict.fromkeys([*others, *new])], stated)
    return True


class _Numbers:
    """The floats that a program states, and those that it divides by."""

    def __init__(self, module: Module) -> None:
        self.stated = _by_type(a for a in map(constant_array, _all(module)) if a is not None)
        quotients = (found for i in _all(module) if (found := match(i, _QUOTIENT)) is not None)
        divisors = (moved_constant(found["divisor"]) for found in quotients)
        self.divisors = _by_type(a for a in divisors if a is not None)

    def product_of(self, x: Array) -> list[_Atom]:
        """Returns the numbers and reciprocals whose product a number is close to; empty if it is of none."""
        wide, allowed = abs(float(x)), _UNITS * _unit(x.dtype)
        divisors, stated = (
            [n for some in kind.values() for n in some.astype(x.dtype)] for kind in (self.divisors, self.stated))
        factors = [(abs(1 / float(n)), (n, True)) for n in divisors if n]
        factors += [(abs(float(n)), (n, False)) for n in stated]
        factors = [f for f in factors if f[0] not in (0, 1) and math.isfinite(f[0])][:_ATOMS]
        for count in range(1, _FACTORS + 1) if wide != 1 else ():
            for some in combinations_with_replacement(factors, count):
                if abs(math.prod(value for value, _ in some) - wide) <= allowed * wide:
                    return [atom for _, atom in some]
        return []


def _by_type(arrays: Iterator[Array] | list[Array]) -> dict[np.dtype[np.generic], Array]:
    """Sorts the different floats by their types."""
    found: dict[np.dtype[np.generic], list[Array]] = {}
    for array in arrays:
        if _is_float(array):
            found.setdefault(array.dtype, []).append(array.reshape(-1))
    return {dtype: _sorted(np.concatenate(parts)) for dtype, parts in found.items()}


def _sorted(x: Array) -> Array:
    return np.unique(x[np.isfinite(x)])


def _explain(local: Module, numbers: _Numbers) -> bool:
    """Replaces constants that the original does not have by products; returns whether there were any."""
    return sum(_explained(i, numbers) for computation in local for i in list(computation)) > 0


def _is_mistake(array: Array | None, stated: _ByType, known: _ByType) -> bool:
    """Whether all floats of a constant are close to ones that the original states, and not all are `known`."""
    distances = _distances(array, stated)
    if array is None or not 0 < distances.max(initial=0) < np.inf or not _distances(array, known).any():
        return False
    return bool((distances <= _UNITS_OF_COMPUTED * _unit(array.dtype) * np.abs(array.astype(np.float64))).all())


def _distances(array: Array | None, numbers: _ByType) -> Array:
    """Returns the distance of each float from the nearest of some numbers; none for other arrays."""
    if array is None or not _is_float(array):
        return np.empty(0)
    return _distance(_nearest(numbers.get(array.dtype), array), array)


def _explained(constant: Instruction, numbers: _Numbers) -> bool:
    found, computation = constant_array(constant), constant.parent
    distances = _distances(found, numbers.stated)
    if found is None or computation is None or not distances.size or (found != found.flat[0]).any():
        return False
    if not np.isfinite(found.flat[0]) or distances.flat[0] <= _UNITS * _unit(found.dtype) * _scale(found):
        return False
    atoms = numbers.product_of(found.reshape(-1)[0])
    if atoms:
        computation.replace_all_uses(constant, _product(constant, atoms))
    return bool(atoms)


def _product(constant: Instruction, atoms: list[_Atom]) -> Instruction:
    computation, array = constant.parent, constant_array(constant)
    assert computation is not None
    assert array is not None
    sign = np.sign(array.flat[0]) * math.prod(float(np.sign(n)) for n, _ in atoms)
    with computation.at(before=constant):
        made, one = (computation.constant(np.full((), x, array.dtype)) for x in (sign, 1))
        for number, is_inverse in atoms:
            opcode = "divide" if is_inverse else "multiply"
            factor = computation.constant(np.asarray(number))
            made = computation.build("multiply", made, computation.build(opcode, one, factor))
        if constant.shape.rank:
            made = computation.build("broadcast", made, dimensions=(), shape=constant.shape.without_layout())
    return made


# -- what constants decide


def _compute(module: Module, mistakes: frozenset[Instruction]) -> list[Instruction]:
    """Replaces values that depend on constants and the device number alone by constants, and returns these."""
    found: list[Instruction] = []
    for computation in list(module):
        found += _computed(module, computation, mistakes)
    return found


def _computed(module: Module, computation: Computation, mistakes: frozenset[Instruction]) -> list[Instruction]:
    known: set[Instruction] = set()
    for i in computation:
        if i not in mistakes and _is_known(i, module, known):
            known.add(i)
    ends = [i for i in computation if i in known and _computes_floats(i)
            and (i is computation.root or not known.issuperset(i.users))]  # fmt: skip
    if not ends:
        return []
    values = _values(module, computation, known, ends)
    made: list[Instruction] = []
    for i, parts in zip(ends, values, strict=True):
        with computation.at(before=i):
            made.append(computation.constant(np.stack(parts) if len(parts) > 1 else parts[0]))
            new = _row(computation, i, made[-1]) if len(parts) > 1 else made[-1]
        computation.replace_all_uses(i, new)
    return made


def _is_known(i: Instruction, module: Module, known: set[Instruction]) -> bool:
    number = i.op.interface(DeviceNumber)
    if number:
        return module.num_partitions > 1 and number.number(0, 1) == 1
    return (
        (i.op.role in (None, Role.CONSTANT)) and i.shape.is_array and i.shape.num_elements <= _LARGEST
        and not (i.op.is_collective or i.op.has_side_effect(i.attributes) or is_custom_call(i.op))
        and not i.op.interface(Draws) and known.issuperset(i.operands) and not i.control_predecessors
    )  # fmt: skip


def _computes_floats(i: Instruction) -> bool:
    """Whether floats are computed on the way to a value, by more than moves of constants."""
    work, seen = [i], {i}
    while work:
        at = work.pop()
        is_float = any(s.element.is_float for s in (at.shape, *(o.shape for o in at.operands)))
        if at.operands and is_float and moved_constant(at) is None:
            return True
        new = [o for o in at.operands if o not in seen]
        seen.update(new)
        work += new
    return False


def _values(
    module: Module, computation: Computation, known: set[Instruction], ends: list[Instruction]
) -> list[list[Array]]:
    """Runs these instructions alone: the numbers of each end on all devices, or one for all."""
    alone, entry = clone_module(module), Computation("constants")
    alone.entry_layout = alone.global_layout = alone.flat_layout = None
    alone.input_output_alias = alone.buffer_donor = ""
    copied = next(c for c in alone if c.name == computation.name)
    made: dict[str, Instruction] = {}
    for i, copy in zip(computation, copied, strict=True):
        if i in known:
            operands = [made[o.name] for o in i.operands]
            made[i.name] = entry.add(i.op, operands, copy.attributes, i.shape.without_layout())
    entry.root = entry.build("tuple", *(made[e.name] for e in ends))
    alone.add_computation(entry, entry=True)
    with np.errstate(all="ignore"):
        if any(i.op.interface(DeviceNumber) for i in known):
            return [list(parts) for parts in zip(*SimulatedProgram(alone).per_device([]), strict=True)]
        alone.num_partitions = 1
        return [[x] for x in evaluate(alone, [])]


def _row(computation: Computation, i: Instruction, table: Instruction) -> Instruction:
    """Looks up the numbers of a device."""
    zero = computation.constant(0, "u32")
    number = computation.build("partition-id", shape="u32[]")
    row = computation.build("dynamic-slice", table, number, *[zero] * i.shape.rank,
                            dynamic_slice_sizes=(1, *i.shape.dims))  # fmt: skip
    return computation.build("reshape", row, shape=i.shape.without_layout())


# -- numbers


def _merge(constants: list[Instruction], numbers: _ByType) -> None:
    """Makes floats one number that are equal up to their rounding: one that is stated, else the least of them."""
    arrays = [a for i in constants if (a := constant_array(i)) is not None and _is_float(a)]
    for dtype, stated in {a.dtype: numbers.get(a.dtype) for a in arrays}.items():
        alike = [a for a in arrays if a.dtype == dtype]
        values, place = np.unique(np.concatenate([a.reshape(-1) for a in alike]), return_inverse=True)
        allowed = np.full(values.shape, np.inf)
        each = np.concatenate([np.full(a.size, _UNITS_OF_COMPUTED * _unit(dtype) * _scale(a)) for a in alike])
        np.minimum.at(allowed, place, each)
        first, least, chosen = 0, np.inf, values.copy()
        for n, (value, most) in enumerate(zip(values.astype(np.float64).tolist(), allowed.tolist(), strict=True)):
            least = min(least, most)
            if not value - float(values[first]) <= least:  # nor NaN, which comes last
                first, least = n, most
            chosen[n] = values[first]
        nearest = _nearest(stated, chosen)
        chosen = np.where(_distance(nearest, chosen) <= allowed, nearest, chosen)
        for i in constants:
            array = constant_array(i)
            if array is not None and array.dtype == dtype and i.parent is not None:
                with i.parent.at(before=i):
                    i.parent.replace_all_uses(i, i.parent.constant(chosen[np.searchsorted(values, array)]))


def _nearest(known: Array | None, x: Array) -> Array:
    """Returns the one of sorted numbers that is nearest to each of others; NaN if there are none."""
    if known is None or not known.size:
        return np.full(x.shape, np.nan, x.dtype)
    at = np.searchsorted(known, x)
    below, above = (known[np.clip(at - n, 0, len(known) - 1)] for n in (1, 0))
    return np.where(_distance(below, x) <= _distance(above, x), below, above)


def _distance(x: Array, y: Array) -> Array:
    """Returns the distance of numbers, infinite to NaN."""
    with np.errstate(invalid="ignore"):
        found = np.abs(x.astype(np.float64) - y.astype(np.float64))
    return np.where(x == y, 0.0, np.where(np.isnan(found), np.inf, found))


def _scale(x: Array) -> float:
    """Returns the largest finite magnitude."""
    wide = np.abs(x.astype(np.float64))
    return float(wide[np.isfinite(wide)].max(initial=0.0))


def _unit(dtype: np.dtype[np.generic]) -> float:
    return float(limits_of(dtype).eps) / 2


def _is_float(array: Array) -> bool:
    return from_numpy(array.dtype).is_float


def _all(module: Module) -> Iterator[Instruction]:
    return (i for computation in module for i in computation)

"""Random small programs with random shardings, for property tests.

`programs()` is a hypothesis strategy: a GLOBAL module over a random mesh (any device order), a few ops deep, with some
values annotated. The ops come in families (`random_programs_*`), each a function of a builder and a value that gives
another value; what the values hold, so that results can be compared, is said in `random_programs_base`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from hloom.ir.graph.computation import Computation
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.interfaces import Applies
from hloom.ir.graph.module import Module, clone_module
from hloom.ir.ops.comparison import CompareAttributes
from hloom.ir.ops.select_and_scatter import SelectAndScatter
from hloom.ir.sharding.mesh import Mesh
from hloom.ir.sharding.sharding import TupleSharding
from hloom.ir.types.element_type import ELEMENT_TYPES, Kind, from_numpy
from hloom.ir.types.shape import array
from hypothesis import strategies as st
from ml_dtypes import iinfo
from programs.random.base import (
    ELEMENTS,
    LARGEST,
    MESHES,
    Builder,
    Choices,
    Choose,
    Family,
    drawn,
    some_mesh,
    some_sharding,
)
from programs.random.control import CONTROL, STEPS
from programs.random.library import LIBRARY
from programs.random.numbers import NUMBERS
from programs.random.regions import region
from programs.random.shaping import SHAPING
from programs.random.sums import SUMS

# Manual regions are left out: one device cannot run them.
INNER = [NUMBERS, NUMBERS, SHAPING, SHAPING, SUMS, SUMS, LIBRARY, STEPS]
REGIONS: list[Family] = [*CONTROL, region, region]


def _annotate(b: Builder, mesh: Mesh, other: Mesh) -> None:
    """Shardings for about one value in three, of the entry and of what control flow calls."""
    for value in b.placed:
        leaves = list(value.shape.leaves())
        if value.opcode == "get-tuple-element" or not all(s.is_array for s in leaves) or b.number(0, 2):
            continue
        inner = value.opcode != "parameter" and value is not b.computation.root
        found = [some_sharding(b, b.one_of([mesh, other]), s.rank, inner and s.element.is_number) for s in leaves]
        value.sharding = TupleSharding(tuple(found)) if value.shape.is_tuple else found[0]


def program(
    choose: Choose, max_ops: int = 6, inner: Sequence[Sequence[Family]] = INNER, elements: Sequence[str] = ELEMENTS,
    outer: Sequence[Family] = CONTROL,
) -> Module:  # fmt: skip
    """A GLOBAL module with one or two parameters of these element types, some annotations, and a tuple (or array)
    result. The ops are of the families `inner`, by group, and of the group `outer`, which stands in the entry alone
    and may call computations with ops of `inner`.
    """
    module, mesh = Module("random"), some_mesh(Choices(choose))
    b = Builder(choose, module, Computation("main"), mesh, inner)
    # A second mesh over the same devices, now and then: other axes, another order.
    alike = [sizes for sizes in MESHES if math.prod(sizes) == mesh.size]
    other = some_mesh(b, alike) if b.number(0, 5) == 0 else mesh
    families = [*inner, outer]
    for number in range(b.number(1, 2)):
        dims = tuple(b.size() for _ in range(b.number(1, 3)))
        b.values.append(b.parameter(number, array(ELEMENT_TYPES[b.one_of(elements)], dims)))
    for _ in range(b.number(1, max_ops)):
        made = b.one_of(b.one_of(families))(b, b.one_of(b.values))
        if made.shape.num_elements <= LARGEST:
            b.values.append(made)
    _finish(b, mesh, other)
    return module


def _finish(b: Builder, mesh: Mesh, other: Mesh) -> None:
    entry = b.computation
    results = [b.values[-1], *(b.one_of(b.values) for _ in range(b.number(0, 2)))]
    entry.root = b.make("tuple", *results) if len(results) > 1 or b.flag() else results[0]
    _annotate(b, mesh, other)
    b.module.num_partitions = mesh.size
    b.module.add_computation(entry, entry=True)


def resharded(module: Module, choose: Choose) -> Module:
    """A copy of a program without manual regions, with other annotations on another mesh."""
    made, mesh = clone_module(module), some_mesh(Choices(choose))
    applied = {called for c in made for i in c if i.op.interface(Applies) for called in i.called()}
    b = Builder(choose, made, made.entry, mesh)
    for instruction in (i for c in made for i in c):
        instruction.sharding = None
    b.placed += (i for c in made if c not in applied for i in c)
    _annotate(b, mesh, mesh)
    made.num_partitions = mesh.size
    return made


@st.composite
def programs(draw: st.DrawFn, *arguments: Any, **options: Any) -> Module:
    """A `program` of hypothesis' choice."""
    return program(drawn(draw), *arguments, **options)


def inputs_of(module: Module) -> list[np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
    """Small whole numbers for every parameter, the same at each call."""
    rng = np.random.default_rng(7)
    found: list[np.ndarray[tuple[int, ...], np.dtype[np.generic]]] = []
    for p in module.entry.parameters:
        element = p.shape.element
        low = 0 if element.kind in (Kind.UNSIGNED, Kind.PRED) else -5
        values = rng.integers(low, 2 if element.kind is Kind.PRED else 6, p.shape.dims)
        found.append((values + 1j * (values % 3) if element.is_complex else values).astype(element.numpy))
    return found


ZEROS = (0.0, -0.0)
SPECIAL = (*ZEROS, np.nan, np.inf, -np.inf)


def special_inputs_of(module: Module) -> list[np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
    """The inputs of `inputs_of` with zeros of both signs among the floats, and NaN and infinities as well unless a
    comparison of a program's own orders elements: with NaN it is no order, and then results are any. There are none for
    transforms either: which halves of the numbers that they make of a NaN are NaN depends on the order of their work.

    Among integers are the least and the greatest of their type unless the program makes floats of integers, which would
    be too large for differences of them to mean anything.
    """
    orders = any(i.op.interface(Applies) and not isinstance(i.op, SelectAndScatter) and _compares(i)
                 for c in module for i in c)  # fmt: skip
    transforms = any(i.opcode == "fft" for c in module for i in c)
    floats = any(i.shape.is_array and not i.shape.element.is_integer and _reads_integers(i) for c in module for i in c)
    rng = np.random.default_rng(8)
    found: list[np.ndarray[tuple[int, ...], np.dtype[np.generic]]] = []
    for values in inputs_of(module):
        taken, is_integer = rng.random(values.shape) < 0.35, from_numpy(values.dtype).is_integer
        if values.dtype.kind in "bc" or (is_integer and floats):
            found.append(values)
            continue
        if is_integer:
            limits = np.array([iinfo(values.dtype).min, iinfo(values.dtype).max]).astype(values.dtype)
            found.append(np.where(taken, rng.choice(limits, values.shape), values))
            continue
        special = rng.choice(ZEROS if orders or transforms else SPECIAL, values.shape)
        found.append(np.where(taken, special, values.astype(np.float64)).astype(values.dtype))
    return found


def _reads_integers(instruction: Instruction) -> bool:
    return instruction.opcode == "convert" and instruction.operands[0].shape.element.is_integer


def _compares(instruction: Instruction) -> bool:
    return any(isinstance(i.attributes, CompareAttributes) for called in instruction.called() for i in called)

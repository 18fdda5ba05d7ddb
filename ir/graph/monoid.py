"""Reductions: recognizes the monoid of a called computation, and runs scalar computations on arrays.

Collectives, `reduce` and `scatter` call a computation as their combiner. A single binary op of the two parameters, or a
call of such a computation, is a known monoid, with an identity and a function of arrays; only then may partial results
of several devices be combined. All other combiners run through `elementwise_kernel`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import ml_dtypes
import numpy as np

from ..factors.sharding_rule import Monoid
from ..types.element_type import ElementType, Kind
from .extremes import MAXIMUM, MINIMUM, ArrayFold
from .interfaces import takes_arrays
from .op import Algebra, Compile, Kernel, NotEvaluable, Role

if TYPE_CHECKING:
    from .computation import Computation
    from .instruction import Instruction

MONOID_OPS: dict[Monoid, ArrayFold] = {
    Monoid.ADD: np.add,
    Monoid.MULTIPLY: np.multiply,
    Monoid.MAXIMUM: MAXIMUM,
    Monoid.MINIMUM: MINIMUM,
    Monoid.AND: np.bitwise_and,
    Monoid.OR: np.bitwise_or,
    Monoid.XOR: np.bitwise_xor,
}

_BY_OPCODE = {m.value: m for m in Monoid}

_SCALAR_OPS = frozenset((Role.PARAMETER, Role.CONSTANT, Role.TUPLE, Role.ELEMENT))


def reduction_monoid(computation: Computation) -> Monoid | None:
    """Returns the monoid of a computation that applies one binary op to its two parameters in any order, else None."""
    return common_monoid(computation) if computation.root.shape.is_array else None


def common_monoid(computation: Computation) -> Monoid | None:
    """Returns the monoid that combines each value of one side with its counterpart of the other, or None.

    The parameters are the values of one side, then those of the other. A call of a computation is what it calls.
    """
    root, parameters = computation.root, computation.parameters
    if root.op.role is Role.CALL and root.operands == parameters:
        return common_monoid(root.called()[0])
    values = root.operands if root.op.role is Role.TUPLE else (root,)
    if not values or len(parameters) != 2 * len(values):
        return None
    pairs = zip(parameters[: len(values)], parameters[len(values) :], strict=True)
    uses = [_in_own_type(v) for v in values]
    known = all(len(used) == 2 and set(used) == set(pair) for (_, used), pair in zip(uses, pairs, strict=True))
    opcodes = {opcode for opcode, _ in uses}
    found = _BY_OPCODE.get(opcodes.pop()) if known and len(opcodes) == 1 else None
    if found in (Monoid.MAXIMUM, Monoid.MINIMUM) and any(v.shape.element.is_complex for v in values):
        return None  # of two complex numbers with equal real parts XLA takes the first: not commutative
    return found


def _in_own_type(value: Instruction) -> tuple[str, list[Instruction]]:
    """Returns the opcode and the operands of an op. Of one that floats are converted for, and its result back, it
    returns those without conversions if these change nothing: compilers write sums of bf16 as sums in f32.
    """
    if value.op.algebra is Algebra.CONVERSION:
        (wide,), narrow = value.operands, value.shape.element
        given = [o.operands[0] for o in wide.operands if o.op.algebra is Algebra.CONVERSION]
        if len(given) == len(wide.operands) == 2 and all(g.shape.element is narrow for g in given):
            return (wide.opcode, given) if _rounds_once(wide.shape.element, narrow) else (value.opcode, value.operands)
    return value.opcode, value.operands


def _rounds_once(wide: ElementType, narrow: ElementType) -> bool:
    """Whether an operation in the wider float, rounded to the narrower one, is that of the narrower one: Figueroa,
    1995.
    """
    if not (wide.is_float and narrow.is_float and wide.numpy and narrow.numpy):
        return False
    more, few = (cast(Any, ml_dtypes.finfo(t.numpy)) for t in (wide, narrow))
    holds = more.maxexp >= few.maxexp and more.minexp <= few.minexp
    return wide is narrow or (holds and more.nmant + 1 >= 2 * (few.nmant + 1) + 2)


def identity(monoid: Monoid, element: ElementType) -> np.generic[Any]:
    """Returns the monoid's identity as a numpy scalar of the element type (a byte for single bits).

    Raises NotEvaluable for maximum and minimum of complex numbers.
    """
    dtype = element.numpy or np.dtype(np.int8)
    one = dtype.type
    match monoid:
        case Monoid.ADD | Monoid.OR | Monoid.XOR:
            return one(0)
        case Monoid.MULTIPLY:
            return one(1)
        case Monoid.AND:
            return one(True) if element.kind is Kind.PRED else one(_all_ones(element))
        case Monoid.MAXIMUM | Monoid.MINIMUM:
            return _extreme(element, dtype, largest=monoid is Monoid.MINIMUM)


def exact_identity(monoid: Monoid, element: ElementType) -> np.generic[Any]:
    """Returns the bit-preserving identity: -0.0 for float sums, since adding 0.0 would turn -0.0 into 0.0."""
    found: Any = identity(monoid, element)
    return -found if monoid is Monoid.ADD and (element.is_float or element.is_complex) else found


def choice_monoid(element: ElementType) -> Monoid:
    """Returns a monoid that selects one device's value: combining it with `choice_identity` preserves every bit."""
    if element.kind is Kind.PRED:
        return Monoid.OR
    return Monoid.MAXIMUM if element.name == "f8e8m0fnu" else Monoid.ADD  # f8e8m0fnu has no zero, and no sign


def choice_identity(element: ElementType) -> np.generic[Any]:
    """Returns the bit-preserving identity of `choice_monoid`."""
    return exact_identity(choice_monoid(element), element)


def _all_ones(element: ElementType) -> int:
    return -1 if element.kind is Kind.SIGNED else 2**element.bits - 1


def _extreme(element: ElementType, dtype: np.dtype[Any], largest: bool) -> np.generic[Any]:
    """Returns the greatest or least value: an infinity where the type has one."""
    if element.kind is Kind.PRED:
        return dtype.type(largest)
    if element.is_integer:
        return dtype.type(element.greatest if largest else element.least)
    if element.is_float:
        infinite = np.asarray(np.inf if largest else -np.inf).astype(dtype)
        if np.isinf(infinite.astype(np.float64)):
            return dtype.type(infinite)
        finite = cast(Any, ml_dtypes.finfo(dtype))
        return dtype.type(finite.max if largest else finite.min)
    raise NotEvaluable(f"{element} numbers have no order")


def elementwise_kernel(computation: Computation, compile: Compile) -> Kernel:
    """Returns a function that applies a computation on scalars element by element to arrays, which broadcast.

    Its results have their common shape: one array, or a tuple if the root is a tuple. Runs the computation's own
    kernel if all its ops are element-wise; otherwise calls it once per element.
    """
    kernel = compile(computation)
    is_tuple = computation.root.shape.is_tuple
    if not _is_scalar_program(computation):
        kernel = _per_element(kernel, computation)

    def run(*arrays: Any) -> Any:
        shape = common_shape(arrays)
        result = kernel(*arrays)
        if is_tuple:
            return tuple(_of_shape(r, shape) for r in result)
        return _of_shape(result, shape)

    return run


def common_shape(arrays: Sequence[Any]) -> tuple[int, ...]:
    """Returns the shape that arrays broadcast to."""
    first, *others = (a.shape for a in arrays)
    return first if all(shape == first for shape in others) else np.broadcast_shapes(first, *others)


def _of_shape(x: Any, shape: tuple[int, ...]) -> Any:
    """Returns an array of this shape: a root that does not depend on the parameters (a constant) is still a scalar."""
    return x if x.shape == shape else np.broadcast_to(x, shape)


def maps_scalars(i: Instruction) -> bool:
    """Whether the kernel of an instruction on scalars takes arrays of any shape as well, element by element."""
    return takes_arrays(i.op, i.call) or (i.op.role is Role.CALL and all(map(_is_scalar_program, i.called())))


def _is_scalar_program(computation: Computation) -> bool:
    return all(i.op.role in _SCALAR_OPS or maps_scalars(i) for i in computation)


def _per_element(kernel: Kernel, computation: Computation) -> Kernel:
    leaves = [s.element.numpy for s in computation.root.shape.leaves()]
    is_tuple = computation.root.shape.is_tuple

    def run(*arrays: Any) -> Any:
        shape = common_shape(arrays)
        whole = [_of_shape(a, shape) for a in arrays]
        values = [kernel(*(np.asarray(a[place]) for a in whole)) for place in np.ndindex(*shape)]
        parts = zip(*(v if is_tuple else (v,) for v in values), strict=True)  # of the types that the kernel gives
        stacked = [np.stack(part).reshape(shape) for part in parts] or [np.empty(shape, dtype) for dtype in leaves]
        return tuple(stacked) if is_tuple else stacked[0]

    return run

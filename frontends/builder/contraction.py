"""Contractions: einsum, and the products that are special cases of it. Results are instructions.

Two arrays at a time become one `dot`. Labels that only one of them has, and that nothing needs later, are summed first.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.diagnostics import fail
from ...ir.factors.sharding_rule import Monoid
from ...ir.graph.instruction import Instruction
from ...ir.types.element_type import ElementType
from ...ir.types.shape import array
from . import emission as e
from .tracing import emit
from .values import ArrayLike, same_types

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def einsum(what: str, subscripts: str, operands: Sequence[ArrayLike], element: ElementType | None) -> Instruction:
    """Returns the sum of products that `subscripts` names: `"bsm,mhd->bshd"`. Raises CompileError."""
    arrays = same_types(what, *operands)
    inputs, output = _labels(what, subscripts, arrays)
    sizes = _sizes(what, inputs, arrays)
    if missing := sorted(set(output) - set(sizes)):
        fail(f"{what}: '{missing[0]}' is in the result of '{subscripts}', but in no operand")
    x, labels = arrays[0], inputs[0]
    if len(arrays) == 1:
        x, labels = _summed(x, labels, output)
        x = e.convert(x, element) if element is not None else x
    for number, (y, others) in enumerate(zip(arrays[1:], inputs[1:], strict=True), 2):
        x, labels = _product(x, labels, y, others, output + "".join(inputs[number:]), element)
    return e.transpose(x, [labels.index(label) for label in output])


def _labels(what: str, subscripts: str, arrays: Sequence[Instruction]) -> tuple[list[str], str]:
    """Returns one label per dimension of each operand and of the result. Letters replace the ellipses."""
    text = subscripts.replace(" ", "")
    left, arrow, output = text.partition("->")
    inputs = left.split(",")
    if len(inputs) != len(arrays):
        fail(f"{what}: '{subscripts}' is for {len(inputs)} operands, {len(arrays)} are given")
    if not arrow:  # numpy's implicit form: labels that occur once, in alphabetical order
        output = "..." * ("..." in left) + "".join(sorted(c for c in set(left) - {",", "."} if left.count(c) == 1))
    count = max((a.shape.rank - len(t) + 3 for t, a in zip(inputs, arrays) if "..." in t), default=0)
    free = [c for c in _LETTERS if c not in text]
    rest = "".join(free[: max(count, 0)])
    found: list[str] = []
    for part, x in zip(inputs, arrays, strict=True):
        own = x.shape.rank - len(part) + 3 if "..." in part else 0
        labels = part.replace("...", rest[len(rest) - own :] if own > 0 else "", 1)
        if not all(c in _LETTERS for c in labels):
            fail(f"{what}: '{part}' in '{subscripts}' must consist of letters")
        if len(labels) != x.shape.rank:
            fail(f"{what}: '{part}' in '{subscripts}' does not fit {e.shown(x)}")
        if len(set(labels)) != len(labels):
            fail(f"{what}: a label occurs twice in '{part}'", help="take diagonals by where(), with arange")
        found.append(labels)
    output = output.replace("...", rest, 1)
    if len(set(output)) != len(output):
        fail(f"{what}: a label occurs twice in the result of '{subscripts}'")
    return found, output


def _sizes(what: str, inputs: Sequence[str], arrays: Sequence[Instruction]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for labels, x in zip(inputs, arrays, strict=True):
        for label, size in zip(labels, x.shape.dims, strict=True):
            if sizes.setdefault(label, size) != size:
                shapes = ", ".join(f"{own} is {e.shown(a)}" for own, a in zip(inputs, arrays, strict=True))
                fail(f"{what}: '{label}' has size {sizes[label]} and size {size}: {shapes}")
    return sizes


def _summed(x: Instruction, labels: str, needed: str) -> tuple[Instruction, str]:
    """Sums over the labels that are not needed."""
    axes = tuple(d for d, label in enumerate(labels) if label not in needed)
    kept = "".join(label for label in labels if label in needed)
    return (e.reduce(x, Monoid.ADD, axes) if axes else x), kept


def _product(
    x: Instruction, xs: str, y: Instruction, ys: str, needed: str, element: ElementType | None
) -> tuple[Instruction, str]:
    """Returns the product of two arrays, summed over the labels of both that are not needed, and its labels."""
    x, xs = _summed(x, xs, needed + ys)
    y, ys = _summed(y, ys, needed + xs)
    batch = [label for label in xs if label in ys and label in needed]
    inner = [label for label in xs if label in ys and label not in needed]
    labels = "".join(batch) + "".join(c for s in (xs, ys) for c in s if c not in batch and c not in inner)
    size = dict(zip(xs + ys, x.shape.dims + y.shape.dims, strict=True))
    made = emit(
        "dot", x, y, shape=array(element or x.shape.element, tuple(size[label] for label in labels)),
        lhs_batch_dims=[xs.index(c) for c in batch], rhs_batch_dims=[ys.index(c) for c in batch],
        lhs_contracting_dims=[xs.index(c) for c in inner], rhs_contracting_dims=[ys.index(c) for c in inner],
    )  # fmt: skip
    return made, labels


def matmul(x: ArrayLike, y: ArrayLike, element: ElementType | None = None) -> Instruction:
    """Returns numpy's product of matrices, or stacks of them, whose other dimensions are repeated where they are 1."""
    a, b = same_types("matmul", x, y)
    if not a.shape.rank or not b.shape.rank:
        fail("matmul takes arrays of one dimension or more", help="write x * y for numbers")
    if a.shape.rank > 2 and b.shape.rank > 2:  # einsum does not repeat, numpy's product does
        dims = e.broadcast_dims("matmul", a.shape.dims[:-2], b.shape.dims[:-2])
        a, b = (e.broadcast_to(z, (*dims, *z.shape.dims[-2:])) for z in (a, b))
    inner = b.shape.dims[-2:][0]
    if a.shape.dims[-1] != inner:
        fail(f"matmul: {e.shown(a)} and {e.shown(b)} do not fit: {a.shape.dims[-1]} columns, {inner} rows")
    stack = _LETTERS[: max(a.shape.rank, b.shape.rank, 2) - 2]
    left = stack[len(stack) - max(a.shape.rank - 2, 0) :] + ("yz" if a.shape.rank > 1 else "z")
    right = stack[len(stack) - max(b.shape.rank - 2, 0) :] + ("zx" if b.shape.rank > 1 else "z")
    out = stack + "y" * (a.shape.rank > 1) + "x" * (b.shape.rank > 1)
    return _outer(a, left, b, right, out, element)


def dot(x: ArrayLike, y: ArrayLike, element: ElementType | None = None) -> Instruction:
    """Returns numpy's `dot`: the sum over the last dimension of x and the one before the last of y."""
    a, b = same_types("dot", x, y)
    if not a.shape.rank or not b.shape.rank:
        fail("dot takes arrays of one dimension or more", help="write x * y for numbers")
    left, right = _LETTERS[: a.shape.rank - 1] + "z", _LETTERS[a.shape.rank : a.shape.rank + b.shape.rank - 1]
    at = max(b.shape.rank - 2, 0)
    if a.shape.dims[-1] != b.shape.dims[at]:
        fail(f"dot: {e.shown(a)} and {e.shown(b)} do not fit: sums over {a.shape.dims[-1]} and {b.shape.dims[at]}")
    return _outer(a, left, b, right[:at] + "z" + right[at:], left[:-1] + right, element)


def _outer(
    a: Instruction, left: str, b: Instruction, right: str, out: str, element: ElementType | None
) -> Instruction:
    made, labels = _product(a, left, b, right, out, element)
    return e.transpose(made, [labels.index(label) for label in out])

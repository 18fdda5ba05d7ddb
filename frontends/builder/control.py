"""Loops and branches over trees of arrays, as in `jax.lax`: the functions are called once, when the program is written.

Functions may use arrays from outside. A body gets a parameter for each of those; when it is closed, its parameters
become the elements of the one tuple that HLO passes to loops and branches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from ...ir.diagnostics import fail
from ...ir.graph.instruction import Instruction
from ...ir.graph.op import Role
from ...ir.ops.structure import ConstantAttributes
from ...ir.types.element_type import PRED, S32
from ...ir.types.shape import Shape, tuple_shape
from . import emission as e
from . import indexing
from .array import Array, wrap
from .tracing import BuilderScope, current, emit, entered, public, scalar, stamp
from .trees import difference, flatten, mapped, paths, unflatten
from .values import ArrayLike, lifted


class _Body(BuilderScope):
    """A computation under construction, with a parameter for each element of its state and for each captured value."""

    def capture(self, outer: Instruction) -> Instruction:
        if outer.op.role is Role.CONSTANT and outer.shape.is_scalar:
            return emit("constant", literal=outer.attributes_as(ConstantAttributes).literal)
        return self.parameter(outer.shape, outer.name)

    def parameter(self, shape: Shape, name: str) -> Instruction:
        made = super().parameter(shape.without_layout(), name)
        stamp(made)
        return made

    @property
    def outside(self) -> list[Instruction]:
        """The values of the parent that are parameters here."""
        return [outer for outer, inner in self.captured.items() if inner.op.role is Role.PARAMETER]

    def held(self, outside: Sequence[Instruction]) -> list[Instruction]:
        """Returns values of the parent as values of this body."""
        assert self.parent is not None
        return [self.own(outer, self.parent) for outer in outside]

    def close(self, root: Instruction, parameters: Sequence[Instruction]) -> None:
        """Sets the root, and makes the parameters elements of a single one, in this order."""
        body = self.computation
        body.root = root
        state, parts = tuple_shape(tuple(p.shape for p in parameters)), dict[Instruction, Instruction]()
        with body.at(before=next(iter(body))):
            whole = body.build("parameter", shape=state, name="state", number=0)
            for number, old in enumerate(parameters):
                if old.users or old is body.root:
                    part = parts[old] = body.build("get-tuple-element", whole, index=number, like=old)
                    body.replace_all_uses(old, part)
        body.remove_all(parameters)
        for old, part in parts.items():
            body.rename(part, old.name)


def _body(what: str, part: str) -> _Body:
    outer = current()
    return _Body(outer.trace, outer.trace.module.new_computation(f"{what}.{part}"), outer, f"the {part} of {what}")


def _parameters(body: _Body, tree: Any, name: str = "") -> tuple[Any, list[Instruction]]:
    """Returns a tree of arrays of a body, and its new parameters, for a tree of instructions of the parent."""
    made: list[Instruction] = []

    def parameter(path: str, leaf: Instruction) -> Array:
        name = ".".join(part for part in path.replace("'", "").replace("]", "").split("[") if part)
        made.append(body.parameter(leaf.shape, name if name.isidentifier() else "x"))
        return wrap(made[-1])

    with entered(body):
        return mapped(tree, parameter, name), made


def _lifted(what: str, tree: Any, name: str = "") -> Any:
    """Returns a tree with instructions in the place of array-likes."""
    return mapped(tree, lambda path, leaf: lifted(f"{what} {path}".rstrip(), leaf), name)


def _results(what: str, body: _Body, found: Any, like: Any, meaning: str) -> list[Instruction]:
    """Returns the results of a body, which must be like a tree of instructions. Raises CompileError."""
    if differs := difference(like, found):
        fail(f"{what}: {body.title} returns another structure than {meaning}: {differs}")
    leaves: list[Instruction] = []
    with entered(body):
        for (path, old), leaf in zip(paths(like), flatten(found), strict=True):
            new = lifted(f"{what}: the result{path and ' ' + path}", leaf, old.shape.element)
            if not new.shape.compatible(old.shape):
                fail(f"{what}: {body.title} returns {e.shown(new)}{path and f' for {path}'}, {meaning} has "
                     f"{e.shown(old)}", help="convert it with astype, or reshape it")  # fmt: skip
            leaves.append(new)
    return leaves


def _loop(
    body: _Body, state: Sequence[Instruction], results: Sequence[Instruction],
    test: _Body, tested: Sequence[Instruction], holds: Instruction, initial: Sequence[Instruction],
) -> list[Array]:  # fmt: skip
    """Emits a while with these traced bodies and returns its state. `state` and `tested` are their parameters."""
    outside = list(dict.fromkeys((*body.outside, *test.outside)))
    with entered(body):
        held = body.held(outside)
        body.close(emit("tuple", *results, *held), [*state, *held])
    with entered(test):
        test.close(holds, [*tested, *test.held(outside)])
    made = emit("while", emit("tuple", *initial, *outside), condition=test.computation, body=body.computation)
    return [wrap(emit("get-tuple-element", made, index=n)) for n in range(len(initial))]


@public
def while_loop(condition: Callable[[Any], Any], body: Callable[[Any], Any], initial: Any) -> Any:
    """Returns the state, a tree of arrays, after as many runs of `body` as `condition` holds for the state before.

    Both functions take the state; `condition` returns pred[], `body` a state of the same structure, shapes and types.
    """
    return _while("while_loop", condition, body, initial)


def _while(what: str, condition: Callable[[Any], Any], body: Callable[[Any], Any], initial: Any) -> Any:
    first = _lifted(what, initial)
    inside, test = _body(what, "body"), _body(what, "condition")
    argument, state = _parameters(inside, first)
    with entered(inside):
        found = body(argument)
    results = _results(what, inside, found, first, "the initial state")
    argument, tested = _parameters(test, first)
    with entered(test):
        holds = lifted(what, condition(argument))
    if holds.shape.element is not PRED or holds.shape.rank:
        fail(f"{what}: the condition must be pred[], it is {e.shown(holds)}")
    return unflatten(first, _loop(inside, state, results, test, tested, holds, flatten(first)))


@public
def fori_loop(lower: ArrayLike, upper: ArrayLike, body: Callable[[Array, Any], Any], initial: Any) -> Any:
    """Returns the state after `body(i, state)` has run for i = lower, .., upper - 1. The bounds may be computed."""
    end = wrap(lifted("fori_loop", upper, S32))
    start = wrap(lifted("fori_loop", lower, end.element))
    return _while("fori_loop", lambda s: s[0] < end, lambda s: (s[0] + 1, body(s[0], s[1])), (start, initial))[1]


@public
def scan(
    body: Callable[[Any, Any], tuple[Any, Any]], initial: Any, xs: Any = None, length: int | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """Returns the last carry, and the results of all steps stacked along a new first dimension.

    `body(carry, x)` returns a carry of the same structure, shapes and types, and a tree of results, which may be None.
    Step i takes the elements i of the first dimension of `xs`; without `xs` there are `length` steps. With `reverse`
    steps run from the last to the first.
    """
    arrays = mapped(_lifted("scan", xs), lambda _, x: wrap(x))
    carry = _lifted("scan", initial)
    count, zero = _length(arrays, length), scalar(0, S32)
    inside, test = _body("scan", "body"), _body("scan", "condition")
    argument, state = _parameters(inside, (zero, carry), "carry")
    with entered(inside):
        step = lifted("scan", argument[0])
        place = emit("subtract", scalar(count - 1, S32), step) if reverse else step
        found = body(argument[1], mapped(arrays, lambda _, x: wrap(_row(lifted("scan", x), place))))
    if not isinstance(found, tuple) or len(found) != 2:  # pyright: ignore[reportUnnecessaryIsInstance]
        fail("scan: the body must return a pair: the carry, and the results of the step or None")
    results = _results("scan", inside, found[0], carry, "the initial carry")
    with entered(inside):
        outputs = [lifted("scan", y) for y in flatten(found[1])]
        stacks = [inside.parameter(y.shape.with_dims((count, *y.shape.dims)), "results") for y in outputs]
        filled = [_with_row(s, y, place) for s, y in zip(stacks, outputs, strict=True)]
        following = emit("add", step, scalar(1, S32))
    initials = [zero, *flatten(carry), *(e.full(0, s.shape.dims, s.shape.element) for s in stacks)]
    _, tested = _parameters(test, initials)
    with entered(test):
        holds = e.compare(tested[0], scalar(count, S32), "LT")
    made = _loop(inside, [*state, *stacks], [following, *results, *filled], test, tested, holds, initials)
    return unflatten(carry, made[1 : 1 + len(results)]), unflatten(found[1], made[1 + len(results) :])


def _length(arrays: Any, length: int | None) -> int:
    sizes: dict[int, str] = {}
    for path, x in cast("list[tuple[str, Array]]", list(paths(arrays, "xs"))):
        if not x.ndim:
            fail(f"scan: {path} is a scalar, it has no first dimension to go along")
        sizes.setdefault(len(x), f"{path} is {e.shown(x.instruction)}")
    if length is not None:
        sizes.setdefault(length, f"length is {length}")
    if len(sizes) != 1:
        fail("scan: how many steps? " + (", ".join(sizes.values()) or "there are no xs"), help="pass length=..")
    return next(iter(sizes))


def _row(x: Instruction, place: Instruction) -> Instruction:
    count, *rest = x.shape.dims
    dims = tuple(rest)
    if not count:  # no step will run
        return e.full(0, dims, x.shape.element)
    return e.reshape(indexing.dynamic_slice(x, [place, *[None] * len(dims)], (1, *dims)), dims)


def _with_row(x: Instruction, row: Instruction, place: Instruction) -> Instruction:
    if not x.shape.dims[0]:
        return x
    starts = indexing.same_starts([place, *[None] * row.shape.rank])
    return emit("dynamic-update-slice", x, e.reshape(row, (1, *row.shape.dims)), *starts)


@public
def cond(predicate: ArrayLike, then: Callable[..., Any], otherwise: Callable[..., Any], *operands: Any) -> Any:
    """Returns `then(*operands)` if the predicate, a pred[], holds, else `otherwise(*operands)`. Only one of them runs.
    """
    chosen = lifted("cond", predicate)
    if chosen.shape.element is not PRED or chosen.shape.rank:
        fail(f"cond: the predicate must be pred[], it is {e.shown(chosen)}", help="compare it, for example c != 0")
    return _branches("cond", chosen, {"then": then, "otherwise": otherwise}, operands)


@public
def switch(index: ArrayLike, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """Returns `branches[index](*operands)`, with the index clamped to the branches. Only one of them runs."""
    chosen = lifted("switch", index, S32)
    if not chosen.shape.element.is_integer or chosen.shape.rank or not branches:
        fail(f"switch takes an integer scalar and branches, the index is {e.shown(chosen)}")
    chosen = emit("clamp", scalar(0, S32), e.convert(chosen, S32), scalar(len(branches) - 1, S32))
    return _branches("switch", chosen, {f"branch {n}": branch for n, branch in enumerate(branches)}, operands)


def _branches(
    what: str, chosen: Instruction, functions: dict[str, Callable[..., Any]], operands: tuple[Any, ...]
) -> Any:
    given = _lifted(what, operands)
    bodies: list[_Body] = []
    values: list[Instruction] = []
    like: Any = None
    for name, function in functions.items():
        body = _body(what, name.replace(" ", "."))
        arguments, state = _parameters(body, given)
        with entered(body):
            found = function(*arguments)
            like = like if bodies else _lifted(what, found)
        results = _results(what, body, found, like, "the first branch")
        outside = body.outside
        with entered(body):
            body.close(emit("tuple", *results), [*state, *body.held(outside)])
        values.append(emit("tuple", *flatten(given), *outside))
        bodies.append(body)
    computations = [body.computation for body in bodies]
    two: dict[str, Any] = {"true_computation": computations[0], "false_computation": computations[-1]}
    called: dict[str, Any] = two if chosen.shape.element is PRED else {"branch_computations": computations}
    made = emit("conditional", chosen, *values, **called)
    return unflatten(like, [wrap(emit("get-tuple-element", made, index=n)) for n in range(len(flatten(like)))])

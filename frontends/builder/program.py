"""Programs: from a Python function, or step by step, to a `Module`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from ...ir.diagnostics import fail
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.graph.op import Role
from ...ir.graph.python_values import shape_of
from ...ir.types.shape import Shape, array
from .array import Array, wrap
from .emission import DType, dims_of, element_of
from .placement import Placement, sharding_of
from .tracing import BuilderScope, ProgramTrace, current, emit, entered, named_scope, public, stamp
from .trees import flatten, mapped
from .values import lifted


@dataclass(frozen=True)
class Spec:
    """The shape, the element type and, if given, the sharding of an argument: `Spec((64, 32), "bf16", ("x", None))`.

    The sharding is that of `shard`.
    """

    shape: int | Iterable[int]
    dtype: DType = "f32"
    sharding: Placement | None = None


class Program:
    """A program under construction, for building it step by step.

        with Program("layer") as program:
            x = parameter("x", (64, 32))
            w = parameter("w", (32, 16))
            program.returns(tanh(x @ w))
        module = program.module

    Within the block functions append to the program. `module` is finished when the block ends.
    """

    def __init__(self, name: str = "program") -> None:
        self.module = Module(re.sub(r"[^\w.-]", "_", name) or "program")
        self.scope = BuilderScope(ProgramTrace(self.module), self.module.new_computation("main", entry=True), None,
                           f"the program {self.module.name}")
        self._open = ExitStack()
        self._returned = False

    def __enter__(self) -> Program:
        self._open.enter_context(entered(self.scope))
        self._open.enter_context(named_scope(self.module.name))
        return self

    @public
    def __exit__(self, kind: object, *error: object) -> None:
        self._open.close()
        if kind is None and not self._returned:
            fail(f"the program {self.module.name} has no result", help="call returns() within the block")

    @public
    def returns(self, tree: Any) -> None:
        """Makes a tree of arrays the result. Entries of dicts give their names to instructions. Raises CompileError for
        a second call.
        """
        if self._returned:
            fail("the program has returned already")
        self._returned = True
        computation = self.scope.computation
        names = [name for name, _ in _named_leaves(tree)]
        leaves = [lifted("the result", leaf) for leaf in flatten(tree)]
        for name, leaf in zip(names, leaves, strict=True):
            if name and leaf.op.role is not Role.PARAMETER:
                computation.rename(leaf, name)
        single = len(leaves) == 1 and not isinstance(tree, dict | list | tuple)
        computation.root = leaves[0] if single else emit("tuple", *leaves)


def _named_leaves(tree: Any) -> list[tuple[str, Any]]:
    """Returns the leaves, each with an instruction name made of the keys of dicts; empty without any."""
    found: list[tuple[str, Any]] = []
    mapped(tree, lambda path, leaf: found.append((_instruction_name(path[key:]) if (key := path.find("['")) >= 0
                                                  else "", leaf)))
    return found


def _instruction_name(path: str) -> str:
    """Returns a path as the name of an instruction: `params['w'][0]` becomes `params.w.0`."""
    words = re.findall(r"[\w-]+", path)
    name = ".".join(words) or "p"
    return name if re.match(r"[A-Za-z_]", name) else f"_{name}"


@public
def trace(function: Callable[..., Any], /, *specs: Any, **named: Any) -> Module:
    """Calls a function once on traced arrays and returns the program that it describes, at stage GLOBAL.

        module = trace(layer, "f32[64,32]", {"w": Spec((32, 16), "bf16"), "b": "bf16[16]"})

    Each argument is a tree (dicts, lists, tuples) of specs: text such as `"f32[64,32]"`, a `Spec`, or anything with
    `shape` and `dtype`, such as a numpy array. The parameters of the program are its leaves in order, dicts by sorted
    keys, named by their paths: `params['w']`. The results of the function are a tree of arrays. `flatten` gives the
    inputs, and `unflatten` the results, in the order of the program. Raises CompileError at the line of a wrong call.
    """
    name = getattr(function, "__name__", "program")
    with Program("program" if name == "<lambda>" else name) as program:
        positional, keywords = _arguments(function, specs, named)
        program.returns(function(*positional, **keywords))
    return program.module


def _arguments(
    function: Callable[..., Any], specs: tuple[Any, ...], named: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Returns arrays for specs, named as the function names its arguments."""
    try:
        bound = inspect.signature(function).bind(*specs, **named)
    except (TypeError, ValueError) as error:
        fail(f"the specs do not fit the function: {error}")
    names: list[str] = []
    for key, value in bound.arguments.items():
        if bound.signature.parameters[key].kind is inspect.Parameter.VAR_POSITIONAL:
            names += [f"{key}[{n}]" for n in range(len(value))]
        elif key not in named and bound.signature.parameters[key].kind is not inspect.Parameter.VAR_KEYWORD:
            names.append(key)
    positional = [mapped(spec, _parameter, name) for name, spec in zip(names, specs, strict=True)]
    return positional, {key: mapped(spec, _parameter, key) for key, spec in named.items()}


def _parameter(path: str, spec: Any) -> Array:
    if isinstance(spec, str):
        shape = shape_of(spec)
        if not shape.is_array:
            fail(f"{path}: {spec} is no array", help="write a tuple of specs")
        return _new_parameter(path, shape, None)
    if not hasattr(spec, "shape") or not hasattr(spec, "dtype"):
        fail(f"{path}: {spec!r} is no spec", help="write 'f32[4,8]', Spec((4, 8), 'f32'), or an array; "
             "functools.partial fixes arguments that are no arrays")
    placement = spec.sharding if isinstance(spec, Spec) else None
    return _new_parameter(path, array(element_of(spec.dtype), dims_of(spec.shape)), placement)


@public
def parameter(
    name: str, shape: int | Iterable[int], dtype: DType = "f32", sharding: Placement | None = None
) -> Array:
    """Returns the next parameter of the program. The sharding is that of `shard`. Raises CompileError in the body of a
    loop, a branch or a manual region.
    """
    return _new_parameter(name, array(element_of(dtype), dims_of(shape)), sharding)


def _new_parameter(path: str, shape: Shape, placement: Placement | None) -> Array:
    scope = current()
    if scope.parent is not None:
        fail(f"{scope.title} has no parameters of its own", help="make it before, and use it there")
    made = scope.parameter(shape, _instruction_name(path))
    stamp(made, path)
    if placement is not None:
        made.sharding = sharding_of(path, made, placement)
    return wrap(made)


@public
def op(opcode: str, *operands: Any, shape: str | None = None, **attributes: Any) -> Any:
    """Emits any HLO op, in particular those without a function here; returns a tuple of arrays if it has several
    results.

        op("convolution", x, w, window=[{"size": 3, "low": 1, "high": 1}], dim_labels="b0f_0io->b0f")

    Attributes and shapes are those of `Computation.build`. Raises CompileError.
    """
    made = emit(opcode, *(lifted(opcode, x) for x in operands), shape=shape_of(shape) if shape else None, **attributes)
    return parts_of(made)


def parts_of(made: Instruction) -> Any:
    """Returns an instruction as an array, or a tuple-shaped one as the tuple of its parts."""
    if not made.shape.is_tuple:
        return wrap(made)
    return tuple(parts_of(emit("get-tuple-element", made, index=n)) for n in range(len(made.shape.elements)))

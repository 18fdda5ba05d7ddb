"""Public classes: their values go through pickle and copy, and all that they offer is described."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from types import FunctionType
from typing import Any

import hloom
import hloom.jax
import hloom.runtime
import pytest
from hloom import builder
from support.command_line import NAMED

PACKAGES = (hloom, hloom.jax, hloom.runtime, builder)
# Classes without values of their own, and those whose values are functions, or belong to one compilation by JAX.
NO_VALUES = {
    "Op", "Attributes", "Pass", "Machine", "KernelProvider", "LocalOp", "Array", "Hook", "Compiled", "Lowered",
    "Program", "Memory", "Movement",
    "Transformed", "Plan", "JaxPlan", "Sweep",
}  # fmt: skip
Member = (property, cached_property, classmethod, staticmethod, FunctionType)
WAYS: tuple[Callable[[Any], Any], ...] = (copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value)))


def _classes() -> dict[str, type]:
    found = {n: v for p in PACKAGES for n in getattr(p, "__all__", dir(p)) if inspect.isclass(v := getattr(p, n))}
    return {name: kind for name, kind in found.items() if name not in ("Any", "TYPE_CHECKING")}


def _emitted(local: hloom.LocalOp) -> hloom.Instruction:
    return local.emit()


@cache
def _values() -> dict[str, Any]:
    """A value of each public class and of what public functions return, by the name of its class."""
    module = hloom.load(NAMED)
    local = hloom.partition(module)
    memory, root, found = hloom.live_memory(local), module.entry.root, hloom.collectives(local)
    with pytest.raises(hloom.CompileError) as raised:
        hloom.parse("HloModule m\nx")
    refusal = raised.value
    mesh = hloom.Mesh.of(x=2)
    sharding, shape = hloom.Sharding.over(mesh, "x"), hloom.parse_shape("f32[4]")
    values = (
        module, local, local.certificate, found[0], hloom.contractions(local)[0], memory, memory.buffers[0], root,
        root.call, module.stage, module.entry, hloom.timeline(local, "h100"), hloom.forecast(module, "h100"),
        hloom.page(module), hloom.pipeline_schedule("1f1b", 2, 3),
        hloom.prove(module, local, all_inputs=True), hloom.relate(module, local), hloom.Transfer(1, 2), mesh, sharding,
        shape, hloom.P("add", hloom.P("dot")), hloom.reshard_plan(sharding, sharding, shape), hloom.local_forms(),
        hloom.LocalForm(_emitted), hloom.PassContext(), refusal,
        refusal.diagnostics[0], refusal.diagnostics[0].severity, hloom.Algebra.MOVE, hloom.Along(0), hloom.RowMajor(),
        hloom.InternalError("it", "dce"), hloom.ShapeError("it", help="that"),
        hloom.RankFailed("it", 1, "host", 70, True), hloom.runtime.NumpyKernels(),
        hloom.Snapshot(module, (), None, "cpu"), builder.Spec(4), builder.trace(builder.abs, "f32[4]"),
        hloom.PIPELINE, hloom.explain(module, "y"), hloom.parse_machine("tpu-v4"),
        hloom.NativeMemory(1, 1, 3), hloom.Trained(1, [], []), hloom.compile(module, backend="reference"),
    )  # fmt: skip
    return {type(value).__name__: value for value in values}


def test_there_is_a_value_of_each_class() -> None:
    assert _classes().keys() - _values().keys() <= NO_VALUES


def _shown(value: Any) -> Any:
    """What a copy has in common with a value, where values are not equal by their fields."""
    if isinstance(value, hloom.Module):
        return value.to_text()
    if isinstance(value, hloom.Relations):
        flow = value.flow
        return value.rows(), value.counts(), [str(p) for p in flow.results()], len(flow.made_from(flow.inputs))
    if isinstance(value, hloom.CompileError | hloom.Diagnostic):
        return str(value)
    if isinstance(value, BaseException):
        return str(value), vars(value)
    return repr(value)


@pytest.mark.parametrize("name", sorted(_values()))
def test_values_go_through_pickle_and_copy(name: str) -> None:
    value = _values()[name]
    for through in WAYS:
        copied = through(value)
        assert type(copied) is type(value)
        if not isinstance(value, hloom.runtime.NumpyKernels | hloom.P):
            assert copied == value or _shown(copied) == _shown(value)


def _described() -> Iterator[tuple[str, Any]]:
    values: dict[str, type] = {name: type(value) for name, value in _values().items() if name != "tuple"}
    for name, kind in (_classes() | values).items():
        yield name, kind
        members = [member for member, value in vars(kind).items() if isinstance(value, Member)]
        yield from ((f"{name}.{member}", getattr(kind, member)) for member in members if not member.startswith("_"))
    for package in PACKAGES:
        functions = [name for name in dir(package) if isinstance(getattr(package, name), FunctionType)]
        yield from ((name, getattr(package, name)) for name in functions if not name.startswith("_"))


def test_all_that_is_public_is_described() -> None:
    assert sorted({name for name, value in _described() if not inspect.getdoc(value)}) == []

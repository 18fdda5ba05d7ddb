"""Every public function refuses arguments of a wrong type with words that say what to give."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import hloom
import hloom.jax
import hloom.runtime
import pytest
from support.command_line import EXAMPLES, NAMED

# Functions without arguments, and those that check what is no type.
OTHERS = {"local_forms", "register", "jit", "filter_jit", "nnx_jit", "from_jax", "pipeline"}
PACKAGES = (hloom, hloom.jax, hloom.runtime)


def _functions() -> Iterator[Callable[..., Any]]:
    for package in PACKAGES:
        for name in package.__all__:
            value = getattr(package, name)
            if inspect.isfunction(value) and name not in OTHERS and value is not hloom.jax.plan:
                yield value


@pytest.mark.parametrize("function", list(_functions()), ids=lambda f: f.__name__)
def test_each_argument_that_is_no_object_of_its_type(function: Callable[..., Any]) -> None:
    parameters = inspect.signature(function).parameters.values()
    first, *others = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    with pytest.raises(TypeError, match=f"^{function.__name__}: {first} must be "):
        function(**{first: object()}, **dict.fromkeys(others))


MODULE = hloom.load(NAMED)
api: Any = hloom  # what type checkers refuse


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: api.partition("a.hlo"), "module must be Module, found str 'a.hlo'; hloom.parse reads"),
        (lambda: api.partition(MODULE, machine=3), "machine must be Machine or str, found int 3; hloom.parse"),
        (lambda: api.partition(MODULE, machine=api.Transfer(1, 1)), "machine must be Machine or str, found Tr"),
        (lambda: api.partition(MODULE, passes=["dce"]), "a pass must be Pass, found str 'dce'; passes by name"),
        (lambda: api.run_passes(MODULE, ["dce"]), "a pass must be Pass, found str 'dce'; passes by name"),
        (lambda: api.partition(MODULE, num_devices="4"), "num_devices must be int or None, found str '4'"),
        (lambda: api.compile(MODULE, schedule="no"), "schedule must be bool or None, found str 'no'"),
        (lambda: api.partition(MODULE, forms={}), r"forms must be LocalForms or None, found dict {}; write hloom"),
        (lambda: api.PassContext(machine="h100"), "PassContext: machine must be Machine, found str 'h100'; hlo"),
        (lambda: api.evaluate(MODULE, {"a": 1}), "inputs must be Sequence, found dict"),
        (lambda: api.find_all(MODULE, api.P("add")), "computation must be Computation, .*; module.entry is one"),
        (lambda: api.register(3), "op must be Op, found int 3; write @hloom.register"),
        (lambda: api.export(MODULE, "both"), "form must be 'manual' or 'replica', found str 'both'"),
        (lambda: api.Mesh.of(x="2"), "of: x must be int, found str '2'"),
        (lambda: api.Sharding.over("x", None), "mesh must be Mesh, found str 'x'; write hloom.Mesh.of"),
        (lambda: api.assert_collectives(MODULE, all_gather="no"), "all_gather must be int or range, found str 'no'"),
        (lambda: api.Module(3), "Module: name must be str, found int 3"),
        (lambda: api.P(3), "P: opcode must be str or Iterable, found int 3"),
        (lambda: api.Mesh((("x", "2"),)), "Mesh: axes must be a tuple of names and sizes, found"),
        (lambda: api.Mesh("x"), "Mesh: axes must be a tuple of names and sizes, found 'x'"),
        (lambda: api.Sharding.over(api.Mesh.of(x=2), 3), "axes of a dimension must be str, Sequence or None"),
        (lambda: api.train(TRAINED, 1, comm=3), "comm must be Communicator or None, found int 3; mpi4py"),
        (lambda: api.compile(MODULE).run([], None), "run: comm must be Communicator, found NoneType None; mpi4py"),
        (lambda: api.local_forms().override(3, None), "override: name must be str, found int 3"),
    ],
)  # fmt: skip
def test_messages_say_what_to_give(call: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()


@pytest.mark.parametrize("machine", ["tpu-v4", "tpu-v4;memory=2TB", "cost/machines/tpu-v4.toml"])
def test_machines_are_taken_as_text(machine: str, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> None:
    monkeypatch.chdir(pytestconfig.rootpath)
    parsed = hloom.parse_machine(machine)
    local = hloom.partition(MODULE, machine=machine)
    assert local.to_text() == hloom.partition(MODULE, machine=parsed).to_text()
    assert local.certificate == hloom.partition(MODULE, machine=parsed).certificate
    assert hloom.timeline(local, machine) == hloom.timeline(local, parsed)
    with pytest.raises(hloom.CompileError, match="'tpu-v0' is neither a machine nor a rate"):
        hloom.partition(MODULE, machine="tpu-v0")


TRAINED = hloom.load(EXAMPLES / "mlp_train.hlo")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: api.train(TRAINED, -1), "train: steps must be at least 0, found -1"),
        (lambda: api.train(TRAINED, 1, state=-1), "train: state must be at least 1, found -1"),
        (lambda: api.train(TRAINED, 1, keep=0), "train: keep must be at least 1, found 0"),
        (lambda: api.train(TRAINED, 1, seed=-1), "train: seed must be at least 0, found -1"),
        (lambda: api.train(TRAINED, 1, timeout=-1), "train: timeout must be at least 0, found -1"),
        (lambda: api.partition(MODULE, 0), "partition: num_devices must be at least 1, found 0"),
        (lambda: api.propagate(MODULE, -8), "propagate: num_devices must be at least 1, found -8"),
        (lambda: api.compile(MODULE, ranks=0), "compile: ranks must be at least 1, found 0"),
        (lambda: api.compile(MODULE, memory=-1), "compile: memory must be at least 0, found -1"),
        (lambda: api.forecast(MODULE, memory=-1), "forecast: memory must be at least 0, found -1"),
        (lambda: api.page(MODULE, memory=-1), "page: memory must be at least 0, found -1"),
        (lambda: api.plan(MODULE, "h100", devices=0), "plan: devices must be at least 1, found 0"),
        (lambda: api.plan(MODULE, "h100", seconds=float("nan")), "plan: seconds must be at least 0, found nan"),
        (lambda: api.sweep(MODULE, ["h100"], best=-1), "sweep: best must be at least 0, found -1"),
        (lambda: api.prove(MODULE, MODULE, seed=-1), "prove: seed must be at least 0, found -1"),
        (lambda: api.relate(MODULE, MODULE, -1), "relate: seed must be at least 0, found -1"),
    ],
)  # fmt: skip
def test_numbers_that_are_too_small(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_the_cadence_of_checkpoints_is_checked_without_a_folder_too() -> None:
    with pytest.raises(hloom.CompileError, match="every='often' is neither auto"):
        hloom.train(TRAINED, 1, every="often")


def test_a_mesh_without_axes_is_no_mesh_to_plan_for() -> None:
    with pytest.raises(hloom.CompileError, match="a mesh without axes has no devices to plan for"):
        hloom.plan(MODULE, "h100", mesh={})


@pytest.mark.parametrize("options", [{"memory": 1000}, {"flat_parameters": True}, {"split_batch": 2}])
def test_what_only_a_schedule_obeys_needs_one(options: dict[str, Any]) -> None:
    with pytest.raises(hloom.CompileError, match="is for a schedule: give schedule=True, too"):
        hloom.compile(MODULE, **options)


def test_a_page_without_a_schedule_has_no_limit_of_memory() -> None:
    with pytest.raises(hloom.CompileError, match="memory is for a schedule: give schedule=True, too"):
        hloom.page(MODULE, memory=1000)

"""Reading programs from JAX: names, mesh, donation and source lines arrive, and nothing is allocated."""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import hloom
import hloom.jax
import numpy as np
import pytest
from hloom.frontends.extras import imported
from hloom.frontends.proto import read_module
from hloom.ir.graph.module import Module
from hloom.ir.graph.stack_frames import SourceSpan

jax: Any = pytest.importorskip("jax")
jnp, P = jax.numpy, jax.sharding.PartitionSpec


@pytest.fixture(scope="module")
def mesh() -> Any:
    return jax.make_mesh((2, 4), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)


def loss(params: Any, x: Any) -> Any:
    hidden = jnp.tanh(x @ params["l1.w"])
    return jnp.mean((hidden @ params["l2.w"]) ** 2)


def step(params: Any, x: Any) -> Any:
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params, x))


def arguments(mesh: Any) -> Any:
    def shape(spec: Any, *dims: int) -> Any:
        return jax.ShapeDtypeStruct(dims, jnp.float32, sharding=jax.sharding.NamedSharding(mesh, spec))

    params = {"l1.w": shape(P(None, "model"), 8, 16), "l2.w": shape(P("model"), 16, 8)}
    return params, shape(P("data"), 32, 8)


def value_named(module: Module, path: str) -> Any:
    return next(i for i in module.entry if i.metadata is not None and i.metadata.op_name == path)


def line_of(text: str) -> int:
    """The number of this line of this file."""
    lines = inspect.getsource(inspect.getmodule(line_of)).splitlines()  # pyright: ignore[reportArgumentType]
    return next(n for n, line in enumerate(lines, 1) if line.strip() == text)


def test_names_mesh_and_donation_arrive(mesh: Any) -> None:
    module = hloom.jax.from_jax(step, *arguments(mesh), donate_argnums=0)
    assert module.num_partitions == 8
    assert module.meshes["mesh"].axes == (("data", 2), ("model", 4))
    assert module.buffer_donor == "{ (0, {}), (1, {}) }"
    w1 = value_named(module, "params['l1.w']")
    assert [[axis.name for axis in dim.axes] for dim in w1.annotation.dims] == [[], ["model"]]


def test_functions_that_hloom_compiles_are_read_before_partitioning(mesh: Any) -> None:
    wanted = hloom.jax.from_jax(step, *arguments(mesh))
    sources = [c.source for c in hloom.collectives(hloom.partition(wanted))]
    compiled = hloom.jax.jit(step)
    traced = compiled.trace(*arguments(mesh))
    for module in (hloom.jax.from_jax(compiled, *arguments(mesh)), hloom.jax.from_jax(traced),
                   hloom.jax.from_jax(traced.lower())):  # fmt: skip
        assert type(module) is Module
        assert [str(i.shape) for i in module.entry.parameters] == [str(i.shape) for i in wanted.entry.parameters]
        assert [c.source for c in hloom.collectives(hloom.partition(module))] == sources
    with pytest.raises(hloom.CompileError, match="takes no arguments or options here"):
        hloom.jax.from_jax(traced, *arguments(mesh))


def test_functions_around_those_that_hloom_compiles_are_read(mesh: Any) -> None:
    inner = hloom.jax.jit(lambda x: jnp.cumsum(x, 0))
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=jax.sharding.NamedSharding(mesh, P("data")))
    local = hloom.partition(hloom.jax.from_jax(lambda x: inner(x * 2) + 1, shape))
    np.testing.assert_allclose(hloom.simulate(local, [x])[0], np.cumsum(x * 2, 0) + 1)


def test_collectives_name_the_users_lines(mesh: Any) -> None:
    local = hloom.partition(hloom.jax.from_jax(step, *arguments(mesh)))
    product = line_of('hidden = jnp.tanh(x @ params["l1.w"])')
    assert f"test_from_jax.py:{product}" in {c.source for c in hloom.collectives(local)}


def test_locations_are_the_users_file(mesh: Any) -> None:
    module = hloom.jax.from_jax(step, *arguments(mesh))
    location = next(i.location for i in module.entry if i.opcode == "tanh")
    assert location is not None
    assert location.source.name == __file__
    assert location.line == line_of('hidden = jnp.tanh(x @ params["l1.w"])')
    assert location.source.text[location.start : location.end] == 'jnp.tanh(x @ params["l1.w"])'
    parameter = value_named(module, "x").location
    assert parameter.line == line_of("def step(params: Any, x: Any) -> Any:")


def test_columns_after_letters_of_several_bytes() -> None:
    from hloom.frontends.user_lines import UserLines

    line = line_of('letters = "äöü", jnp.sin  # a line for this test')
    letters = "äöü", jnp.sin  # a line for this test
    assert letters[0] == "äöü"
    before = len('    letters = "äöü", '.encode())
    found = UserLines().location(SourceSpan(__file__, line, before, before + len("jnp.sin")))
    assert found is not None
    assert found.source.text[found.start : found.end] == "jnp.sin"
    assert UserLines().location(SourceSpan(__file__, 10**6)) is None
    assert UserLines().location(SourceSpan("no such file.py", 1)) is None


def test_errors_show_the_users_line(mesh: Any) -> None:
    sharding = jax.sharding.NamedSharding(mesh, P("data"))
    x = jax.ShapeDtypeStruct((8, 3, 3), np.float32, sharding=sharding)
    module = hloom.jax.from_jax(with_callback, x)
    with pytest.raises(hloom.CompileError) as error:
        hloom.evaluate(module, [np.ones(x.shape, x.dtype)])
    assert "host_function, x" in str(error.value)
    assert error.value.diagnostics[0].line == line_of("return jax.pure_callback(host_function, x, x) + 1")


def with_symbols(scale: float, tree: Any) -> Any:
    return tree["rows"] * scale


def test_symbolic_dimensions_are_refused() -> None:
    rows, = importlib.import_module("jax.export").symbolic_shape("rows")
    tree = {"rows": jax.ShapeDtypeStruct((rows, 2), np.float32)}
    with pytest.raises(hloom.CompileError, match=r"argument \[1\]\['rows'\] has the shape \(rows, 2\)") as error:
        hloom.jax.from_jax(with_symbols, 2.0, tree)
    assert error.value.diagnostics[0].line == with_symbols.__code__.co_firstlineno
    exported = importlib.import_module("jax.export").export(jax.jit(with_symbols))(2.0, tree)
    with pytest.raises(hloom.CompileError, match=r"argument \[1\]\['rows'\] has the shape \(rows, 2\)"):
        hloom.jax.from_jax(exported)


def with_callback(x: Any) -> Any:
    return jax.pure_callback(host_function, x, x) + 1


def host_function(x: Any) -> Any:
    return x


def forms(mesh: Any) -> Iterator[Any]:
    args = arguments(mesh)
    jitted = jax.jit(step)
    yield jitted, args
    yield jitted.trace(*args), ()
    yield jitted.lower(*args), ()


def test_jitted_traced_and_lowered_give_the_same(mesh: Any) -> None:
    texts = {hloom.jax.from_jax(function, *args).to_text() for function, args in forms(mesh)}
    assert len(texts) == 1


def test_abstract_meshes_are_larger_than_the_machine() -> None:
    mesh = jax.sharding.AbstractMesh((64, 32), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    x = jax.ShapeDtypeStruct((2**20, 2**20), jnp.float32, sharding=jax.sharding.NamedSharding(mesh, P("x", "y")))
    local = hloom.partition(hloom.jax.from_jax(lambda a, b: a @ b, x, x))
    assert local.num_partitions == 2048
    assert local.entry.parameters[0].shape.dims == (2**14, 2**15)


def test_unused_arguments_stay(mesh: Any) -> None:
    module = hloom.jax.from_jax(lambda x, y: x * 2, np.ones(3, np.float32), np.ones(4, np.float32))
    assert [p.shape.dims for p in module.entry.parameters] == [(3,), (4,)]


def test_the_numbers_are_those_of_jax() -> None:
    rng = np.random.default_rng(0)
    params = {"l1.w": rng.standard_normal((8, 16), np.float32), "l2.w": rng.standard_normal((16, 8), np.float32)}
    x = rng.standard_normal((32, 8), np.float32)
    found = hloom.evaluate(hloom.jax.from_jax(step, params, x), [params["l1.w"], params["l2.w"], x])
    for a, b in zip(found, jax.tree.leaves(step(params, x)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def with_two_results(w: Any, x: Any) -> Any:
    return w * 2, x @ w


@pytest.mark.parametrize("shardy", [True, False])
def test_results_without_a_sharding_are_left_to_propagation(shardy: bool, mesh: Any) -> None:
    own = jax.sharding.NamedSharding(mesh, P("data", "model"))
    w = jax.ShapeDtypeStruct((8, 16), np.float32, sharding=jax.sharding.NamedSharding(mesh, P(None, "model")))
    x = jax.ShapeDtypeStruct((32, 8), np.float32, sharding=jax.sharding.NamedSharding(mesh, P("data")))
    whole = jax.sharding.NamedSharding(mesh, P())
    before = jax.config.jax_use_shardy_partitioner
    jax.config.update("jax_use_shardy_partitioner", shardy)
    try:
        free = hloom.jax.from_jax(with_two_results, w, x, out_shardings=(own, None))
        asked = hloom.jax.from_jax(with_two_results, w, x, out_shardings=(own, whole))
        read = hloom.parse(jax.jit(with_two_results, out_shardings=(own, None)).lower(w, x).as_text())
    finally:
        jax.config.update("jax_use_shardy_partitioner", before)
    again = read_module(free.to_proto(), "again")
    for module in (free, read, hloom.parse(free.to_text()), again):
        local = hloom.partition(module, 8)
        assert [leaf.dims for leaf in local.entry.root.shape.leaves()] == [(4, 4), (16, 4)]
        assert not hloom.collectives(local)
    local = hloom.partition(asked, 8)
    assert [leaf.dims for leaf in local.entry.root.shape.leaves()] == [(4, 4), (32, 16)]
    assert hloom.collectives(local)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: hloom.jax.from_jax(3), "a function is expected, not int"),
    (lambda: hloom.jax.from_jax(jax.jit(jnp.sin), 1.0, donate_argnums=0), "donate_argnums cannot be set"),
    (lambda: hloom.jax.from_jax(jax.jit(jnp.sin).lower(1.0), 2.0), "takes no arguments"),
])  # fmt: skip
def test_misuse_is_an_error(call: Any, message: str) -> None:
    with pytest.raises(hloom.CompileError, match=message):
        call()


@pytest.mark.parametrize(("name", "version", "message"), [
    ("no_such_package_of_hloom", None, r"no_such_package_of_hloom is missing, which is needed to test"),
    ("jax.no_such_module", None, r"this version of jax has no jax.no_such_module"),
    ("jax", "0.4.30", r"jax 0.4.30 is too old to test: 0.10 is needed"),
])  # fmt: skip
def test_missing_and_old_packages(
    name: str, version: str | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if version:
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(__version__=version))
    with pytest.raises(hloom.CompileError, match=message) as error:
        imported(name, "to test")
    assert error.value.diagnostics[0].help == "pip install 'hloom[xla]'"

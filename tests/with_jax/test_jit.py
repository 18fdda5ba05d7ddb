"""`hloom.jax.jit` gives the numbers of `jax.jit` on eight virtual devices, and says what it cannot take."""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import functools
import importlib
import inspect
import warnings
from dataclasses import dataclass
from typing import Any

import hloom
import hloom.jax
import numpy as np
import pytest
from hloom.ir.graph.module import Stage
from programs.sharded_jax_functions import FUNCTIONS

jax: Any = pytest.importorskip("jax")
jnp, P = jax.numpy, jax.sharding.PartitionSpec

QUICK = ("nested_structures", "static_arguments", "manual_region", "loop_until_small")


@pytest.fixture(scope="module")
def mesh() -> Any:
    if len(jax.devices()) < 8:
        pytest.skip("XLA has fewer than eight devices")
    return jax.make_mesh((2, 4), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)


def put(mesh: Any, value: Any, *spec: Any) -> Any:
    return jax.device_put(value, jax.sharding.NamedSharding(mesh, P(*spec)))


def ramp(*dims: int) -> Any:
    return np.arange(np.prod(dims), dtype=np.float32).reshape(dims) / 7


def assert_same(found: Any, wanted: Any) -> None:
    """The same structure, types and numbers, up to rounding relative to the largest number."""
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        a, b = np.asarray(a, np.complex128), np.asarray(b, np.complex128)
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-5 * np.abs(b).max(initial=0))


def check(name: str, mesh: Any) -> None:
    case = FUNCTIONS[name](mesh)
    kept = {key: value for key, value in case.options.items() if "donate" not in key}
    wanted = jax.jit(case.function, **kept)(*case.arguments)
    copies = jax.tree.map(lambda v: v + 0 if isinstance(v, jax.Array) and v.dtype == jnp.float32 else v, case.arguments)
    assert_same(hloom.jax.jit(case.function, mesh=mesh, **case.options)(*copies), wanted)
    for number in np.atleast_1d(case.options.get("donate_argnums", ())):
        assert any(leaf.is_deleted() for leaf in jax.tree.leaves(copies[int(number)]))


@pytest.mark.parametrize("name", QUICK)
def test_same_numbers(name: str, mesh: Any) -> None:
    check(name, mesh)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in QUICK])
def test_same_numbers_of_the_others(name: str, mesh: Any) -> None:
    check(name, mesh)


def test_there_are_enough() -> None:
    assert len(FUNCTIONS) >= 20
    assert set(QUICK) <= set(FUNCTIONS)


@pytest.mark.slow
def test_results_are_sharded_and_feed_the_next_call(mesh: Any) -> None:
    case = FUNCTIONS["perceptron_step_with_donation"](mesh)
    step = hloom.jax.jit(case.function, **case.options)
    params, x, y = case.arguments
    wanted, plain = jax.tree.map(jnp.copy, params), jax.jit(case.function)
    for _ in range(4):
        params, loss = step(params, x, y)
        wanted, wanted_loss = plain(wanted, x, y)
        np.testing.assert_allclose(loss, wanted_loss, rtol=1e-4)
    assert params["w1"].sharding == jax.sharding.NamedSharding(mesh, P(None, "y"))
    assert step._cache_size() == 1


def test_stages(mesh: Any) -> None:
    case = FUNCTIONS["perceptron_step_with_donation"](mesh)
    shapes = jax.tree.map(lambda v: jax.ShapeDtypeStruct(v.shape, v.dtype, sharding=v.sharding), case.arguments)
    lowered = hloom.jax.jit(case.function).lower(*shapes)
    assert isinstance(lowered, hloom.jax.Lowered)
    assert isinstance(lowered, hloom.Module)
    assert lowered.stage is Stage.GLOBAL
    compiled = lowered.compile()
    assert isinstance(compiled.program, hloom.Partitioned)
    assert compiled.program.stage is Stage.LOCAL
    assert {c.kind for c in compiled.collectives} == {"all-reduce"}
    assert all(c.source.startswith("sharded_jax_functions.py:") for c in compiled.collectives)
    assert compiled.remarks == compiled.program.remarks
    assert "hloom.cause" in compiled.as_text()
    assert [s.spec for s in compiled.in_shardings][:2] == [P("y"), P(None, "y")]
    assert_same(compiled(*case.arguments), jax.jit(case.function)(*case.arguments))
    with pytest.raises(TypeError, match="Function compiled with input pytree"):
        compiled(*case.arguments, 3)


def test_shapes_types_shardings_and_settings_have_programs_of_their_own(mesh: Any) -> None:
    double = hloom.jax.jit(lambda x: x * 2, mesh=mesh)
    for value in (ramp(4), ramp(4), ramp(8), ramp(8).astype(np.int32), put(mesh, ramp(8), "x"),
                  put(mesh, ramp(8), ("x",)), put(mesh, ramp(8), "y"), 3, 3.0):  # fmt: skip
        assert_same(double(value), jnp.asarray(value) * 2)
    assert double._cache_size() == 7
    with jax.enable_x64(True):
        assert double(np.arange(4.0)).dtype == np.float64
    assert double._cache_size() == 8


def test_specifications_on_the_mesh(mesh: Any) -> None:
    f = hloom.jax.jit(lambda a, b: (a @ b["w"], b), mesh=mesh, in_shardings=(P("x"), {"w": None}),
                      out_shardings=(P("x", "y"), None))  # fmt: skip
    product, _ = f(ramp(4, 8), {"w": ramp(8, 4)})
    assert product.sharding == jax.sharding.NamedSharding(mesh, P("x", "y"))
    assert_same(product, jnp.asarray(ramp(4, 8) @ ramp(8, 4)))


def test_as_a_decorator_with_the_current_mesh(mesh: Any) -> None:
    @hloom.jax.jit
    def plain(x: Any) -> Any:
        """Says so."""
        return x.sum(0)

    @functools.partial(hloom.jax.jit, out_shardings=None)
    def other(x: Any) -> Any:
        return x + 1

    assert plain.__doc__ == "Says so."
    assert_same(hloom.jax.jit()(other)(ramp(8)), other(ramp(8)))
    with jax.set_mesh(mesh):
        assert_same(plain(ramp(8, 8)), jnp.asarray(ramp(8, 8).sum(0)))


def test_one_device_without_a_mesh() -> None:
    assert_same(hloom.jax.jit(jnp.cumsum)(ramp(5)), jnp.cumsum(ramp(5)))


def test_meshes_with_explicit_axes() -> None:
    mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    x = put(mesh, ramp(8, 8), "x", "y")
    f = lambda x: jnp.sin(x) * 2  # noqa: E731
    found = hloom.jax.jit(f)(x)
    assert jax.typeof(found) == jax.typeof(jax.jit(f)(x))
    assert_same(found, f(ramp(8, 8)))


def test_meshes_in_another_order() -> None:
    devices = np.array(jax.devices())[[3, 1, 0, 2, 7, 5, 4, 6]].reshape(2, 4)
    mesh = jax.sharding.Mesh(devices, ("x", "y"))
    x = put(mesh, ramp(8, 8), "y", "x")
    found = hloom.jax.jit(lambda x: x @ x.T)(x)
    assert_same(found, jnp.asarray(ramp(8, 8) @ ramp(8, 8).T))
    other = put(jax.make_mesh((8,), ("z",)), ramp(8), "z")
    with pytest.raises(Exception, match="devices"):
        hloom.jax.jit(lambda a, b: (a, b))(x, other)


@pytest.mark.slow
def test_inside_of_jax_jit(mesh: Any) -> None:
    """Twice in one program, beside collectives of XLA's."""
    total = hloom.jax.jit(lambda x: jax.nn.softmax(x, 0) @ x.T, mesh=mesh, in_shardings=P("x", "y"))
    other = hloom.jax.jit(lambda x: jnp.cumsum(x, 1), mesh=mesh, in_shardings=P("y", "x"))
    outer = jax.jit(lambda x: other(total(x)).sum() + total(x * 2).max() + (x @ x).sum())
    f = lambda x: jax.nn.softmax(x, 0) @ x.T  # noqa: E731
    x = ramp(8, 8) / 9
    wanted = np.cumsum(f(x), 1).sum() + f(x * 2).max() + (x @ x).sum()
    np.testing.assert_allclose(outer(put(mesh, x, "x", "y")), wanted, rtol=1e-5)


def test_uneven_results_are_divided_evenly(mesh: Any) -> None:
    def f(x: Any) -> Any:
        return jax.lax.with_sharding_constraint(jnp.concatenate([x, x[:2]]), jax.sharding.NamedSharding(mesh, P("y")))

    compiled = hloom.jax.jit(f).lower(put(mesh, ramp(8), "x")).compile()
    (remark,) = [r.message for r in compiled.remarks if "unevenly" in r.message]
    assert remark.startswith("result 0, f32[10], would be divided unevenly as ")
    assert [s.shard_shape((10,)) for s in compiled.out_shardings] == [(10,)]
    assert_same(compiled(put(mesh, ramp(8), "x")), jnp.asarray(np.concatenate([ramp(8), ramp(2)])))


def test_one_of_several_uneven_results_of_an_op_is_divided_evenly(mesh: Any) -> None:
    def f(x: Any) -> Any:
        x = jax.lax.with_sharding_constraint(x, jax.sharding.NamedSharding(mesh, P("y")))
        return jax.lax.top_k(x, 2)[0]

    x = ramp(13, 6)
    assert_same(hloom.jax.jit(f)(x), jnp.asarray(np.sort(x)[:, :-3:-1]))


def test_without_shardy(mesh: Any) -> None:
    """Shardings are text of HLO in the program then: of arguments, and of values in an outer function."""
    double = hloom.jax.jit(lambda x: x * 2)
    x = put(mesh, ramp(8, 8), "x", "y")
    jax.config.update("jax_use_shardy_partitioner", False)
    try:
        compiled = double.lower(x).compile()
        assert [p.shape.dims for p in compiled.program.entry.parameters] == [(4, 2)]
        (found, twice) = compiled(x), jax.jit(lambda x: double(double(x)))(x)
    finally:
        jax.config.update("jax_use_shardy_partitioner", True)
    assert found.sharding == twice.sharding == x.sharding
    assert_same(found, jnp.asarray(ramp(8, 8) * 2))
    assert_same(twice, jnp.asarray(ramp(8, 8) * 4))


def test_passes_and_machines(mesh: Any) -> None:
    options = {"passes": "call-inliner,propagate,spmd-partition", "machine": hloom.parse_machine("h100")}
    f = hloom.jax.jit(lambda x: x @ x, options=options)
    x = put(mesh, ramp(8, 8), "x", "y")
    assert_same(f(x), jnp.asarray(ramp(8, 8) @ ramp(8, 8)))


# -- what is not taken


def line_of(function: Any, text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(n for n, line in enumerate(lines) if text in line)


def with_foreign_call(x: Any) -> Any:
    call = importlib.import_module("jax.ffi").ffi_call("nobody_knows_it", jax.ShapeDtypeStruct(x.shape, x.dtype))
    return call(x) + 1


@pytest.mark.parametrize(("function", "text", "message"), [
    (with_foreign_call, "call(x)", 'a custom-call of "nobody_knows_it", of which Hloom knows nothing'),
])  # fmt: skip
def test_programs_that_are_not_taken(function: Any, text: str, message: str, mesh: Any) -> None:
    with pytest.raises(hloom.CompileError) as error:
        hloom.jax.jit(function, mesh=mesh)(ramp(8))
    assert message in str(error.value)
    assert error.value.diagnostics[0].location is not None
    assert error.value.diagnostics[0].location.source.name == __file__
    assert error.value.diagnostics[0].line == line_of(function, text)


def test_what_is_left_to_xla_is_a_warning(mesh: Any) -> None:
    x, export = put(mesh, ramp(8), "x"), importlib.import_module("jax.export")
    everywhere = jax.sharding.NamedSharding(mesh, P())
    with pytest.warns(RuntimeWarning, match="XLA partitions squares, not Hloom: .* is for cpu and tpu") as found:
        export.export(hloom.jax.jit(squares), platforms=("cpu", "tpu"))(x)
    assert [(w.filename, w.lineno) for w in found] == [(__file__, squares.__code__.co_firstlineno)]
    shape = jax.ShapeDtypeStruct(export.symbolic_shape("n"), jnp.float32, sharding=everywhere)
    with pytest.warns(RuntimeWarning, match="dimension n has no number"):
        export.export(hloom.jax.jit(squares))(shape)
    with warnings.catch_warnings(action="error"):
        export.export(hloom.jax.jit(squares), platforms=("cpu", "tpu"))(ramp(8))


LEFT: list[Any] = []


def with_a_leaked_tracer(x: Any) -> Any:
    return x + LEFT[0]


def test_leaked_tracers_are_refused(mesh: Any) -> None:
    hloom.jax.from_jax(lambda x: LEFT.append(x) or x, ramp(8))
    with pytest.raises(hloom.CompileError, match="a tracer that has leaked") as error:
        hloom.jax.from_jax(with_a_leaked_tracer, ramp(8))
    assert error.value.diagnostics[0].line == line_of(with_a_leaked_tracer, "LEFT[0]")
    with pytest.raises(jax.errors.UnexpectedTracerError):
        hloom.jax.jit(with_a_leaked_tracer, mesh=mesh)(ramp(8))


def refused_at_its_line(function: Any, message: str, call: Any) -> None:
    with pytest.raises(hloom.CompileError, match=message) as error:
        call()
    assert error.value.diagnostics[0].line == function.__code__.co_firstlineno


def squares(x: Any) -> Any:
    return (x * x).sum()


def test_wrong_meshes_and_platforms_are_refused(mesh: Any) -> None:
    part = jax.sharding.Mesh(mesh.devices[0], ("part",))
    placed = jax.device_put(ramp(8), jax.sharding.NamedSharding(mesh, P("x")))
    with pytest.raises(ValueError, match="incompatible devices") as error:
        hloom.jax.jit(squares, mesh=part)(placed)
    assert f" at {__file__}:{line_of(test_wrong_meshes_and_platforms_are_refused, 'mesh=part')}:" in str(error.value)
    refused_at_its_line(squares, "not AbstractMesh", lambda: hloom.jax.jit(squares, mesh=mesh.abstract_mesh)(ramp(8)))
    refused_at_its_line(
        squares,
        r"those of cpu, which is not among .*\n(.|\n)*help: .*platforms=",
        lambda: hloom.jax.jit(squares, mesh=mesh, platforms=("tpu",))(ramp(8)),
    )


def test_errors_of_the_function_are_its_own(mesh: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        hloom.jax.jit(lambda x: x / (1 // 0), mesh=mesh)(ramp(8))
    with pytest.raises(TypeError, match="contracting"):
        hloom.jax.jit(lambda x: x @ jnp.ones(3), mesh=mesh)(ramp(8))


def test_another_artifact_of_jax_is_an_error() -> None:
    from hloom.jax import exporting

    @dataclass
    class Other:
        fun_name: str = "f"

    with pytest.raises(hloom.CompileError, match=r"jax\.export of this version of jax has no nr_devices"):
        exporting.require_fields(Other())


@pytest.mark.parametrize("options", [{"static_argnums": (0,)}, {"static_argnames": "n"}, {"static_argnums": 0}])
def test_static_arguments_by_number_and_name(options: dict[str, Any], mesh: Any) -> None:
    f = hloom.jax.jit(lambda n, x: x[:n], mesh=mesh, **options)
    assert_same(f(3, ramp(8)), jnp.asarray(ramp(8)[:3]))
    assert_same(f(4, ramp(8)), jnp.asarray(ramp(8)[:4]))
    assert_same(f(n=3, x=ramp(8)), jnp.asarray(ramp(8)[:3]))
    assert_same(f(3, x=ramp(8)), jnp.asarray(ramp(8)[:3]))
    assert f._cache_size() == 4
    with pytest.raises(ValueError, match="hashable"):
        f([3], ramp(8))


def test_functions_around_have_stages_of_their_own(mesh: Any) -> None:
    double = hloom.jax.jit(lambda x: x * 2, mesh=mesh)
    outer = jax.jit(double).lower(ramp(8))
    assert isinstance(outer, jax.stages.Lowered)
    assert not isinstance(outer, hloom.Module)
    assert "tanh" in jax.jit(lambda x: jnp.tanh(double(x))).lower(ramp(8)).as_text()


def test_arguments_of_an_outer_function_keep_their_shardings(mesh: Any) -> None:
    """Hloom sees them in the program that JAX is writing, and neither gathers nor repeats."""
    rows = hloom.jax.jit(lambda x: jnp.cumsum(x, 1))
    outer = jax.jit(lambda x: rows(rows(x)))
    x = put(mesh, ramp(8, 8), "y")
    compiled = outer.lower(x).compile()
    assert not hloom.collectives(hloom.parse(compiled.as_text(), verify=False))
    assert compiled.output_shardings.shard_shape((8, 8)) == (2, 8)
    assert_same(outer(x), jnp.cumsum(jnp.cumsum(ramp(8, 8), 1), 1))

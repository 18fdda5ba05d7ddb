"""Texts in and out: our print is a fixed point, and means to XLA what the original means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hloom.frontends import parse
from hloom.ir.diagnostics import CompileError, Severity
from hloom.ir.graph.module import Stage
from hloom.ir.types.shape import Layout

RICH = (Path(__file__).parent / "rich.hlo").read_text()


def xla_text(text: str) -> str:
    """What XLA reads and prints, constants in full."""
    hlo: Any = pytest.importorskip("jaxlib._hlo")
    options = hlo.HloPrintOptions()
    options.print_large_constants = True
    return hlo.hlo_module_from_text(text).to_string(options)


def same_through_xla(text: str) -> str:
    """Asserts that our print is a fixed point and that XLA takes it for the same module. Returns our print."""
    ours = parse(text).to_text()
    assert parse(ours).to_text() == ours
    assert xla_text(ours) == xla_text(text)
    return ours


HEADERS = [
    "ENTRY e { p = f32[2] parameter(0) }",
    "main { p = f32[2] parameter(0)\n ROOT q = negate(p) }",
    "f32[2] add(f32[2] a, f32[2] b)",
    "r = f32[2]{0} add(f32[2] %a, f32[2] b)",
    "HloModule m\n%a { p = f32[2] parameter(0) }\nb { %p = f32[2] parameter(0)\nROOT q = f32[2] call(p), to_apply=a }",
    "HloModule a.b-c.1\nENTRY e { p = f32[2] parameter(0) }",
    "HloModule m, replica_count=2, num_partitions=4, alias_passthrough_params=true, buffer_donor={ (0, {}) },"
    "allow_spmd_sharding_propagation_to_output={true}, allow_spmd_sharding_propagation_to_parameters=true\n"
    'ENTRY e {p = f32[2] parameter(0)}, execution_thread="x"',
    "HloModule m: // a comment\nENTRY /* x */ e { p = f32[2] parameter(0) }",
    "f32[2,4]{1,0} multiply(f32[2,4]{1,0}, f32[2,4]{1,0})",
    "r = f32[2,4]{0,1} multiply(f32[2,4]{0,1} %a, f32[2,4]{0,1})",
    "f32[5] conditional(s32[], f32[5], f32[5]), branch_computations={\n{ x = f32[5] parameter(0)\n"
    "ROOT y = f32[5] ceil(x) },\n{ x = f32[5] parameter(0)\n ROOT y = f32[5] floor(f32[5] x) }}",
    "HloModule m, num_partitions=2\nENTRY e { ROOT p = (f32[2,3]{0,1:T(8,128)S(1)}, f32[2,<=3]{0,1}) parameter(0) }",
    "HloModule m, entry_computation_layout={(f32[2,3]{0,1:T(8,128)(2,1)S(1)}, token[])->f32[2,3]{1,0}}\n"
    "ENTRY e { ROOT p = f32[2,3] parameter(0)\n t = token[] parameter(1) }",
]


@pytest.mark.parametrize("text", HEADERS)
def test_forms_of_modules(text: str) -> None:
    same_through_xla(text)


def test_inline_computations_get_names_that_are_free() -> None:
    module = parse("HloModule m\n_.1 { p = f32[2] parameter(0) }\nENTRY _ { p = f32[2] parameter(0)\n"
                   "ROOT c = f32[2] call(p), to_apply={ q = f32[2] parameter(0) } }")
    assert sorted(c.name for c in module) == ["_", "_.1", "_.2"]
    assert [c.name for c in module.entry.root.called()] == ["_.2"]
    parse(module.to_text())


def test_rich_module() -> None:
    same_through_xla(RICH)


def test_line_ends_and_spaces_mean_nothing() -> None:
    printed = parse(RICH).to_text()
    tables = RICH.index("FileNames"), RICH.index("%add (")
    plain = RICH[: tables[0]] + RICH[tables[1] :].replace("// six", "")
    wanted = parse(plain).to_text()
    assert wanted != printed
    for text in (plain.replace("\n", "\r\n"), plain.replace("\n", " "), plain.replace("  ", "\t")):
        assert parse(text).to_text() == wanted
    assert parse(plain.replace("\n", " // x\r")).to_text() == wanted
    assert parse(RICH.replace("\n", "\r\n")).stack_frames


INSTRUCTIONS = [
    "a = negate(p)",
    "a = f32[4,8]{1,0} negate(f32[4,8]{0,1} %p)",
    "a = f32[4,8] add(p, multiply(p, f32[4,8] negate(p)))",
    "a = f32[4,8] /* x */ negate /* { */ ( // y )\n p /* , */ ) , \n metadata={op_name=\"{\"}",
    "%a=f32[4,8] negate(p)",
    "%inf = f32[4,8] negate(p)\n  %manual = f32[4,8] negate(%inf)",
    "a-b.1_c = f32[4,8] negate(p)",
    "a = f32[2,3] constant({{1,2,,3 },{-0.0 5. -.5}})",
    "a = s32[2,0] constant({ {}, {} })",
    "a = (s32[], (s32[2], pred[])) constant((1, ({1,2}, true)))",
    "a = (s32[], (s32[2], c64[])) constant((1 ({1,2} (3,4))))",
    "a = f32[1,1] constant(-0.5)",
    "a = c128[2] constant({(1, nan), (-inf, 0.1)})",
    "a = f32[4,8] negate(p), backend_config={a = {b}, \"}\"}, metadata={op_type=\"x\" source_line=3}",
    "a = f32[4,8] negate(p), backend_config=\"it's \\\"q\\\" \\303\\251\"",
    "a = f32[4,8] negate(p), frontend_attributes={b={x: 1},a=\"1\"}, sharding={replicated}",
    "a = f32[4,8] negate(p), frontend_attributes={a=\"1\",b=\"2\",a={3}}",
    'a = f32[4,8] domain(p), domain={kind="sharding", exit={manual}, entry={{replicated}}}',
    "a = f32[4,8] negate(p), statistics={visualizing_index=0,s=1.5}, origin={{\"name\"}}",
    "a = pred[4,8] compare(p, p), direction=GE, type=TOTALORDER",
    "a = f32[2,8] slice(p), slice={[0:4:2], [0:8]}",
    "a = f32[6,17] pad(p, f32[] constant(0)), padding=1_1x0_2_1",
    "a = f32[4,8] add(,p,, f32[4,8] %p,)",
    "a: = f32[4,8] negate(p:)",
    "a = token[] after-all(p, tuple(p, p), token[] after-all())",
    "a = f32[] reduce-window(f32[] constant(1), f32[] constant(2)), "
    "to_apply={x = f32[] parameter(0) y = f32[] parameter(1) ROOT z = f32[] add(x, y)}",
    "a = f32[4,4] dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={1}, operand_precision={HIGHEST,Default}, "
    "algorithm=DOT_TF32_TF32_F32_X3",
    'a = f32[4,8] custom-call(p), custom_call_target="x", dim_labels=?b01f_0?1io->b01?f, schedule=schedule_latest',
    *[f'a = f32[4,8] custom-call(p), custom_call_target="x", literal={literal}' for literal in (
        "s32[2]{0} {1, 2}", "( s32[2,1]{1,0} {{1}, {2}}, (pred[] true, ()) )", "()")],
    "a = f32[4,8]{1,0:S(3)SC(0:10)(1:4,5)} negate(p)",
    "a = f32[4,8]{1,0:D(D,C+)T(8,128)} negate(p)",
    "a = f32[4,8] all-reduce(p), channel_id=1, replica_groups=[2,4]<=[4,2]T(1,0), use_global_device_ids=true, "
    "to_apply={x = f32[] parameter(0)\n y = f32[] parameter(1)\n ROOT z = f32[] add(x, y)}",
    "a = f32[4,8] custom-call(p), custom_call_target=\"Sharding\", custom_call_has_side_effect=true, "
    "sharding={unknown shard_as 1}",
    "a = (f32[4,8], f32[4,8]) tuple(p, p), sharding={{devices=[2,1]<=[2]}, {devices=[1,2]0,1}}",
    *[f"a = f32[4,8] negate(p), {name}={space}{value}" for space in (" ", "\n", "/* x */") for name, value in (
        ("metadata", '{op_name="n"}'), ("backend_config", '{"a":1}'), ("frontend_attributes", '{a="b"}'),
        ("sharding", "{replicated // x\n}"), ("control-predecessors", "{p}"), ("origin", '{{"n"}}'))],
    "a = f32/* x */[4,8// x\n] /* x */ {/* x */1,0} negate(f32[4,8]// x\n{1,0} p)",
    "a = f32[4,8]{1,0 : T( 4 , 8 ) L ( 2 ) # ( u32 ) * ( u32 ) S( -1 ) SC( 0 : 1 , 2 ) M ( 8 )} negate(p)",
    'a = f32[4,8] negate(p), metadata={op_name="\u00e9\u2192\\303\\251"}, backend_config="\u00e9\\351\\n"',
    'a = f32[4,8] negate(p), backend_config="\\u00e9\\U0001f600\\X41\\x1\\377\\1"',
    "a = f32[4,8] custom-call(p), custom_call_target=\"x\", operand_layout_constraints={ f32[4,8]{0,1:T(8,128)} }",
    "a = reduce-window(f32[4,8] p, bf16[] constant(0)), window={size=2x2}, "
    "to_apply={x = f32[] parameter(0) y = f32[] parameter(1) ROOT z = f32[] add(x, y)}",
    *[f"a = f32[4,8] tanh(p), result_accuracy={{{text}}}" for text in (
        "mode=HIGHEST", "tolerance={rtol=0.5, atol=1., ulps=2}", "tolerance={ rtol=1e-5 }", "tolerance={}")],
    "a = b(f32[2]) constant({1, 2})", "a = f32[]{:} constant(1)", "a = f32[]{:D()} constant(1)",
    "a = f32[4,8] all-reduce(p), replica_groups=mesh['x'=2], {'x'}, "
    "to_apply={x = f32[] parameter(0)\n y = f32[] parameter(1)\n ROOT z = f32[] add(x, y)}",
    "a = (f32[4,8], (), f32[4,8], f32[4,8], f32[4,8], f32[4,8], f32[4,8]) tuple(p, tuple(), p, p, p, p, p)",
]


@pytest.mark.parametrize("line", INSTRUCTIONS)
def test_instructions(line: str) -> None:
    same_through_xla("HloModule m\n\nENTRY e {\n  p = f32[4,8] parameter(0)\n  " + line + "\n}\n")


SHARDINGS = [
    "{replicated}", "{manual}", "{unknown}", "{unreduced}", "{maximal device=3}", "{devices=[4,2]<=[8]}",
    "{devices=[2,1,4]<=[8] last_tile_dim_replicate}", "{devices=[4,2]<=[2,4]T(1,0)}", "{devices=[2,2]<=[2,2]T(0,1)}",
    "{devices=[2,2]0,1,2,3}", "{devices=[2,2]0,3,1,2}", "{devices=[2,1,2]3,2,1,0 last_tile_dim_replicate}",
    "{devices=[2,1,4]<=[2,2,2]T(0,2,1) last_tile_dim_replicate}", "{devices=[1,1,4]<=[4] last_tile_dim_replicate}",
    "{devices=[1,1,4]<=[4] last_tile_dims={manual}}", "{devices=[2,1,2,2]<=[8] last_tile_dims={replicated, manual}}",
    "{devices=[2,2,2]<=[8] last_tile_dims={maximal}}", "{devices=[1,1,8]<=[8] last_tile_dims={maximal}}",
    "{devices=[2,1,2,2]<=[8] last_tile_dims={manual, maximal}}",
    "{devices=[1,2,4]1,0,3,2,7,6,5,4 last_tile_dims={maximal}}",
    "{devices=[2,1,2]<=[4] last_tile_dims={replicated}}", "{devices=[2,1,2,2]<=[8] last_tile_dims={manual, manual}}",
    "{devices=[4,2]<=[8] shard_as 1}", "{replicated shard_like 2}", "{mesh['a'=2,'b'=4], [{'b','a'}, {}]}",
    "{mesh['a'=2,'b'=4], [{'b':(1)2}, {'b':(2)2,?}]}", "{mesh['a'=2,'b'=4], [{\"a\"}, {'1'}]}",
    "{mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)), [{'a'}, {}], replicated={'b'}}",
    "{mesh['a'=2,'b'=2], device_ids=(3,1,2,0), [{'a'}, {}]}", "{mesh['a'=2,'b'=4], [{'a'}, {}], unreduced={'b'}}",
    "{mesh['a'=2,'b'=4], [{}, {'a'}], manual={'b'}}", "{mesh['a'=2], replicated}", "{mesh[], replicated}",
    "{mesh['a'=2,'b'=4], manual}", "{maximal_mesh[device_id=3]}", "{{replicated}}",
]  # fmt: skip


@pytest.mark.parametrize("sharding", SHARDINGS)
def test_shardings(sharding: str) -> None:
    same_through_xla(f"HloModule m\n\nENTRY e {{\n  p = f32[8,8] parameter(0), sharding={sharding}\n}}\n")


VALUES = {
    "f32": ["3.4028235e+38", "1.4013e-45", "nan(0x123)", "-nan", "-inf", "3.14159274", "16777217"],
    "f64": ["1.7976931348623157e+308", "5e-324", "0.1", "nan(0x1)"],
    "bf16": ["3.38953139e+38", "0.1", "nan(0x1)", "9.2e-41"],
    "f16": ["65504", "5.9604645e-08"],
    "f8e5m2": ["57344", "nan", "inf"],
    "f8e4m3fn": ["448", "nan", "-nan", "-inf"],
    "f8e4m3": ["240", "inf"],
    "f8e4m3b11fnuz": ["30", "nan", "-nan"],
    "f8e5m2fnuz": ["57344", "inf"],
    "f8e4m3fnuz": ["240"],
    "f8e3m4": ["15.5"],
    "f8e8m0fnu": ["1.7014118e+38", "nan", "-nan"],
    "f6e2m3fn": ["7.5", "0.125", "-inf"],
    "f6e3m2fn": ["28", "0.0625", "-0.0"],
    "f4e2m1fn": ["6", "0.5", "inf"],
    "s4": ["-8"],
    "u4": ["15"],
    "s2": ["-2"],
    "c64": ["(1, nan)", "(nan(0x123), -0.0)"],
    "c128": ["(0.1, -inf)"],
    "u64": ["18446744073709551615", "-1"],
    "s64": ["-9223372036854775808", "9223372036854775808"],
    "pred": ["true", "0", "7"],
}


@pytest.mark.parametrize(("kind", "value"), [(k, v) for k, values in VALUES.items() for v in values])
def test_constants(kind: str, value: str) -> None:
    same_through_xla(f"HloModule m\nENTRY e {{ c = {kind}[] constant({value}) }}")
    same_through_xla(f"HloModule m\nENTRY e {{ c = {kind}[1,2] constant({{{{{value}, {value}}}}}) }}")


@pytest.mark.parametrize(("shape", "value", "is_noted"), [
    ("f32[2,3]", "7", True), ("s4[3]", "-3", True), ("pred[3]", "true", True), ("f32[3]", "nan", True),
    ("f32[2,3]", "0", False), ("bf16[3]", "-0.0", False), ("pred[4]", "false", False), ("f32[1,1]", "7", False),
    ("(f32[], s32[3])", "(2, 1)", True), ("(f32[2], s32[3])", "(0, {1, 2, 3})", False),
])  # fmt: skip
def test_a_number_for_an_array_is_its_first_element(shape: str, value: str, is_noted: bool) -> None:
    text = f"HloModule m\nENTRY e {{ a = {shape} constant({value}) ROOT c = {shape} constant({value}) }}"
    same_through_xla(text)
    warnings = parse(text).warnings
    assert [(d.category, d.severity) for d in warnings] == [("constant", Severity.WARNING)] * (2 * is_noted)
    for warning in warnings:
        assert "a single number is the first element, the others are zero" in warning.message
        assert warning.location is not None
        assert text[warning.location.start : warning.location.end] in value


def test_negative_zero_survives() -> None:
    text = parse("HloModule m\nENTRY e { c = f32[2] constant({-0.0, -0}) }").to_text()
    assert "constant({-0.0, -0.0})" in text
    assert "{-0, -0}" in xla_text(text)


def test_shardy_annotations() -> None:
    module = parse(RICH)
    parameter = module.entry.parameters[0]
    sharding = parameter.annotation
    assert sharding is parameter.shardy
    assert str(sharding) == "{mesh['data'=2,'model'=4], [{'data'}, {?}]}"
    assert module.meshes["mesh"].axes == (("data", 2), ("model", 4))


@pytest.mark.parametrize("device", [0, 1])
def test_shardy_per_value_lists(device: int) -> None:
    text = """HloModule m, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["x"=2]>, dev = #sdy.mesh<[], device_ids=[1]>}}
ENTRY e {
  p = f32[4] parameter(0)
  a = f32[4] custom-call(p), custom_call_target="f", frontend_attributes={xla.sdy.sharding="#sdy.sharding_per_value<[<@mesh, [{\\"x\\", ?}p1]>]>"}
  ROOT t = (f32[4], f32[4]) tuple(a, p), frontend_attributes={xla.sdy.sharding="#sdy.sharding_per_value<[<@mesh, [{\\"x\\"}], replicated={}>, <@dev, []>]>"}
}
"""  # noqa: E501
    text = text.replace("device_ids=[1]", f"device_ids=[{device}]")
    module = parse(text)
    array, pair = module.entry.find("a"), module.entry.root
    assert array is not None
    assert str(array.shardy) == "{mesh['x'=2], [{'x',?}]}"
    assert str(pair.shardy) == "{{mesh['x'=2], [{'x'}]}, {maximal_mesh[device_id=1]}}".replace("=1", f"={device}")
    same_through_xla(text)


def test_results_of_an_op_have_the_list_of_all_its_shardings() -> None:
    lists = 'frontend_attributes={xla.sdy.sharding="#sdy.sharding_per_value<[<@mesh, [{\\"x\\"}]>, <@mesh, [{}]>]>"}'
    text = f"""HloModule m, frontend_attributes={{xla.sdy.meshes={{mesh = #sdy.mesh<["x"=2]>}}}}
ENTRY e {{
  p = f32[4] parameter(0)
  c = (f32[4], f32[4]) custom-call(p), custom_call_target="xla_ffi_python_cpu_callback", {lists}
  a = f32[4] get-tuple-element(c), index=0, {lists}
  b = f32[4] get-tuple-element(c), {lists}, index=1
  ROOT t = (f32[4], f32[4]) tuple(a, b)
}}
"""
    a, b = parse(text).entry.root.operands
    assert str(a.shardy) == "{mesh['x'=2], [{'x'}]}"
    assert str(b.shardy) == "{mesh['x'=2], [{}]}"
    same_through_xla(text)
    with pytest.raises(CompileError, match="2 shardings for one value"):
        parse(text.replace("p = f32[4] parameter(0)", f"p = f32[4] parameter(0), {lists}"))


def test_stage_and_global_layout_travel_through_xla() -> None:
    module = parse(RICH.replace('target="Sharding"', 'target="other"'))
    module.stage = Stage.SCHEDULED
    module.global_layout = module.entry_layout
    text = module.to_text()
    assert 'hloom.stage="scheduled"' in text
    again = parse(text)
    assert again.stage is Stage.SCHEDULED
    assert again.global_layout == module.entry_layout
    assert "hloom.stage" not in again.frontend_attributes
    assert 'hloom.stage="scheduled"' in xla_text(text)


def test_layouts_are_kept() -> None:
    shape = parse(RICH).entry.find("pd")
    assert shape is not None
    assert shape.shape.layout == Layout((1, 0), ((8, 128), (2, 1)), "S(1)")


def _sharded(jax: Any, jnp: Any) -> dict[str, Any]:
    """Programs with Shardy's annotations and with a manual region; an abstract mesh needs no devices."""
    spec: Any = jax.sharding.PartitionSpec
    mesh = jax.sharding.AbstractMesh((2, 4), ("data", "model"))

    def placed(*axes: Any) -> Any:
        return jax.sharding.NamedSharding(mesh, spec(*axes))

    def dense(x: Any, w: Any) -> Any:
        return jax.lax.with_sharding_constraint(jnp.tanh(x @ w), placed("data", "model"))

    def manual(x: Any) -> Any:
        gathered = jax.lax.all_gather(x, "data").sum(0)
        return jax.lax.psum(x, "model") + gathered + jax.lax.ppermute(x, "data", [(0, 1), (1, 0)])

    mapped = jax.shard_map(manual, mesh=mesh, in_specs=spec("data", "model"), out_specs=spec("data", None),
                           check_vma=False)
    x = jax.ShapeDtypeStruct((8, 16), jnp.float32, sharding=placed("data"))
    w = jax.ShapeDtypeStruct((16, 32), jnp.float32, sharding=placed(None, "model"))
    platforms = {"lowering_platforms": ("cpu",)}
    return {
        "dense": jax.jit(dense).trace(x, w).lower(**platforms),
        "manual": jax.jit(mapped).trace(x).lower(**platforms),
    }


def _jax_texts() -> dict[str, str]:
    jax: Any = pytest.importorskip("jax")
    jnp: Any = pytest.importorskip("jax.numpy")

    def mlp(x: Any, w: Any, b: Any) -> Any:
        return jnp.mean(jax.nn.softmax(jax.nn.relu(x @ w + b)) ** 2)

    def loop(x: Any) -> Any:
        def body(i: Any, v: Any) -> Any:
            return jnp.where(v > i, v * 2, jnp.sin(v))

        return jax.lax.fori_loop(0, 3, body, x)

    def indexing(x: Any, i: Any) -> Any:
        return x.at[i].add(1.0)[::-1][i], jnp.argmax(x, -1), jnp.concatenate([x, x], 1)

    def random(seed: Any) -> Any:
        return jax.random.normal(jax.random.key(seed), (3, 5))

    def pool(x: Any) -> Any:
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2), (1, 2), "VALID")

    x, w, b = jnp.ones((4, 6)), jnp.ones((6, 8)), jnp.ones(8)
    lowered = {
        "mlp": jax.jit(jax.grad(mlp, (0, 1, 2))).lower(x, w, b),
        "loop": jax.jit(loop).lower(b),
        "indexing": jax.jit(indexing).lower(x, jnp.array([0, 2])),
        "random": jax.jit(random).lower(3),
        "pool": jax.jit(pool).lower(x),
        **_sharded(jax, jnp),
    }
    return {name: lo.compiler_ir("hlo").as_hlo_module().to_string() for name, lo in lowered.items()}


def test_jax_programs() -> None:
    for text in _jax_texts().values():
        same_through_xla(text)

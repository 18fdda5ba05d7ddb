"""Ops with a meaning of their own over a field: their partitioned forms are equal, and mistakes in these are found."""

from __future__ import annotations

import hloom
import pytest
from hloom import prove
from hloom.ir.graph.module import Module
from hloom.ir.ops.calls.behaviour import Behaviour
from hloom.ir.ops.calls.user_calls import USER_BEHAVIOURS
from support.harmless_faults import check_harmless
from support.planted_faults import faults, some

COMPUTATIONS = """HloModule m
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
multiply { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] multiply(a, b) }
ge { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = pred[] compare(a, b), direction=GE }
"""
ROWS, LAST = "sharding={devices=[4,1]<=[4]}", "sharding={devices=[1,4]<=[4]}"
BATCH = "sharding={devices=[4,1,1]<=[4]}"
NORM = """x = TYPE[10,6] parameter(0), {rows}  s = TYPE[6] parameter(1)  b = TYPE[6] parameter(2)
  n = (TYPE[10,6], TYPE[6], TYPE[6]) batch-norm-training(x, s, b), epsilon=0.001, feature_index=1
  m = TYPE[6] get-tuple-element(n), index=1  v = TYPE[6] get-tuple-element(n), index=2
  y = TYPE[10,6] get-tuple-element(n), index=0
  ROOT g = (TYPE[10,6], TYPE[6], TYPE[6]) batch-norm-grad(x, s, m, v, y), epsilon=0.001, feature_index=1"""

PROGRAMS = {
    "product of rows": """x = f32[10,6] parameter(0), {rows}  one = f32[] constant(1)
  ROOT y = f32[6] reduce(x, one), dimensions={{0}}, to_apply=multiply""",
    "cumulative product": """x = f32[10,6] parameter(0), {rows}  one = f32[] constant(1)
  ROOT y = f32[10,6] reduce-window(x, one), window={{size=10x1 pad=9_0x0_0}}, to_apply=multiply""",
    "scattered factors": """x = f32[6,3] parameter(0)  i = s32[10,1] parameter(1), {rows}
  u = f32[10,3] parameter(2), {rows}
  ROOT y = f32[6,3] scatter(x, i, u), update_window_dims={{1}}, inserted_window_dims={{0}},
    scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=multiply""",
    "batch normalization": NORM.replace("TYPE", "f32"),
    "batch normalization of small floats": NORM.replace("TYPE", "bf16"),
    "gradient of pooling": """x = f32[10,6] parameter(0), {rows}  s = f32[4,6] parameter(1)  zero = f32[] constant(0)
  ROOT y = f32[10,6] select-and-scatter(x, s, zero), window={{size=4x1 stride=2x1}}, select=ge, scatter=add""",
    "gradient of pooling by products": """x = f32[10,6] parameter(0), {rows}  s = f32[4,6] parameter(1)
  one = f32[] constant(1)
  ROOT y = f32[10,6] select-and-scatter(x, s, one), window={{size=4x1 stride=2x1}}, select=ge, scatter=multiply""",
    "triangles": """x = f32[6,3,3] parameter(0), sharding={{devices=[1,4,1]<=[4]}}  b = f32[6,3,5] parameter(1), {batch}
  l = f32[6,3,3] cholesky(x), lower=true
  ROOT y = f32[6,3,5] triangular-solve(l, b), left_side=true, lower=true, transpose_a=NO_TRANSPOSE""",
    "factors with pivots": """x = f32[6,3,3] parameter(0), {batch}
  l = (f32[6,3,3], s32[6,3], s32[6]) custom-call(x), custom_call_target="lapack_sgetrf_ffi", backend_config={{}}
  ROOT y = f32[6,3,3] get-tuple-element(l), index=0, sharding={{devices=[1,4,1]<=[4]}}""",
    "columns of a sparse product": """v = f32[4] parameter(0)  r = s32[4] constant({{0, 2, 2, 4}})
  c = s32[4] constant({{0, 1, 1, 2}})  x = f32[3,6] parameter(1), {rows}
  y = f32[3,6] custom-call(v, r, c, x), custom_call_target="cpu_csr_sparse_dense_ffi", backend_config={{}}, {last}
  ROOT z = f32[3,6] negate(y)""",
    "scaled product": """x = f32[6,8] parameter(0), {rows}  w = f32[5,8] parameter(1)  s = f32[6,2] parameter(2)
  t = f32[5,2] parameter(3)
  y = f32[6,5] scaled-dot(x, w, s, t), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
  ROOT z = f32[6,5] negate(y), {last}""",
}  # fmt: skip


def module_of(body: str) -> Module:
    return hloom.parse(COMPUTATIONS + "ENTRY e { " + body.format(rows=ROWS, last=LAST, batch=BATCH) + " }")


@pytest.mark.share(2)
@pytest.mark.parametrize("each", [1, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_they_are_equal_and_mistakes_are_found(name: str, each: int) -> None:
    """Up to `each` mistakes of each kind."""
    module = module_of(PROGRAMS[name])
    local = hloom.partition(module)
    verdict = prove(module, local)
    assert verdict.agrees, verdict
    planted = some(list(faults(local)), each)
    missed = [f for f in planted if prove(module, f.plant(local)).outcome != "differs"]
    check_harmless(module, local, missed)
    assert len(planted) > len(missed)


@pytest.mark.parametrize(("name", "right", "wrong"), [
    ("triangles", "transpose_a=NO_TRANSPOSE", "transpose_a=TRANSPOSE"),
    ("triangles", "lower=true", "lower=false"),
    ("factors with pivots", "lapack_sgetrf_ffi", "unheard-of"),
    ("batch normalization", "epsilon=0.001", "epsilon=0.002"),
    ("gradient of pooling", "direction=GE", "direction=LE"),
])  # fmt: skip
def test_other_options_are_told_apart(name: str, right: str, wrong: str) -> None:
    """The last of them in the program of the devices is changed."""
    module = module_of(PROGRAMS[name])
    before, found, after = hloom.partition(module).to_text().rpartition(right)
    assert found
    assert prove(module, hloom.parse(before + wrong + after)).outcome == "differs"


DRAWS = """low = f32[] constant(0)  high = f32[] constant(1)
  a = f32[8] rng(low, high), distribution=rng_uniform  b = f32[8] rng(low, high), distribution=rng_uniform
  ROOT t = (f32[8], f32[8]) tuple({})"""


def test_draws_are_told_apart() -> None:
    module, other = module_of(DRAWS.format("a, b")), module_of(DRAWS.format("b, a"))
    assert prove(module, hloom.partition(module)).outcome == "equal"
    assert prove(module, hloom.partition(other)).outcome == "differs"


CALL = """x = f32[8,6] parameter(0), {rows}  y = f32[8,6] exponential(x)
  ROOT z = f32[8,6] custom-call(y), custom_call_target="unheard-of"ATTRIBUTES"""


def test_a_foreign_call_without_effect_is_a_function() -> None:
    module = module_of(CALL.replace("ATTRIBUTES", ', backend_config="1"'))
    local = hloom.partition(module)
    assert prove(module, local).outcome == "equal"
    for right, wrong in (("exponential", "tanh"), ('backend_config="1"', 'backend_config="2"')):
        assert right in local.to_text()
        assert prove(module, hloom.parse(local.to_text().replace(right, wrong))).outcome == "differs"


INTEGERS = """key = u32[2] parameter(0)  i = u32[8] iota(), iota_dimension=0  n = u32[8] not(i)
  c = u32[8] custom-call(key, i), custom_call_target="cu_threefry2x32_ffi"
  ROOT z = u32[8] add(c, i), sharding={{devices=[4]<=[4]}}"""


def test_a_foreign_call_of_integers_is_a_function() -> None:
    """It is not run, which it cannot be."""
    module = module_of(INTEGERS)
    assert prove(module, hloom.partition(module)).outcome == "equal"
    for right, wrong in (("threefry2x32", "threefry4x32"), ("(key, i)", "(key, n)")):
        assert prove(module, hloom.partition(module_of(INTEGERS.replace(right, wrong)))).outcome == "differs"


@pytest.mark.parametrize(("rule", "outcome"), [
    ("([i j], [k]) -> [i k] replicate={j, k}", "equal"), (None, "equal"),
    ("([i j], [k]) -> [i k] reduction={j} replicate={k}", "unproved"),
])  # fmt: skip
def test_calls_of_users_go_by_their_rules(rule: str | None, outcome: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(USER_BEHAVIOURS, "mine", Behaviour())  # is taken away afterwards
    hloom.custom_call("mine", rule=rule, replace=True)
    module = module_of("""x = f32[10,6] parameter(0), {rows}  w = f32[3] parameter(1)
  y = f32[10,3] custom-call(x, w), custom_call_target="mine", {rows}  ROOT z = f32[10,3] negate(y), {last}""")
    assert prove(module, hloom.partition(module)).outcome == outcome


RULE = "#sdy.op_sharding_rule<([i, j])->([i, j]) {{i=8, j=6}}, custom>"
ON_ONE = "custom_call_has_side_effect=true, sharding={{maximal device=1}}"


@pytest.mark.parametrize("attributes", [
    f", {ON_ONE}", f', frontend_attributes={{{{xla.sdy.sharding_rule="{RULE}"}}}}',
])  # fmt: skip
def test_a_foreign_call_of_which_less_is_known_is_unproved(attributes: str) -> None:
    module = module_of(CALL.replace("ATTRIBUTES", attributes))
    verdict = prove(module, hloom.partition(module))
    assert verdict.outcome == "unproved"
    assert verdict.uncovered[0].reason == "the op does not say what it is over a field"


def test_what_a_callback_gets_is_not_looked_at() -> None:
    module = module_of(f"""x = f32[8] parameter(0), sharding={{{{devices=[4]<=[4]}}}}
  c = () custom-call(x), custom_call_target="xla_ffi_python_cpu_callback", {ON_ONE}
  ROOT y = f32[8] negate(x)""")
    assert prove(module, hloom.partition(module)).outcome == "equal"


@pytest.mark.parametrize("target", ["bf16", "s8"])
def test_stochastic_conversions_depend_on_their_bits(target: str) -> None:
    text = f"""x = f32[8] parameter(0), sharding={{{{devices=[4]<=[4]}}}}  r = u32[8] parameter(1)
  q = u32[8] parameter(2)
  ROOT y = {target}[8] stochastic-convert(x, BITS)"""
    module, other = module_of(text.replace("BITS", "r")), module_of(text.replace("BITS", "q"))
    assert prove(module, hloom.partition(module)).outcome == "equal"
    assert prove(module, hloom.partition(other)).outcome == "differs"


@pytest.mark.parametrize(("computation", "outcome"), [
    ("m = f32[] multiply(a, b)  s = f32[] add(a, b)  ROOT r = f32[] add(s, m)", "agrees"),
    ("p = pred[] compare(a, b), direction=GT  ROOT r = f32[] select(p, a, b)", "agrees"),
    ("c = f32[] abs(a)  d = f32[] abs(b)  ROOT r = f32[] maximum(c, d)", "unproved"),
    ("c = f32[] exponential(a)  d = f32[] exponential(b)  s = f32[] add(c, d)  ROOT r = f32[] log(s)", "unproved"),
    ("s = f32[] add(a, b)  c = bf16[] convert(s)  ROOT r = f32[] convert(c)", "unproved"),
])  # fmt: skip
def test_reductions_are_proved_if_they_are_associative(computation: str, outcome: str) -> None:
    module = hloom.parse("HloModule m\nf { a = f32[] parameter(0)  b = f32[] parameter(1)  " + computation + """ }
ENTRY e { x = f32[10,6] parameter(0), sharding={devices=[4,1]<=[4]}  i = f32[] parameter(1)
  ROOT y = f32[6] reduce(x, i), dimensions={0}, to_apply=f }""")
    assert prove(module, hloom.partition(module)).outcome == outcome


def test_products_without_dimensions_are_products_of_elements() -> None:
    clamped = """x = f32[] parameter(0)  y = f32[] parameter(1)  low = f32[] constant(-8)  high = f32[] constant(8)
  a = f32[] clamp(low, x, high)  b = f32[] clamp(low, y, high)  """
    dot = clamped + "ROOT z = f32[] dot(a, b), lhs_contracting_dims={{}}, rhs_contracting_dims={{}}"
    product = clamped + "ROOT z = f32[] multiply(a, b)"
    assert prove(module_of(dot), module_of(product), trials=8).outcome == "equal"


def test_products_of_nothing_are_zero() -> None:
    module = module_of("""x = f32[8,0] parameter(0), {rows}  y = f32[0,4] parameter(1)
  ROOT z = f32[8,4] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}""")
    assert prove(module, hloom.partition(module)).outcome == "equal"


def test_maps_of_repeated_elements_one_by_one() -> None:
    """A reshape takes no arrays of scalars, so that such a computation runs once for each element."""
    module = hloom.parse("""HloModule m
f { p = f32[] parameter(0)  q = f32[] parameter(1)  s = f32[] subtract(p, q)  ROOT r = f32[] reshape(s) }
ENTRY e { x = f32[5] parameter(0), sharding={devices=[2]<=[2]}  c = f32[] constant(3)
  b = f32[5] broadcast(c), dimensions={}  m = f32[5] map(b, x), dimensions={0}, to_apply=f
  n = f32[5] map(x, b), dimensions={0}, to_apply=f  ROOT t = (f32[5], f32[5]) tuple(m, n) }""")
    assert hloom.prove(module, hloom.partition(module)).is_equal


@pytest.mark.parametrize("element", ["f32", "s32"])
def test_comparators_may_look_at_constants(element: str) -> None:
    module = hloom.parse(f"""HloModule m
less {{ a = {element}[] parameter(0)  b = {element}[] parameter(1)  c = {element}[] constant(3)
  ROOT r = pred[] compare(c, b), direction=LT }}
ENTRY e {{ x = {element}[6,5] parameter(0), sharding={{devices=[2,1]<=[2]}}
  ROOT y = {element}[6,5] sort(x), dimensions={{1}}, to_apply=less }}""")
    assert prove(module, hloom.partition(module), all_inputs=True).agrees

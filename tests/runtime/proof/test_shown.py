"""What is shown for all inputs: right programs on terms are, mistakes and what is not known are not."""

from __future__ import annotations

import hloom
import numpy as np
import pytest
from hloom import prove
from hloom.runtime.proof.field import GREATEST, LEAST
from hloom.runtime.proof.oracle import Oracle
from hloom.runtime.proof.relations.extremes import Extremes
from hloom.runtime.proof.relations.located import shown
from hloom.runtime.proof.verdict import Shown
from support.command_line import EXAMPLES
from support.golden import golden_texts
from support.planted_faults import all_faults, faults, some

FEW = ("partial", "spmd")
SLOWER = ("halo", "indexed", "found")


def shown_of(text: str, wrong: tuple[str, str] | None = None) -> Shown | None:
    module = hloom.parse(text)
    local = hloom.partition(module)
    if wrong is not None:
        assert wrong[0] in local.to_text()
        local = hloom.parse(local.to_text().replace(*wrong, 1))
    return shown(module, local)


@pytest.mark.parametrize("name", ["mlp_named", "mlp_train"])
def test_all_values_of_examples_are_shown(name: str) -> None:
    module = hloom.load(EXAMPLES / f"{name}.hlo")
    found = shown(module, hloom.partition(module))
    assert found is not None
    assert (found.outputs, found.values) == (found.all_outputs, found.all_values)
    verdict = hloom.prove(module, hloom.partition(module), trials=1, all_inputs=True)
    assert f"shown for all inputs ({found.values} of {found.values} values)" in str(verdict)
    assert "tested only" not in str(verdict)


@pytest.mark.parametrize(("stem", "cases"), [
    *((s, slice(4)) for s in FEW), *(pytest.param(s, slice(0, None, 2), marks=pytest.mark.slow) for s in FEW + SLOWER),
])  # fmt: skip
def test_no_mistake_is_shown(stem: str, cases: slice) -> None:
    tried = 0
    for text in golden_texts(stem, "EVAL")[cases]:
        module = hloom.parse(text)
        local = hloom.partition(module)
        right = shown(module, local)
        for fault in some(list(faults(local)), 1) if right is not None and right.outputs else ():
            bad = fault.plant(local)
            try:
                differs = prove(module, bad, trials=3).outcome == "differs"
            except hloom.CompileError:  # the mistake took the sharding from a result
                continue
            if differs:
                found = shown(module, bad)
                assert found is None or found.outputs < found.all_outputs, fault
                tried += 1
    assert tried > 4


MASKED = """HloModule m
ENTRY e {{ x = {0}[10] parameter(0), sharding={{devices=[4]<=[4]}}  y = {0}[10] parameter(1)
  more = pred[10] compare(x, y), direction=GT  both = {0}[10] add(x, y)
  ROOT z = {0}[10] select(more, both, y) }}"""


@pytest.mark.parametrize("element", ["f32", "s32"])
def test_comparisons_and_integers_are_shown(element: str) -> None:
    found = shown_of(MASKED.format(element))
    assert found is not None
    assert found.outputs == 1
    other = shown_of(MASKED.format(element), ("direction=GT", "direction=GE"))
    assert other is not None
    assert other.outputs == 0


@pytest.mark.parametrize("reduction", ["add", "maximum", "minimum"])
def test_divided_reductions_are_shown(reduction: str) -> None:
    start = {"add": "0", "maximum": "-inf", "minimum": "inf"}[reduction]
    found = shown_of(f"""HloModule m
f {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] {reduction}(a, b) }}
ENTRY e {{ x = f32[14,3] parameter(0), sharding={{devices=[4,1]<=[4]}}  z = f32[] constant({start})
  ROOT y = f32[3] reduce(x, z), dimensions={{0}}, to_apply=f, sharding={{replicated}} }}""")
    assert found is not None
    assert found.outputs == 1


def looked_up(index: str = "s32", rows: int = 30) -> str:
    """A look-up in a table whose rows are divided, unevenly unless four divides them."""
    return f"""HloModule m
ENTRY e {{ x = f32[{rows},8] parameter(0), sharding={{devices=[4,1]<=[4]}}  i = {index}[6,1] parameter(1)
  ROOT y = f32[6,8] gather(x, i), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}},
    index_vector_dim=1, slice_sizes={{1,8}}, sharding={{replicated}} }}"""


def scattered(rows: int = 30) -> str:
    """The gradient of such a look-up."""
    return f"""HloModule m
f {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }}
ENTRY e {{ x = f32[{rows},8] parameter(0), sharding={{devices=[4,1]<=[4]}}  i = s32[6,1] parameter(1)
  u = f32[6,8] parameter(2), sharding={{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}}
  ROOT y = f32[{rows},8] scatter(x, i, u), update_window_dims={{1}}, inserted_window_dims={{0}}, to_apply=f,
    scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, sharding={{devices=[4,1]<=[4]}} }}"""


ALONG = """HloModule m
ENTRY e { x = f32[3,16] parameter(0), sharding={devices=[1,4]<=[4]}  i = s32[3,1,1] parameter(1)
  ROOT y = f32[3,1] gather(x, i), offset_dims={}, collapsed_slice_dims={1}, start_index_map={1},
    operand_batching_dims={0}, start_indices_batching_dims={0}, index_vector_dim=2, slice_sizes={1,1},
    sharding={replicated} }"""


RIGHT = [*map(looked_up, ("s32", "u32", "s8")), looked_up("s32", 32), looked_up("s8", 300), scattered(), scattered(32)]


@pytest.mark.parametrize("text", [*RIGHT, ALONG])
def test_look_ups_in_a_divided_table_are_shown(text: str) -> None:
    found = shown_of(text)
    assert found is not None
    assert found.outputs == found.all_outputs == 1


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (looked_up(), ("multiply(%remainder, %constant.3)", "multiply(%remainder, %constant.2)")),  # 4 rows, not 8
        (looked_up(), ("direction=LT", "direction=LE")),  # windows overlap
        (looked_up(), ("direction=GE", "direction=GT")),  # a row is on no device
        (looked_up(), ("all-reduce(%select)", "all-reduce(%y)")),  # no mask
        (looked_up(), ("constant(29)", "constant(28)")),  # another bound
        (looked_up(), ("subtract(%clamp", "subtract(%i")),  # out of bounds no row is found
        (looked_up(), ("subtract(%clamp", "add(%clamp")),
        (looked_up(), ("gather(%x, %subtract)", "gather(%x, %clamp)")),
        (scattered(), ("multiply(%remainder, %constant.1)", "multiply(%remainder, %constant)")),
        (scattered(), ("subtract(%i", "add(%i")),
        (ALONG, ("direction=LT", "direction=LE")),
        (ALONG, ("constant(15)", "constant(14)")),
    ],
)
def test_mistakes_in_look_ups_are_not_shown(text: str, wrong: tuple[str, str]) -> None:
    found = shown_of(text, wrong)
    assert found is not None
    assert found.outputs == 0


@pytest.mark.share(3)
@pytest.mark.parametrize("text", [looked_up(), scattered(), ALONG])
def test_no_planted_mistake_in_a_look_up_is_shown(text: str) -> None:
    module = hloom.parse(text)
    local = hloom.partition(module)
    tried = 0
    for fault in all_faults(local):
        bad = fault.plant(local)
        try:
            verdict = prove(module, bad, trials=8)
        except hloom.CompileError:
            continue
        if verdict.outcome == "differs":
            found = shown(module, bad)
            assert found is None or found.outputs == 0, fault
            tried += 1
    assert tried > 2


def test_a_look_up_at_two_numbers_is_not_shown() -> None:
    text = """HloModule m
ENTRY e { x = f32[32,8] parameter(0), sharding={devices=[4,1]<=[4]}  i = s32[6,2] parameter(1)
  ROOT y = f32[6] gather(x, i), offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={0,1}, index_vector_dim=1,
    slice_sizes={1,1}, sharding={replicated} }"""
    found = shown_of(text)
    assert found is not None
    assert found.outputs == 0
    module = hloom.parse(text)
    verdict = hloom.prove(module, hloom.partition(module), trials=1, all_inputs=True)
    assert "tested only: output 0 (i (s32))" in str(verdict)


def test_maps_by_computations_of_one_name_may_differ() -> None:
    text = """HloModule m
f { p = s32[] parameter(0)  c = s32[] constant(123456)  z = s32[] constant(0)  e = pred[] compare(p, c), direction=EQ
  ROOT s = s32[] select(e, z, p) }
ENTRY e { x = s32[4] parameter(0), sharding={devices=[2]<=[2]}
  ROOT y = s32[4] map(x), dimensions={0}, to_apply=f, sharding={devices=[2]<=[2]} }"""
    wrong = shown_of(text, ("constant(123456)", "constant(654321)"))
    assert wrong is None or wrong.outputs == 0


def test_maps_of_constants_alone() -> None:
    text = """HloModule m
f { p = bf16[] parameter(0)  q = bf16[] parameter(1)  ROOT s = bf16[] add(p, q) }
ENTRY e { x = bf16[4] parameter(0), sharding={devices=[2]<=[2]}  c = bf16[] constant(-2)
  b = bf16[4] broadcast(c), dimensions={}  m = bf16[4] map(b, b), dimensions={0}, to_apply=f
  ROOT y = bf16[4] add(x, m), sharding={devices=[2]<=[2]} }"""
    found = shown_of(text)
    assert found is not None
    assert found.outputs == 1


@pytest.mark.parametrize("operation", ["and", "or"])
def test_reductions_of_predicates_are_shown(operation: str) -> None:
    start = {"and": "true", "or": "false"}[operation]
    text = f"""HloModule m
f {{ a = pred[] parameter(0)  b = pred[] parameter(1)  ROOT c = pred[] {operation}(a, b) }}
ENTRY e {{ x = f32[14,3] parameter(0), sharding={{devices=[4,1]<=[4]}}  y = f32[14,3] parameter(1)
  p = pred[14,3] compare(x, y), direction=GT  z = pred[] constant({start})
  ROOT r = pred[3] reduce(p, z), dimensions={{0}}, to_apply=f, sharding={{replicated}} }}"""
    found = shown_of(text)
    assert found is not None
    assert found.outputs == 1
    other = {"and": "or", "or": "and"}[operation]
    wrong = shown_of(text, (f"{operation}(%a, %b)", f"{other}(%a, %b)"))
    assert wrong is not None
    assert wrong.outputs == 0


def test_reductions_of_no_predicates_are_shown() -> None:
    found = shown_of("""HloModule m
f { a = pred[] parameter(0)  b = pred[] parameter(1)  ROOT c = pred[] and(a, b) }
ENTRY e { x = pred[5,0] parameter(0), sharding={devices=[2,1]<=[2]}  z = pred[] constant(true)
  ROOT r = pred[0] reduce(x, z), dimensions={0}, to_apply=f }""")
    assert found is not None
    assert found.outputs == 1


def test_nan_in_place_of_a_value_is_shown() -> None:
    text = """HloModule m
ENTRY e { x = f32[10] parameter(0), sharding={devices=[4]<=[4]}  p = pred[10] parameter(1)  n = f32[] constant(nan)
  ns = f32[10] broadcast(n), dimensions={}  ROOT y = f32[10] select(p, x, ns) }"""
    found = shown_of(text)
    assert found is not None
    assert found.outputs == 1
    wrong = shown_of(text, ("constant(nan)", "constant(0)"))
    assert wrong is not None
    assert wrong.outputs == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["transformer_train", "transformer_scan_train"])
def test_all_outputs_of_transformers_are_shown(name: str) -> None:
    module = hloom.load(EXAMPLES / f"{name}.hlo")
    found = shown(module, hloom.partition(module))
    assert found is not None
    assert found.outputs == found.all_outputs
    assert found.values > 0.98 * found.all_values


@pytest.mark.parametrize(("end", "is_known"), [("5", True), ("parameter", False)])
def test_loops_need_an_end_that_is_known(end: str, is_known: bool) -> None:
    bound = "n = s32[] constant(5)" if is_known else "n = s32[] get-tuple-element(s), index=2"
    found = shown_of(f"""HloModule m
more {{ s = (s32[], f32[8], s32[]) parameter(0)  i = s32[] get-tuple-element(s), index=0
  {bound}  ROOT m = pred[] compare(i, n), direction=LT }}
step {{ s = (s32[], f32[8], s32[]) parameter(0)  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)  j = s32[] add(i, one)  x = f32[8] get-tuple-element(s), index=1
  y = f32[8] tanh(x)  k = s32[] get-tuple-element(s), index=2  ROOT t = (s32[], f32[8], s32[]) tuple(j, y, k) }}
ENTRY e {{ x = f32[8] parameter(0), sharding={{devices=[4]<=[4]}}  z = s32[] constant(0)  n = s32[] parameter(1)
  s = (s32[], f32[8], s32[]) tuple(z, x, n)  w = (s32[], f32[8], s32[]) while(s), condition=more, body=step
  ROOT y = f32[8] get-tuple-element(w), index=1 }}""")
    assert (found is not None and found.outputs == 1) == is_known


def test_extremes_do_not_depend_on_order() -> None:
    of = Extremes(Oracle(np.random.SeedSequence(0)), "maximum")
    x = np.random.default_rng(0).integers(1 << 40, 1 << 60, (6, 4), np.uint64)
    least = np.full(1, LEAST)
    whole = of.over(x, least, (0,))
    parts = [of.over(part, least, (0,)) for part in (x[4:], x[:2], x[2:4])]
    assert (of.of_two(of.of_two(parts[0], parts[1]), parts[2]) == whole).all()
    assert (of.over(x[:-1], least, (0,)) != whole).all()
    assert (of.of_two(x[0], np.full(4, LEAST)) == x[0]).all()
    assert (of.over(np.full((6, 4), LEAST), least, (0,)) == LEAST).all()
    assert (of.of_two(x[0], np.full(4, GREATEST)) == GREATEST).all()

"""Refinement: disagreements between annotations are settled where that sends least, with causes that are true."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import hloom
import pytest
from hloom.ir.graph.module import Module, clone_module
from hloom.passes.base import PassContext, run_pipeline
from hloom.passes.op_sharding.choose import Chooser
from hloom.passes.pipelines import PIPELINE, propagate
from hloom.passes.propagation import refine as refinement
from hloom.passes.propagation.causes import trace
from hloom.passes.propagation.propagate import Propagate
from hloom.report.explain import explain
from hloom.report.shardings import Solved, solved
from hloom.runtime.inputs.inputs import make_inputs
from support.compare import compare

EXAMPLES = Path(__file__).parents[3] / "examples"
MESH = "mesh['x'=4]"
ROWS, COLUMNS = f"{{{MESH}, [{{'x'}}, {{}}]}}", f"{{{MESH}, [{{}}, {{'x'}}]}}"

LOOP = """HloModule m
cond {{
  p = (s32[], f32[8,12]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(5)
  ROOT less = pred[] compare(i, n), direction=LT
}}
body {{
  p = (s32[], f32[8,12]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  h = f32[8,12] get-tuple-element(p), index=1
  next = f32[8,12] {op}
  ROOT r = (s32[], f32[8,12]) tuple(j, next)
}}
ENTRY e {{
  zero = s32[] constant(0)
  x = f32[8,12] parameter(0), sharding={start}
  s = (s32[], f32[8,12]) tuple(zero, x)
  w = (s32[], f32[8,12]) while(s), condition=cond, body=body
  ROOT y = f32[8,12] get-tuple-element(w), index=1, sharding={end}
}}
"""

# Where columns meet rows, the value that is resharded is larger than where it began, and there are two of it.
FAR = f"""HloModule m
ENTRY e {{
  x = f32[16,64] parameter(0), sharding={ROWS}
  w = bf16[16,64] parameter(1), sharding={COLUMNS}
  c = f32[16,64] convert(w)
  s = f32[16,64] sine(c)
  t = f32[16,64] cosine(c)
  m = f32[16,64] multiply(s, x)
  n = f32[16,64] multiply(t, x)
  a = f32[16,64] add(m, n)
  ROOT r = f32[16,64] negate(a), sharding={ROWS}
}}
"""


# A scan over the divided rows of x adds them up.
SCAN = f"""HloModule m
cond {{
  p = (s32[], f32[6], f32[8,6]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(8)
  ROOT less = pred[] compare(i, n), direction=LT
}}
body {{
  p = (s32[], f32[6], f32[8,6]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  zero = s32[] constant(0)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  sum = f32[6] get-tuple-element(p), index=1
  rows = f32[8,6] get-tuple-element(p), index=2
  row = f32[1,6] dynamic-slice(rows, i, zero), dynamic_slice_sizes={{1,6}}
  flat = f32[6] reshape(row)
  wave = f32[6] sine(sum)
  next = f32[6] add(wave, flat)
  ROOT r = (s32[], f32[6], f32[8,6]) tuple(j, next, rows)
}}
ENTRY e {{
  zero = s32[] constant(0)
  start = f32[6] parameter(0)
  x = f32[8,6] parameter(1), sharding={ROWS}
  s = (s32[], f32[6], f32[8,6]) tuple(zero, start, x)
  w = (s32[], f32[6], f32[8,6]) while(s), condition=cond, body=body
  ROOT y = f32[6] get-tuple-element(w), index=1
}}
"""


def limited(module: Module, **limits: int) -> Module:
    """The program of each device, after a search with these limits."""
    module = clone_module(module)
    steps = [replace(p, **limits) if isinstance(p, Propagate) else p for p in PIPELINE]
    run_pipeline(steps, module, PassContext())
    return module


def sent(module: Module, **limits: int) -> int:
    return sum(c.sent_bytes for c in hloom.collectives(limited(module, **limits)))


def check(text: str) -> Module:
    """The program with its numbers checked on all devices."""
    module = hloom.parse(text, "m")
    inputs = make_inputs([p.shape for p in module.entry.parameters], seed=0)
    result = compare(hloom.simulate(hloom.partition(module), inputs, poison=True), hloom.evaluate(module, inputs))
    assert result.equal, result
    return module


def test_the_state_of_a_loop_does_not_follow_what_its_result_is_annotated_as() -> None:
    module = check(LOOP.format(op="sine(h)", start=ROWS, end="{replicated}"))
    (gather,) = hloom.collectives(hloom.partition(module))
    assert (gather.kind, gather.count, gather.cause) == ("all-gather", 1, "result of while w")


def test_the_state_of_a_loop_is_what_costs_least_on_all_trips() -> None:
    """Sums over rows are divided as the columns are: one move before the loop instead of five sums of all devices."""
    op = "add(h, sums)\n"
    sums = ("zero = f32[] constant(0)\n  sum = f32[12] reduce(h, zero), dimensions={0}, to_apply=plus\n"
            "  sums = f32[8,12] broadcast(sum), dimensions={1}\n  next = ")
    text = LOOP.format(op=op, start=ROWS, end=COLUMNS).replace("next = ", sums)
    plus = "plus {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"
    module = check(text.replace("cond {", plus + "cond {"))
    (found,) = hloom.collectives(hloom.partition(module))
    assert (found.kind, found.count) == ("all-to-all", 1)
    assert any(c.count == 5 for c in hloom.collectives(limited(module, rounds=0)))


def test_a_disagreement_goes_where_the_value_is_small() -> None:
    module = check(FAR)
    tile = 16 * 64 // 4 * 3 // 4
    assert sent(module) == tile * 2
    assert sent(module, rounds=0) == tile * 4 * 2


def test_a_disagreement_goes_behind_a_long_chain_of_elementwise_ops() -> None:
    """A trail passes such a chain in one step, so that it lies as its result is wanted."""
    chain = "".join(f"  y{n} = f32[16,64] {op}(y{n - 1})\n" for n, op in enumerate(["negate", "sine"] * 10, 1))
    text = (f"HloModule m\nENTRY e {{\n  x = f32[16,64] parameter(0), sharding={ROWS}\n"
            f"  w = f32[16,64] parameter(1), sharding={COLUMNS}\n  y0 = f32[16,64] add(x, w)\n{chain}"
            f"  ROOT r = bf16[16,64] convert(y20), sharding={COLUMNS}\n}}\n")
    module, tile = check(text), 16 * 64 // 4 * 3 // 4
    assert sent(module) == tile * 4
    assert sent(module, rounds=0) > tile * 4


def test_the_search_ends_when_it_has_decided_often_enough() -> None:
    module, tile = hloom.parse(FAR, "m"), 16 * 64 // 4 * 3 // 4
    assert sent(module, decisions=0) == tile * 4 * 2
    assert sent(module, decisions=100) == tile * 2


LAYER = """
  w{n} = bf16[16,64] parameter({n}), sharding={columns}
  c{n} = f32[16,64] convert(w{n})
  sine{n} = f32[16,64] sine(c{n})
  t{n} = f32[16,64] cosine(c{n})
  m{n} = f32[16,64] multiply(sine{n}, x{before})
  n{n} = f32[16,64] multiply(t{n}, x{before})
  a{n} = f32[16,64] add(m{n}, n{n})
  x{n} = f32[16,64] negate(a{n}), sharding={rows}
"""


def layers(count: int) -> str:
    """`FAR` several times, each on the result of the one before."""
    body = "".join(LAYER.format(n=n, before=n - 1, rows=ROWS, columns=COLUMNS) for n in range(1, count + 1))
    return (f"HloModule m\nENTRY e {{\n  x0 = f32[16,64] parameter(0), sharding={ROWS}\n{body}"
            f"  ROOT r = f32[16,64] copy(x{count})\n}}\n")


def test_equal_layers_are_searched_once() -> None:
    """The search of three layers is long enough for thirty: all of them change alike."""
    tile = 16 * 64 // 4 * 3 // 4
    for count in (3, 30):
        assert sent(hloom.parse(layers(count), "m"), changes=100) == count * tile * 2
    check(layers(3))


def test_the_causes_of_what_was_changed() -> None:
    """Propagation gave `s` the columns of `w`."""
    (found,) = explain(hloom.parse(FAR, "m"), "s")
    assert found.sharding == "[x, -]"
    (reason,) = found.axes
    assert [step.value for step in reason.steps] == ["s", "x"]
    disputes = list(solved(hloom.parse(FAR, "m"), PassContext()).disputes())
    assert {(d.via, d.lost) for d in disputes} <= {("c", "w dimension 1: x"), ("c", "c dimension 0: x")}
    assert disputes


@pytest.mark.parametrize("example", ["mlp_train.hlo", "transformer_train.hlo"])
def test_every_digit_has_a_cause(example: str) -> None:
    _check_causes(solved(hloom.load(EXAMPLES / example), PassContext()))
    _check_causes(solved(hloom.parse(FAR, "m"), PassContext()))


def _check_causes(found: Solved) -> None:
    for _, leaf, _ in found.named():
        for dim, digits in enumerate(leaf.dims):
            for digit in digits:
                *_, (last, place, cause) = trace(leaf, dim, digit)
                assert cause is None
                assert last.annotated
                assert last.dims[place]


def test_a_program_without_conflicts_is_left_alone() -> None:
    agreed = hloom.parse(FAR.replace(COLUMNS, ROWS), "m")
    assert sent(agreed) == 0
    propagate(clone_module(agreed), PassContext(chooser=Chooser(_refuse)))
    with pytest.raises(hloom.InternalError, match="asked for a price"):
        propagate(hloom.parse(FAR, "m"), PassContext(chooser=Chooser(_refuse)))


def _refuse(op: object, assignment: object) -> float:
    raise AssertionError("asked for a price")


# A compiler expands the rows where the product of masks and rows reads them; gathering weights would send more.
EXPANDED = """HloModule m, num_partitions=8
ENTRY e {
  rows = f32[2048,64] parameter(0), sharding={devices=[8,1]<=[8]}
  shift = f32[8,2048,64] parameter(1), sharding={replicated}
  w = f32[8,64,1024] parameter(2), sharding={devices=[1,1,8]<=[8]}
  n = f32[2048,64] sine(rows)
  many = f32[8,2048,64] broadcast(n), dimensions={1,2}
  a = f32[8,2048,64] add(many, shift)
  b = f32[8,2048,64] tanh(a)
  c = f32[8,2048,64] negate(b)
  d = f32[8,2048,64] cosine(c)
  ROOT p = f32[2048,1024] dot(d, w), lhs_contracting_dims={2,0}, rhs_contracting_dims={1,0},
    sharding={devices=[1,8]<=[8]}
}
"""


def test_values_inside_of_a_fusion_cost_no_memory() -> None:
    module = check(EXPANDED)
    (found,) = hloom.collectives(hloom.partition(module))
    assert (found.kind, found.sent_bytes) == ("all-gather", 2048 // 8 * 64 * 4 * 7)


def test_a_change_that_sends_the_same_must_take_less_time_for_no_more_arithmetic() -> None:
    assert refinement.Delta(received=0.0, total=-5.0, arithmetic=0.0).gains(0.0)
    assert not refinement.Delta(received=0.0, total=0.0, arithmetic=0.0).gains(0.0)
    assert not refinement.Delta(received=0.0, total=-5.0, arithmetic=1.0).gains(0.0)
    assert not refinement.Delta(received=1.0, total=-5.0, arithmetic=0.0).gains(0.0)


@pytest.mark.parametrize("rows", [8, 128])
def test_scanned_rows_are_gathered_once(rows: int) -> None:
    """Each trip would send a row to all, by an all-reduce. It reads a row alone, however many there are."""
    text = SCAN.replace("[8,", f"[{rows},").replace("constant(8)", f"constant({rows})")
    (found,) = hloom.collectives(hloom.partition(check(text)))
    assert found.kind == "all-gather"
    assert found.sent_bytes == rows * 6 * 4 * 3 // 4

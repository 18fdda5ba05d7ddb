"""Fusion: what one nest computes, what it must not, and programs with the same numbers afterwards."""

from __future__ import annotations

from pathlib import Path

import hloom
import numpy as np
import pytest
from hloom.ir.graph.module import Module, clone_module
from hloom.ir.tools.unfused import unfused
from hloom.passes.base import PassContext, run_pipeline
from hloom.passes.fusion.fuse import FusionPass
from hloom.runtime.inputs.inputs import make_inputs
from hypothesis import HealthCheck, given, settings
from programs.random.generate import REGIONS, programs
from support.command_line import EXAMPLES
from support.compare import compare
from support.golden import FOLDER, UNPROVED, cases_of
from support.partition_check import partitioned

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]

REDUCERS = """HloModule m
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
max { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] maximum(a, b) }
"""


def fused(module: Module, most: int = 128) -> Module:
    """A fused copy, verified."""
    copy = clone_module(module)
    run_pipeline([FusionPass(most)], copy, PassContext(verify="each"))
    return copy


def entry(body: str) -> Module:
    return hloom.parse(REDUCERS + "ENTRY e {\n" + body + "\n}\n")


def fusions(module: Module) -> list[list[str]]:
    """The opcodes of each fusion, without its parameters."""
    return [[i.opcode for i in f.called()[0] if i.opcode != "parameter"]
            for c in module for f in c if f.opcode == "fusion"]


def outside(module: Module) -> list[str]:
    return [i.opcode for i in module.entry if i.opcode not in ("parameter", "tuple", "get-tuple-element")]


def test_softmax_is_one_fusion() -> None:
    module = entry("""x = f32[8,64] parameter(0)  w = f32[64] parameter(1)
      low = f32[] constant(-inf)  zero = f32[] constant(0)
      m = f32[8] reduce(x, low), dimensions={1}, to_apply=max    mb = f32[8,64] broadcast(m), dimensions={0}
      d = f32[8,64] subtract(x, mb)  e = f32[8,64] exponential(d)
      s = f32[8] reduce(e, zero), dimensions={1}, to_apply=add   sb = f32[8,64] broadcast(s), dimensions={0}
      r = f32[8,64] divide(e, sb)    wb = f32[64,8] broadcast(w), dimensions={0}
      t = f32[8,64] transpose(wb), dimensions={1,0}
      ROOT y = f32[8,64] multiply(r, t)""")
    result = fused(module)
    assert outside(result) == ["fusion"]
    assert len(fusions(result)[0]) == 12
    assert [p.shape.dims for p in result.entry.root.operands] == [(8, 64), (64,)]


def test_rows_and_columns_are_results_of_one_fusion() -> None:
    module = entry("""x = f32[8,64] parameter(0)  zero = f32[] constant(0)
      y = f32[8,64] multiply(x, x)
      rows = f32[8] reduce(y, zero), dimensions={1}, to_apply=add
      columns = f32[64] reduce(y, zero), dimensions={0}, to_apply=add
      root = f32[8] sqrt(rows)
      ROOT t = (f32[8], f32[64], f32[8,64]) tuple(root, columns, y)""")
    result = fused(module)
    assert outside(result) == ["fusion"]
    assert sorted(s.dims for s in result.entry.root.operands[0].operands[0].shape.elements) == [(8,), (8, 64), (64,)]


def test_columns_are_complete_only_after_all_rows() -> None:
    module = entry("""x = f32[8,64] parameter(0)  zero = f32[] constant(0)
      y = f32[8,64] negate(x)
      columns = f32[64] reduce(y, zero), dimensions={0}, to_apply=add
      b = f32[8,64] broadcast(columns), dimensions={1}
      ROOT z = f32[8,64] add(y, b)""")
    assert sorted(map(len, fusions(fused(module)))) == [2, 4]  # broadcast and add; the rest with its results as a tuple


def test_groups_do_not_close_a_circle() -> None:
    """The dot stands between the two element-wise ops: one fusion of both would need its own result."""
    module = entry("""x = f32[8,8] parameter(0)
      y = f32[8,8] negate(x)  u = f32[8,8] exponential(y)
      d = f32[8,8] dot(y, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      ROOT z = f32[8,8] add(u, d)""")
    result = fused(module)
    assert fusions(result) == [["negate", "exponential", "tuple"]]
    assert outside(result) == ["fusion", "dot", "add"]


def test_groups_that_a_later_op_joins_are_merged() -> None:
    module = entry("""x = f32[8,8] parameter(0)  y = f32[8,8] parameter(1)
      a = f32[8,8] negate(x)  b = f32[8,8] exponential(y)  ROOT c = f32[8,8] multiply(a, b)""")
    assert fusions(fused(module)) == [["negate", "exponential", "multiply"]]


def test_broadcasts_and_masks_are_not_stored() -> None:
    """Two readers that cannot be one fusion compute them anew."""
    module = entry("""x = f32[8,8] parameter(0)  s = f32[] parameter(1)
      n = s32[8,8] iota(), iota_dimension=0  m = s32[8,8] iota(), iota_dimension=1
      below = pred[8,8] compare(n, m), direction=GE  b = f32[8,8] broadcast(s), dimensions={}
      y = f32[8,8] select(below, x, b)
      d = f32[8,8] dot(y, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      ROOT z = f32[8,8] select(below, d, b)""")
    result = fused(module)
    assert outside(result) == ["fusion", "dot", "fusion"]
    assert all(f.count("iota") == 2 for f in fusions(result))


def test_transposed_members_are_not_read_in_place() -> None:
    """An element of the transposed sum needs elements of other rows."""
    module = entry("""x = f32[8,8] parameter(0)
      y = f32[8,8] exponential(x)  t = f32[8,8] transpose(y), dimensions={1,0}  ROOT z = f32[8,8] add(y, t)""")
    assert all("exponential" not in f or "add" not in f for f in fusions(fused(module)))


def test_the_number_of_ops_is_limited() -> None:
    lines = ["x0 = f32[8] parameter(0)", *[f"x{n + 1} = f32[8] negate(x{n})" for n in range(10)]]
    result = fused(entry("\n".join([*lines[:-1], "ROOT " + lines[-1]])), most=4)
    assert [len(f) for f in fusions(result)] == [4, 4, 2]


@pytest.mark.parametrize("line", [
    'y = f32[8] negate(x), control-predecessors={p}',
    "y = f32[8] opt-barrier(x)",
    "y = f32[8] copy-done(s)",
])  # fmt: skip
def test_effects_and_orders_are_not_fused(line: str) -> None:
    module = entry(f"""x = f32[8] parameter(0)  p = f32[8] negate(x)
      s = (f32[8], f32[8], u32[]) copy-start(x)
      {line}
      ROOT z = f32[8] add(y, p)""" if "copy" in line else
                   f"x = f32[8] parameter(0)  p = f32[8] negate(x)\n{line}\nROOT z = f32[8] add(y, p)")
    y = module.entry.find("y")
    assert y is not None
    assert y.opcode in outside(fused(module))


def bits_stay(module: Module) -> None:
    """Compares the local program with the fused one on random inputs, to the bit."""
    local = partitioned(module)
    inputs = make_inputs([p.shape for p in module.entry.parameters], seed=1)
    with np.errstate(all="ignore"):
        same = compare(hloom.simulate(fused(local), inputs), hloom.simulate(local, inputs), scale=0)
    assert same.equal, f"{same}\n{module.to_text()}"


@settings(max_examples=25, deadline=None, suppress_health_check=QUIET, derandomize=True)
@given(programs(outer=REGIONS))
def test_random_programs(module: Module) -> None:
    bits_stay(module)


@pytest.mark.slow
@settings(max_examples=2000, deadline=None, suppress_health_check=QUIET)
@given(programs(outer=REGIONS))
def test_many_random_programs(module: Module) -> None:
    bits_stay(module)


def unproved(file: Path, step: int) -> int:
    """Proves every so many of the golden cases of a file after the fusion. Returns how many are not proved."""
    found = 0
    for case in [c for c in cases_of(file) if any(v.split()[0] == "EVAL" for v in c.verbs)][::step]:
        module = hloom.parse(case.text)
        verdict = hloom.prove(module, fused(hloom.partition(module)), trials=1)
        assert verdict.outcome != "differs", f"{case.name}: {verdict}"
        found += verdict.outcome == "unproved"
    return found


@pytest.mark.share(2)
@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.hlo")), ids=lambda path: path.stem)
def test_golden_cases(file: Path) -> None:
    assert unproved(file, 3) <= UNPROVED.get(file.stem, 0)


@pytest.mark.slow
@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.hlo")), ids=lambda path: path.stem)
def test_all_golden_cases(file: Path) -> None:
    """As many are unproved as before the fusion, which `proof/test_coverage.py` shows."""
    assert unproved(file, 1) == UNPROVED.get(file.stem, 0)


@pytest.mark.parametrize(
    "name",
    ["mlp_named", "mlp_train",
     *(pytest.param(name, marks=pytest.mark.slow) for name in ("transformer_train", "transformer_scan_train"))],
)
def test_examples_are_proved(name: str) -> None:
    module = hloom.load(EXAMPLES / f"{name}.hlo")
    local = fused(hloom.partition(module))
    assert hloom.prove(module, hloom.parse(local.to_text()), trials=1).outcome == "equal"


def test_fusing_again_changes_nothing() -> None:
    local = fused(hloom.partition(hloom.load(EXAMPLES / "transformer_train.hlo")))
    assert fused(local).to_text() == local.to_text()


def test_xla_runs_fused_programs() -> None:
    pytest.importorskip("jax")
    module = hloom.load(EXAMPLES / "mlp_train.hlo")
    local = hloom.partition(module)
    inputs = make_inputs([p.shape for p in module.entry.parameters])
    found, expected = hloom.run_on_xla(fused(local), inputs), hloom.run_on_xla(local, inputs)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_fusions_hide_comes_back() -> None:
    """A body that something else calls as well stays."""
    text = """HloModule m
body { x = f32[4] parameter(0)  y = f32[4] negate(x)  ROOT t = (f32[4], f32[4]) tuple(x, y) }
ENTRY e { a = f32[4] parameter(0)
  f = (f32[4], f32[4]) fusion(a), kind=kLoop, calls=body
  c = (f32[4], f32[4]) call(a), to_apply=body
  g = f32[4] get-tuple-element(f), index=1  h = f32[4] get-tuple-element(c), index=0  ROOT r = f32[4] add(g, h) }"""
    plain = unfused(hloom.parse(text))
    assert "fusion(" not in plain.to_text()
    assert "call(" in plain.to_text()
    a = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(hloom.evaluate(hloom.parse(plain.to_text()), [a])[0], np.zeros(4))

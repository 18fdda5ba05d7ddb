"""Uses of ops that repeat an earlier one are emitted from its stamp: the program is the same as without stamps."""

from __future__ import annotations

import random
from copy import copy

import hloom
import numpy as np
import pytest
from hloom.ir.ops.collective_groups import channel_of
from hloom.passes.spmd.emit.moves import MoveEmitter
from hloom.passes.spmd.emit.stamps import Stamps
from support.calls import calls
from support.command_line import EXAMPLES

REDUCTIONS = """HloModule sums, num_partitions=2
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
ENTRY main {
  x = f32[8,4] parameter(0), sharding={mesh['x'=2], [{'x'}, {}]}
  zero = f32[] constant(0)
  one = f32[] constant(1)
  first = f32[4] reduce(x, zero), dimensions={0}, to_apply=add
  second = f32[4] reduce(x, one), dimensions={0}, to_apply=add
  ROOT both = (f32[4], f32[4]) tuple(first, second)
}
"""


LAYER = """
  w{n} = f32[8,8] parameter({n}), sharding={sharding}
  h{n} = f32[8,8] dot({x}, w{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  {zero} = f32[] constant({start})
  sum{n} = f32[8] reduce(h{n}, {zero}), dimensions={{{dim}}}, to_apply={to_apply}
  i{n} = s32[8,8] iota(), iota_dimension=0
  c{n} = f32[8,8] convert(i{n})
  b{n} = f32[8,8] broadcast(sum{n}), dimensions={{0}}
  m{n} = f32[8,8] multiply(b{n}, c{n})
  t{n} = {element}[8,8] convert(m{n})
  bent{n} = {element}[8,8] tanh(t{n})
  x{n} = f32[8,8] convert(bent{n})
"""
"""One of several layers; `layered` fills it in."""
USUAL = {
    "start": "0", "dim": "1", "to_apply": "add", "element": "f16", "sharding": "{mesh['x'=2,'y'=2], [{'x'}, {'y'}]}",
}
DIFFERENCES = {
    "start": "1", "dim": "0", "to_apply": "most", "element": "bf16", "sharding": "{mesh['x'=2,'y'=2], [{}, {'x'}]}",
    "zero": "other",
}


def layered(rng: random.Random, layers: int = 5) -> str:
    """Returns a program of layers that are alike but for a few properties of some of them."""
    differences = {rng.randrange(layers): name for name in rng.sample(sorted(DIFFERENCES), 2)}
    text, x = "", "x"
    for n in range(layers):
        differing = {name: DIFFERENCES[name] for name in [differences.get(n)] if name}
        text += LAYER.format(**{**USUAL, "zero": f"z{n}", **differing}, n=n, x=x)
        x = f"x{n}"
    return f"""HloModule layers, num_partitions=4
add {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }}
most {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] maximum(a, b) }}
ENTRY main {{
  x = f32[8,8] parameter({layers}), sharding={{mesh['x'=2,'y'=2], [{{'x'}}, {{}}]}}
{text}  ROOT r = f32[8,8] negate({x})
}}
"""


def unstamped(module: hloom.Module) -> hloom.Partitioned:
    """Partitions a copy of a program without stamps, which uses with attributes of a frontend do not have."""
    module = copy(module)
    for instruction in (i for c in module for i in c):
        instruction.frontend_attributes = {**instruction.frontend_attributes, "unlike": "others"}
    with calls(Stamps.find) as found:
        plain = hloom.partition(module)
    assert all(call["return"] is None for call in found)
    for instruction in (i for c in plain for i in c):
        kept = {key: value for key, value in instruction.frontend_attributes.items() if key != "unlike"}
        instruction.frontend_attributes = kept
    return plain


@pytest.mark.parametrize(
    "name",
    [*(pytest.param(n, marks=pytest.mark.slow) for n in ("transformer_train", "transformer_scan_train")), "mlp_train"],
)
def test_stamps_change_nothing(name: str) -> None:
    module = hloom.propagate(hloom.parse((EXAMPLES / f"{name}.hlo").read_text()))
    with calls(Stamps.find) as found:
        stamped = hloom.partition(module)
    assert sum(call["return"] is not None for call in found) > 10
    assert stamped.to_text() == unstamped(module).to_text()


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 60))])
def test_layers_that_differ_are_not_stamped_alike(seed: int) -> None:
    """A constant, a dimension, a computation, a type, an annotation or a name differs in two layers."""
    module = hloom.propagate(hloom.parse(layered(random.Random(seed))))
    with calls(Stamps.find) as found:
        stamped = hloom.partition(module)
    assert sum(call["return"] is not None for call in found) > 10
    plain = unstamped(module)
    assert stamped.to_text() == plain.to_text()
    assert [str(d) for d in stamped.remarks] == [str(d) for d in plain.remarks]


def test_a_stamp_is_for_equal_operands_alone() -> None:
    """The local form of a sum depends on the constant that it begins with, so sums that begin otherwise differ."""
    text = hloom.partition(hloom.parse(REDUCTIONS)).to_text()
    assert text.count("select(") == 1


@pytest.mark.parametrize("layers", [3, 9])
def test_equal_products_that_stay_partial_or_not_have_a_stamp_each(layers: int) -> None:
    """Of each layer's products two are added before devices are, the third is not: its users are not additive."""
    rows, columns = (f"sharding={{mesh['x'=2], [{dims}]}}" for dims in ("{'x'}, {}", "{}, {'x'}"))
    lines = [f"  w = f32[8,8] parameter(0), {rows}", f"  x0 = f32[8,8] parameter(1), {columns}"]
    product = "w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    for n in range(layers):
        lines += [f"  {name}{n} = f32[8,8] dot(x{n}, {product}" for name in "abc"]
        lines += [f"  t{n} = f32[8,8] tanh(c{n})", f"  d{n} = f32[8,8] add(a{n}, b{n})",
                  f"  m{n} = f32[8,8] multiply(d{n}, t{n})", f"  x{n + 1} = f32[8,8] negate(m{n}), {columns}"]
    text = "\n".join(["HloModule alternating, num_partitions=2", "ENTRY main {", *lines,
                      f"  ROOT r = f32[8,8] negate(x{layers})", "}"])
    module = hloom.propagate(hloom.parse(text))
    with calls(Stamps.note, keep=False) as others:
        stamped = hloom.partition(module)
    assert len(others) < 12
    assert sum(i.op.is_collective for i in stamped.entry) == 2 * layers
    assert stamped.to_text() == unstamped(module).to_text()


def test_equal_reshards_are_collectives_with_their_own_channels_and_causes() -> None:
    rows, whole = (f"sharding={{mesh['x'=2], [{dims}]}}" for dims in ("{'x'}, {}", "{}, {}"))
    lines = [f"  x0 = f32[8,8] parameter(0), {rows}"]
    for n in range(4):
        lines += [f"  whole{n} = f32[8,8] tanh(x{n}), {whole}",
                  f"  x{n + 1} = f32[8,8] add(x{n}, whole{n}), {rows}"]  # fmt: skip
    module = hloom.parse("\n".join(["HloModule reshards, num_partitions=2", "ENTRY main {", *lines,
                                    f"  ROOT r = f32[8,8] negate(x4), {rows}", "}"]))  # fmt: skip
    with calls(MoveEmitter.emit) as emitted:
        local = hloom.partition(module)
    gathers = [i for i in local.entry if i.op.is_collective]
    assert len(gathers) == 4
    assert sum(call["return"].op.is_collective for call in emitted) == 1
    assert [channel_of(i) for i in gathers] == [1, 2, 3, 4]
    causes = [str(i.frontend_attributes["hloom.cause"]) for i in gathers]
    assert causes == [f"result of tanh whole{n}" for n in range(4)]
    x = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    np.testing.assert_array_equal(hloom.simulate(local, [x])[0], hloom.evaluate(module, [x])[0])

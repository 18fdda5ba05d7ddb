"""Values across a memory peak: the cheapest of all choices, by brute force, and layers of which none was saved."""

from __future__ import annotations

import itertools
import math
import random

import hloom
import numpy as np
import pytest
from hloom.cost.memory import live_memory
from hloom.cost.presets import PRESETS
from hloom.cost.seconds import Clock
from hloom.cost.timeline import timeline
from hloom.ir.graph.module import Module, clone_module
from hloom.ir.tools.verifier import check
from hloom.passes.schedule.across_peak import AcrossPeak
from hloom.passes.schedule.rematerialize import rematerialize
from hloom.runtime.inputs.inputs import inputs_for_module
from hloom.runtime.simulator import simulate

MACHINE = PRESETS["cpu-cluster"]
SAVED_TWICE = """HloModule m, is_scheduled=true, num_partitions=2
ENTRY e {
  x = f32[64,64] parameter(0)
  w = f32[64,4096] parameter(1)
  up = f32[64,4096] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[64,4096] tanh(up)
  c = f32[64,4096] cosine(up)
  part = f32[64,64] slice(t), slice={[0:64], [0:64]}
  y = f32[64,64] sine(part)
  wide = f32[64,16384] concatenate(MANY), dimensions={1}
  again = f32[64,16384] negate(wide)
  some = f32[64,4096] slice(again), slice={[0:64], [0:4096]}
  p = f32[64,4096] multiply(some, t)
  ROOT r = f32[64,4096] multiply(p, c)
}
""".replace("MANY", ", ".join(["y"] * 256))


def random_program(seed: int) -> Module:
    """A chain of products and ops on elements, of which some are read twice; three of its values follow the peak."""
    rng = random.Random(seed)
    lines, known = ["x = f32[32,32] parameter(0)"], ["x"]
    for n in range(8):
        of, other = rng.choice(known[-3:]), rng.choice(known)
        op = rng.choice((f"tanh({of})", f"sine({of})", f"add({of}, {other})",
                         f"dot({of}, {other}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"))
        known.append(f"v{n}")
        lines.append(f"v{n} = f32[32,32] {op}")
    lines += ["zero = f32[] constant(0)", "big = f32[999,999] broadcast(zero), dimensions={}",
              "peak = f32[999,999] negate(big)", "last0 = f32[32,32] slice(peak), slice={[0:32], [0:32]}"]  # fmt: skip
    late = [*rng.sample(known[1:], 3)]
    lines += [f"last{n + 1} = f32[32,32] add(last{n}, {value})" for n, value in enumerate(late)]
    text = "\n  ".join([*lines, "ROOT r = f32[32,32] negate(last3)"])
    return hloom.parse(f"HloModule m, is_scheduled=true\nENTRY e {{\n  {text}\n}}\n")


def across(module: Module) -> AcrossPeak:
    peak = next(i for i in module.entry if i.name == "peak")
    return AcrossPeak(module.entry, Clock.of(module, MACHINE), peak, 1)


def price_of(found: AcrossPeak, price: float, again: frozenset[object]) -> float:
    """The price of a choice, or infinity where what is made again lacks an operand."""
    total, stack = 0.0, list(found.late)
    seen = set(stack)
    while stack:
        value = stack.pop()
        if value not in again:
            total += price * found.sizes[value] * (1 + 0.1 * (1 - found.place[value] / len(found.place)))
            continue
        if value not in found.seconds:
            return math.inf
        total += found.seconds[value]
        new = [o for o in dict.fromkeys(value.operands) if o in found.sizes and o not in seen]
        seen.update(new)
        stack += new
    return total


@pytest.mark.parametrize("seed", range(8))
def test_no_choice_is_cheaper(seed: int) -> None:
    found = across(random_program(seed))
    values = list(found.sizes)
    for price in (1e-12, 1e-10, 1e-9, 1e-6):
        best = min(price_of(found, price, frozenset(again)) for count in range(len(values) + 1)
                   for again in itertools.combinations(values, count))  # fmt: skip
        assert price_of(found, price, found.choice(price).again) == pytest.approx(best)


def test_a_value_lives_on_that_the_program_did_not_keep() -> None:
    """Two ops of one product are read late; the product takes the place of both."""
    module = hloom.parse(SAVED_TWICE)
    peak = live_memory(module).peak
    new = clone_module(module)
    assert rematerialize(new, Clock.of(new, MACHINE), peak - 64 * 4096 * 4) > 0
    check(new)
    assert live_memory(new).peak <= peak - 64 * 4096 * 4
    assert [i.opcode for i in new.entry].count("dot") == [i.opcode for i in module.entry].count("dot")
    inputs = inputs_for_module(module)
    assert np.asarray(simulate(new, inputs)[0]).tobytes() == np.asarray(simulate(module, inputs)[0]).tobytes()


def test_layers_are_made_again_from_their_inputs() -> None:
    """Of eight written-out layers with four values each, a third of the peak stays, for at most their forward pass."""
    ops = "  a{n} = f32[64,256] dot(h{n}, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n" \
          "  b{n} = f32[64,256] tanh(a{n})\n  c{n} = f32[64,256] sine(b{n})\n  d{n} = f32[64,256] cosine(c{n})\n" \
          "  h{m} = f32[64,64] slice(d{n}), slice={{[0:64], [0:64]}}\n"  # fmt: skip
    back = "  e{n} = f32[64,256] multiply(d{n}, c{n})\n  f{n} = f32[64,256] multiply(e{n}, b{n})\n" \
           "  i{n} = f32[64,256] add(f{n}, a{n})\n  j{n} = f32[64,64] slice(i{n}), slice={{[0:64], [64:128]}}\n" \
           "  g{n} = f32[64,64] add(g{m}, j{n})\n"  # fmt: skip
    text = "HloModule m, is_scheduled=true, num_partitions=2\nENTRY e {\n"
    text += "  h0 = f32[64,64] parameter(0)\n  w = f32[64,256] parameter(1)\n"
    text += "".join(ops.format(n=n, m=n + 1) for n in range(8)) + "  g8 = f32[64,64] negate(h8)\n"
    text += "".join(back.format(n=n, m=n + 1) for n in reversed(range(8))) + "  ROOT r = f32[64,64] negate(g0)\n}\n"
    module = hloom.parse(text)
    new, peak = clone_module(module), live_memory(module).peak
    rematerialize(new, Clock.of(new, MACHINE), peak / 3)
    assert live_memory(new).peak <= peak / 3
    assert timeline(new, MACHINE).seconds < 2 * timeline(module, MACHINE).seconds
    inputs = inputs_for_module(module)
    assert np.asarray(simulate(new, inputs)[0]).tobytes() == np.asarray(simulate(module, inputs)[0]).tobytes()

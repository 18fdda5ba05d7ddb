"""Ops that exchange halos, with random windows, paddings and sizes on random meshes, dividing as if it were free."""

from __future__ import annotations

import math
from collections.abc import Sequence

import hloom
import numpy as np
import pytest
from hloom.ir.graph.module import clone_module
from hloom.ir.types.literal import Array
from hloom.passes.base import PassContext
from hloom.passes.pipelines import partition
from hloom.runtime.inputs.inputs import make_inputs
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support.compare import compare
from support.eager import EAGER

AXES = ["'x'=2", "'x'=3", "'x'=4", "'x'=2,'y'=2", "'x'=2,'y'=3", "'x'=5", "'x'=2,'y'=2,'z'=2"]
# The larger size, and the last one of a window: neither is known as a monoid.
OTHERS = """
size { a = f32[] parameter(0) b = f32[] parameter(1) c = f32[] abs(a) d = f32[] abs(b) ROOT m = f32[] maximum(c, d) }
last { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] copy(b) }
"""
SCALARS = OTHERS + "".join(
    f"{name} {{\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = {shape}[] {op}\n}}\n"
    for name, shape, op in [
        ("add", "f32", "add(a, b)"), ("max", "f32", "maximum(a, b)"), ("min", "f32", "minimum(a, b)"),
        ("ge", "pred", "compare(a, b), direction=GE"), ("lt", "pred", "compare(a, b), direction=LT"),
    ]
)  # fmt: skip


class _Draw:
    """Choices for one program, all on one mesh."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.mesh = draw(st.sampled_from(AXES))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def size(self) -> int:
        return self.number(1, 13)

    def sharding(self, rank: int) -> str:
        dims: list[list[str]] = [[] for _ in range(rank)]
        for axis in self.draw(st.permutations([part.split("=")[0] for part in self.mesh.split(",")])):
            place = self.number(-1, rank - 1) if rank > 1 else 0
            if place >= 0:
                dims[place].append(axis)
        return f"{{mesh[{self.mesh}], [{', '.join('{' + ','.join(d) + '}' for d in dims)}]}}"

    def parameter(self, name: str, number: int, *dims: int) -> str:
        return f"  {name} = f32[{_text(dims)}] parameter({number}), sharding={self.sharding(len(dims))}\n"

    def entry(self, body: str, dims: list[int], op: str) -> str:
        assume(all(n > 0 for n in dims))
        root = f"  ROOT r = f32[{_text(dims)}] {op}, sharding={self.sharding(len(dims))}\n"
        return f"{SCALARS}ENTRY e {{\n{body}{root}}}\n"


def _text(dims: list[int] | tuple[int, ...]) -> str:
    return ",".join(map(str, dims))


def _dilated(n: int, step: int) -> int:
    return (n - 1) * step + 1


def _slice(d: _Draw) -> str:
    n, m = d.size(), d.size()
    start = d.number(0, n - 1)
    limit, stride = d.number(start + 1, n), d.number(1, 4)
    dims = [-(-(limit - start) // stride), m]
    return d.entry(d.parameter("x", 0, n, m), dims, f"slice(x), slice={{[{start}:{limit}:{stride}], [0:{m}]}}")


def _pad(d: _Draw) -> str:
    n, m = d.size(), d.size()
    low, high, inner = d.number(-n, 5), d.number(-n, 5), d.number(0, 3)
    body = d.parameter("x", 0, n, m) + "  p = f32[] constant(7)\n"
    return d.entry(body, [low + _dilated(n, inner + 1) + high, m], f"pad(x, p), padding={low}_{high}_{inner}x0_0_0")


def _reverse(d: _Draw) -> str:
    n, m = d.size(), d.size()
    which = d.draw(st.sampled_from(["0", "1", "0,1"]))
    return d.entry(d.parameter("x", 0, n, m), [n, m], f"reverse(x), dimensions={{{which}}}")


def _concatenate(d: _Draw) -> str:
    sizes = [d.number(0, 9) for _ in range(d.number(2, 4))]
    m, names = d.size(), [f"x{n}" for n in range(len(sizes))]
    body = "".join(d.parameter(name, n, size, m) for n, (name, size) in enumerate(zip(names, sizes, strict=True)))
    return d.entry(body, [sum(sizes), m], f"concatenate({', '.join(names)}), dimensions={{0}}")


def _roll(d: _Draw) -> str:
    n, m = d.number(2, 14), d.size()
    shift = d.number(1, n - 1)
    body = d.parameter("x", 0, n, m)
    body += f"  a = f32[{n - shift},{m}] slice(x), slice={{[{shift}:{n}], [0:{m}]}}\n"
    body += f"  b = f32[{shift},{m}] slice(x), slice={{[0:{shift}], [0:{m}]}}\n"
    return d.entry(body, [n, m], "concatenate(a, b), dimensions={0}")


def _reshape(d: _Draw) -> str:
    before = [d.number(1, 7) for _ in range(d.number(1, 3))]
    total, after = math.prod(before), list[int]()
    for _ in range(d.number(0, 2)):
        after.append(d.draw(st.sampled_from([k for k in range(1, total + 1) if total % k == 0])))
        total //= after[-1]
    return d.entry(d.parameter("x", 0, *before), [*after, total], "reshape(x)")


def _reduce_window(d: _Draw) -> str:
    n, m = d.size(), d.size()
    kind = d.number(0, 3)
    size, stride, low, high, base, dilation = n, 1, 0, 0, 1, 1
    if kind == 0:
        low, high = d.draw(st.sampled_from([(n - 1, 0), (0, n - 1)]))
    elif kind > 1:
        size, stride, low, high = d.number(1, 4), d.number(1, 3), d.number(-2, 4), d.number(-2, 4)
        base, dilation = d.number(1, 3), d.number(1, 2)
    count = (low + _dilated(n, base) + high - _dilated(size, dilation)) // stride + 1
    body = d.parameter("x", 0, n, m) + f"  i = f32[] constant({d.draw(st.sampled_from(['0', '2', '-inf']))})\n"
    window = f"size={size}x1 stride={stride}x1 pad={low}_{high}x0_0 lhs_dilate={base}x1 rhs_dilate={dilation}x1"
    reducer = d.draw(st.sampled_from(["add", "max", "min", "size", "last"]))
    return d.entry(body, [count, m], f"reduce-window(x, i), window={{{window}}}, to_apply={reducer}")


def _convolution(d: _Draw) -> str:
    n, size, batch, features, outputs = d.number(1, 16), d.number(1, 9), d.number(1, 3), d.number(1, 3), d.number(1, 3)
    low, high = d.number(-2, 5), d.number(-2, 5)
    stride, base, dilation = d.number(1, 3), d.number(1, 3), d.number(1, 2)
    count = (low + _dilated(n, base) + high - _dilated(size, dilation)) // stride + 1
    body = d.parameter("x", 0, batch, n, features) + d.parameter("k", 1, size, features, outputs)
    window = f"size={size} stride={stride} pad={low}_{high} lhs_dilate={base} rhs_dilate={dilation}"
    window += f" rhs_reversal={d.number(0, 1)}"
    return d.entry(body, [batch, count, outputs], f"convolution(x, k), window={{{window}}}, dim_labels=b0f_0io->b0f")


def _select_and_scatter(d: _Draw) -> str:
    n, m, size, stride = d.size(), d.size(), d.number(1, 4), d.number(1, 3)
    low, high = d.number(0, size - 1), d.number(0, size - 1)
    count = (low + n + high - size) // stride + 1
    assume(count > 0)
    body = d.parameter("x", 0, n, m) + d.parameter("s", 1, count, m) + "  i = f32[] constant(2)\n"
    window = f"size={size}x1 stride={stride}x1 pad={low}_{high}x0_0"
    select, scatter = d.draw(st.sampled_from(["ge", "lt"])), d.draw(st.sampled_from(["add", "max"]))
    op = f"select-and-scatter(x, s, i), window={{{window}}}, select={select}, scatter={scatter}"
    return d.entry(body, [n, m], op)


FORMS = {
    "slice": _slice, "pad": _pad, "reverse": _reverse, "concatenate": _concatenate, "roll": _roll, "reshape": _reshape,
    "reduce-window": _reduce_window, "convolution": _convolution, "select-and-scatter": _select_and_scatter,
}  # fmt: skip


def _check(text: str) -> None:
    module = hloom.parse(text)
    inputs = make_inputs([p.shape for p in module.entry.parameters], seed=1)
    programs = [partition(clone_module(module), context) for context in (PassContext(), PassContext(chooser=EAGER))]
    for numbers in (inputs, _special(inputs)):
        expected = hloom.evaluate(module, numbers)
        for local in programs:
            result = compare(hloom.simulate(local, numbers, poison=True), expected)
            assert result.equal, f"{result}\n{text}\n{local.to_text()}"


def _special(inputs: Sequence[Array]) -> list[Array]:
    """Puts a number that is not finite at one place of each input."""
    made = [x.copy() for x in inputs]
    for number, x in enumerate(made):
        if x.size:
            x.flat[len(x.tobytes()) // 3 % x.size] = (math.inf, -math.inf)[number % 2]
    return made


QUIET = [HealthCheck.filter_too_much, HealthCheck.too_slow]


@pytest.mark.parametrize("name", FORMS)
@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=QUIET)
@given(data=st.data())
def test_forms(name: str, data: st.DataObject) -> None:
    _check(data.draw(st.composite(lambda draw: FORMS[name](_Draw(draw)))()))


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
@settings(max_examples=1000, deadline=None, suppress_health_check=QUIET)
@given(data=st.data())
def test_many_forms(name: str, data: st.DataObject) -> None:
    _check(data.draw(st.composite(lambda draw: FORMS[name](_Draw(draw)))()))


def test_taps_beyond_the_end_of_a_divided_kernel_read_nothing() -> None:
    """The second of two devices has one tap of three; the element after it is not read, whatever it is."""
    module = hloom.parse("""ENTRY e {
      x = f32[1,4,1] parameter(0), sharding={devices=[1,2,1]<=[2]}
      one = f32[] constant(1)
      k = f32[1,1,3] broadcast(one), dimensions={}
      ROOT y = f32[1,1,1] convolution(x, k), window={size=3 stride=3 pad=1_-1}, dim_labels=f0b_oi0->b0f,
        sharding={devices=[1,2,1]<=[2]} }""")
    x = np.array([1.0, 1.0, math.nan, math.inf], np.float32).reshape(1, 4, 1)
    assert hloom.simulate(hloom.partition(module), [x], poison=True)[0].item() == 2.0

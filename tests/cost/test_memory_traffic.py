"""Bytes that fused ops read: a nest of loops reads a value once, however many of its ops need it."""

from __future__ import annotations

import hloom
import pytest
from hloom.cost.presets import as_machine
from hloom.cost.seconds import Clock

SIZE = 4096 * 4


def read_and_written(*lines: str) -> int:
    """Returns the bytes that a program of values of `SIZE` bytes touches on a machine that fuses."""
    body = "\n".join(["p = f32[64,64] parameter(0)", "q = f32[64,64] parameter(1)", *lines])
    module = hloom.parse(f"HloModule m\nENTRY e {{\n{body}\n}}")
    clock = Clock.of(module, as_machine("h100"))
    return sum(clock.touched(i) for i in module.entry) // SIZE


@pytest.mark.parametrize(
    ("lines", "values"),
    [
        (("t = f32[64,64] tanh(p)", "ROOT r = f32[64,64] add(t, p)"), 2),  # p is read for both
        (("ROOT r = f32[64,64] multiply(p, p)",), 2),
        (("t = f32[64,64] tanh(p)", "u = f32[64,64] multiply(t, q)", "ROOT r = f32[64,64] add(u, p)"), 3),
        (("s = f32[64,64] multiply(p, p)", "u = f32[64,64] add(q, s)", "ROOT r = (f32[64,64], f32[64,64]) tuple(u, s)"),
         4),  # q, p once, and both results
        (("t = f32[64,64] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
          "ROOT r = f32[64,64] add(t, p)"), 6),  # kernels of their own read for themselves
    ],
)  # fmt: skip
def test_values_are_read_once_per_nest(lines: tuple[str, ...], values: int) -> None:
    assert read_and_written(*lines) == values

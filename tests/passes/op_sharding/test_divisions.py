"""All divisions of an op by the axes of a mesh."""

from __future__ import annotations

import math
from typing import Any

import hloom
from hloom.cost.presets import PRESETS
from hloom.ir.graph.instruction import Instruction
from hloom.ir.sharding.mesh import AxisRef, Mesh
from hloom.passes.base import PassContext
from hloom.passes.op_sharding.divisions import Divisions

PROGRAM = """HloModule m
ENTRY e {
  x = f32[8,6] parameter(0)
  w = f32[6,4] parameter(1)
  y = f32[8,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  f = f32[32] reshape(y)
  n = f32[32] negate(f)
  ROOT r = f32[32] reverse(n), dimensions={0}
}
"""


def divisions(machine: str = "tpu-v5p", **axes: int) -> tuple[Divisions, dict[str, Instruction]]:
    mesh, module = Mesh.of(**axes), hloom.parse(PROGRAM)
    context = PassContext(machine=PRESETS[machine])
    digits = [mesh.digits(AxisRef(name)) for name in axes]
    return Divisions(context.decider(mesh.size), digits), {i.name: i for i in module.entry}


def every(found: Divisions, value: Instruction) -> dict[Any, float]:
    return dict(found.every(value.op, value.call))


def test_axes_divide_one_factor_each() -> None:
    found, values = divisions(a=2, b=2)
    dot = every(found, values["y"])  # factors of 8, 6 and 4 elements
    assert len(dot) == 16  # 4 * 4, the factor of 6 unevenly by both axes
    assert set(dot.values()) == {0.0}


def test_uneven_divisions_are_legal_where_values_can_express_them() -> None:
    found, values = divisions(a=3)
    y = values["y"]
    assert {f for f, _ in found.every(y.op, y.call)} == {(-1,), (0,), (1,), (2,)}
    assert every(found, values["n"]) == {(-1,): 0.0, (0,): 0.0}
    assert (_factor(values["f"], 8),) not in every(found, values["f"])


def test_exchanges_of_local_forms_have_a_time() -> None:
    found, values = divisions(a=4)
    r = values["r"]
    assert every(found, r)[-1,] == 0.0
    assert every(found, r)[0,] == found.exchanged(r.op, r.call, (0,))
    assert 0.0 < found.exchanged(r.op, r.call, (0,)) < math.inf


def test_axes_that_are_alike_share_answers() -> None:
    """On 16 devices of h100 the axis between hosts has other links, also where both axes have one size."""
    h100 = (("h100", {"a": 2, "b": 8}, False), ("h100", {"a": 4, "b": 4}, False))
    for machine, axes, alike in (("tpu-v5p", {"a": 2, "b": 2}, True), *h100):
        found, _ = divisions(machine, **axes)
        assert (found.canonical((1, 0)) == found.canonical((0, 1))) is alike


def _factor(value: Instruction, size: int) -> int:
    return [f.size for f in value.op.sharding_rule(value.call).factors].index(size)

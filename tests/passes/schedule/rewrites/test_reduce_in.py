"""Sums of devices in another type: less error in a wider one, and in a narrower one no more than the remark says."""

from __future__ import annotations

import re
from typing import Any

import hloom
import numpy as np
import pytest
from hloom.ir.diagnostics import CompileError
from hloom.runtime.simulator import simulate
from support.rewrites import rewritten

DEVICES = 8


def program(element: str, after: str = "ROOT r = {e}[64] negate(s)", before: str = "y = {e}[64] negate(x)") -> str:
    """Returns the program of each device that sums an array, which is another one on each."""
    groups = f"channel_id=1, replica_groups=[1,{DEVICES}]<=[{DEVICES}], use_global_device_ids=true"
    return f"""HloModule m, num_partitions={DEVICES}, frontend_attributes={{hloom.stage="local"}}
add {{ a = {element}[] parameter(0)  b = {element}[] parameter(1)  ROOT c = {element}[] add(a, b) }}
ENTRY e {{
  x = {element}[64] parameter(0), sharding={{devices=[{DEVICES}]<=[{DEVICES}]}}
  {before.replace("{e}", element)}
  s = {element}[64] all-reduce(y), {groups}, to_apply=add
  {after.replace("{e}", element)}, sharding={{replicated}}
}}"""


def worst(text: str, passes: str) -> tuple[float, list[str]]:
    """Returns the largest error of sums, by the sums of their magnitudes, and the remarks."""
    module = hloom.parse(text)
    element: Any = module.entry.parameters[0].shape.element.numpy
    x = np.random.default_rng(1).normal(size=64 * DEVICES).astype(element)
    new, remarks = rewritten(module, passes)
    (found,) = simulate(hloom.parse(new.to_text()), [x])
    parts = x.astype(np.float64).reshape(DEVICES, 64)
    return float(np.max(np.abs(found.astype(np.float64) - parts.sum(0)) / np.abs(parts).sum(0))), remarks


def test_a_wider_type_has_less_error() -> None:
    own, _ = worst(program("bf16"), "dce")
    wide, remarks = worst(program("bf16"), "reduce-in{element=f32}")
    assert wide <= 2**-8  # that of the result alone
    assert wide < own
    assert "less error than in bf16: 128 bytes become 256 bytes" in remarks[0]


def test_a_narrower_type_errs_by_no_more_than_it_says() -> None:
    narrow, remarks = worst(program("f32"), "reduce-in{element=bf16}")
    found = re.search(r"an error of at most (\S+) of the sum of magnitudes; 256 bytes become 128 bytes", remarks[0])
    assert found is not None
    exact, _ = worst(program("f32"), "dce")
    assert 100 * exact < narrow <= float(found[1]) < 0.05


def test_conversions_around_are_not_made_twice() -> None:
    """What was f32 before and after is summed without ever being bf16."""
    text = program("bf16", "ROOT r = f32[64] convert(s)", "w = f32[64] convert(x)  n = f32[64] negate(w)  "
                   "y = bf16[64] convert(n)")  # fmt: skip
    new, _ = rewritten(text, "reduce-in{element=f32},dce")
    (reduced,) = (i for i in new.entry if i.op.is_collective)
    assert reduced.operands[0].name == "n"
    assert new.entry.root is reduced or reduced in new.entry.root.operands
    assert sum(i.opcode == "convert" for i in new.entry) == 1


def test_other_reductions_stay() -> None:
    text = program("bf16").replace("ROOT c = bf16[] add", "ROOT c = bf16[] maximum")
    new, remarks = rewritten(text, "reduce-in")
    assert "it is no sum" in remarks[0]
    assert all(i.opcode != "convert" for i in new.entry)


def test_wrong_types() -> None:
    for name in ("s32", "f99"):
        with pytest.raises(CompileError, match=f"reduce-in cannot sum in {name}"):
            rewritten(program("bf16"), f"reduce-in{{element={name}}}")

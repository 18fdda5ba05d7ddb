"""Programs run on XLA's devices give what the simulator gives, and what does not fit is said."""

from __future__ import annotations

import sys

import hloom
import numpy as np
import pytest
from hloom.runtime.inputs.inputs import make_inputs
from hloom.runtime.xla import run_on_xla
from support.command_line import EXAMPLES
from support.compare import compare

UNEVEN = """HloModule m
ENTRY e {
  x = f32[5,6] parameter(0), sharding={devices=[3,1]<=[3]}
  i = s64[5] parameter(1), sharding={devices=[3]<=[3]}
  t = f32[6,5] transpose(x), dimensions={1,0}
  p = (f32[5,6], f32[6,5]) tuple(x, t), sharding={{devices=[3,1]<=[3]}, {devices=[3,1]<=[3]}}
  ROOT r = ((f32[5,6], f32[6,5]), s64[5]) tuple(p, i)
}
"""


def test_an_example() -> None:
    pytest.importorskip("jax")
    module = hloom.load(EXAMPLES / "mlp_train.hlo")
    local, inputs = hloom.partition(module), make_inputs([p.shape for p in module.entry.parameters])
    result = compare(run_on_xla(local, inputs), hloom.simulate(local, inputs))
    assert result.equal, result


def test_uneven_tiles_nested_tuples_and_wide_integers() -> None:
    pytest.importorskip("jax")
    x, i = np.arange(30, dtype=np.float32).reshape(5, 6), np.arange(5) + (1 << 40)
    first, second, third = run_on_xla(hloom.partition(hloom.parse(UNEVEN)), [x, i])
    assert first.tobytes() == x.tobytes()
    assert second.tobytes() == np.ascontiguousarray(x.T).tobytes()
    assert third.tolist() == i.tolist()


def test_what_does_not_fit_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    module = hloom.parse("ENTRY e { ROOT x = f32[64] parameter(0), sharding={devices=[64]<=[64]} }")
    with pytest.raises(hloom.CompileError, match="has 8 cpu devices, the program needs 64"):
        run_on_xla(hloom.partition(module), [np.zeros(64, np.float32)])
    with pytest.raises(hloom.CompileError, match="not partitioned yet"):
        run_on_xla(hloom.parse(UNEVEN), [])
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(hloom.CompileError, match="jax is missing"):
        run_on_xla(hloom.partition(hloom.parse(UNEVEN)), [np.zeros((5, 6), np.float32), np.zeros(5, np.int64)])

"""Fusion of bitcast-converts, which every random number of JAX takes: bits stay what they are."""

from __future__ import annotations

import hloom
import numpy as np
import pytest
from hloom.driver.backend import Backend
from hloom.ir.types.element_type import ELEMENT_TYPES
from support.loop_kernels import needs_llvm

PAIRS = [("u16", "bf16"), ("u16", "f16"), ("u8", "f8e4m3fn"), ("u8", "f8e5m2"), ("u32", "f32"), ("u64", "f64")]


@needs_llvm
@pytest.mark.parametrize("backend", ["native", "numpy"])
@pytest.mark.parametrize(("bits", "number"), PAIRS)
def test_bits_pass_through_a_fusion(bits: str, number: str, backend: str) -> None:
    module = hloom.parse(f"""HloModule m
      ENTRY e {{
        p = {bits}[1000] parameter(0)
        q = {bits}[1000] add(p, p)
        x = {number}[1000] bitcast-convert(q)
        y = {bits}[1000] bitcast-convert(x)
        ROOT t = ({number}[1000], {bits}[1000]) tuple(x, y)
      }}""")
    dtype = ELEMENT_TYPES[bits].numpy
    assert dtype is not None
    p = np.random.default_rng(0).integers(0, np.iinfo(dtype).max, 1000, dtype)
    chosen = Backend(backend)
    prepared = chosen.prepared(module)
    assert [i.opcode for i in prepared.entry if i.opcode in ("fusion", "bitcast-convert")] == ["fusion"]
    for found in hloom.evaluate(prepared, [p], kernels=chosen.kernels()):
        assert found.tobytes() == (p + p).tobytes()

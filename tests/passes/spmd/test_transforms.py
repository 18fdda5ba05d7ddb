"""Transforms along divided dimensions: the digits stay where the last transform leaves them, if that is cheaper."""

from __future__ import annotations

import hloom
import numpy as np
import pytest
from hloom.ir.sharding.mesh import Mesh
from hloom.runtime.inputs.inputs import inputs_for_module
from support.partition_check import difference
from support.random_shardings import random_sharding

THERE_AND_BACK = """HloModule m
ENTRY e {{
  x = c64[64,64,64] parameter(0), sharding={{mesh['x'=8], [{{'x'}}, {{}}, {{}}]}}
  k = c64[64,64,64] parameter(1), sharding={{mesh['x'=8], [{factors}]}}
  y = c64[64,64,64] fft(x), fft_type=FFT, fft_length={{64,64,64}}{said}
  z = c64[64,64,64] multiply(y, k)
  ROOT r = c64[64,64,64] fft(z), fft_type=IFFT, fft_length={{64,64,64}}, sharding={{mesh['x'=8], [{{'x'}}, {{}}, {{}}]}}
}}"""
WHOLE = 64**3 * 8
ONCE = WHOLE // 8 * 7 // 8  # bytes that a device sends in one exchange


def sent(factors: str, said: str = "") -> int:
    local = hloom.partition(hloom.parse(THERE_AND_BACK.format(factors=factors, said=said)))
    return sum(c.sent_bytes for c in hloom.collectives(local))


def test_a_transform_and_its_inverse_exchange_once_each() -> None:
    assert sent("{}, {'x'}, {}") == 2 * ONCE
    assert sent("{}, {'x'}, {}", ", sharding={mesh['x'=8], [{}, {'x'}, {}]}") == 2 * ONCE
    assert sent("{}, {}, {'x'}", ", sharding={mesh['x'=8], [{}, {}, {'x'}]}") == 2 * ONCE
    assert sent("{'x'}, {}, {}") == 3 * ONCE  # the factors are exchanged, too


@pytest.mark.parametrize("seed", range(30))
def test_transforms_in_any_tilings_give_the_numbers_of_one_device(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mesh = [Mesh.of(x=2, y=2), Mesh.of(x=4), Mesh.of(x=2, y=3), Mesh.of(x=2, y=2, z=2)][seed % 4]
    count = int(rng.integers(1, 4))
    dims = [int(n) for n in rng.choice([4, 6, 7, 8, 12], 3)]
    half = [*dims[:-1], dims[-1] // 2 + 1]
    kinds, element, middle = (("FFT", "IFFT"), "c64", dims) if seed % 3 else (("RFFT", "IRFFT"), "f32", half)
    given, length = ",".join(map(str, dims)), ",".join(map(str, dims[-count:]))
    spectrum = ",".join(map(str, middle))
    module = hloom.parse(f"""HloModule m
ENTRY e {{
  x = {element}[{given}] parameter(0)
  y = c64[{spectrum}] fft(x), fft_type={kinds[0]}, fft_length={{{length}}}
  z = c64[{spectrum}] multiply(y, y)
  r = {element}[{given}] fft(z), fft_type={kinds[1]}, fft_length={{{length}}}
  ROOT t = ({element}[{given}], c64[{spectrum}]) tuple(r, z)
}}""")
    for name in ("x", "y", "r") if seed % 2 else ("x", "r"):
        value = module.entry.find(name)
        assert value is not None
        value.sharding = random_sharding(rng, mesh, value.shape)
    assert difference(module, inputs_for_module(module, seed=seed)) is None

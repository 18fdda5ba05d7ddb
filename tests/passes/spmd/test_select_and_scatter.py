"""select-and-scatter on tiles: the borders of the array select nothing, whatever the elements are."""

from __future__ import annotations

import hloom
import numpy as np
import pytest
from hloom.runtime.simulator import simulate
from support.compare import compare

PROGRAM = """HloModule m, num_partitions=4
select {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = pred[] compare(a, b), direction={select} }}
scatter {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] {scatter}(a, b) }}
ENTRY e {{
  x = f32[{n},{m}] parameter(0), sharding={{devices={tiles}<=[4]}}
  s = f32[{rows},{columns}] parameter(1), sharding={{devices={tiles}<=[4]}}
  i = f32[] constant({init})
  ROOT r = f32[{n},{m}] select-and-scatter(x, s, i), window={{{window}}}, select=select, scatter=scatter,
    sharding={{devices={tiles}<=[4]}}
}}
"""


@pytest.mark.parametrize("seed", range(24))
def test_borders_select_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dims = rng.integers(4, 14, 2)
    size, stride = rng.integers(1, 5, 2), rng.integers(1, 4, 2)
    low, high = rng.integers(0, size), rng.integers(0, size)
    counts = (dims + low + high - size) // stride + 1
    pads = "x".join(f"{a}_{b}" for a, b in zip(low, high, strict=True))
    text = PROGRAM.format(
        n=dims[0], m=dims[1], rows=counts[0], columns=counts[1], tiles=rng.choice(["[4,1]", "[1,4]", "[2,2]"]),
        window=f"size={size[0]}x{size[1]} stride={stride[0]}x{stride[1]} pad={pads}",
        select=["GE", "GT", "LE", "LT"][seed % 4], scatter=rng.choice(["add", "maximum", "minimum"]),
        init=rng.choice(["0", "1.5", "-0"]),
    )  # fmt: skip
    module = hloom.parse(text)
    x = rng.choice([np.nan, np.inf, -np.inf, 0, 1], dims, p=(0.15, 0.2, 0.3, 0.15, 0.2)).astype(np.float32)
    s = rng.integers(1, 99, counts).astype(np.float32)
    with np.errstate(all="ignore"):
        same = compare(simulate(hloom.partition(module), [x, s], True), hloom.evaluate(module, [x, s]), signs=True)
    assert same.equal, f"{same}\n{text}"


def test_windows_beyond_the_borders_give_to_nothing() -> None:
    text = PROGRAM.format(n=8, m=8, rows=10, columns=8, tiles="[4,1]", window="size=1x1 pad=1_1x0_0", select="GE",
                          scatter="add", init=0)  # fmt: skip
    module = hloom.parse(text)
    inputs = [np.zeros((8, 8), np.float32), np.ones((10, 8), np.float32)]
    np.testing.assert_array_equal(simulate(hloom.partition(module), inputs)[0], np.ones((8, 8)))

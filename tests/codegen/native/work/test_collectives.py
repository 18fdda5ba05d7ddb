"""How much of the code of collectives caches hold in a program, and forecasts by that."""

from __future__ import annotations

import hloom
import pytest
from hloom.codegen.native.products.product import is_provided
from hloom.cost.fits import Fit
from hloom.cost.host import HOST
from hloom.cost.machine import Cluster
from hloom.cost.native_speed import NativeSpeed
from hloom.driver.backend import NATIVE, Backend
from hloom.driver.native_clock import cold_collectives, native_clock
from hloom.driver.native_cold import with_others

pytestmark = pytest.mark.skipif(not is_provided(), reason="needs native code")

SUMS = """HloModule sums, num_partitions=2
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] add(a, b) }
ENTRY e {
LINES
ROOT r = f32[WIDTH] negate(a8)
}"""


def _sums(width: int, kernels: int) -> str:
    """Returns a program of eight sums over the devices, after so many kernels each."""
    lines = [f"a0 = f32[{width}] parameter(0)"]
    for n in range(8):
        lines.append(f"b{n}_0 = f32[{width}] opt-barrier(a{n})")
        for k in range(kernels):
            lines += [f"x{n}_{k} = f32[{width}] negate(b{n}_{k})", f"b{n}_{k + 1} = f32[{width}] opt-barrier(x{n}_{k})"]
        lines.append(f"a{n + 1} = f32[{width}] all-reduce(b{n}_{kernels}), to_apply=add")
    return SUMS.replace("LINES", "\n".join(lines)).replace("WIDTH", str(width))


def test_code_of_collectives_that_caches_no_longer_hold() -> None:
    """A half each is of the kernels between two collectives and of their bytes, as far as the last cache loses them."""
    found = {sizes: _cold(_sums(*sizes)) for sizes in ((16, 2), (16, 30), (16, 90), (1 << 20, 2))}
    assert found[16, 2] == pytest.approx(2 / 60 / 2, rel=0.1)
    assert found[16, 30] == pytest.approx(1 / 4, rel=0.1)
    assert found[16, 90] == pytest.approx(1 / 2, rel=0.01)
    assert found[1 << 20, 2] == pytest.approx(1 / 2 + 2 / 60 / 2, rel=0.1)
    more = _cold(with_others(_sums(16, 2))) - found[16, 2]
    weights, kernels = 5.9e6, 32
    of_weights = weights / 8 / HOST.near_cache * weights / HOST.streamed
    assert more == pytest.approx((of_weights + kernels / 8 / 60) / 2, rel=0.1)


def _cold(text: str) -> float:
    return cold_collectives(Backend(NATIVE).prepared(hloom.parse(text)))


def test_a_forecast_has_collectives_as_long_as_caches_let_them_take() -> None:
    module = hloom.parse(_sums(16, 30))
    fits = (Fit("all-reduce", (2,), 1e-5, 1e9), Fit("all-reduce", (2,), 1e-5, 1e9, cold=8e-5))
    machines = [Cluster(native_speed=NativeSpeed(table=1e-6), fits=(fit,), overlap_share=0.0) for fit in fits]
    clocks = [native_clock(module, machine) for machine in machines]
    warm, cold = (hloom.timeline(as_run[0], machine, as_run[1]).seconds
                  for machine, as_run in zip(machines, clocks, strict=True) if as_run is not None)  # fmt: skip
    assert cold - warm == pytest.approx(8 * 8e-5 / 4, rel=0.1)

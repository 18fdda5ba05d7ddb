"""Sorting along a divided dimension, at the least sizes that columnsort can do: zeros and ones in every arrangement.

A sorting network that sorts all zeros and ones sorts everything (Knuth's 0-1 principle); columns of zeros, then ones,
whose numbers of zeros leave equal or different remainders are the hard cases.
"""

from __future__ import annotations

from typing import Any

import hloom
import numpy as np
import pytest
from hloom.ir.factors.sharding_rule import FactorKind
from hloom.passes.base import PassContext
from hloom.passes.op_sharding.assignment import Assignment, OpSharding
from hloom.passes.op_sharding.choose import Chooser
from hloom.passes.op_sharding.costs import cost
from hloom.passes.pipelines import partition

PROGRAM = """
less {{
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT
}}
ENTRY e {{
  x = s32[{rows},{n}] parameter(0), sharding={{mesh['x'={s}], [{{}}, {{'x'}}]}}
  i = s32[{rows},{n}] iota(), iota_dimension=1
  ROOT y = (s32[{rows},{n}], s32[{rows},{n}]) sort(x, i), dimensions={{1}}, is_stable=true, to_apply=less, sharding={{{{mesh['x'={s}], [{{}}, {{'x'}}]}}, {{mesh['x'={s}], [{{}}, {{'x'}}]}}}}
}}
"""  # noqa: E501


def _divided(op: OpSharding, chosen: Assignment) -> float:
    sorts = any(digits and op.rule.factors[f].kind is not FactorKind.PASS for f, digits in chosen.items())
    return cost(op, chosen) - (1e9 if sorts else 0.0)


def _inputs(n: int, devices: int) -> list[np.ndarray[tuple[int, ...], np.dtype[np.int32]]]:
    rng = np.random.default_rng(n)
    tile = -(-n // devices)
    found: list[np.ndarray[Any, np.dtype[Any]]] = [rng.integers(0, 2, n), rng.integers(0, 5, n)]
    found += [np.arange(n)[::-1], np.zeros(n)]
    for residue in range(devices):
        for most in (tile, tile // 2, devices):
            zeros = rng.integers(0, most // devices + 1, devices) * devices + residue
            columns = np.arange(tile)[None] >= zeros[:, None]
            found.append(columns.reshape(-1)[:n])
    return [x.astype(np.int32) for x in found]


_SIZES = [(2, 8), (2, 7), (3, 36), (3, 35), (3, 31), (4, 96), (4, 93), (4, 90), (5, 200), (5, 187), (6, 361)]


@pytest.mark.share(2)
@pytest.mark.parametrize(("devices", "n"), _SIZES)
def test_zeros_and_ones(devices: int, n: int) -> None:
    rows = np.stack(_inputs(n, devices))
    module = hloom.parse(PROGRAM.format(rows=len(rows), n=n, s=devices))
    local = partition(module, PassContext(chooser=Chooser(_divided)))
    assert {c.kind for c in hloom.collectives(local)} == {"all-to-all", "collective-permute"}
    values, places = hloom.simulate(local, [rows], poison=True)
    np.testing.assert_array_equal(places, np.argsort(rows, kind="stable"))
    np.testing.assert_array_equal(values, np.sort(rows))

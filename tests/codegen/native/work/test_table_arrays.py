"""The arrays that tables exchange, counted from the program and as the runtime arranges it."""

from __future__ import annotations

import hloom
import pytest
from hloom.codegen.native.products.product import is_provided
from hloom.codegen.native.work.times import NativeCounts
from hloom.driver.backend import NATIVE, Backend
from hloom.ir.tools.process_grid import ProcessGrid
from hloom.runtime.native.table import TableStep
from hloom.runtime.plan.executable import Executable

pytestmark = pytest.mark.skipif(not is_provided(), reason="needs native code")

TEXT = """max { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] maximum(a, b) }
ENTRY e { x = f32[32,48] parameter(0)
 y = f32[32,48] parameter(1)
 low = f32[] constant(-inf)
 a = f32[32,48] multiply(x, y)
 t = f32[48,32] transpose(a), dimensions={1,0}
 w = f32[40,24] reduce-window(t, low), window={size=9x9}, to_apply=max
 b = f32[32,48] add(a, y)
 c = f32[40,24] negate(w)
 u = f32[48,32] transpose(b), dimensions={1,0}
 ROOT r = (f32[40,24], f32[48,32], f32[32,48]) tuple(c, u, x) }"""


def _arranged(text: str) -> tuple[list[tuple[int, int]], list[tuple[float, float]]]:
    """Returns the arrays that each table takes and shows: as arranged, and as counted."""
    module = Backend(NATIVE).prepared(hloom.parse(text))
    plan = Executable(module, ProcessGrid.of(module), Backend(NATIVE).kernels()).arranged
    arranged = [(len(s.outside), len(s.exports)) for s in plan.steps if isinstance(s, TableStep)]
    counts = NativeCounts(module).of
    counted = [(counts[i]["held"], counts[i]["shown"]) for i in module.entry if i in counts and counts[i]["table"]]
    return arranged, counted


def test_counts_are_those_of_the_runtime() -> None:
    """Around the windows, which numpy computes, stand two tables: one takes two arrays and shows a view, the other
    reads what the first and numpy made, and makes results, one of which is seen as a view.
    """
    arranged, counted = _arranged(TEXT)
    assert len(arranged) == 2
    assert counted == arranged


def test_a_table_ends_where_a_collective_is_awaited() -> None:
    """The sum starts after the first product and is read after the second: three tables, and two where it is read at
    once.
    """
    text = """HloModule m, num_partitions=2
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] add(a, b) }
ENTRY e { x = f32[32,32] parameter(0)
 a = f32[32,32] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 s = f32[32,32] all-reduce(a), to_apply=add, channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true
 b = f32[32,32] dot(x, FIRST), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 ROOT r = f32[32,32] dot(b, s), lhs_contracting_dims={1}, rhs_contracting_dims={0} }"""
    for first, count in (("x", 3), ("s", 2)):
        arranged, counted = _arranged(text.replace("FIRST", first))
        assert len(arranged) == count
        assert counted == arranged

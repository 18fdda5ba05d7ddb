"""Memory limits where attention is a kernel: its scores take no memory, for the limit as for the forecast."""

from __future__ import annotations

import hloom
import pytest
from hloom.cost.attention import OutsideOfAttention
from hloom.cost.memory import peak_memory
from hloom.ir.graph.module import clone_module
from hloom.passes.base import PassContext
from hloom.passes.scheduling import schedule

SCORES = 4 * 1024 * 1024 * 4

ATTENTION = """HloModule attention, num_partitions=2
max { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b) }
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY e {
  q = f32[8,1024,64] parameter(0), sharding={devices=[2,1,1]<=[2]}
  k = f32[8,1024,64] parameter(1), sharding={devices=[2,1,1]<=[2]}
  v = f32[8,1024,64] parameter(2), sharding={devices=[2,1,1]<=[2]}
  scores = f32[8,1024,1024] dot(q, k), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0},
    rhs_contracting_dims={2}
  low = f32[] constant(-inf)
  top = f32[8,1024] reduce(scores, low), dimensions={2}, to_apply=max
  tops = f32[8,1024,1024] broadcast(top), dimensions={0,1}
  less = f32[8,1024,1024] subtract(scores, tops)
  high = f32[8,1024,1024] exponential(less)
  zero = f32[] constant(0)
  total = f32[8,1024] reduce(high, zero), dimensions={2}, to_apply=sum
  totals = f32[8,1024,1024] broadcast(total), dimensions={0,1}
  share = f32[8,1024,1024] divide(high, totals)
  mixed = f32[8,1024,64] dot(share, v), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0},
    rhs_contracting_dims={1}
  ROOT r = f32[8,1024,64] copy(mixed), sharding={replicated}
}"""


@pytest.fixture(scope="module")
def local() -> hloom.Module:
    return hloom.partition(hloom.parse(ATTENTION)).module


def scheduled(local: hloom.Module, machine: str) -> hloom.Module:
    """Returns a copy of the program with a schedule within the bytes of the scores."""
    found = clone_module(local)
    schedule(found, PassContext(machine=hloom.parse_machine(machine)), SCORES)
    return found


def test_a_limit_below_the_scores_holds_where_attention_is_a_kernel(local: hloom.Module) -> None:
    found = scheduled(local, "h100")
    assert peak_memory(found, OutsideOfAttention.on(hloom.parse_machine("h100"))) < SCORES < peak_memory(found)
    assert hloom.forecast(found, "h100").peak < SCORES
    with pytest.raises(hloom.CompileError, match="more than the limit"):
        scheduled(local, "cpu-cluster")

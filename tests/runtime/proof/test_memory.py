"""A proof gives its memory back at its end, without the collector of garbage, and takes little while it runs."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator

import hloom
import pytest
from support.command_line import EXAMPLES
from support.loop_kernels import needs_llvm

BYTES = 8 * 512 * 64  # of x below

# Roundings, an extreme, a sort, a gather: what keeps sets of elements and cases, and compiles in the run.
MANY = """HloModule m
most { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] maximum(a, b) }
less { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = pred[] compare(a, b), direction=LT }
ENTRY e { x = f32[512,64] parameter(0), sharding={devices=[4,1]<=[4]}  i = s32[6,1] parameter(1)
  low = bf16[512,64] convert(x)  y = f32[512,64] convert(low)  z = f32[] constant(-inf)
  top = f32[64] reduce(y, z), dimensions={0}, to_apply=most  order = f32[64] sort(top), dimensions={0}, to_apply=less
  rows = f32[6,64] gather(y, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1,
    slice_sizes={1,64}
  all = f32[6,64] broadcast(order), dimensions={1}  ROOT r = f32[6,64] add(rows, all) }"""


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    tracemalloc.stop()
    gc.enable()


@pytest.mark.parametrize("text", [MANY, (EXAMPLES / "mlp_train.hlo").read_text()], ids=["many", "mlp_train"])
def test_memory_returns_after_a_proof(no_collector: None, text: str) -> None:
    module = hloom.parse(text)
    local = hloom.partition(module)
    hloom.prove(module, local, trials=2)  # fills the caches of the process
    tracemalloc.start()
    assert hloom.prove(module, local, trials=2, timeout=600.0).agrees
    assert tracemalloc.get_traced_memory()[0] < 100_000


@needs_llvm  # numpy computes over the field with temporary arrays
def test_a_proof_keeps_few_values(no_collector: None) -> None:
    module = hloom.parse(MANY)
    local = hloom.partition(module)
    hloom.prove(module, local, trials=2)
    tracemalloc.start()
    hloom.prove(module, local, trials=2)
    assert tracemalloc.get_traced_memory()[1] < 40 * BYTES


@needs_llvm
def test_look_ups_in_large_tables_are_shown_without_all_cases(no_collector: None) -> None:
    module = hloom.parse("""HloModule m
ENTRY e { x = f32[8192,2] parameter(0), sharding={devices=[4,1]<=[4]}  i = s32[4096,1] parameter(1)
  ROOT y = f32[4096,2] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
    index_vector_dim=1, slice_sizes={1,2} }""")
    local = hloom.partition(module)
    tracemalloc.start()
    assert hloom.prove(module, local, trials=2, timeout=600.0).is_equal
    assert tracemalloc.get_traced_memory()[1] < 50_000_000

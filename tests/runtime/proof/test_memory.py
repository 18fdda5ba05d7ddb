"""A proof gives its memory back at its end, without the collector of garbage, and takes little while it runs."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator

import hloom
import pytest
from support.command_line import EXAMPLES
from support.loop_kernels import needs_llvm

BYTES = 8 * 256 * 64  # of x below

# Roundings, an extreme, a sort, a gather: what keeps sets of elements and cases, and compiles in the run.
MANY = """HloModule m
most { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] maximum(a, b) }
less { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = pred[] compare(a, b), direction=LT }
ENTRY e { x = f32[256,64] parameter(0), sharding={devices=[4,1]<=[4]}  i = s32[6,1] parameter(1)
  low = bf16[256,64] convert(x)  y = f32[256,64] convert(low)  z = f32[] constant(-inf)
  top = f32[64] reduce(y, z), dimensions={0}, to_apply=most  order = f32[64] sort(top), dimensions={0}, to_apply=less
  rows = f32[6,64] gather(y, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1,
    slice_sizes={1,64}
  all = f32[6,64] broadcast(order), dimensions={1}  ROOT r = f32[6,64] add(rows, all) }"""


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    tracemalloc.stop()
    gc.enable()


STEP = pytest.param((EXAMPLES / "mlp_train.hlo").read_text(), marks=pytest.mark.slow)


@pytest.mark.parametrize("text", [MANY, STEP], ids=["many", "mlp_train"])
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
@pytest.mark.parametrize(
    ("rows", "count", "most"), [(2048, 1024, 12_000_000), pytest.param(8192, 4096, 50_000_000, marks=pytest.mark.slow)]
)
def test_look_ups_in_large_tables_are_shown_without_all_cases(
    no_collector: None, rows: int, count: int, most: int
) -> None:
    """A byte for each row and index would be less than what all cases take."""
    module = hloom.parse(f"""HloModule m
ENTRY e {{ x = f32[{rows},2] parameter(0), sharding={{devices=[4,1]<=[4]}}  i = s32[{count},1] parameter(1)
  ROOT y = f32[{count},2] gather(x, i), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}},
    index_vector_dim=1, slice_sizes={{1,2}} }}""")
    local = hloom.partition(module)
    tracemalloc.start()
    assert hloom.prove(module, local, trials=2, timeout=600.0).is_equal
    assert tracemalloc.get_traced_memory()[1] < most < 8 * rows * count

"""The speed of products by their sizes, the roofline of an op, and attention as one kernel."""

from __future__ import annotations

from dataclasses import replace

import hloom
import pytest
from hloom.cost.attention import attention_kernels
from hloom.cost.machine import Cluster
from hloom.cost.presets import PRESETS
from hloom.cost.products import ProductSizes, ProductSpeed, sizes_of
from hloom.cost.seconds import Clock
from hloom.ir.types.element_type import ELEMENT_TYPES

SPEED = ProductSpeed(0.8, 128, 256, 64, 132)


def test_whole_tiles_and_rounds_reach_the_share() -> None:
    assert SPEED.efficiency(ProductSizes(1, 128 * 12, 256 * 11, 4096)) == pytest.approx(0.8)
    assert ProductSpeed().efficiency(ProductSizes(3, 7, 5, 3)) == 1


@pytest.mark.parametrize(("sizes", "share"), [
    (ProductSizes(1, 128 * 12, 256 * 11, 32), 1 / 2),  # half of a step of depth
    (ProductSizes(132, 8, 256, 64), 8 / 128),  # few rows
    (ProductSizes(132, 256, 8, 64), 8 / 128),  # the operands swap
    (ProductSizes(1, 128, 256, 64), 1 / 132),  # one tile for all units
    (ProductSizes(1, 128 * 133, 256, 64), 133 / 264),  # one tile in a second round
])  # fmt: skip
def test_what_does_not_fill_tiles_or_rounds_is_lost(sizes: ProductSizes, share: float) -> None:
    assert SPEED.efficiency(sizes) == pytest.approx(0.8 * share)


CHOOSING = replace(SPEED, least=64)


def test_small_tiles_fill_more_units_and_compute_more_slowly() -> None:
    small = ProductSizes(132, 64, 64, 64)
    assert SPEED.efficiency(small) == pytest.approx(0.8 * 64 * 64 / (128 * 256))
    reuse = (64 * 64 / (64 + 64)) / (128 * 256 / (128 + 256))
    assert CHOOSING.efficiency(small) == pytest.approx(0.8 * reuse)
    large = ProductSizes(1, 128 * 12, 256 * 11, 4096)
    assert CHOOSING.efficiency(large) == SPEED.efficiency(large)


def test_the_depth_of_few_tiles_is_divided() -> None:
    element = ELEMENT_TYPES["bf16"]
    deep = ProductSizes(1, 256, 256, 65536)
    fixed, chosen = (Cluster(products=speed, launch_seconds=1e-6) for speed in (SPEED, CHOOSING))
    assert fixed.product(deep, element) > 20 * chosen.product(deep, element)
    parts = 64  # of each of two tiles
    sums = chosen.memory(2 * 4 * parts * 256 * 256) + chosen.launch
    divided = chosen.work(deep.multiply_adds, element) / (0.8 * 128 / 132) + sums
    assert chosen.product(deep, element) <= divided
    assert chosen.product(deep, element) > sums / parts  # the sums of the parts cost time
    slow = replace(chosen, memory_bytes=1e9)
    assert slow.product(deep, element) == slow.work(deep.multiply_adds, element) / CHOOSING.efficiency(deep)


def test_the_sides_of_tiles_are_halves_of_the_largest() -> None:
    tall = ProductSizes(132 * 4, 192, 256, 64)  # two tiles of 128 rows, or three of 64
    reuse = (64 * 256 / (64 + 256)) / (128 * 256 / (128 + 256))
    assert CHOOSING.efficiency(tall) == pytest.approx(0.8 * max(192 / 256, reuse))


def test_what_fills_all_units_stays_whole() -> None:
    element = ELEMENT_TYPES["bf16"]
    sizes = ProductSizes(1, 8192, 8192, 8192)
    assert Cluster(products=CHOOSING).product(sizes, element) == Cluster(products=SPEED).product(sizes, element)


def test_the_sizes_of_products() -> None:
    module = hloom.parse("""ENTRY e { x = bf16[4,16,1024,128] parameter(0)
  y = bf16[4,16,2048,128] parameter(1)
  z = f32[8,32,32,3] parameter(2)
  w = f32[5,5,3,64] parameter(3)
  s = bf16[4,16,1024,2048] dot(x, y), lhs_batch_dims={0,1}, rhs_batch_dims={0,1}, lhs_contracting_dims={3},
    rhs_contracting_dims={3}
  c = f32[8,28,28,64] convolution(z, w), window={size=5x5}, dim_labels=b01f_01io->b01f
  ROOT t = (bf16[4,16,1024,2048], f32[8,28,28,64]) tuple(s, c) }""")
    found = {i.name: i for i in module.entry}
    assert sizes_of(found["s"]) == (64, 1024, 2048, 128)
    assert sizes_of(found["c"]).multiply_adds == 8 * 28 * 28 * 64 * 5 * 5 * 3
    assert sizes_of(found["c"]).columns == 64


def test_the_larger_of_work_and_memory_counts() -> None:
    module = hloom.parse("""ENTRY e { x = f32[100,100] parameter(0)
  ROOT y = f32[100,100] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0} }""")
    root = module.entry.root
    for points, memory, work in ((1e9, 0, 1e-3), (1e11, 8e-5, 0)):
        parts = Clock.of(module, Cluster(memory_bytes=1e9, points=points, launch_seconds=1e-6)).parts(root)
        assert parts.launches == 1e-6
        assert parts.work == pytest.approx(work)
        assert parts.memory == pytest.approx(memory + 4e-5 if memory else 0)


@pytest.mark.parametrize("columns", [1, 3])
def test_a_product_by_a_vector_takes_as_long_as_it_reads(columns: int) -> None:
    """It fills no tile of a matrix unit, and is a sum of products."""
    module = hloom.parse(f"""ENTRY e {{ x = f32[134217728] parameter(0)
  y = f32[134217728,{columns}] parameter(1)
  ROOT z = f32[{columns}] dot(x, y), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}} }}""")
    parts = Clock.of(module, PRESETS["h100"]).parts(module.entry.root)
    assert parts.work < parts.memory
    assert parts.compute == pytest.approx((1 + columns) * 4 * 134217728 / 3e12, rel=0.02)


ATTENTION = """HloModule m
maximum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b) }
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY e { q = f32[8,512,64] parameter(0)
  k = f32[8,512,64] parameter(1)
  v = f32[8,512,64] parameter(2)
  s = f32[8,512,512] dot(q, k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}
  i = s32[512,512] iota(), iota_dimension=0
  j = s32[512,512] iota(), iota_dimension=1
  m = pred[512,512] compare(i, j), direction=GE
  mask = pred[8,512,512] broadcast(m), dimensions={1,2}
  low = f32[] constant(-1e9)
  fill = f32[8,512,512] broadcast(low), dimensions={}
  masked = f32[8,512,512] select(mask, s, fill)
  top = f32[8,512] reduce(masked, low), dimensions={2}, to_apply=maximum
  tops = f32[8,512,512] broadcast(top), dimensions={0,1}
  less = f32[8,512,512] subtract(masked, tops)
  p = f32[8,512,512] exponential(less)
  zero = f32[] constant(0)
  all = f32[8,512] reduce(p, zero), dimensions={2}, to_apply=sum
  alls = f32[8,512,512] broadcast(all), dimensions={0,1}
  shares = f32[8,512,512] divide(p, alls)
  o = f32[8,512,64] dot(shares, v), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}
  ROOT t = (f32[8,512,64]) tuple(o)
}
"""  # noqa: E501


def test_attention_is_one_kernel() -> None:
    module = hloom.parse(ATTENTION)
    found = attention_kernels(module.entry)
    assert {i.name: share for i, share in found.products.items()} == {"s": 0.5, "o": 0.5}
    assert {"s", "masked", "p", "shares"} <= {i.name for i in found.inside}
    assert {"o", "top", "all", "q"}.isdisjoint(i.name for i in found.inside)


def test_a_kernel_reads_its_operands_and_writes_its_result() -> None:
    module = hloom.parse(ATTENTION)
    with_kernel = replace(PRESETS["h100"], launch_seconds=0.0, attention_share=0.35)
    clock = Clock.of(module, with_kernel)
    touched = sum(clock.touched(i) for i in module.entry)
    rows = 8 * 512 * 4
    assert touched == 4 * 64 * rows  # operands and results
    work = clock.serial(module.entry).work
    assert work == pytest.approx(2 * 0.5 * 8 * 512 * 512 * 64 / (247e12 * 0.35))
    spilled = Clock.of(module, replace(with_kernel, attention_share=0.0)).serial(module.entry)
    assert spilled.total > 3 * clock.serial(module.entry).total


@pytest.mark.parametrize(("name", "head", "filled"), [
    ("tpu-v6e", 128, 0.5), ("tpu-v6e", 256, 1.0), ("tpu-v5e", 128, 1.0), ("tpu-v5e", 64, 0.5), ("h100", 64, 1.0),
])  # fmt: skip
def test_a_head_fills_a_part_of_a_matrix_unit(name: str, head: int, filled: float) -> None:
    machine = PRESETS[name]
    for sizes in (ProductSizes(8, 512, 512, head), ProductSizes(8, 512, head, 512)):
        work = machine.work(sizes.multiply_adds, ELEMENT_TYPES["bf16"])
        assert machine.attention_work(sizes, ELEMENT_TYPES["bf16"]) == pytest.approx(work / machine.attention / filled)


def test_scores_that_others_read_lie_in_memory() -> None:
    shape = "(f32[8,512,64], f32[8,512,512]) tuple(o, p)"
    module = hloom.parse(ATTENTION.replace("(f32[8,512,64]) tuple(o)", shape))
    assert not attention_kernels(module.entry).inside


@pytest.mark.parametrize("text", [
    # a layer between narrow values, experts, a convolution: none has an exponential of a product of heads
    """ENTRY e { x = bf16[8,4096,64] parameter(0)
  w = bf16[64,512] parameter(1)
  u = bf16[512,64] parameter(2)
  h = bf16[8,4096,512] dot(x, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  g = bf16[8,4096,512] exponential(h)
  ROOT y = bf16[8,4096,64] dot(g, u), lhs_contracting_dims={2}, rhs_contracting_dims={0} }""",
    """ENTRY e { x = f32[8,4096,64] parameter(0)
  w = f32[8,64,512] parameter(1)
  u = f32[8,512,64] parameter(2)
  h = f32[8,4096,512] dot(x, w), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}
  g = f32[8,4096,512] tanh(h)
  ROOT y = f32[8,4096,64] dot(g, u), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1} }""",  # noqa: E501
    """ENTRY e { x = f32[4,16,16,8] parameter(0)
  w = f32[3,3,8,32] parameter(1)
  u = f32[3,3,32,8] parameter(2)
  h = f32[4,16,16,32] convolution(x, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
  g = f32[4,16,16,32] exponential(h)
  ROOT y = f32[4,16,16,8] convolution(g, u), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f }""",
])  # fmt: skip
def test_products_of_layers_are_no_attention(text: str) -> None:
    module = hloom.parse(text)
    assert not attention_kernels(module.entry).products


WIDE_CONVOLUTION = """ENTRY e { x = f32[4,16,16,4] parameter(0)
  w = f32[3,3,4,8] parameter(1)
  u = f32[3,3,8,1] parameter(2)
  h = f32[4,16,16,8] convolution(x, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
  g = f32[4,16,16,8] tanh(h)
  ROOT y = f32[4,16,16,1] convolution(g, u), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f }"""
WIDE_LAYER = """ENTRY e { x = f32[4,32,16] parameter(0)
  w = f32[16,32] parameter(1)
  u = f32[32,16] parameter(2)
  h = f32[4,32,32] dot(x, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  g = f32[4,32,32] tanh(h)
  ROOT y = f32[4,32,16] dot(g, u), lhs_contracting_dims={2}, rhs_contracting_dims={0} }"""


@pytest.mark.parametrize("text", [WIDE_CONVOLUTION, WIDE_LAYER])
def test_products_without_heads_are_stored_though_their_results_are_larger(text: str) -> None:
    module = hloom.parse(text)
    clock = Clock.of(module, PRESETS["h100"])
    assert not attention_kernels(module.entry).products
    assert [i.name for i in module.entry if i.operands and clock.is_stored(i)] == ["h", "g", "y"]

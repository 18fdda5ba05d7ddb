"""Random bits: the known answers of the algorithms' authors, carries, signed numbers, and what has no meaning here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hloom.codegen.xla import manual_module
from hloom.frontends import parse
from hloom.ir.diagnostics import CompileError
from hloom.ir.graph.op import ShapeError
from hloom.ir.ops.random import SEED, Algorithm, RngDistribution
from hloom.ir.ops.random_bits import philox4x32, threefry2x32
from hloom.ir.tools.process_grid import ProcessGrid
from hloom.ir.types.element_type import ELEMENT_TYPES
from hloom.ir.types.shape import tuple_shape
from hloom.passes.base import PassContext
from hloom.passes.pipelines import partition
from hloom.runtime import evaluate
from hloom.runtime.fabric.local import LocalFabric
from hloom.runtime.plan.executable import Executable
from hloom.runtime.simulator import simulate
from ops.build import rule, run, shapes, use
from ops.oracle import run_xla
from support.xla_runner import run_manual


def _all(word: int, count: int) -> tuple[np.ndarray, ...]:
    return (np.array([word], np.uint32),) * count


@pytest.mark.parametrize(
    ("word", "threefry", "philox"),
    [
        (0, "6b200159 99ba4efe", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        (0xFFFFFFFF, "1cb996fc bb002be7", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ],
)
def test_known_answers(word: int, threefry: str, philox: str) -> None:
    """From the file kat_vectors of the Random123 library."""
    key, pair = _all(word, 2), _all(word, 4)
    with np.errstate(over="ignore"):
        ours = threefry2x32((key[0], key[1]), (pair[0], pair[1]))
        assert " ".join(f"{int(w[0]):08x}" for w in ours) == threefry
        words = philox4x32((key[0], key[1]), (pair[0], pair[1], pair[2], pair[3]))
        assert " ".join(f"{int(w[0]):08x}" for w in words) == philox


def test_counter_carries_into_its_high_half() -> None:
    declared = tuple_shape(shapes("u64[3] u64[6]"))
    call = use("rng-bit-generator", "u64[3]", declared, algorithm=Algorithm.PHILOX)
    last = 2**64 - 1
    state, numbers = run("rng-bit-generator", call, np.array([3, last, 8], np.uint64))
    assert state.tolist() == [3, 2, 9]
    after, rest = run("rng-bit-generator", call, np.array([3, 0, 9], np.uint64))
    assert after.tolist() == [3, 3, 9]
    assert numbers[2:].tolist() == rest[:4].tolist()


@pytest.mark.parametrize("algorithm", list(Algorithm))
@pytest.mark.parametrize("bits", [4, 8, 16, 32, 64])
def test_signed_numbers_have_the_bits_of_unsigned_ones(algorithm: Algorithm, bits: int) -> None:
    state = np.array([12345, 678910], np.uint64)
    found: list[list[int]] = []
    for kind in "us":
        declared = tuple_shape(shapes(f"u64[2] {kind}{bits}[3,7]"))
        call = use("rng-bit-generator", "u64[2]", declared, algorithm=algorithm)
        _, numbers = run("rng-bit-generator", call, state)
        found.append([int(n) % 2**bits for n in numbers.reshape(-1)])
    assert found[0] == found[1]
    assert len(set(found[0])) > 5


def test_rules_divide_nothing() -> None:
    declared = tuple_shape(shapes("u64[2] u32[4]"))
    call = use("rng-bit-generator", "u64[2]", declared, algorithm=Algorithm.DEFAULT)
    assert rule("rng-bit-generator", call) == "([i]) -> ([j], [k]) {i=2, j=2, k=4} need_replication={i, j, k}"
    call = use("rng", "f32[] f32[]", "f32[4]", distribution=RngDistribution.NORMAL)
    assert rule("rng", call) == "([], []) -> [i] {i=4} need_replication={i}"


def draws(text: str, *inputs: Any) -> list[Any]:
    return evaluate(parse("HloModule m\n" + text), [np.asarray(i) for i in inputs])


def one_rng(element: str, first: Any, second: Any, distribution: str = "rng_uniform", count: int = 20_000) -> Any:
    text = f"""ENTRY e {{ a = {element}[] parameter(0) b = {element}[] parameter(1)
      ROOT r = {element}[{count}] rng(a, b), distribution={distribution} }}"""
    dtype = ELEMENT_TYPES[element].numpy
    (found,) = draws(text, np.asarray(first).astype(dtype), np.asarray(second).astype(dtype))
    assert found.dtype == dtype
    return found


@pytest.mark.parametrize("element", ["f64", "f32", "f16", "bf16", "f8e4m3fn", "f8e5m2"])
def test_uniform_floats(element: str) -> None:
    found = one_rng(element, -1, 3).astype(np.float64)
    assert found.min() >= -1
    assert found.max() < 3
    # Rounding to coarse types goes to the nearest, so the mean is kept but for the end that is left out.
    assert abs(found.mean() - 1) < (0.15 if element.startswith("f8") else 0.03)
    assert abs(found.std() - 4 / 12**0.5) < (0.1 if element.startswith("f8") else 0.02)


@pytest.mark.parametrize("element", ["f64", "f32", "f16", "bf16"])
def test_normal_floats(element: str) -> None:
    found = one_rng(element, 2, 3, "rng_normal").astype(np.float64)
    assert abs(found.mean() - 2) < 0.1
    assert abs(found.std() - 3) < 0.1
    assert 0.66 < np.mean(abs(found - 2) < 3) < 0.71


@pytest.mark.parametrize("element", ["s4", "s8", "s32", "s64", "u4", "u8", "u32", "u64"])
def test_uniform_integers(element: str) -> None:
    low = 0 if element[0] == "u" else -3
    found = one_rng(element, low, 5, count=2000).astype(np.int64)
    assert sorted(set(found.tolist())) == list(range(low, 5))
    assert set(one_rng(element, 5, 5, count=10).astype(np.int64).tolist()) == {5}


def test_uniform_integers_over_their_whole_range() -> None:
    for element, low, high in (("s64", -(2**63), 2**63 - 1), ("u64", 0, 2**64 - 1), ("s8", -128, 127)):
        dtype = ELEMENT_TYPES[element].numpy
        found = one_rng(element, np.array(low, dtype), np.array(high, dtype), count=4000)
        assert found.min() < low + (high - low) // 20
        assert found.max() > high - (high - low) // 20


def test_uniform_predicates() -> None:
    found = one_rng("pred", False, True)
    assert abs(found.mean() - 0.5) < 0.02


LOOP = """
cond { s = (s32[], f32[4,3]) parameter(0) i = s32[] get-tuple-element(s), index=0 n = s32[] constant(4)
  ROOT r = pred[] compare(i, n), direction=LT }
body { s = (s32[], f32[4,3]) parameter(0) i = s32[] get-tuple-element(s), index=0 one = s32[] constant(1)
  j = s32[] add(i, one) a = f32[] constant(0) b = f32[] constant(1)
  x = f32[3] rng(a, b), distribution=rng_uniform y = f32[1,3] reshape(x) z = s32[] constant(0)
  m = f32[4,3] get-tuple-element(s), index=1 u = f32[4,3] dynamic-update-slice(m, y, i, z)
  ROOT t = (s32[], f32[4,3]) tuple(j, u) }
"""


def test_every_execution_draws_anew_and_every_run_alike() -> None:
    text = LOOP + """ENTRY e { z = s32[] constant(0) a = f32[] constant(0) b = f32[] constant(1)
      f = f32[4,3] broadcast(a), dimensions={} s = (s32[], f32[4,3]) tuple(z, f)
      w = (s32[], f32[4,3]) while(s), condition=cond, body=body
      before = f32[3] rng(a, b), distribution=rng_uniform, control-predecessors={w}
      m = f32[4,3] get-tuple-element(w), index=1
      ROOT r = (f32[4,3], f32[3]) tuple(m, before) }"""
    program = Executable(parse("HloModule m\n" + text), ProcessGrid())
    rows, last = program.run([0], [[]], LocalFabric())[0]
    numbers = [*rows.reshape(-1).tolist(), *last.tolist()]
    assert len(set(numbers)) == 15
    again = program.run([0], [[]], LocalFabric())[0]
    assert [a.tobytes() for a in again] == [rows.tobytes(), last.tobytes()]


def test_the_stream_is_that_of_numpy() -> None:
    """As documented: Philox by SEED, the number of the draw in the highest word of its counter."""
    first, second = draws("""ENTRY e { a = f64[] constant(-1) b = f64[] constant(1)
      x = f64[3] rng(a, b), distribution=rng_uniform y = f64[2,2] rng(a, b), distribution=rng_normal
      ROOT r = (f64[3], f64[2,2]) tuple(x, y) }""")
    streams = [np.random.Generator(np.random.Philox(key=SEED, counter=[0, 0, 0, n])) for n in range(2)]
    np.testing.assert_array_equal(first, streams[0].random(3) * 2 - 1)
    np.testing.assert_array_equal(second, streams[1].standard_normal((2, 2)) - 1)


STATES = """
cond { s = (s32[], u64[3,2]) parameter(0) i = s32[] get-tuple-element(s), index=0 n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT }
body { s = (s32[], u64[3,2]) parameter(0) i = s32[] get-tuple-element(s), index=0 one = s32[] constant(1)
  j = s32[] add(i, one) x = u64[2] rng-get-and-update-state(), delta=4096 y = u64[1,2] reshape(x) z = s32[] constant(0)
  m = u64[3,2] get-tuple-element(s), index=1 u = u64[3,2] dynamic-update-slice(m, y, i, z)
  ROOT t = (s32[], u64[3,2]) tuple(j, u) }
ENTRY e { z = s32[] constant(0) a = u64[] constant(0) f = u64[3,2] broadcast(a), dimensions={}
  s = (s32[], u64[3,2]) tuple(z, f) w = (s32[], u64[3,2]) while(s), condition=cond, body=body
  ROOT r = u64[3,2] get-tuple-element(w), index=1 }"""


def test_state_is_that_of_xla() -> None:
    """Of one instruction: on CPU each has a state of its own, by HLO all of a device share one."""
    pytest.importorskip("jax")
    assert draws(STATES)[0].tolist() == run_xla("HloModule m\n" + STATES, [])[0].tolist()


def test_state_is_shared_and_wraps() -> None:
    first, second, third = draws("""ENTRY e { a = u64[2] rng-get-and-update-state(), delta=4096
      b = u64[2] rng-get-and-update-state(), delta=-117519254 c = u64[2] rng-get-and-update-state(), delta=1
      ROOT r = (u64[2], u64[2], u64[2]) tuple(a, b, c) }""")
    assert [a.tolist() for a in (first, second, third)] == [[0x7012395, 0], [0x7013395, 0], [2**64 - 1, 2**64 - 1]]


def test_random_numbers_within_a_reducer() -> None:
    text = """f { x = f32[] parameter(0) y = f32[] parameter(1) ROOT r = f32[] rng(x, y), distribution=rng_uniform }
    ENTRY e { x = f32[8] parameter(0) z = f32[] constant(0) ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=f }"""
    with pytest.raises(CompileError, match="rng cannot stand inside a computation that is applied to elements"):
        draws(text, np.zeros(8, np.float32))


PARTITIONED = LOOP + """
ENTRY e {
  z = s32[] constant(0) a = f32[] constant(0) b = f32[] constant(1) l = s32[] constant(-7) h = s32[] constant(9)
  before = f32[8] rng(a, b), distribution=rng_normal, sharding={devices=[4]<=[4]}
  f = f32[4,3] broadcast(a), dimensions={} s = (s32[], f32[4,3]) tuple(z, f)
  w = (s32[], f32[4,3]) while(s), condition=cond, body=body
  m = f32[4,3] get-tuple-element(w), index=1, sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}
  after = s32[5] rng(l, h), distribution=rng_uniform, sharding={devices=[2,2]<=[4] last_tile_dim_replicate}
  p = pred[6] rng(q, t), distribution=rng_uniform, sharding={devices=[2,2]<=[4] last_tile_dim_replicate}
  u = u64[2] rng-get-and-update-state(), delta=5
  v = u64[2] rng-get-and-update-state(), delta=5, sharding={devices=[2,2]<=[4] last_tile_dim_replicate}
  ROOT r = (f32[8], f32[4,3], s32[5], pred[6], u64[2], u64[2]) tuple(before, m, after, p, u, v)
}""".replace("  p = pred", "  q = pred[] constant(false) t = pred[] constant(true)\n  p = pred")


def test_partitioned_programs_draw_the_numbers_of_one_device() -> None:
    module = parse("HloModule m, num_partitions=4\n" + PARTITIONED)
    wanted = evaluate(module, [])
    found = simulate(partition(module, PassContext(verify="each")), [])
    for mine, yours in zip(found, wanted, strict=True):
        assert mine.tobytes() == yours.tobytes()


def test_partitioned_programs_take_the_numbers_of_one_device_in_xla() -> None:
    """XLA's devices have random states of their own; yet all agree, where ours have drawn other numbers."""
    pytest.importorskip("jax")
    text = """HloModule m, num_partitions=4
    ENTRY e { a = f32[] constant(0) b = f32[] constant(1)
      x = f32[64] rng(a, b), distribution=rng_uniform, sharding={devices=[4]<=[4]}
      ROOT r = (f32[64], f32[64]) tuple(x, x), sharding={{devices=[4]<=[4]}, {replicated}} }"""
    module = partition(parse(text), PassContext(verify="each"))
    parts, whole = run_manual(manual_module(module).to_text(), [], 4, [(64,), (64,)])
    np.testing.assert_array_equal(parts, whole)
    assert len(set(whole.tolist())) > 60
    assert 0 <= whole.min() < whole.max() < 1


def test_mixed_precision_is_the_highest_rounded() -> None:
    text = """HloModule m
    ENTRY e { a = f32[] constant(1) b = f32[] constant(2)
      ROOT r = f32[9] rng(a, b), distribution=rng_normal }"""
    mixed = text.replace("f32[9]", "f16[9]").replace("a = f32", "a = f16")
    (whole,), (rounded,) = (evaluate(parse(t), []) for t in (text, mixed))
    np.testing.assert_array_equal(rounded, whole.astype(np.float16))


def test_refuses() -> None:
    declared = tuple_shape(shapes("u64[3] u32[4]"))
    with pytest.raises(ShapeError, match=r"state of rng_three_fry must be u64\[2\], it is u64\[3\]"):
        use("rng-bit-generator", "u64[3]", declared, algorithm=Algorithm.THREE_FRY)
    with pytest.raises(ShapeError, match=r"state of rng_philox must be u64\[2\] or u64\[3\], it is u32\[4\]"):
        use("rng-bit-generator", "u32[4]", declared, algorithm=Algorithm.PHILOX)
    with pytest.raises(ShapeError, match="result shape must be given"):
        use("rng-bit-generator", "u64[2]", tuple_shape(shapes("u32[4]")), algorithm=Algorithm.PHILOX)
    with pytest.raises(ShapeError, match="numbers must have signed or unsigned elements"):
        use("rng-bit-generator", "u64[2]", tuple_shape(shapes("u64[2] f32[4]")), algorithm=Algorithm.PHILOX)
    with pytest.raises(ShapeError, match="operand 0 must have float elements"):
        use("rng", "s32[] s32[]", "s32[4]", distribution=RngDistribution.NORMAL)
    with pytest.raises(ShapeError, match="operand 1 must be a scalar"):
        use("rng", "f32[] f32[2]", "f32[4]", distribution=RngDistribution.UNIFORM)
    with pytest.raises(ShapeError, match=r"the state is u64\[2\], not u64\[3\]"):
        use("rng-get-and-update-state", "", "u64[3]", delta=1)

"""Numbers of eight bits with a scale per block: collectives err by no more than they say, and hide no infinity."""

from __future__ import annotations

import re

import hloom
import numpy as np
import pytest
from hloom.ir.types.element_type import ELEMENT_TYPES
from hloom.passes.base import PassContext
from hloom.passes.pipelines import partition
from hloom.passes.schedule.rewrites.scaled import block_size, largest, rounding
from hloom.runtime.check.check import CheckVerdict, judge, wide_program
from hloom.runtime.check.reference import Reference
from hloom.runtime.evaluator import UnpartitionedProgram
from hloom.runtime.inputs.inputs import inputs_for_module
from hloom.runtime.simulator import run_devices
from hloom.runtime.xla import run_on_xla
from support.rewrites import Array, collectives, rewritten

DEVICES, GROUP = 8, 4
GROUPS = "[2,4]<=[4,2]T(1,0)"  # devices 0, 2, 4, 6 and 1, 3, 5, 7
PASSES = {"all-gather": "gather-in", "reduce-scatter": "reduce-in", "all-reduce": "reduce-in"}


def program(op: str, dims: tuple[int, ...], dim: int = 0, element: str = "f32") -> str:
    """Returns the program of each device that exchanges an array of these dimensions."""
    result = list(dims)
    if op == "all-gather":
        result[dim] *= GROUP
    elif op == "reduce-scatter":
        result[dim] //= GROUP
    given, made = (f"{element}[{','.join(map(str, d))}]" for d in (dims, result))
    along = "" if op == "all-reduce" else f", dimensions={{{dim}}}"
    by = "" if op == "all-gather" else ", to_apply=add"
    return f"""HloModule m, num_partitions={DEVICES}, frontend_attributes={{hloom.stage="local"}}
add {{ a = {element}[] parameter(0)  b = {element}[] parameter(1)  ROOT c = {element}[] add(a, b) }}
ENTRY e {{
  x = {given} parameter(0), sharding={{devices=[{DEVICES}{",1" * (len(dims) - 1)}]<=[{DEVICES}]}}
  s = {made} {op}(x), channel_id=1, replica_groups={GROUPS}{along}, use_global_device_ids=true{by}
  ROOT r = {made} negate(s), sharding={{devices=[{DEVICES}{",1" * (len(dims) - 1)}]<=[{DEVICES}]}}
}}"""


def both(text: str, passes: str, inputs: list[list[Array]]) -> tuple[Array, Array, str]:
    """Returns the results of all devices before and after, and the remark."""
    module, remarks = rewritten(text, passes)
    runs = [run_devices(m, inputs) for m in (hloom.parse(text), hloom.parse(module.to_text()))]
    before, after = (np.stack([r for (r,) in found]).astype(np.float64) for found in runs)
    return before, after, remarks[0]


def numbers(dims: tuple[int, ...], element: str) -> list[list[Array]]:
    """Returns numbers of all magnitudes on each device."""
    rng = np.random.default_rng(1)
    values = rng.standard_normal((DEVICES, *dims)) * 2.0 ** rng.integers(-20, 20, (DEVICES, *dims))
    return [[v.astype(ELEMENT_TYPES[element].numpy)] for v in values]


@pytest.mark.parametrize("own", ["f32", "bf16", "f64"])
@pytest.mark.parametrize("short", ["s8", "f8e4m3fn"])
@pytest.mark.parametrize(("op", "dims", "dim"), [
    ("all-gather", (6, 40), 0), ("all-gather", (3, 64, 2), 1), ("all-gather", (4, 64), 1),
    ("reduce-scatter", (64, 40), 0), ("reduce-scatter", (3, 64, 8), 1), ("reduce-scatter", (2, 256), 1),
    ("all-reduce", (3, 64, 4), 0),
])  # fmt: skip
def test_no_more_error_than_said(op: str, dims: tuple[int, ...], dim: int, short: str, own: str) -> None:
    inputs = numbers(dims, own)
    before, after, remark = both(program(op, dims, dim, own), f"{PASSES[op]}{{element={short}}}", inputs)
    said = re.search(r"an error of at most (\S+) of .* block of (\d+); ([\d,]+) bytes become ([\d,]+) bytes", remark)
    assert said is not None
    bound, block = rounding(ELEMENT_TYPES[short], ELEMENT_TYPES[own]), int(said[2])
    assert float(said[1]) == pytest.approx(bound, rel=0.1)
    error = blocks(np.abs(before - after), op, dim, block)
    of = np.stack([np.abs(x.astype(np.float64)) for (x,) in inputs])
    if op == "all-gather":
        allowed = bound * blocks(before, op, dim, block)
    else:  # each device's largest magnitude in a block; then that of the sum
        parts = of.reshape(DEVICES, *outer(dims, dim if op == "reduce-scatter" else 0), -1, block).max(-1)
        sums = np.stack([parts[g::2].sum(0) for g in (0, 1)])  # of the two groups
        place = {device: divmod(device, 2) for device in range(DEVICES)}
        if op == "reduce-scatter":
            count = parts.shape[-1] // GROUP
            held = [sums[g][..., k * count : (k + 1) * count] for k, g in place.values()]
            allowed = bound * np.stack(held).reshape(DEVICES, -1)
        else:
            first = np.stack([sums[g] for _, g in place.values()]).reshape(DEVICES, -1)
            allowed = bound * (first * (1 + bound) + blocks(before, op, dim, block))
    assert error.shape == allowed.shape
    assert (error <= allowed * 1.01).all()
    assert (error > 0.02 * allowed).mean() > 0.5  # the bound is no wish


def outer(dims: tuple[int, ...], dim: int) -> tuple[int, ...]:
    return (int(np.prod(dims[:dim])),)


def blocks(x: Array, op: str, dim: int, block: int) -> Array:
    """Returns the largest magnitudes of the blocks of each device's result, in their order."""
    return np.abs(x).reshape(DEVICES, -1, block).max(-1)


@pytest.mark.parametrize(("op", "element"), [
    ("all-gather", "s8"), ("reduce-scatter", "f8e4m3fn"), ("all-reduce", "s8"),
])  # fmt: skip
def test_infinities_and_zeros_arrive(op: str, element: str) -> None:
    """A block with an infinity or NaN is not finite as a whole; zeros stay zeros, and the least numbers are no NaN."""
    inputs = [[np.zeros(512, np.float32)] for _ in range(DEVICES)]
    inputs[0][0][3], inputs[3][0][200], inputs[4][0][130] = np.inf, np.nan, 1e-45
    before, after, _ = both(program(op, (512,)), f"{PASSES[op]}{{element={element}}}", inputs)
    assert not np.isfinite(after[~np.isfinite(before)]).any()
    assert np.isfinite(after).mean() > 0.6
    finite = np.isfinite(after)
    np.testing.assert_array_equal(after[finite], np.where(before[finite] > -1e-40, 0, before[finite]))


def test_what_stays() -> None:
    def remark(text: str, passes: str) -> str:
        module, remarks = rewritten(text, passes)
        assert not collectives(module)["all-to-all"]
        return remarks[0]

    assert "too small for blocks with a scale" in remark(program("all-gather", (5,)), "gather-in{element=s8}")
    assert "too small or uneven for blocks" in remark(program("all-reduce", (4099,)), "reduce-in{element=s8}")
    slow = hloom.parse_machine("h100")
    _, remarks = rewritten(program("all-reduce", (4096,)), "reduce-in{element=s8}", slow)
    assert re.fullmatch(r".* is reduced in its type: \S+ us on the links, \S+ us with scales", remarks[0])
    text = program("all-reduce", (4096,)).replace("ROOT c = f32[] add", "ROOT c = f32[] maximum")
    assert "it is no sum" in remark(text, "reduce-in{element=s8}")
    uneven = program("all-reduce", (4096,)).replace(GROUPS, "{{0,1,2},{3,4,5,6,7}}")
    assert "no equal parts of all devices" in remark(uneven, "reduce-in{element=s8}")
    module, remarks = rewritten(program("all-gather", (64,), element="bf16"), "gather-in{element=f16}")
    assert collectives(module)["all-gather"] == 1
    assert not remarks


@pytest.mark.parametrize("name", ["s32", "f99"])
def test_wrong_types(name: str) -> None:
    with pytest.raises(hloom.CompileError, match=f"gather-in cannot gather in {name}"):
        rewritten(program("all-gather", (64,)), f"gather-in{{element={name}}}")


def test_a_shorter_float_is_gathered_as_it_is() -> None:
    before, after, remark = both(program("all-gather", (6, 40)), "gather-in{element=bf16}", numbers((6, 40), "f32"))
    assert "is gathered in bf16: an error of at most 0.0039 of each number; 3,840 bytes become 1,920 bytes" in remark
    assert 0 < np.max(np.abs(after - before) / np.abs(before)) <= 2**-8


def test_blocks() -> None:
    sizes = {0: 0, 31: 0, 32: 32, 256: 256, 512: 256, 300: 150, 257: 257, 514: 257, 222: 222}
    assert {n: block_size(n) for n in sizes} == sizes
    assert [largest(ELEMENT_TYPES[t]) for t in ("s8", "f8e4m3fn")] == [127, 448]


def test_checks_in_f64_are_as_strict_as_ever() -> None:
    """Rounding to eight bits is left out in f64, so that a thousandth shows, which the own types allow."""
    original = hloom.parse("""HloModule m
ENTRY e {
  x = f32[64,64] parameter(0), sharding={devices=[1,4]<=[4]}
  y = f32[64,64] parameter(1)
  ROOT z = f32[64,64] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding={replicated}
}""")
    right, _ = rewritten(hloom.partition(original), "reduce-in{element=s8}")
    wrong = hloom.parse(right.to_text())
    root = wrong.entry.root
    factor = wrong.entry.build("broadcast", wrong.entry.constant(1.001), shape=root.shape, dimensions=())
    wrong.entry.root = wrong.entry.build("multiply", root, factor, sharding=root.sharding)
    exchanged = [ELEMENT_TYPES["s8"]]
    reference = Reference(UnpartitionedProgram(original), inputs_for_module(original))
    verdicts: list[CheckVerdict] = []
    for local in (right, wrong):
        wide = wide_program(reference, local, exchanged)
        assert wide is not None
        outputs, in_f64 = (hloom.simulate(m, i) for m, i in ((local, reference.inputs), (wide.program, wide.inputs)))
        verdicts.append(judge(reference, outputs, in_f64, 4, exchanged=exchanged))
        assert judge(reference, outputs, reference.wide, 4, exchanged=exchanged).passed
    assert [v.passed for v in verdicts] == [True, False]
    assert verdicts[0].in_f64 is not None
    assert verdicts[0].in_f64.error < 1e-14


def test_scales_travel_as_they_are() -> None:
    module = hloom.parse("""HloModule m
ENTRY e {
  x = f32[128,4096] parameter(0), sharding={devices=[1,4]<=[4]}
  y = f32[4096,128] parameter(1), sharding={devices=[4,1]<=[4]}
  z = f32[128,128] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding={replicated}
  ROOT r = f32[128,128] negate(z), sharding={replicated}
}""")
    local = partition(module, PassContext(reduce_in="s8", gather_in="s8"))
    assert sorted(i.shape.element.name for i in local.entry if i.opcode == "all-gather") == ["f32", "s8"]


def test_xla_computes_the_same() -> None:
    pytest.importorskip("jax")
    text = program("all-reduce", (4, 64)).replace(GROUPS, "[2,4]<=[8]")
    module, _ = rewritten(text, "reduce-in{element=s8}")
    inputs = [np.concatenate([x for (x,) in numbers((4, 64), "f32")])]
    (ours,), (theirs,) = hloom.simulate(module, inputs), run_on_xla(module, inputs)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)

"""Products in blocks: which chains are made so, and the same numbers afterwards."""

from __future__ import annotations

import itertools
from typing import Any

import hloom
import numpy as np
import pytest
from hloom.codegen.native.compile_llvm import is_available
from hloom.cost.host import HOST
from hloom.ir.graph.module import Module, clone_module
from hloom.passes.base import PassContext, run_pipeline
from hloom.passes.cleanup.dce import DeadCodeElimination
from hloom.passes.fusion.fuse import FusionPass
from hloom.runtime.evaluator import UnpartitionedProgram
from hloom.runtime.native.kernels import NativeKernels
from hloom.runtime.plan.kernels import NUMPY

Array = np.ndarray[Any, Any]
NATIVE = pytest.param(True, marks=pytest.mark.skipif(not is_available(), reason="needs llvmlite"))

REDUCERS = """HloModule m
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
max { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] maximum(a, b) }
"""


def attention(rows: int, columns: int, mask: str = "causal", fill: str = "-inf", batch: int = 2) -> str:
    """Softmax attention of [batch, rows, 3 heads, 8] queries: masks compare counters, or are an operand."""
    b, r, c = batch, rows, columns
    wide, flat, row = f"f32[{b},3,{r},{c}]", f"[{r},{c}]", f"f32[{b},3,{r}]"
    masks = {
        "causal": f"m = pred{flat} compare(i, j), direction=GE",
        "anticausal": f"m = pred{flat} compare(i, j), direction=LE",
        "window": f"""near = s32{flat} subtract(i, j)  width = s32[] constant(20)
            w = s32{flat} broadcast(width), dimensions={{}}  zero_s = s32[] constant(0)
            z = s32{flat} broadcast(zero_s), dimensions={{}}
            m0 = pred{flat} compare(near, z), direction=GE  m1 = pred{flat} compare(near, w), direction=LT
            m = pred{flat} and(m0, m1)""",
        "given": f"m = pred{flat} parameter(3)",
        "none": f"m = pred{flat} compare(i, i), direction=EQ",
    }
    body = f"""ENTRY e {{
        q = f32[{b},{r},3,8] parameter(0)  k = f32[{b},{c},3,8] parameter(1)  v = f32[{b},{c},3,8] parameter(2)
        s = {wide} dot(q, k), lhs_batch_dims={{0,2}}, rhs_batch_dims={{0,2}}, lhs_contracting_dims={{3}},
          rhs_contracting_dims={{3}}
        i = s32{flat} iota(), iota_dimension=0  j = s32{flat} iota(), iota_dimension=1
        {masks[mask]}
        mb = pred[{b},3,{r},{c}] broadcast(m), dimensions={{2,3}}
        f = f32[] constant({fill})  fb = {wide} broadcast(f), dimensions={{}}
        masked = {wide} select(mb, s, fb)
        low = f32[] constant(-inf)  zero = f32[] constant(0)
        top = {row} reduce(masked, low), dimensions={{3}}, to_apply=max
        tb = {wide} broadcast(top), dimensions={{0,1,2}}
        d = {wide} subtract(masked, tb)  x = {wide} exponential(d)
        t = {row} reduce(x, zero), dimensions={{3}}, to_apply=add
        sb = {wide} broadcast(t), dimensions={{0,1,2}}  p = {wide} divide(x, sb)
        o = f32[{b},3,{r},8] dot(p, v), lhs_batch_dims={{0,1}}, rhs_batch_dims={{0,2}}, lhs_contracting_dims={{3}},
          rhs_contracting_dims={{1}}
        ROOT y = f32[{b},{r},3,8] transpose(o), dimensions={{0,2,1,3}}
    }}"""
    return REDUCERS + body


def fused(module: Module, explain: str | None = None, streamed: int = HOST.streamed) -> tuple[Module, list[str]]:
    """A fused copy, verified, and what the pass explains about an op."""
    copy, context = clone_module(module), PassContext(verify="each", explain=explain)
    run_pipeline([FusionPass(least=1, rows=8, streamed=streamed)], copy, context)
    return copy, [d.message for d in context.diagnostics.found]


def products(module: Module) -> list[tuple[int, ...]]:
    return [i.shape.dims for i in module.entry if i.opcode == "dot" and i.shape.rank == 4]


def inputs(module: Module, scale: float = 1.0) -> list[Array]:
    rng = np.random.default_rng(0)
    found: list[Array] = []
    for p in module.entry.parameters:
        x = rng.standard_normal(p.shape.dims) * scale
        found.append(x > 0 if p.shape.element.name == "pred" else x.astype(np.float32))
    return found


def agree(
    module: Module, given: list[Array], native: bool, tolerance: float = 3e-6, made: Module | None = None
) -> Array:
    """Runs a program as it is and in blocks, and returns the result: numbers agree, and which are not finite."""
    return agreeing(*both(module, made or fused(module)[0], native), given, tolerance)


def both(module: Module, made: Module, native: bool) -> tuple[UnpartitionedProgram, UnpartitionedProgram]:
    """A program as it is and as `made` of it, to run on any inputs."""
    return UnpartitionedProgram(module), UnpartitionedProgram(made, NativeKernels() if native else NUMPY)


def agreeing(
    plain: UnpartitionedProgram, made: UnpartitionedProgram, given: list[Array], tolerance: float = 3e-6
) -> Array:
    with np.errstate(all="ignore"):
        wanted, found = (np.asarray(program.run(given)[0]) for program in (plain, made))
    np.testing.assert_allclose(found, wanted, rtol=tolerance * 10, atol=tolerance, equal_nan=True)
    return found


SHAPES = [("causal", 64, 64), ("causal", 77, 77), ("causal", 33, 70), ("causal", 70, 33), ("anticausal", 61, 61),
          ("window", 90, 90)]  # fmt: skip
# Few rows make few blocks, for each of which there is machine code to make.
SMALL = [("causal", 24, 24), ("causal", 29, 29), ("causal", 17, 30), ("causal", 30, 17), ("anticausal", 21, 21),
         ("window", 40, 40)]  # fmt: skip
FILLS = ["-inf", "-3.4028235e38", "0.5"]
MASKED = [(*shape, fill, False) for shape in SHAPES for fill in FILLS]
COMPILED = [pytest.param(*shape, fill, *NATIVE.values,
                         marks=[*NATIVE.marks, *([pytest.mark.slow] if (row + column) % 3 else [])])
            for row, shape in enumerate(SMALL) for column, fill in enumerate(FILLS)]  # fmt: skip


@pytest.mark.share(3)
@pytest.mark.parametrize(("mask", "rows", "columns", "fill", "native"), [*MASKED, *COMPILED])
def test_masked_attention(mask: str, rows: int, columns: int, fill: str, native: bool) -> None:
    module = hloom.parse(attention(rows, columns, mask, fill))
    made = products(fused(module)[0])
    whole = sum(np.prod(d) for d in products(module))
    assert len(made) > 4
    assert sum(np.prod(d) for d in made) < whole
    agree(module, inputs(module), native)


@pytest.mark.parametrize(("fill", "native"), [
    ("-inf", False),
    *(pytest.param(fill, False, marks=pytest.mark.slow) for fill in ("nan", "-1e30", "0.5")),
    *(pytest.param(fill, *NATIVE.values, marks=[*NATIVE.marks, *more])
      for fill, more in (("-inf", []), *((fill, [pytest.mark.slow]) for fill in ("0.5", "-1e30", "nan")))),
])  # fmt: skip
def test_numbers_that_are_not_finite(fill: str, native: bool) -> None:
    """The elements that blocks leave out would make results NaN: those of the last product, not of the first.

    Numbers that overflow stand alone in their sums: where several do, the order of the sum says if it is infinite, NaN
    or neither.
    """
    module = hloom.parse(attention(40, 40, "causal", fill))
    programs = both(module, fused(module)[0], native)
    for where, bad in itertools.product(range(3), [np.nan, np.inf, -np.inf, 3e38, -1e30]):
        given = inputs(module)
        given[where][1, 37, 2, 3] = bad
        given[where][0, 5, 1, : 1 if bad == 3e38 else None] = bad
        agreeing(*programs, given)


@pytest.mark.parametrize("native", [False, NATIVE])
def test_large_values_do_not_overflow_in_sums_of_columns(native: bool) -> None:
    module = hloom.parse(attention(64, 64))
    given = inputs(module)
    given[2][:, 32:] = 3e38
    assert np.isfinite(agree(module, given, native)[:, :8]).all()


@pytest.mark.parametrize("native", [False, NATIVE])
def test_rows_whose_products_are_below_the_fill(native: bool) -> None:
    """All columns count where everything that the mask lets through is far less than the fill."""
    module = hloom.parse(attention(48, 48, fill="-1e3"))
    given = inputs(module)
    given[0][0], given[1][0] = -1e3, 1e3
    found = agree(module, given, native, 3e-5)
    later = given[2][0, 1:].mean(0)  # row 0 sees its own column alone, and that not
    np.testing.assert_allclose(found[0, 0], later, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("mask", ["given", "none"])
def test_unknown_masks_leave_products_whole(mask: str) -> None:
    module = hloom.parse(attention(64, 64, mask))
    assert products(fused(module)[0]) == products(module)


@pytest.mark.parametrize("native", [False, NATIVE])
def test_large_products_are_cut_along_a_batch(native: bool) -> None:
    module = hloom.parse(attention(50, 50, "given", batch=7))
    before = hloom.live_memory(fused(module)[0]).temporary
    result, _ = fused(module, streamed=1)
    assert products(result)[0] == (1, 3, 50, 50)
    assert hloom.live_memory(result).temporary < before / 2
    agree(module, inputs(module), native)


@pytest.mark.parametrize("native", [False, NATIVE])
def test_large_products_without_batch_are_cut_along_rows(native: bool) -> None:
    module = hloom.parse("""HloModule m
    ENTRY e { a = f32[100,9] parameter(0)  b = f32[9,33] parameter(1)  c = f32[5,33] parameter(2)
      s = f32[100,33] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}  t = f32[100,33] tanh(s)
      ROOT r = f32[5,100] dot(c, t), lhs_contracting_dims={1}, rhs_contracting_dims={1} }""")
    result, _ = fused(module, streamed=1)
    assert [i.shape.dims for i in result.entry if i.opcode == "dot"] == [(64, 33), (5, 64), (36, 33), (5, 36)]
    agree(module, inputs(module), native)


@pytest.mark.parametrize("native", [False, NATIVE])
@pytest.mark.parametrize("widths", [(9, 9, 9), (9, 20, 9, 5), (9, 5, 20, 9, 30), (7, 8, 9, 10, 11, 12)])
def test_a_product_in_a_row_of_them_is_cut_once(widths: tuple[int, ...], native: bool) -> None:
    """The last product of one chain is the first of the next one: the chain of the largest values is cut."""
    lines = ["x0 = f32[100,9] parameter(0)", *(f"w{n} = f32[{a},{b}] parameter({n})"
                                              for n, (a, b) in enumerate(zip((9, *widths), widths, strict=False), 1))]
    for n, width in enumerate(widths, 1):
        lines.append(f"y{n} = f32[100,{width}] dot(x{n - 1}, w{n}), lhs_contracting_dims={{1}}, "
                     "rhs_contracting_dims={0}")
        lines.append(f"x{n} = f32[100,{width}] tanh(y{n})")
    module = hloom.parse("HloModule m\nENTRY e {\n" + "\n".join(lines) + f"\nROOT r = copy(x{len(widths)}) }}")
    result, _ = fused(module, streamed=1)
    rows = [i.shape.dims[0] for i in result.entry if i.opcode == "dot"]
    assert sum(rows) == 100 * len(widths)
    cut = [size for size in rows if size < 100]
    assert cut
    assert len(cut) % 4 == 0, "two blocks of both products of a chain"
    agree(module, inputs(module), native)


@pytest.mark.parametrize("native", [False, NATIVE])
@pytest.mark.parametrize(("between", "dims"), [("tanh", 0), ("copy", 0), ("negate", 1)])
@pytest.mark.parametrize("batch", [False, True])
def test_products_of_a_chain_with_itself_are_not_cut_along_both_dimensions(
    between: str, dims: int, batch: bool, native: bool
) -> None:
    """A Gram matrix has the rows of the one operand twice."""
    b, d, which = ("4,", 1 + dims, "{0}") if batch else ("", dims, "{}")
    shape = (70, 90)[1 - dims]
    module = hloom.parse(f"""HloModule m
    ENTRY e {{
        x = f32[{b}70,9] parameter(0)  w = f32[{b}9,90] parameter(1)
        y = f32[{b}70,90] dot(x, w), lhs_batch_dims={which}, rhs_batch_dims={which},
          lhs_contracting_dims={{{1 + batch}}}, rhs_contracting_dims={{{batch:d}}}
        z = f32[{b}70,90] {between}(y)
        ROOT r = f32[{b}{shape},{shape}] dot(z, z), lhs_batch_dims={which}, rhs_batch_dims={which},
          lhs_contracting_dims={{{d}}}, rhs_contracting_dims={{{d}}}
    }}""")
    result, _ = fused(module, streamed=1)
    assert (len([i for i in result.entry if i.opcode == "dot"]) > 2) == batch, "only a batch dimension can be cut"
    agree(module, inputs(module), native, 1e-5)


@pytest.mark.parametrize("native", [False, NATIVE])
def test_masked_products_come_before_those_of_large_values(native: bool) -> None:
    """Queries are products themselves, and larger than the scores."""
    text = attention(64, 64).replace("q = f32[2,64,3,8] parameter(0)", """u = f32[2,64,3,400] parameter(0)
        w1 = f32[400,400] parameter(3)  w2 = f32[400,8] parameter(4)
        h = f32[2,64,3,400] dot(u, w1), lhs_contracting_dims={3}, rhs_contracting_dims={0}
        q = f32[2,64,3,8] dot(h, w2), lhs_contracting_dims={3}, rhs_contracting_dims={0}""")
    module = hloom.parse(text)
    result, _ = fused(module, streamed=1)
    scores = [shape for shape in products(result) if shape[:2] == (2, 3) and shape[3] > 8]
    assert [shape[3] for shape in scores] == [16, 24, 32, 40, 48, 56, 64]
    agree(module, [x * 0.05 for x in inputs(module)], native, 3e-5)


@pytest.mark.share(2)
@pytest.mark.parametrize("native", [False, NATIVE])
@pytest.mark.parametrize("fill", ["inf", "-inf", "2.5", "0"])
def test_infinite_fills_reach_the_last_product(fill: str, native: bool) -> None:
    """Infinities times numbers of both signs, or times 0, are NaN; times numbers of one sign they are infinite."""
    module = hloom.parse(attention(40, 40, fill=fill).replace("dot(p, v)", "dot(masked, v)"))
    run_pipeline([DeadCodeElimination()], module, PassContext())  # the softmax
    result, _ = fused(module)
    assert len(products(result)) > 4
    v = inputs(module)[2]
    for changed in (v, np.abs(v), -np.abs(v), np.maximum(v, 0)):
        agree(module, [*inputs(module)[:2], changed], native, 3e-5, result)


def test_sums_of_narrow_numbers_stay_whole() -> None:
    module = hloom.parse(attention(64, 64).replace("f32", "bf16"))
    assert products(fused(module)[0]) == products(module)


def test_a_schedule_stays_one() -> None:
    module = hloom.parse(attention(64, 64).replace("HloModule m", "HloModule m, is_scheduled=true"))
    result, _ = fused(module)
    assert result.has_schedule
    assert len(products(result)) == 16
    agree(module, inputs(module), native=False)


@pytest.mark.share(3)
@pytest.mark.parametrize("native", [False, NATIVE])
@pytest.mark.parametrize("tiles", ["2,1,1,1", "1,2,1,1"])
def test_devices_of_a_simulation(tiles: str, native: bool) -> None:
    """A divided batch leaves the mask known, divided rows make it depend on the device."""
    sharded = f"parameter(0), sharding={{devices=[{tiles}]<=[2]}}"
    module = hloom.parse(attention(64, 64).replace("parameter(0)  k", f"{sharded}  k"))
    given = inputs(module)
    wanted = hloom.evaluate(module, given)[0]
    result, _ = fused(hloom.partition(module, 2))
    assert (len(products(result)) > 4) == tiles.startswith("2")
    (found,) = hloom.simulate(result, given, kernels=NativeKernels() if native else NUMPY)
    np.testing.assert_allclose(found, wanted, rtol=3e-5, atol=3e-6)


def test_a_product_that_others_need_stays_whole() -> None:
    result = "ROOT r = (f32[2,64,3,8], f32[2,3,64,64]) tuple(y, p)"
    text = attention(64, 64).replace("ROOT y", "y").replace("\n    }", f"\n{result}\n}}")
    module = hloom.parse(text)
    assert products(fused(module)[0]) == products(module)


@pytest.mark.parametrize(("mask", "name", "reason"), [
    ("causal", "o", "o is computed together with s in 8 blocks of rows, because a mask lets only 56% of the elements "
                    "through"),
    ("causal", "s", "s is computed together with o in 8 blocks"),
    ("given", "o", "o is not fused, and not computed in blocks: no mask is known to leave out columns of whole blocks "
                   "of rows, and the 0.1 MiB between the products are less than 16"),
    ("given", "s", "s is not fused, and not computed in blocks: no other product makes its operands"),
])  # fmt: skip
def test_explained(mask: str, name: str, reason: str) -> None:
    assert any(reason in message for message in fused(hloom.parse(attention(64, 64, mask)), name)[1])

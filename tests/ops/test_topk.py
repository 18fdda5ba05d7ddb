"""topk: against sorting in Python, the total order of floats, the rule, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from hloom.ir.graph.op import ShapeError
from hloom.ir.types.element_type import ELEMENT_TYPES
from hypothesis import given
from hypothesis import strategies as st
from ops.build import rule, run, use


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=12), st.booleans(), st.data())
def test_equals_sorting(row: list[int], largest: bool, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, len(row)))
    values, places = run("topk", use("topk", f"s32[{len(row)}]", k=k, largest=largest), np.array(row, np.int32))
    wanted = sorted(range(len(row)), key=lambda i: (-row[i] if largest else row[i], i))[:k]
    assert places.tolist() == wanted
    assert values.tolist() == [row[i] for i in wanted]
    assert places.dtype == np.int32


@pytest.mark.parametrize("name", ["f32", "bf16", "f16", "s32", "u32", "s8", "u8", "u64", "pred"])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(("count", "k"), [(99, 5), (70, 1), (2003, 3)])
def test_few_of_many_are_the_first_of_all(name: str, largest: bool, count: int, k: int) -> None:
    rng, element = np.random.default_rng(1), ELEMENT_TYPES[name]
    least = 0 if name[0] in "up" else -5
    x = rng.integers(least, 2 if name == "pred" else 6, (4, count)).astype(element.numpy)
    if name != "pred":  # an extreme far to the right, beside it one that equals others on the left
        x[3] = 3
        x[3, [4, 5, -8, -9]] = [4, 4, 4, 5] if largest else [2, 2, 2, 1]
    if element.is_integer:
        x[1, ::7], x[1, 1::9] = np.iinfo(x.dtype).max, np.iinfo(x.dtype).min
        x[2] = rng.integers(np.iinfo(x.dtype).min, np.iinfo(x.dtype).max, count, x.dtype)
    if element.is_float:
        x[0, ::7], x[0, 1::7], x[0, 2::9] = np.nan, -0.0, -np.inf
    few = run("topk", use("topk", f"{name}[4,{count}]", k=k, largest=largest), x)
    everything = run("topk", use("topk", f"{name}[4,{count}]", k=count, largest=largest), x)
    for a, b in zip(few, everything, strict=True):
        assert a.tobytes() == b[:, :k].tobytes()


@pytest.mark.parametrize(("largest", "wanted"), [(True, [3, 2, 0, 5, 1, 4]), (False, [4, 1, 0, 5, 2, 3])])
def test_total_order(largest: bool, wanted: list[int]) -> None:
    x = np.array([0.0, -0.0, np.inf, np.nan, -np.inf, 0.0], np.float32)
    _, places = run("topk", use("topk", "f32[6]", k=6, largest=largest), x)
    assert places.tolist() == wanted


def test_rule() -> None:
    call = use("topk", "f32[3,8]", k=2)
    assert call.attributes.largest is True
    assert rule("topk", call) == "([i j]) -> ([i k], [i k]) {i=3, j=8, k=2} reduction={j} need_replication={k}"


@pytest.mark.parametrize(
    ("operand", "k", "message"),
    [
        ("f32[3,8]", 9, "k is 9, the last dimension of f32[3,8] has 8"),
        ("f32[]", 0, "the operand must have a dimension"),
        ("c64[4]", 2, "operand must have pred, signed, unsigned or float elements"),
    ],
)
def test_refuses(operand: str, k: int, message: str) -> None:
    with pytest.raises(ShapeError) as error:
        use("topk", operand, k=k)
    assert message in error.value.message

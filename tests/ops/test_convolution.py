"""convolution: against sums written out, in slices of the batch too; labels, rules, groups on a device, refusals."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hloom.frontends import parse
from hloom.ir.diagnostics import CompileError
from hloom.ir.graph.attributes import DimLabels, Window, WindowDim
from hloom.ir.graph.op import ShapeError, op_named
from hloom.runtime import evaluate
from hypothesis import given, settings
from hypothesis import strategies as st
from ops.build import rule, run, shapes, use

_1D = DimLabels.parse("bf0_oi0->bf0")
_2D = DimLabels.parse("b01f_01io->b01f")


def _written_out(x: Any, k: Any, w: WindowDim, feature_groups: int, batch_groups: int, places: int) -> Any:
    """The sums of a convolution labelled bf0_oi0->bf0, term by term."""
    batch, outputs, inputs = x.shape[0] // batch_groups, k.shape[0], k.shape[1]
    result = np.zeros((batch, outputs, places), np.int64)
    group_size = outputs // (feature_groups * batch_groups)
    for b, o, p, i, j in itertools.product(*map(range, (batch, outputs, places, inputs, w.size))):
        place, rest = divmod(p * w.stride + j * w.rhs_dilate - w.low, w.lhs_dilate)
        if rest == 0 and 0 <= place < x.shape[2]:
            group = o // group_size
            row = b + (batch * group if batch_groups > 1 else 0)
            feature = i + (inputs * group if feature_groups > 1 else 0)
            result[b, o, p] += int(x[row, feature, place]) * int(k[o, i, w.size - 1 - j if w.reversal else j])
    return result


_WINDOWS = st.builds(
    WindowDim, st.integers(1, 3), st.integers(1, 3), st.integers(-2, 3), st.integers(-2, 3), st.integers(1, 3),
    st.integers(1, 3), st.booleans(),
)  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(_WINDOWS, st.sampled_from([(1, 1), (2, 1), (1, 2), (3, 1)]), st.integers(1, 2), st.integers(1, 6))
def test_equals_sums_written_out(w: WindowDim, groups: tuple[int, int], features: int, size: int) -> None:
    by_feature, by_batch = groups
    rng = np.random.default_rng(size)
    x = rng.integers(-9, 9, (2 * by_batch, features * by_feature, size)).astype(np.int32)
    k = rng.integers(-9, 9, (2 * by_feature * by_batch, features, w.size)).astype(np.int32)
    call = use("convolution", f"s32{list(x.shape)} s32{list(k.shape)}".replace(", ", ","), window=Window((w,)),
               dim_labels=_1D, feature_group_count=by_feature, batch_group_count=by_batch)  # fmt: skip
    wanted = _written_out(x, k, w, by_feature, by_batch, call.shape.dims[2])
    np.testing.assert_array_equal(run("convolution", call, x, k), wanted)


def test_slices_of_the_batch() -> None:
    """The windows of one element are about a million elements, so that a few are copied at a time."""
    rng, size = np.random.default_rng(0), 200_000
    x, k = rng.integers(-9, 9, (17, 2, size)).astype(np.int32), rng.integers(-9, 9, (2, 1, 3)).astype(np.int32)

    def convolved(part: Any) -> Any:
        call = use("convolution", f"s32[{len(part)},2,{size}] s32[2,1,3]", window=Window((WindowDim(3),)),
                   dim_labels=_1D, feature_group_count=2)  # fmt: skip
        return run("convolution", call, part, k)

    np.testing.assert_array_equal(convolved(x), np.concatenate([convolved(x[n : n + 1]) for n in range(17)]))


def _window(*dims: int) -> Window:
    return Window(tuple(WindowDim(n) for n in dims))


def test_rules() -> None:
    call = use("convolution", "f32[2,5,7,6] f32[1,3,3,4]", window=_window(1, 3), dim_labels=_2D, feature_group_count=2)
    assert rule("convolution", call) == (
        "([j m n (i l)], [1 o l (i k)]) -> [j m n (i k)] {i=2, j=2, k=2, l=3, m=5, n=5, o=3} "
        "reduction={l} need_replication={o} permutation={n}"
    )
    call = use("convolution", "f32[6,3,5] f32[4,3,2]", window=_window(2), dim_labels=_1D, batch_group_count=2)
    assert rule("convolution", call) == (
        "([(i j) l m], [(i k) l n]) -> [j (i k) m] {i=2, j=3, k=2, l=3, m=4, n=2} "
        "reduction={l} need_replication={n} permutation={m}"
    )
    # The gradient of a kernel: a window larger than the result is what is divided.
    call = use("convolution", "f32[2,3,9] f32[4,3,8]", window=_window(8), dim_labels=_1D)
    assert rule("convolution", call) == (
        "([i k l], [j k l]) -> [i j m] {i=2, j=4, k=3, l=8, m=2} reduction={k, l} need_replication={m}"
    )


def test_groups_of_one_device() -> None:
    op = op_named("convolution")
    call = use("convolution", "f32[2,6,5] f32[6,1,1]", window=_window(1), dim_labels=_1D, feature_group_count=6)
    local = op.localize(call, shapes("f32[2,2,5] f32[2,1,1]"), shapes("f32[2,2,5]")[0])
    assert local.feature_group_count == 2
    call = use("convolution", "f32[6,2,5] f32[3,2,1]", window=_window(1), dim_labels=_1D, batch_group_count=3)
    local = op.localize(call, shapes("f32[2,2,5] f32[1,2,1]"), shapes("f32[2,1,5]")[0])
    assert local.batch_group_count == 1


def test_labels() -> None:
    assert str(_2D) == "b01f_01io->b01f"
    odd = DimLabels.parse("?b01f_0?1io->b01?f")
    assert (odd.spatial, str(odd)) == ("01", "?b01f_0?1io->b01?f")
    with pytest.raises(ShapeError, match="leave dimensions without a role"):
        use("convolution", "f32[1,4,3,2] f32[2,3,5,2]", window=_window(2), dim_labels=DimLabels.parse("b0f?_0io?->b0f"))
    assert DimLabels.parse("bf_io->bf").spatial == ""
    for text, message in [
        ("bf0_io0", "expected labels like b01f_01io->b01f"),
        ("bf0_io0->bf1", "'bf1' must have each of 0 b f once"),
        ("bff_io0->bf0", "'bff' must have each of 0 b f once"),
        ("bf?_io0->bf", "'io0' must have each of i o once"),
    ]:
        with pytest.raises(ValueError, match=message):
            DimLabels.parse(text)


@pytest.mark.parametrize(
    ("operands", "more", "message"),
    [
        ("f32[2,3] f32[2,3,3]", {}, "dim_labels are of rank 3, the input is f32[2,3]"),
        ("f32[2,3,5] f32[2,3]", {}, "dim_labels are of rank 3, the kernel is f32[2,3]"),
        ("f32[2,3,5] f32[2,3,2]", {}, "window dimension 0 has size 3, the kernel has 2"),
        ("f32[2,3,5] f32[2,3,3]", {"window": _window()}, "the window has 0 dimensions, dim_labels have 1 spatial ones"),
        ("f32[2,3,5] f32[2,2,3]", {}, "the input has 3 features, the kernel takes 2"),
        ("f32[2,3,5] f32[2,2,3]", {"feature_group_count": 2}, "the kernel takes 2 in 2 groups"),
        ("f32[2,6,5] f32[3,3,3]", {"feature_group_count": 2}, "3 output features do not divide into 2 equal groups"),
        ("f32[3,3,5] f32[2,3,3]", {"batch_group_count": 2}, "a batch of 3 does not divide into 2 equal groups"),
        ("f32[2,3,5] f32[2,3,3]", {"batch_group_count": 2, "feature_group_count": 2}, "and one of them 1"),
    ],
)
def test_refuses(operands: str, more: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeError) as error:
        use("convolution", operands, None, **({"window": _window(3), "dim_labels": _1D} | more))
    assert message in error.value.message


def test_sparse_convolutions_are_not_evaluated() -> None:
    text = """ENTRY e { x = f32[2,4,4] parameter(0) k = f32[3,4,5] parameter(1)
      ROOT r = f32[2,2,5] convolution(x, k), window={size=3}, dim_labels=b0f_0io->b0f,
        sparsity_config={rhs={sparsity=2x4 dimension=1 stride=1}} }"""
    with pytest.raises(CompileError, match="its packing is unknown"):
        evaluate(parse(text), [np.zeros((2, 4, 4), np.float32), np.zeros((3, 4, 5), np.float32)])

"""ragged-dot: every sample against a dot with a mask for each group; rules and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hloom.frontends import parse
from hloom.ir.graph.op import ShapeError
from hloom.ir.ops.ragged_dot import RaggedDotAttributes
from hloom.ir.ops.structure import ConstantAttributes
from hloom.runtime import evaluate
from ops.build import rule, use
from ops.oracle import random_inputs
from ops.samples_ragged_dot import SAMPLES

_EXPERTS: dict[str, Any] = {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (1,), "lhs_ragged_dims": (0,),
                            "rhs_group_dims": (0,)}  # fmt: skip


def _masked(x: Any, sizes: Any, group: int, a: RaggedDotAttributes) -> Any:
    """lhs with zeros outside the group."""
    (ragged,) = a.lhs_ragged_dims
    role = a.lhs_contracting_dims if ragged in a.lhs_contracting_dims else tuple(
        d for d in range(x.ndim) if d not in a.lhs_batch_dims + a.lhs_contracting_dims
    )  # fmt: skip
    lead = a.lhs_batch_dims + role[: role.index(ragged)] if sizes.ndim > 1 else ()
    result = np.zeros_like(x)
    for place in np.ndindex(*sizes.shape[:-1]):
        end = int(sizes[place][: group + 1].sum())
        at: list[Any] = [slice(None)] * x.ndim
        at[ragged] = slice(end - int(sizes[place][group]), end)
        for d, i in zip(lead, place, strict=True):
            at[d] = i
        result[tuple(at)] = x[tuple(at)]
    return result


def _dot(x: Any, y: Any, a: RaggedDotAttributes, rhs_dims: list[int]) -> Any:
    """A dot whose rhs has its dimensions numbered as in `rhs_dims` (the group dimension is gone)."""
    left, right = list(range(x.ndim)), [100 + d for d in rhs_dims]
    for own, other in zip(a.lhs_batch_dims + a.lhs_contracting_dims, a.rhs_batch_dims + a.rhs_contracting_dims,
                          strict=True):  # fmt: skip
        right[rhs_dims.index(other)] = own
    free = [d for d in left if d not in a.lhs_batch_dims + a.lhs_contracting_dims]
    out = [*a.lhs_batch_dims, *free, *(d for d in right if d >= 100)]
    names = {d: n for n, d in enumerate(dict.fromkeys([*left, *right]))}
    return np.einsum(x, [names[d] for d in left], y, [names[d] for d in right], [names[d] for d in out])


@pytest.mark.parametrize("text", SAMPLES["ragged-dot"])
def test_equals_dots_of_masked_groups(text: str) -> None:
    module = parse(text)
    call = module.entry.root.call
    a: RaggedDotAttributes = call.attributes
    x, y = random_inputs([p.shape for p in module.entry.parameters], 3)
    constant = module.entry.root.operands[2].attributes
    assert isinstance(constant, ConstantAttributes)
    sizes = constant.literal.array
    assert sizes is not None
    (ours,) = evaluate(module, [x, y])
    wide = np.int64 if x.dtype.kind == "i" else np.float64
    x, y = x.astype(wide), y.astype(wide)
    rhs_dims = [d for d in range(y.ndim) if d not in a.rhs_group_dims]
    if a.lhs_ragged_dims[0] in a.lhs_batch_dims:
        wanted = _dot(x, y, a, rhs_dims)
    else:
        groups = range(sizes.shape[-1])
        matrices = [np.take(y, g, a.rhs_group_dims[0]) if a.rhs_group_dims else y for g in groups]
        found = [_dot(_masked(x, sizes, g, a), matrices[g], a, rhs_dims) for g in groups]
        wanted = np.sum(found, axis=0) if a.rhs_group_dims else np.stack(found)
    tolerance = 2e-2 if ours.dtype.itemsize == 2 else 1e-5
    np.testing.assert_allclose(ours.astype(wide), wanted, rtol=tolerance, atol=tolerance)


def test_rules() -> None:
    call = use("ragged-dot", "f32[8,4] f32[3,4,5] s32[3]", **_EXPERTS)
    assert rule("ragged-dot", call) == (
        "([j k], [i k l], [i]) -> [j l] {i=3, j=8, k=4, l=5} reduction={k} need_replication={i, j}"
    )
    call = use("ragged-dot", "f32[6,4] f32[6,5] s32[2]", lhs_contracting_dims=(0,), rhs_contracting_dims=(0,),
               lhs_ragged_dims=(0,))  # fmt: skip
    assert rule("ragged-dot", call) == "([j k], [j l], [i]) -> [i k l] {i=2, j=6, k=4, l=5} need_replication={i, j}"


@pytest.mark.parametrize(
    ("operands", "more", "message"),
    [
        ("f32[8,4] f32[3,4,5] s32[2]", {}, "rhs has 3 groups, but there are 2 group sizes"),
        ("f32[8,4] f32[3,3,5] s32[3]", {}, "lhs dimension 1 is 4, rhs dimension 1 is 3"),
        ("f32[8,4] f32[3,4,5] f32[3]", {}, "the group sizes must be an array of integers, they are f32[3]"),
        ("f32[8,4] f32[3,4,5] s32[2,3]", {}, "the group sizes must be [groups] or ['groups'], not s32[2,3]"),
        ("f32[8,4] f32[3,4,5] s32[3]", {"lhs_ragged_dims": ()}, "needs one lhs_ragged_dims, it has 0"),
        ("f32[8,4] f32[3,4,5] s32[3]", {"lhs_ragged_dims": (1,)}, "contracting dimension rhs must have 0 group dim"),
        ("f32[8,4] f32[3,4,5] s32[3]", {"rhs_group_dims": ()}, "a ragged free dimension rhs must have 1 group dim"),
    ],
)
def test_refuses(operands: str, more: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeError) as error:
        use("ragged-dot", operands, None, **(_EXPERTS | more))
    assert message in error.value.message

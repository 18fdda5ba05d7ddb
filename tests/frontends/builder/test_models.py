"""Layers of the papers in small, written as the papers write them: their collectives, and numpy's numbers."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import hloom
import numpy as np
from hloom import builder as hb

Array = np.ndarray[Any, Any]
IDS = np.arange(8).reshape(2, 4)


def normal(*dims: int) -> Array:
    return np.random.default_rng(sum(dims)).standard_normal(dims).astype(np.float32)


def unplaced(x: Any, **_: Any) -> Any:
    return x


def checked(function: Callable[..., Any], arrays: Sequence[Array], expected: Any) -> hloom.Module:
    """Partitions the program of a function; one device and all of them must give the expected numbers."""
    module = hb.trace(function, *arrays)
    hloom.verify(module)
    local = hloom.partition(module)
    for found in (hloom.evaluate(module, arrays), hloom.simulate(local, arrays)):
        np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-4)
    return local


def test_dense_layer_in_two_dimensions() -> None:
    """GSPMD's 2-D finalized sharding (section 3.2): weights [X, Y], activations [X, -, Y]."""
    def layer(np: Any, place: Any, x: Any, wi: Any, wo: Any) -> Any:
        x, wi = place(x, dims_mapping=[0, -1, 1]), place(wi, dims_mapping=[0, 1])
        h = place(np.maximum(np.einsum("bsm,mh->bsh", x, wi), 0), dims_mapping=[0, -1, 1])
        return place(np.einsum("bsh,hm->bsm", h, place(wo, dims_mapping=[1, 0])), dims_mapping=[0, -1, 1])

    arrays = normal(8, 4, 16), normal(16, 32), normal(32, 16)
    local = checked(partial(layer, hb, partial(hb.mesh_split, mesh=IDS)), arrays, layer(np, unplaced, *arrays))
    # Weights are gathered along X where they are used, activations along Y; the sum of the second product is scattered.
    hloom.assert_collectives(local, all_gather=3, reduce_scatter=1, total=4, work_at_most=2 * 8 * 4 * 16 * 32 // 8)
    assert {c.group_size for c in hloom.collectives(local) if c.kind == "reduce-scatter"} == {4}


def softmax(np: Any, x: Any) -> Any:
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def gating(np: Any, logits: Any, capacity: int) -> tuple[Any, Any]:
    """GShard's top-2 gating (Algorithm 1) without random routing: weights [G, S, E, C], and where they are not 0."""
    experts = logits.shape[-1]
    numbers, places = np.arange(experts), np.arange(capacity).astype(np_float)
    gates = softmax(np, logits)
    first = (np.argmax(gates, axis=-1)[..., None] == numbers).astype(np_float)
    rest = gates * (1 - first)
    second = (np.argmax(rest, axis=-1)[..., None] == numbers).astype(np_float)
    ahead_1 = np.cumsum(first, axis=1) - first
    ahead_2 = np.cumsum(second, axis=1) - second + np.sum(first, axis=1, keepdims=True)
    total = np.sum(gates * (first + second), axis=-1, keepdims=True)
    combine = 0.0
    for chosen, ahead in ((first, ahead_1), (second, ahead_2)):
        at = np.sum(ahead * chosen, axis=-1)  # the place among the tokens of the expert
        kept = gates * chosen / total * (ahead < capacity).astype(np_float)
        combine = combine + kept[..., None] * (at[..., None, None] == places).astype(np_float)
    return combine, (combine > 0).astype(np_float)


np_float = np.float32


def mixture(np: Any, split: Any, x: Any, wg: Any, wi: Any, wo: Any) -> Any:
    """GShard's position-wise mixture of experts (Algorithm 2): groups, then experts, are divided."""
    x = split(x)
    combine, dispatch = gating(np, np.einsum("GSM,ME->GSE", x, wg), capacity=4)
    entering = split(np.einsum("GSEC,GSM->EGCM", dispatch, x))
    h = np.maximum(np.einsum("EGCM,EMH->EGCH", entering, split(wi)), 0)
    leaving = split(np.einsum("EGCH,EHM->EGCM", h, split(wo)))
    return split(np.einsum("GSEC,EGCM->GSM", combine, leaving))


def test_mixture_of_experts() -> None:
    """Dispatch and combine are one all-to-all each, and nothing else is sent (GShard, section 3.2)."""
    devices, tokens, size, hidden, experts = 8, 16, 32, 48, 8
    arrays = normal(devices, tokens, size), normal(size, experts), normal(experts, size, hidden), normal(
        experts, hidden, size)  # fmt: skip
    split = partial(hb.split, dim=0, n=devices)
    local = checked(partial(mixture, hb, split), arrays, mixture(np, unplaced, *arrays))
    hloom.assert_collectives(local, all_to_all=2, total=2)
    moved = 4 * devices * experts * 4 * size // devices  # of the dispatched tokens [E, G, C, M] f32, on one device
    assert [c.buffer_bytes for c in hloom.collectives(local)] == [moved, moved]


def test_pipeline_by_shifting_buffer() -> None:
    """All stages work at once on a buffer that is shifted by one after each step (GSPMD, section 3.3)."""
    stages, steps = 4, 6

    def pipeline(weights: Any, batches: Any) -> Any:
        weights = hb.mesh_split(weights, IDS.T, [0, -1, -1])
        numbers = hb.iota((stages, 1, 1), 0)

        def step(buffer: Any, n: Any) -> Any:
            entering = batches[hb.minimum(n, steps - 1)]
            buffer = hb.where(numbers == 0, entering, hb.roll(buffer, 1, 0))
            buffer = hb.mesh_split(buffer, IDS.T, [0, 1, -1])
            buffer = hb.tanh(hb.einsum("sbm,smn->sbn", buffer, weights))
            return buffer, buffer

        start = hb.zeros((stages, *batches.shape[1:]))
        return hb.scan(step, start, hb.arange(steps + stages - 1))[1][stages - 1 :, -1]

    weights, batches = normal(stages, 16, 16), normal(steps, 8, 16)
    expected = batches
    for w in weights:
        expected = np.tanh(expected @ w)
    local = checked(pipeline, (weights, batches), expected)
    found = [(c.kind, c.buffer_bytes) for c in hloom.collectives(local) if c.count == steps + stages - 1]
    assert found == [("collective-permute", 4 * 8 * 16 // 2)]  # the micro-batch of one stage, f32[4,16] on a device
    hloom.assert_collectives(local, all_to_all=0, reduce_scatter=0, all_gather=0)

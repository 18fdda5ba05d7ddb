"""Scheduling problems of Llama 3.1 under fully sharded data parallelism: one tensor per parameter array.

Work is that of matrix products and attention at a rate, and of norms at the rate of memory, per device of a step with
`tokens` tokens on each. A backward pass gathers the parameters again, from the last to the first, takes twice the time
and reduces a gradient of each.
"""

from __future__ import annotations

from dataclasses import dataclass

from hloom.passes.schedule.search.problem import NEVER, SchedulingProblem, Tensor

BYTES = 2  # of a bf16


@dataclass(frozen=True)
class Llama:
    """The sizes of a model."""

    name: str
    layers: int
    width: int
    hidden: int
    kv: int
    vocabulary: int = 128256


MODELS = (
    Llama("8B", 32, 4096, 14336, 1024),
    Llama("70B", 80, 8192, 28672, 1024),
    Llama("405B", 126, 16384, 53248, 1024),
)


@dataclass(frozen=True)
class Setting:
    """Devices with the latency and bandwidth of their collectives, tokens per device, memory for tensors in flight."""

    devices: int
    latency: float
    bandwidth: float
    tokens: int
    memory: float
    rate: float = 593e12
    memory_rate: float = 3.35e12
    sequence: int = 8192


def tensors(model: Llama, s: Setting) -> list[tuple[int, float, str]]:
    """Returns bytes, seconds of the forward pass, and layer of each parameter in the order of their use."""
    norm = (BYTES * model.width, s.tokens * model.width * 2 * BYTES / s.memory_rate + 5e-6)

    def product(rows: int, columns: int, more: float = 0.0) -> tuple[int, float]:
        return BYTES * rows * columns, 2 * rows * columns * s.tokens / s.rate + more

    attention = 2 * s.sequence * model.width * s.tokens / s.rate + 10e-6  # causal: half of all pairs
    d, h, kv = model.width, model.hidden, model.kv
    layer = [norm, product(d, d), product(d, kv), product(d, kv), product(d, d, attention), norm,
             product(d, h), product(d, h), product(h, d)]  # fmt: skip
    embedding = (BYTES * model.vocabulary * d, norm[1])
    found = [(*embedding, "embedding")]
    for number in range(model.layers):
        found += [(*tensor, f"layer {number}") for tensor in layer]
    return [*found, (*norm, "output"), (*product(d, model.vocabulary), "output")]


def backward(model: Llama, s: Setting) -> tuple[SchedulingProblem, list[str]]:
    """Returns the problem of the backward pass, and the layer of each tensor."""
    rows = tensors(model, s)[::-1]
    gathers = tuple(Tensor(b / s.bandwidth, b, n, n, 0) for n, (b, _, _) in enumerate(rows))
    reductions = tuple(Tensor(b / s.bandwidth, b, n, NEVER, 1) for n, (b, _, _) in enumerate(rows))
    work = tuple(2 * seconds for _, seconds, _ in rows)
    return SchedulingProblem(work, gathers, reductions, (s.latency, s.latency), (s.memory,) * len(rows)), [
        r[2] for r in rows
    ]

"""The training step of `llama_step` in torch, for the benches: alone, with DDP, or with FSDP2 over gloo."""

# torch may be absent; its types are open here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownLambdaType=false
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from llama_step import RATE, Configuration, batch, parameters, rotation
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional


def norm(x: Any, weight: Any) -> Any:
    return x * torch.rsqrt(torch.mean(x * x, -1, keepdim=True) + 1e-5) * weight


class Layer(nn.Module):
    """Attention and a gated block, each with a norm before it."""

    def __init__(self, c: Configuration, weights: dict[str, Any], n: int, tables: list[Any]) -> None:
        super().__init__()
        self.c = c
        for name in ("q", "k", "v", "o", "gate", "up", "down", "before", "middle"):
            self.register_parameter(name, nn.Parameter(torch.from_numpy(weights[f"{name}{n}"].copy())))
        for name, table in zip(("cosine", "sine", "mask"), tables, strict=True):
            self.register_buffer(name, table)

    def forward(self, x: Any) -> Any:
        x = x + self.attention(norm(x, self.before))
        h = norm(x, self.middle)
        return x + (functional.silu(h @ self.gate) * (h @ self.up)) @ self.down

    def attention(self, x: Any) -> Any:
        c, size = self.c, self.c.width // self.c.heads
        q, k, v = ((x @ w).reshape(*x.shape[:2], -1, size) for w in (self.q, self.k, self.v))
        q, k = (self.rotate(a) for a in (q, k))
        q = q.reshape(*x.shape[:2], c.groups, c.heads // c.groups, size)
        scores = torch.einsum("bqghd,bkgd->bghqk", q, k) * size**-0.5
        scores = torch.where(self.mask, scores, -1e30)
        mixed = torch.einsum("bghqk,bkgd->bqghd", torch.softmax(scores, -1), v)
        return mixed.reshape(x.shape) @ self.o

    def rotate(self, x: Any) -> Any:
        left, right = x.chunk(2, -1)
        return torch.cat([left * self.cosine - right * self.sine, right * self.cosine + left * self.sine], -1)


class Model(nn.Module):
    """The whole model, from tokens and targets to the loss."""

    def __init__(self, c: Configuration) -> None:
        super().__init__()
        weights = parameters(c)
        tables = [*map(torch.from_numpy, rotation(c)), torch.from_numpy(np.tri(c.sequence, dtype=bool))]
        for name in ("embedding", "head", "norm"):
            self.register_parameter(name, nn.Parameter(torch.from_numpy(weights[name].copy())))
        self.layers = nn.ModuleList(Layer(c, weights, n, tables) for n in range(c.layers))

    def forward(self, tokens: Any, targets: Any) -> Any:
        x = self.embedding[tokens]
        for layer in self.layers:
            x = layer(x)
        logits = norm(x, self.norm) @ self.head
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def training_step(c: Configuration, kind: str, ranks: int, rank: int, port: int, compiled: bool) -> Callable[[], float]:
    """Returns a function that runs one step on this rank's part of the batch, and returns the loss of all."""
    torch.set_num_threads(1)
    model: Any = Model(c)
    if ranks > 1:
        dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
        model = _distributed(model, kind)
    if compiled:
        model = torch.compile(model)
    tokens, targets = (torch.from_numpy(a).long().chunk(ranks)[rank] for a in batch(c))
    optimizer = torch.optim.SGD(model.parameters(), RATE)

    def step() -> float:
        optimizer.zero_grad()
        loss = model(tokens, targets)
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        if ranks > 1:
            dist.all_reduce(total)
        return float(total) / ranks

    return step


def _distributed(model: Any, kind: str) -> Any:
    if kind == "dp":
        return nn.parallel.DistributedDataParallel(model)
    for layer in model.layers:
        fully_shard(layer)
    return fully_shard(model)

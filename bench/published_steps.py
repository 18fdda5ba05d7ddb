"""The published steps that forecasts are compared with: their seconds, their machines, and their programs.

Published are steps per second of GShard (Lepikhin et al., 2020, table 3), tokens per second of Lingvo's configurations
of GSPMD's models (lingvo/tasks/lm/params/synthetic_packed_input.py), of torchtitan's benchmarks of Llama 3.1, and of
MosaicML's of MPT (llm-foundry, scripts/train/benchmarking/README.md), operations per second of MaxText (README.md; the
sizes by its scripts in configs/v5e and configs/v5p) and of Megatron-LM (Narayanan et al., 2021, table 1), seconds of
its 22B (Korthikanti et al., 2022, table 5), of MaxText on v6e and TPU7x (AI-Hypercomputer/tpu-recipes, training) and on
H100 and H200 (AI-Hypercomputer/gpu-recipes, training), tokens per second of PaLM (Chowdhery et al., 2022, section 4.1),
and seconds of its prefills and decode steps on 64 chips (Pope et al., 2022, table 2).

What rows leave to assume. GShard: encoder and decoder count as one stack, sentences have 128 tokens (the paper says
that sequences are short), activations are f32 (section 4.3). Rows of 128 devices are left out: text and table disagree
about their batch. torchtitan: cards of 500 W with 2.4 TB/s of memory, whose lower clock is not modelled; selective
recomputation for 8B; gradients are added in f32 (its option `mixed_precision_reduce`); the row of 405B has FSDP where
the published one has an interleaved pipeline. MPT: rows without accumulation, whose attention is a kernel; a vocabulary
of 50,432 in place of 50,368, which 128 devices do not divide; learned positions in place of a bias by distance; gathers
of the backward pass are not hidden, since Composer's FSDP has `backward_prefetch` BACKWARD_POST by default, which by
PyTorch's documentation overlaps a layer's reduce-scatter with the next layer's gradients, but no gather. MaxText: its
scripts say what is kept for the backward pass, and hide collectives of activations, too
(`--xla_tpu_enable_async_collective_fusion`), so these rows have Hloom's whole schedule. MaxText on v6e offloads what it
keeps for the backward pass; here it stays on the device, beyond its memory. The rows on GPUs were written down before
their first forecast; layers are a loop in both here, on H100 they were none. Megatron-LM: rows without a pipeline,
written down before the first forecast of them; attention is no kernel yet, the batch of a replica is one micro-batch;
selective recomputation keeps its scores in f32 here, in 16 bits there. PaLM: as of Megatron-LM, written down before the
first forecast, and attention is no kernel in training; layers are computed again as a whole. Left out: rows of float8,
asynchronous tensor parallelism, context parallelism, micro-batches, and of several slices.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import palm
from models import dense, experts
from selective import Chosen, Kernel, Products, Selective

# PyTorch ran FlashAttention-2, which reaches 0.35 of the peak (Shah et al., FlashAttention-3, 2024).
# PyTorch starts kernels one by one: these rows keep the launch that the preset had when they were first compared, a fit
# to products in XLA's tables. That of today is of programs that XLA starts as graphs.
TORCHTITAN = "h100;memory=2.4TB;launch=5.8us;attention=0.35"
MPT_H100 = "h100;launch=5.8us;attention=0.35"
# 0.9 of 1555 GB/s in the data sheet of A100 40 GB, as a100; the first FlashAttention "reaching only 25-40 % of the
# theoretical maximum" (Dao, FlashAttention-2, 2023), whose version in Triton these benchmarks have.
A100_40GB = "a100;memory=1400GB;attention=0.33"
MEGATRON = "a100;attention=0"


@dataclass(frozen=True)
class Row:
    """A published step: its table and name, the seconds, the machine, and the program. In a `plain` one collectives of
    weights and gradients only are hidden; a `late` one gathers weights in the backward pass when it needs them, so that
    nothing hides these gathers. Gradients are added in their own type, or in that of `reduce_in`. A row by which a rule
    of the forecast was chosen does not count in errors.
    """

    table: str
    name: str
    seconds: float
    machine: str
    program: Callable[[], Any]
    plain: bool = True
    counts: bool = True
    late: bool = False
    reduce_in: str | None = None


def lingvo(name: str, model: dense.Transformer, mesh: tuple[int, int], rate: float, counts: bool = True) -> Row:
    axes = {"data": mesh[0], "model": mesh[1]}
    seconds = model.batch * model.sequence / rate
    return Row("Lingvo", name, seconds, "tpu-v3", lambda: dense.dense(model, axes, dense.FINALIZED),
               counts=counts)  # fmt: skip


def gshard(devices: int, layers: int, rate: float) -> Row:
    model = experts.gshard(devices, layers)
    sentences = replace(model.model, dtype="float32", sequence=128, batch=16 * devices)
    model = replace(model, model=sentences)
    name = f"{devices} experts, {layers} layers"
    return Row("GShard", name, 1 / rate, "tpu-v3", lambda: experts.experts(model, {"data": devices}))


def llama(
    name: str, model: dense.Transformer, mesh: tuple[int, int], sequences: int, rate: float, selective: bool
) -> Row:
    """A row of torchtitan: `sequences` per data-parallel rank, `rate` tokens per second and GPU."""
    data, tensor = mesh
    model = replace(model, batch=sequences * data)
    axes, table = {"data": data, "model": tensor}, dense.FSDP_SEQUENCE
    if tensor == 1:
        axes, table = {"data": data}, dense.FSDP
    made = Selective.of(model) if selective else model
    seconds = sequences * model.sequence / tensor / rate
    return Row("torchtitan", name, seconds, TORCHTITAN, lambda: dense.dense(made, axes, table), reduce_in="f32")


def mpt(
    name: str, sizes: tuple[int, int, int], devices: int, sequences: int, rate: float, machine: str, again: bool = False
) -> Row:
    """A row of MosaicML's: layers, width and heads, `sequences` and tokens per second of a GPU. The backward pass may
    compute layers `again`.
    """
    layers, width, heads = sizes
    model = dense.Transformer(layers=layers, width=width, hidden=4 * width, heads=heads, head=width // heads,
                              vocabulary=50432, batch=sequences * devices, sequence=2048, positions="learned",
                              gated=False, remat=again)  # fmt: skip
    made = model if again else Kernel.of(model)
    seconds = sequences * model.sequence / rate
    return Row(f"MPT, {machine.partition(';')[0]}", f"{name}, {devices}", seconds, machine,
               lambda: dense.dense(made, {"data": devices}, dense.FSDP), late=True)  # fmt: skip


def maxtext(
    scale: int, mesh: tuple[int, int], sequences: int, rate: float, machine: str, keeps_products: bool = False
) -> Row:
    """A row of MaxText: billions of parameters, `sequences` per chip, and operations per second of a chip."""
    thirds, rest = divmod(scale.bit_length() - 1, 3)
    heads = 16 << thirds + (rest > 0)
    model = dense.Transformer(layers=16 << thirds, width=2048 << thirds + (rest > 1), hidden=448 * heads, heads=heads,
                              head=128, vocabulary=32000, batch=sequences * mesh[0] * mesh[1], sequence=2048,
                              positions="rotary", tied=False, remat=not keeps_products)  # fmt: skip
    made = Products.of(model) if keeps_products else model
    weights = model.layers * (4 * model.width * heads * 128 + 3 * model.width * model.hidden) + model.width * 32000
    points = 3 * model.sequence * (weights + 2 * model.sequence * heads * 128 * model.layers)
    axes, table = {"data": mesh[0], "model": mesh[1]}, dense.FSDP_SEQUENCE
    if mesh[1] == 1:
        axes, table = {"data": mesh[0]}, dense.FSDP
    return Row(f"MaxText, {machine}", f"{scale}B, {mesh[0]}x{mesh[1]}", 2 * sequences * points / rate, machine,
               lambda: dense.dense(made, axes, table), plain=False)  # fmt: skip


def pope(name: str, seconds: float, program: Callable[[], Any], counts: bool = True) -> Row:
    """A row of PaLM's serving on 64 chips."""
    return Row("PaLM", name, seconds, "tpu-v4:4x4x4", program, counts=counts)


def megatron(
    name: str, sizes: tuple[int, int, int], mesh: tuple[int, int], batch: int, rate: float = 0.0, seconds: float = 0.0,
    selective: bool = False,
) -> Row:
    """A row of Megatron-LM: layers, width and heads, operations per second of a GPU by the formula of the paper, or
    seconds. Layers are computed again, in a `selective` row attention and norms only.
    """
    layers, width, heads = sizes
    model = dense.Transformer(layers=layers, width=width, hidden=4 * width, heads=heads, head=width // heads,
                              vocabulary=51200, batch=batch, sequence=2048, positions="learned", gated=False,
                              remat=not selective)  # fmt: skip
    made, table = (Kernel.of(model), dense.SEQUENCE) if selective else (model, dense.MEGATRON)
    added = model.sequence / (6 * width) + model.vocabulary / (16 * layers * width)
    points = 96 * batch * model.sequence * layers * width**2 * (1 + added)
    axes = {"data": mesh[0], "model": mesh[1]}
    return Row("Megatron-LM", name, seconds or points / rate / (mesh[0] * mesh[1]), MEGATRON,
               lambda: dense.dense(made, axes, table))  # fmt: skip


HYBRID = {**dense.FSDP, "BS": (("replica", "data"),), "BSM": (("replica", "data"), None, None)}


def recipe(
    machine: str, name: str, model: dense.Transformer, devices: int, sequences: int, seconds: float, kept: str = "",
    attends: bool = False, replicas: int = 1,
) -> Row:  # fmt: skip
    """A recipe of MaxText: `sequences` per device, and what layers keep: letters of q, k, v, o, u, g and d for products
    with weights, and what attention `attends` to. Weights are divided within each of the `replicas`.
    """
    model = replace(model, batch=sequences * devices, remat=not kept)
    made = replace(Chosen.of(model), kept=frozenset(map("qkvougd".index, kept)), attends=attends) if kept else model
    return Row(f"MaxText, {machine}", f"{name}, {devices}", seconds, machine,
               lambda: dense.dense(made, {"replica": replicas, "data": devices // replicas}, HYBRID), plain=False)


MPT_70B, MPT_30B, MPT_13B, MPT_7B = (80, 8192, 64), (48, 7168, 56), (40, 5120, 40), (32, 4096, 32)
MPT_3B, MPT_1B, MPT_760M = (32, 2560, 20), (24, 2048, 16), (24, 1536, 12)
MISTRAL_7B = replace(dense.LLAMA_8B, vocabulary=32000)
LLAMA2_7B = replace(dense.LLAMA_8B, hidden=11008, kv_heads=None, vocabulary=32000, sequence=4096)
LLAMA2_70B = replace(dense.LLAMA_70B, vocabulary=32000, sequence=4096)
GPT3 = dense.Transformer(layers=96, width=12288, hidden=49152, heads=96, head=128, vocabulary=50432, sequence=2048,
                         positions="learned", gated=False)  # fmt: skip
WIDER = 128512  # in place of 128,256, which 512 devices do not divide
WIDE = replace(dense.LM_175B, layers=24, batch=256)
ROWS = [
    lingvo("128B, 8x16", dense.LM_128B, (8, 16), 3.7e3),
    lingvo("128B, 16x32", replace(dense.LM_128B, batch=128), (16, 32), 18e3),
    # By this row it was chosen that a ring through both cores of each chip gives a core no more than one of chips.
    lingvo("128B, 32x64", replace(dense.LM_128B, batch=512), (32, 64), 62e3, counts=False),
    lingvo("1T, 16x32", dense.LM_1T, (16, 32), 1.4e3),
    lingvo("175B, 64x32", dense.LM_175B, (64, 32), 51.53e3),
    lingvo("12k wide 41B, 16x32", WIDE, (16, 32), 53.8e3),
    lingvo("12k wide 162B, 16x32", replace(WIDE, layers=96, batch=64), (16, 32), 12.5e3),
    gshard(2048, 36, 0.72),
    gshard(2048, 12, 2.15),
    gshard(512, 36, 1.05),
    gshard(512, 12, 3.28),
    llama("8B, 8, compiled", dense.LLAMA_8B, (8, 1), 2, 6667, True),
    llama("8B, 128, compiled", dense.LLAMA_8B, (128, 1), 2, 6514, True),
    llama("70B, 32x8", dense.LLAMA_70B, (32, 8), 16, 829, False),
    llama("405B, 64x8", dense.LLAMA_405B, (64, 8), 4, 128, False),
    mpt("70B", MPT_70B, 128, 4, 376, A100_40GB, True),
    mpt("30B", MPT_30B, 128, 6, 865, A100_40GB, True),
    mpt("30B", MPT_30B, 32, 4, 857, A100_40GB, True),
    mpt("13B", MPT_13B, 128, 16, 1972, A100_40GB, True),
    mpt("13B", MPT_13B, 16, 10, 1993, A100_40GB, True),
    mpt("7B", MPT_7B, 128, 18, 3623, A100_40GB, True),
    mpt("7B", MPT_7B, 16, 16, 3645, A100_40GB, True),
    mpt("3B", MPT_3B, 128, 6, 9538, A100_40GB),
    mpt("13B", MPT_13B, 64, 2, 4800, MPT_H100),
    mpt("13B", MPT_13B, 8, 2, 4792, MPT_H100),
    mpt("7B", MPT_7B, 8, 6, 10643, MPT_H100),
    mpt("1B", MPT_1B, 64, 20, 44402, MPT_H100),
    mpt("1B", MPT_1B, 8, 14, 45455, MPT_H100),
    mpt("760M", MPT_760M, 32, 24, 67971, MPT_H100),
    maxtext(16, (256, 1), 6, 120e12, "tpu-v5e"),
    maxtext(32, (256, 1), 4, 132e12, "tpu-v5e"),
    maxtext(64, (256, 1), 2, 118e12, "tpu-v5e"),
    maxtext(128, (16, 16), 1, 110e12, "tpu-v5e", True),
    maxtext(32, (16, 4), 7, 328e12, "tpu-v5p", True),
    maxtext(64, (16, 4), 3, 323e12, "tpu-v5p", True),
    recipe("tpu-v6e", "Llama 3.1 8B", dense.LLAMA_8B, 256, 4, 4.546, "qkvo"),
    recipe("tpu-v6e", "Llama 3.1 8B", dense.LLAMA_8B, 8, 3, 3.443, "qkvo"),
    recipe("tpu-v6e", "Llama 3.1 70B", dense.LLAMA_70B, 256, 5, 42.656, "qkv"),
    recipe("tpu-v6e", "Llama 3.1 70B", dense.LLAMA_70B, 32, 2, 17.790, "qkv"),
    recipe("tpu-v6e", "Mistral 7B", MISTRAL_7B, 8, 6, 6.320, "qkvo"),
    recipe("tpu-v6e", "Llama 2 70B", LLAMA2_70B, 256, 2, 9.052, "qkv"),
    recipe("tpu-v6e", "GPT-3 175B", GPT3, 256, 3, 17.182),
    recipe("tpu7x", "Llama 3.1 70B", dense.LLAMA_70B, 128, 2, 12.20, "qkv", True),
    recipe("tpu7x", "Llama 3.1 70B", replace(dense.LLAMA_70B, vocabulary=WIDER), 512, 2, 12.27, "qkv", True),
    recipe("tpu7x", "Llama 3.1 405B", replace(dense.LLAMA_405B, vocabulary=WIDER), 512, 3, 98.34, "kvd"),
    recipe("h200", "Llama 3.1 70B", dense.LLAMA_70B, 256, 2, 15.516, "qkvo", True, replicas=2),
    recipe("h100", "Llama 2 7B", LLAMA2_7B, 256, 4, 1.500, "qkvougd", replicas=32),
    # One pod has 1 / 1.95 of the tokens per second of both, and half of their batch.
    Row("PaLM", "training, 256x12", 1024 * 2048 / (238.3e3 / 1.95), "tpu-v4:12x16x16;attention=0", palm.trained),
    pope("prefill of 1, int8", 0.29, lambda: palm.prefilled(1, "int8", palm.STATIONARY)),
    pope("prefill of 512", 85.2, lambda: palm.prefilled(512, "bfloat16", palm.GATHERED)),
    # By this row it was found that narrow weights are widened as they are read.
    pope("decode of 64, int8", 28.5e-3, lambda: palm.decoded(64, "int8"), counts=False),
    pope("decode of 512", 6.0 / 64, lambda: palm.decoded(512, "bfloat16")),
    megatron("1.7B, 32x1", (24, 2304, 24), (32, 1), 512, 137e12),
    megatron("3.6B, 32x2", (30, 3072, 32), (32, 2), 512, 138e12),
    megatron("7.5B, 32x4", (36, 4096, 32), (32, 4), 512, 142e12),
    megatron("18.4B, 32x8", (40, 6144, 48), (32, 8), 1024, 135e12),
    megatron("22B, 1x8", (48, 6144, 64), (1, 8), 4, seconds=1.42),
    megatron("22B, 1x8, selective", (48, 6144, 64), (1, 8), 4, seconds=1.10, selective=True),
]
GROWTH = (("GShard", "512 experts, 12 layers", "2048 experts, 12 layers"),
          ("GShard", "512 experts, 36 layers", "2048 experts, 36 layers"),
          ("Lingvo", "128B, 16x32", "128B, 32x64"),
          ("torchtitan", "8B, 8, compiled", "8B, 128, compiled"))  # fmt: skip
FEW, MANY = (gshard(experts, 12, 1.0) for experts in (128, 2048))  # section 5.3: what it says of these two

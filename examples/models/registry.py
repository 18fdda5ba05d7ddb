"""All models by name: at a small size that eight simulated devices run in a second or two, and at the paper's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from . import decode, dense, experts, images, patterns, pipeline, ring
from .conformer import Conformer, conformer
from .dense import FINALIZED, FSDP, FSDP_SEQUENCE, FSDP_TENSOR, MEGATRON, SEQUENCE, Transformer
from .patterns import Pattern
from .training import Program

EIGHT = {"data": 2, "model": 4}
# In the small models, as in large ones, tokens outweigh weights where those are gathered, and the other way round.
FEW_TOKENS = Transformer(width=64, hidden=256, heads=8, head=16, vocabulary=512)
MANY_TOKENS = Transformer(width=32, hidden=64, heads=8, head=4, sequence=64, remat=True)
LLAMA = replace(MANY_TOKENS, heads=16, kv_heads=4, positions="rotary", tied=False)


@dataclass(frozen=True)
class Model:
    """A model at two sizes, and the pattern of its collectives. `source` says where the larger one is from."""

    pattern: Pattern
    source: str
    small: Callable[[], Program]
    paper: Callable[[], Program]


STAGES = {"stage": 2, "data": 2, "model": 2}
NARROW = Transformer(layers=4, width=32, hidden=128, heads=4, head=16, batch=8, sequence=8, vocabulary=128,
                     remat=True)  # fmt: skip
PIPELINE = pipeline.Pipeline(NARROW, stages=2, microbatches=4)
NARROW_LLAMA = replace(NARROW, kv_heads=2, positions="rotary", tied=False)
LARGE_STAGES = {"stage": 8, "data": 16, "model": 4}
LARGE_PIPELINE = pipeline.Pipeline(replace(dense.LM_128B, batch=16), stages=8, microbatches=32)
LLAMA_STAGES = pipeline.Pipeline(replace(dense.LLAMA_70B, batch=8), stages=8, microbatches=32)

MODELS = {
    "dense_finalized": Model(
        patterns.finalized, "Lingvo, DenseLm1T16x16",
        small=lambda: dense.dense(FEW_TOKENS, EIGHT, FINALIZED),
        paper=lambda: dense.dense(dense.LM_1T, {"data": 16, "model": 32}, FINALIZED)),
    "dense_megatron": Model(
        patterns.megatron, "Megatron-LM, 8.3 billion",
        small=lambda: dense.dense(FEW_TOKENS, EIGHT, MEGATRON),
        paper=lambda: dense.dense(dense.GPT_8B, {"data": 64, "model": 8}, MEGATRON)),
    "dense_sequence": Model(
        patterns.sequence, "Korthikanti et al., 22 billion",
        small=lambda: dense.dense(FEW_TOKENS, EIGHT, SEQUENCE),
        paper=lambda: dense.dense(dense.GPT_22B, {"data": 8, "model": 8}, SEQUENCE)),
    "dense_fsdp": Model(
        patterns.fsdp, "Lingvo, DenseLm128B8x8, 128 sequences",
        small=lambda: dense.dense(MANY_TOKENS, {"data": 8}, FSDP),
        paper=lambda: dense.dense(replace(dense.LM_128B, batch=128), {"data": 128}, FSDP)),
    "llama_fsdp": Model(
        patterns.fsdp, "Llama 3.1 8B",
        small=lambda: dense.dense(LLAMA, {"data": 8}, FSDP),
        paper=lambda: dense.dense(dense.LLAMA_8B, {"data": 128}, FSDP)),
    "llama_fsdp_tensor": Model(
        patterns.fsdp, "Llama 3.1 405B",
        small=lambda: dense.dense(LLAMA, EIGHT, FSDP_SEQUENCE),
        paper=lambda: dense.dense(dense.LLAMA_405B, {"data": 64, "model": 8}, FSDP_SEQUENCE)),
    "llama_pipeline": Model(
        patterns.staged, "Llama 3.1 70B",
        small=lambda: pipeline.pipeline(replace(PIPELINE, model=NARROW_LLAMA), STAGES, FSDP_TENSOR),
        paper=lambda: pipeline.pipeline(LLAMA_STAGES, {"stage": 8, "data": 4, "model": 8}, FSDP_TENSOR)),
    "experts": Model(
        patterns.mixture, "GShard, table 1, model 1",
        small=lambda: experts.experts(experts.SMALL, {"data": 8}),
        paper=lambda: experts.experts(experts.gshard(2048, 36), {"data": 2048})),
    "pipeline_gpipe": Model(
        patterns.staged, "GSPMD, pipelines",
        small=lambda: pipeline.pipeline(PIPELINE, STAGES, MEGATRON),
        paper=lambda: pipeline.pipeline(LARGE_PIPELINE, LARGE_STAGES, MEGATRON)),
    "pipeline_circular": Model(
        patterns.staged, "GSPMD, pipelines",
        small=lambda: pipeline.pipeline(replace(PIPELINE, rounds=2), STAGES, MEGATRON),
        paper=lambda: pipeline.pipeline(replace(LARGE_PIPELINE, rounds=4), LARGE_STAGES, MEGATRON)),
    "conformer": Model(
        patterns.frames, "Conformer (L)",
        small=lambda: conformer(Conformer(), EIGHT),
        paper=lambda: conformer(Conformer(17, 512, 2048, 8, 64, 32, 256, 1024), {"data": 16, "model": 8})),
    "unet": Model(
        patterns.halos, "GSPMD, 3-D U-Net",
        small=lambda: images.images(images.UNet(), {"data": 2, "z": 2, "y": 2}, ("z", "y", None)),
        paper=lambda: images.images(images.UNet(8, 256, 32, 4), {"data": 8, "z": 4, "y": 4}, ("z", "y", None))),
    "resnet": Model(
        patterns.halos, "ResNet-50",
        small=lambda: images.images(images.ResNet(), EIGHT, ("model", None)),
        paper=lambda: images.images(images.ResNet(256, 1024, 64, (3, 4, 6, 3), 1000), {"data": 16, "model": 8},
            ("model", None))),
    "decode": Model(
        patterns.cached_by_heads, "Llama 3.1 70B",
        small=lambda: decode.decoding(replace(FEW_TOKENS, positions=""), EIGHT, decode.HEADS, 4),
        paper=lambda: decode.decoding(replace(dense.LLAMA_70B, positions=""), {"data": 8, "model": 8},
            decode.HEADS, 16)),
    "decode_context": Model(
        patterns.cached, "Llama 3.1 8B, a million words",
        small=lambda: decode.decoding(replace(FEW_TOKENS, positions="", batch=2, sequence=256), {"data": 8},
            decode.CONTEXT, 4),
        paper=lambda: decode.decoding(replace(dense.LLAMA_8B, positions="", batch=1, sequence=1 << 20),
            {"data": 64}, decode.CONTEXT, 16)),
    "ring": Model(
        patterns.around, "a million words",
        small=lambda: ring.ring(ring.Ring(), {"data": 2, "ring": 4}),
        paper=lambda: ring.ring(ring.Ring(8, 1 << 20, 4096, 32, 128), {"data": 8, "ring": 128})),
}  # fmt: skip

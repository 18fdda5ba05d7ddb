"""Custom-calls that say what they compute, and solvers of triangular systems, take that time; other calls are named."""

from __future__ import annotations

import json

import hloom
import pytest
from hloom.cost.presets import PRESETS
from hloom.cost.seconds import Clock
from hloom.cost.work import multiply_adds
from hloom.ir.graph.interfaces import products_of
from hloom.ir.graph.module import Module

H100 = PRESETS["h100"]


def seconds(module: Module, machine: hloom.Machine = H100) -> float:
    return Clock.of(module, machine).serial(module.entry).work


def call(operands: str, result: str, target: str, config: object, more: str = "") -> Module:
    kinds = operands.split(" ")
    lines = [f"  p{n} = {kind} parameter({n})" for n, kind in enumerate(kinds)]
    names = ", ".join(f"p{n}" for n in range(len(kinds)))
    config = config if isinstance(config, str) else json.dumps(config)
    lines.append(f"  ROOT r = {result} custom-call({names}){more}, custom_call_target=\"{target}\", "
                 f"backend_config={config}")  # fmt: skip
    return hloom.parse("\n".join(["ENTRY e {", *lines, "}"]))


@pytest.mark.parametrize(("target", "mask", "times"), [
    ("__cudnn$fmhaSoftmax", "NO_MASK", 2), ("__cudnn$fmhaSoftmax", "CAUSAL", 1),
    ("__cudnn$fmhaSoftmaxBackward", "PADDING_CAUSAL", 2.5),
])  # fmt: skip
def test_attention_of_cudnn(target: str, mask: str, times: float) -> None:
    scores = {"element_type": "BF16", "dimensions": ["2", "16", "512", "1024"]}
    config = {"cudnn_fmha_backend_config": {"intermediate_tensor_shape": scores, "mask_type": mask}}
    found = call("bf16[2,512,16,128] bf16[2,1024,16,128]", "(bf16[2,512,16,128], u8[0])", target, config)
    assert multiply_adds(found.entry.root) == times * 2 * 16 * 512 * 1024 * 128
    assert seconds(found) == pytest.approx(multiply_adds(found.entry.root) / 494e12 / H100.attention)


def test_kernels_say_what_they_cost() -> None:
    config = {"custom_call_config": {"body": "", "cost_estimate": {"flops": 10**12, "bytes_accessed": 5}}}
    found = call("f32[8,128] bf16[64,128]", "bf16[8,64]", "tpu_custom_call", config)
    assert multiply_adds(found.entry.root) == pytest.approx(5e11, rel=1e-6)
    assert hloom.forecast(found, "tpu-v5p").unknown == ()
    assert seconds(found, PRESETS["tpu-v5p"]) == pytest.approx(5e11 / 229.5e12 / PRESETS["tpu-v5p"].attention)


def test_solvers_of_triangular_systems() -> None:
    found = hloom.parse("""ENTRY e {
  a = f32[3,64,64] parameter(0)
  b = f32[3,64,10] parameter(1)
  l = f32[3,64,64] cholesky(a), lower=true
  ROOT x = f32[3,64,10] triangular-solve(l, b), left_side=true, lower=true, transpose_a=NO_TRANSPOSE
}""")
    assert [c.multiply_adds for c in hloom.contractions(found)] == [3 * 64**3 // 6, 3 * 64 * 64 * 10 // 2]


@pytest.mark.parametrize(("target", "config"), [
    ("__cudnn$fmhaSoftmax", {"cudnn_fmha_backend_config": []}), ("__cudnn$fmhaSoftmax", '"other"'),
    ("tpu_custom_call", {"cost_estimate": {"flops": "many"}}), ("mine", "{}"),
    ("tpu_custom_call", '"[\\"cost_estimate\\"]"'),
])  # fmt: skip
def test_calls_that_do_not_say_it_are_named(target: str, config: object) -> None:
    found = call("bf16[8,128] bf16[128,64]", "bf16[8,64]", target, config)
    assert products_of(found.entry.root) is None
    assert hloom.forecast(found, "h100").unknown == ((target, 1),)

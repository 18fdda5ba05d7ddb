"""The models of the papers: partitioned for eight devices they compute the numbers of one, and send what their papers
say; their sizes are those of the papers.
"""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import hloom
import hloom.jax
import numpy as np
import pytest
from hloom.runtime.check.simulated import check_simulated
from hloom.runtime.inputs.inputs import inputs_for_module
from support.command_line import EXAMPLES, ROOT, process

jax = pytest.importorskip("jax")
jnp = jax.numpy

from lowering import MADE_WITH  # noqa: E402
from models import MODELS, dense, patterns, ring  # noqa: E402
from models.layout import Layout, count  # noqa: E402
from models.training import Program  # noqa: E402

# The others run with `-m slow`: their parts are those of these.
QUICK = ("dense_megatron", "decode", "decode_context", "ring")
NAMES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in MODELS]


@cache
def made(name: str) -> tuple[Program, hloom.Partitioned]:
    program = MODELS[name].small()
    return program, hloom.partition(program.module)


@pytest.mark.share(2)
@pytest.mark.parametrize("name", NAMES)
def test_numbers(name: str) -> None:
    program, local = made(name)
    assert local.num_partitions == program.layout.devices == 8
    verdict = check_simulated(program.module, local, inputs_for_module(program.module))
    assert verdict.passed, verdict
    assert verdict.outputs >= 2


@pytest.mark.parametrize("name", NAMES)
def test_pattern_of_collectives(name: str) -> None:
    program, local = made(name)
    MODELS[name].pattern(program, local)


@pytest.mark.parametrize("name", NAMES)
def test_state_lies_where_its_weights_lie(name: str) -> None:
    """On each device, moments have the shapes of their weights, and so have the results that take their memory."""
    program, local = made(name)
    shapes = [p.shape.dims for p in local.entry.parameters]
    weights = len(jax.tree.leaves(program.weights))
    if not isinstance(program.arguments[0], dict) or "first" not in program.arguments[0]:
        assert program.donated == (1,)  # decoding keeps a cache
        return
    first, second = shapes[:weights], shapes[weights : 2 * weights]
    masters = shapes[2 * weights + 1 : 3 * weights + 1]  # in alphabetical order: first, second, step, weights
    assert first == second == masters
    results = [leaf.dims for leaf in local.entry.root.shape.leaves()]
    assert results[: 3 * weights + 1] == shapes[: 3 * weights + 1]
    assert [r for r in local.remarks if "[donation]" in str(r)] == []


@pytest.mark.parametrize("name", ["dense_fsdp", "experts", "pipeline_gpipe", "unet"])
@pytest.mark.slow
def test_numbers_on_ranks(name: str, tmp_path: Path) -> None:
    (tmp_path / "model.hlo").write_text(MODELS[name].small().module.to_text())
    done = process("run", "model.hlo", "--ranks", "4", "--devices", "8", "--check", cwd=tmp_path)
    assert done.code == 0, done.out + done.err
    assert "check passed" in done.out


def test_megatron_forward() -> None:
    """Two all-reduces per layer; those of the step are these, and two backward."""
    from models.registry import EIGHT, FEW_TOKENS

    program = dense.dense(FEW_TOKENS, EIGHT, dense.MEGATRON, train=False)
    found = patterns.sent(hloom.partition(program.module), "all-reduce", "model",
                          at_least=patterns.bytes_of(program, "BSM"))  # fmt: skip
    assert len(patterns.in_layers(found, program)) == 2


@pytest.mark.slow
def test_patterns_can_fail() -> None:
    """Each pattern refuses a model of another family."""
    program, local = made("dense_megatron")
    for pattern in (patterns.sequence, patterns.fsdp, patterns.mixture):
        with pytest.raises(AssertionError, match=r"expected|allowed"):
            pattern(program, local)
    program, local = made("dense_fsdp")
    with pytest.raises(AssertionError, match="0 all-reduces per layer, 5 expected"):
        patterns.megatron(program, local)
    program, local = made("pipeline_circular")
    wrong = replace(program, sizes={**program.sizes, "Z": 1})
    with pytest.raises(AssertionError, match="other than 5 times"):
        patterns.staged(wrong, local)


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        (dense.LM_128B, 137_702_416_384), (dense.LM_1T, 1_100_041_175_040), (dense.LM_175B, 174_366_928_896),
        (dense.LLAMA_8B, 8_030_261_248), (dense.LLAMA_70B, 70_553_706_496), (dense.LLAMA_405B, 405_853_388_800),
        (dense.GPT_8B, 8_317_750_272), (dense.GPT_22B, 22_071_023_616),
    ],
)  # fmt: skip
def test_sizes_of_dense_models(model: dense.Transformer, parameters: int) -> None:
    assert count(model.weights(), model.sizes) == parameters
    written_out = replace(model, scan=False)
    assert count(written_out.weights(), written_out.sizes) == parameters


def test_sizes_of_experts() -> None:
    """Weights of the experts alone: table 1 of GShard, two products of 1,024 by 8,192 each."""
    from models.experts import gshard

    for number, layers, total in ((2048, 36, 36_864), (2048, 12, 12_288), (512, 36, 9_216), (128, 12, 768)):
        model = gshard(number, layers)
        mixed = model.weights()["layers"]["experts"]["dense"]
        found = count({name: mixed[name] for name in ("up", "down")}, model.sizes)
        assert found == total * 2 * 1024 * 8192


@pytest.mark.parametrize("name", MODELS)
def test_paper_sizes_are_shapes_only(name: str) -> None:
    program = MODELS[name].paper()
    assert program.parameters > 10**6
    assert program.layout.devices >= 64
    leaves = jax.tree.leaves(program.arguments)
    assert {type(leaf) for leaf in leaves} == {jax.ShapeDtypeStruct}
    assert sum(math.prod(leaf.shape) for leaf in leaves) >= program.parameters


def test_tables_divide_what_they_name() -> None:
    layout = Layout({"data": 2, "model": 4}, {"MH": ("data", "model")}).stacked("L")
    assert layout.argument("LMH", {"L": 3, "M": 4, "H": 8}).sharding.shard_shape((3, 4, 8)) == (3, 2, 2)
    assert layout.argument("HM", {"M": 4, "H": 8}).sharding is None


def test_script(tmp_path: Path) -> None:
    script = [sys.executable, "-B", str(EXAMPLES / "models" / "make.py")]
    out = tmp_path / "ring.hlo"
    subprocess.run([*script, "ring", "--out", str(out)], check=True)
    module = hloom.load(out)
    assert module.num_partitions == 8
    patterns.around(MODELS["ring"].small(), hloom.partition(module))


@pytest.mark.parametrize("name", NAMES)
def test_page_says_how_much_is_annotated(name: str) -> None:
    if jax.__version__ != MADE_WITH:
        pytest.skip("other versions of JAX word the same program differently")
    annotated, tensors = made(name)[0].annotations
    assert 0 < annotated < tensors / 5
    assert f"| `{name}` | {annotated} | {tensors:,} |" in (ROOT / "docs" / "models.md").read_text()


@pytest.mark.slow
def test_attention_around_a_ring_is_attention() -> None:
    """Its gradient is written by hand; the loss is that of random weights for each element of the result."""
    mesh = jax.sharding.AbstractMesh((4,), ("ring",), axis_types=(jax.sharding.AxisType.Auto,))
    blocks = (jax.sharding.PartitionSpec(None, "ring"),) * 3

    def part(query: Any, key: Any, value: Any) -> Any:
        return ring.ring_attention(query, key, value, ring.Blocks("ring", 4, 8))

    def whole(query: Any, key: Any, value: Any) -> Any:
        scores = jnp.einsum("bqnd,bknd->bnqk", query, key) / math.sqrt(query.shape[-1])
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9)
        return jnp.einsum("bnqk,bknd->bqnd", jax.nn.softmax(scores, axis=-1), value)

    inputs = [np.random.default_rng(n).standard_normal((2, 32, 2, 8), np.float32) for n in range(4)]

    def gradients(attention: Any) -> Any:
        def loss(query: Any, key: Any, value: Any, weights: Any) -> Any:
            return jnp.sum(attention(query, key, value) * weights)

        return jax.value_and_grad(loss, (0, 1, 2))

    around: Any = jax.shard_map(part, mesh=mesh, in_specs=blocks, out_specs=blocks[0])
    local = hloom.partition(hloom.jax.from_jax(gradients(around), *inputs))
    found = hloom.simulate(local, inputs)
    value, wanted = gradients(whole)(*inputs)
    for ours, of_jax in zip(found, (value, *wanted), strict=True):
        np.testing.assert_allclose(ours, of_jax, rtol=1e-4, atol=1e-5)

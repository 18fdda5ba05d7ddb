"""The rewrites on programs that XLA partitioned, and rewritten programs on MPI ranks."""

from __future__ import annotations

from pathlib import Path

import hloom
import numpy as np
import pytest
from hloom.ir.sharding.sharding import REPLICATED, Sharding
from support.command_line import have_mpi, process
from support.layered_programs import Model
from support.partition_check import partitioned
from support.rewrites import collectives, differences, rewritten
from support.xla_partitioner import XlaPartitioner

LEVELS = hloom.parse_machine("", "1us/100GB;2:5us/0.001GB")
SCATTERED = "all-reduce-to-reduce-scatter"
ALONE = (
    SCATTERED, "sink-all-reduces{least-gain=-1}", "hoist-gathers{growth=9}", "prefetch-gathers",
    "carry-reduce-scatters", "hierarchical-collectives",
    f"{SCATTERED},reassociate-all-reduces,common-gathers,prefetch-gathers,carry-reduce-scatters",
)  # fmt: skip


def by_xla(xla: XlaPartitioner, model: Model) -> str:
    """The text of the program per device that XLA makes of a model, whose shardings it gets as device lists."""
    module = hloom.parse(model.text())
    for instruction in (i for c in module for i in c):
        sharding = instruction.sharding
        if isinstance(sharding, Sharding):
            tiling = sharding.tiling(instruction.shape.rank)
            lists = Sharding.on_own_mesh(tiling, model.data)
            instruction.sharding = REPLICATED if sharding.is_replicated else lists
    return xla.partition(module.to_text(), model.data)[1]


@pytest.mark.slow
def test_programs_that_xla_partitioned() -> None:
    """XLA reduces gradients of divided weights everywhere, and cuts out each device's part."""
    pytest.importorskip("jax")
    changed: set[str] = set()
    with XlaPartitioner() as xla:
        for kind, micro, loop in (("fsdp", 1, True), ("dp", 2, True), ("fsdp", 1, False)):
            text = by_xla(xla, Model(layers=3, batch=48, data=4, kind=kind, micro=micro, loop=loop))
            for passes in ALONE:
                module, _ = rewritten(text, passes, LEVELS)
                if module.to_text() != hloom.parse(text).to_text():
                    changed.add(passes)
                    assert differences(text, module) == "", passes
            if kind == "fsdp":
                module, _ = rewritten(text, SCATTERED)
                reduced = [n for kind, n in collectives(hloom.parse(text)).items() if kind.startswith("all-reduce")]
                scattered = [n for kind, n in collectives(module).items() if kind.startswith("reduce-scatter")]
                assert sum(scattered) == sum(reduced) == 2 if loop else 6
    assert changed == set(ALONE)


@pytest.mark.slow
@pytest.mark.skipif(not have_mpi(), reason="there is no mpiexec")
@pytest.mark.parametrize(
    ("kind", "ranks", "passes", "exact"),
    [
        ("fsdp", 4, "prefetch-gathers,carry-reduce-scatters", True),
        ("fsdp", 2, "hoist-gathers{growth=9},carry-reduce-scatters{peel=false}", True),
        ("dp", 2, "sink-all-reduces", False),
        ("dp", 4, "hierarchical-collectives", False),
    ],
)
def test_on_ranks(kind: str, ranks: int, passes: str, exact: bool, tmp_path: Path) -> None:
    """Ranks compute what they did before, and to the bit what the simulator does."""
    module = hloom.parse(Model(layers=4, batch=48, width=9, hidden=10, data=ranks, kind=kind, micro=2).text())
    local = partitioned(module)
    (tmp_path / "before.hlo").write_text(local.to_text())
    (tmp_path / "after.hlo").write_text(rewritten(local, passes, LEVELS)[0].to_text())
    found: dict[str, list[np.ndarray]] = {}  # type: ignore[type-arg]
    for name, on in (("before", ("--ranks", str(ranks))), ("after", ("--ranks", str(ranks))), ("after", ())):
        out = f"{name}{len(on)}"
        done = process("run", f"{name}.hlo", *on, "--seed", "5", "--backend", "reference", "--out", out, cwd=tmp_path)
        assert done.code == 0, done.err
        found[out] = [np.load(tmp_path / out / f"output_{n}.npy") for n in range(3)]
    for one, two in zip(found["after2"], found["after0"], strict=True):
        np.testing.assert_array_equal(one, two)
    for one, two in zip(found["after2"], found["before2"], strict=True):
        if exact:
            np.testing.assert_array_equal(one, two)
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-4)

"""Plans of models: partitioned on eight devices they compute what the model does, which a proof shows."""

from __future__ import annotations

from pathlib import Path

import hloom
import pytest
from hloom.cost.links import parse_links
from hloom.cost.machine import Cluster
from support.command_line import EXAMPLES
from support.command_line import hloom as command

pytest.importorskip("highspy")

SLOW = Cluster(links=parse_links("1ns/1GB"), memory_bytes=1e8, points=1e9)  # dividing pays for small programs, too


def check(module: hloom.Module, folder: Path) -> None:
    found = hloom.plan(module, SLOW, mesh="4x2", seconds=10)
    own = [c.judged.seconds for c in found.candidates if c.name == "as annotated"]
    assert all(found.seconds <= seconds for seconds in own)
    (folder / "planned.hlo").write_text(found.module.to_text())
    done = command("run", "planned.hlo", "--check", cwd=folder)
    assert done.code == 0, done.out + done.err
    local = hloom.partition(found.module, machine=SLOW)
    assert local.devices == 8
    assert hloom.prove(module, local, timeout=60).outcome not in ("differs", "unproved")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp_train", "transformer_train", "transformer_scan_train"])
def test_plans_of_examples_compute_the_same(name: str, tmp_path: Path) -> None:
    check(hloom.load(Path(EXAMPLES, f"{name}.hlo")), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["experts", "unet", "conformer", "decode"])
def test_plans_of_models_compute_the_same(name: str, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    from models import MODELS

    check(MODELS[name].small().module, tmp_path)

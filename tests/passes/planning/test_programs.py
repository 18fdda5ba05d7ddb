"""Plans of models: partitioned on eight devices they compute what the model does, which a proof shows."""

from __future__ import annotations

from pathlib import Path

import hloom
import pytest
from hloom.cost.links import parse_links
from hloom.cost.machine import Cluster
from hloom.ir.graph.module import clone_module
from hloom.passes.annotating.strategy import Strategy, apply_strategy
from hloom.passes.base import PassContext
from hloom.passes.planning.judge import judge
from hloom.passes.schedule.does_not_fit import DoesNotFit
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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp_train", "transformer_train", "transformer_scan_train"])
def test_a_limit_just_above_the_least_is_met(name: str) -> None:
    """The least is what no schedule of a candidate goes below if nothing fits; the scheduled program keeps 1.03 of
    it.
    """
    module = hloom.load(Path(EXAMPLES, f"{name}.hlo"))
    with pytest.raises(DoesNotFit) as caught:
        hloom.plan(module, SLOW, mesh="4x2", memory=1000, seconds=30)
    limit = int(1.03 * caught.value.peak)
    found = hloom.plan(module, SLOW, mesh="4x2", memory=limit, seconds=30)
    program = hloom.compile(found.module, machine=SLOW, schedule=True, memory=limit)
    assert found.peak <= limit
    assert program.memory().peak <= limit


@pytest.mark.slow
def test_each_annotation_of_the_strategy_of_a_training_step_matters() -> None:
    plain = hloom.load(Path(EXAMPLES, "mlp_train.hlo"))
    hloom.strip_annotations(plain)
    found = hloom.plan(plain, SLOW, mesh="4x2", seconds=30)
    strategy = found.strategy(seconds=600)
    most = max(found.seconds, strategy.judged.seconds) * 1.001
    assert strategy.reproduces
    assert strategy.shardings
    for left_out in strategy.shardings:
        settings = {key: spec for key, spec in strategy.shardings.items() if key != left_out}
        own = clone_module(plain)
        apply_strategy(own, Strategy.of(settings, dict(strategy.mesh.axes)))
        without = judge(own, PassContext(machine=SLOW), strategy.mesh.size)
        assert without.seconds > most or without.peak > max(found.peak, strategy.judged.peak), left_out

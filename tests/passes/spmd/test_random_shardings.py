"""The examples under random shardings of parameters, results and some values in between, evenly divided or not."""

from __future__ import annotations

from pathlib import Path

import hloom
import numpy as np
import pytest
from hloom.ir.sharding.mesh import IotaOrder, Mesh
from hloom.ir.sharding.sharding import AnySharding, TupleSharding
from hloom.runtime.inputs.inputs import make_inputs
from support.compare import compare
from support.random_shardings import random_sharding

EXAMPLES = Path(__file__).parents[3] / "examples"
MESHES = [
    Mesh((("x", 2), ("y", 2), ("z", 2))),
    Mesh((("x", 3), ("y", 2))),
    Mesh((("x", 4), ("y", 2)), IotaOrder((2, 4), (1, 0))),
    Mesh((("x", 5),)),
    Mesh((("a", 2), ("b", 3)), (3, 1, 4, 0, 5, 2)),
]


def _annotate(module: hloom.Module, mesh: Mesh, rng: np.random.Generator) -> None:
    """Replaces all annotations: every parameter and the root get one, and one in twelve of the other values."""
    module.num_partitions = mesh.size
    module.allow_propagation_to_parameters = module.allow_propagation_to_output = None
    for computation in module:
        for instruction in computation:
            instruction.sharding = instruction.shardy = None
            ends = computation is module.entry and (
                instruction.opcode == "parameter" or instruction is computation.root
            )
            if ends or (instruction.shape.is_array and rng.integers(12) == 0):
                leaves = tuple(random_sharding(rng, mesh, s) for s in instruction.shape.leaves())
                found: AnySharding = TupleSharding(leaves) if instruction.shape.is_tuple else leaves[0]
                instruction.sharding = found


def _check(name: str, trial: int) -> None:
    module = hloom.load(EXAMPLES / f"{name}.hlo")
    inputs = make_inputs([p.shape for p in module.entry.parameters])
    expected = hloom.evaluate(module, inputs)
    _annotate(module, MESHES[trial % len(MESHES)], np.random.default_rng(trial))
    result = compare(hloom.simulate(hloom.partition(module), inputs, poison=True), expected)
    assert result.equal, result


# The transformer takes seconds on one axis, half a minute on several.
@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("name", "trial"),
    [*(("mlp_named", n) for n in range(5)), ("mlp_train", 1), ("mlp_train", 4)],
)
def test_examples_under_random_shardings(name: str, trial: int) -> None:
    _check(name, trial)


@pytest.mark.slow
@pytest.mark.parametrize("trial", range(20))
@pytest.mark.parametrize("name", ["mlp_train", "transformer_train", "transformer_scan_train"])
def test_examples_under_many_random_shardings(name: str, trial: int) -> None:
    _check(name, trial)

"""Programs that XLA's partitioner gets wrong: Hloom's partitioning of each is proved right, XLA's is proved wrong.

Beside each program lies what the partitioner of jaxlib 0.10.2 makes of it, `NAME.xla.hlo`.
"""

from __future__ import annotations

import importlib.util
from importlib.metadata import version
from pathlib import Path

import hloom
import pytest
from hloom.ir.tools.difference import differences
from hloom.ir.tools.placement import placed_like
from hloom.runtime.inputs.inputs import inputs_for_module
from support.compare import compare
from support.xla_partitioner import XlaPartitioner, numbers_differ

FOLDER = Path(__file__).parents[2] / "wrong_by_xla"
FILES = sorted(path for path in FOLDER.glob("*.hlo") if not path.stem.endswith(".xla"))
WRONG_IN = ("0.10.2",)  # versions of jaxlib
each = pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)


def test_programs_are_small_and_documented() -> None:
    assert len(FILES) >= 3
    page = (FOLDER.parents[1] / "docs" / "proving.md").read_text()
    for path in FILES:
        assert len(path.read_text().splitlines()) <= 20
        assert f"```text\n{path.read_text()}```" in page, path.name


@each
def test_our_own_partitioning_is_right(file: Path) -> None:
    program = hloom.load(file)
    local = hloom.partition(program)
    verdict = hloom.prove(program, local)
    assert verdict.agrees, verdict
    inputs = inputs_for_module(program)
    found = compare(hloom.simulate(local, inputs, poison=True), hloom.evaluate(program, inputs))
    assert found.equal, found


@each
def test_the_partitioning_of_xla_differs(file: Path) -> None:
    """In the proof, and where both are simulated on numbers."""
    program, local = hloom.load(file), hloom.load(file.with_suffix(".xla.hlo"))
    assert hloom.prove(program, local).outcome == "differs"
    drawn = [inputs_for_module(program, seed=seed) for seed in range(4)]
    found = [compare(hloom.simulate(placed_like(local, program), x), hloom.evaluate(program, x)) for x in drawn]
    assert not all(comparison.equal for comparison in found)


@pytest.mark.slow
@each
def test_xla_still_makes_it_so(file: Path) -> None:
    """The text is what XLA makes, and XLA's own run of it differs from its run on one device."""
    if importlib.util.find_spec("jaxlib") is None or version("jaxlib") not in WRONG_IN:
        pytest.skip(f"needs jaxlib {' or '.join(WRONG_IN)}")
    program = hloom.load(file)
    with XlaPartitioner() as xla:
        _, made = xla.partition(program.to_text(), program.num_partitions)
        assert not list(differences(hloom.parse(made), hloom.load(file.with_suffix(".xla.hlo"))))
        assert numbers_differ(program, xla)

"""The programs whose communication is compared with XLA's give one device's numbers too, padding poisoned."""

from __future__ import annotations

import hloom
import pytest
from comm_programs.cases import programs
from hloom.runtime.inputs.inputs import make_inputs
from support.compare import compare


@pytest.mark.slow
@pytest.mark.parametrize("name", programs())
def test_numbers(name: str) -> None:
    module = hloom.parse(programs()[name], name)
    inputs = make_inputs([p.shape for p in module.entry.parameters], seed=0)
    outputs = hloom.simulate(hloom.partition(module), inputs, poison=True)
    result = compare(outputs, hloom.evaluate(module, inputs))
    assert result.equal, result

"""Runs on ranks: a compiled program gives there what it gives in one process."""

from __future__ import annotations

import sys

import hloom
import numpy as np
from hloom.runtime.inputs.inputs import inputs_for_module
from hloom.runtime.ranks.launch import world
from support.fsdp_steps import fsdp_step


def main(backend: str) -> None:
    comm = world(2)
    module = hloom.parse(fsdp_step(2, layers=2, width=32, batch=32))
    program = hloom.compile(module, backend="native" if backend == "native" else "reference", ranks=comm.size)
    inputs = inputs_for_module(module)
    outputs = program.run(inputs, comm)
    assert (outputs is None) == (comm.rank > 0)
    for found, expected in zip(outputs or (), program.simulate(inputs), strict=outputs is not None):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


if __name__ == "__main__":
    main(sys.argv[1])

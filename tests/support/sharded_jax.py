"""JAX programs with random shardings on their parameters and on some other values."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import hloom
import numpy as np
from hloom.ir.graph.module import Module
from hloom.ir.sharding.mesh import Mesh
from programs.jax_programs import PROGRAMS, text_of
from support.random_shardings import random_sharding
from support.virtual_devices import eight_devices

_MESH = Mesh((("x", 2), ("y", 4)))
_SHARE = 0.3  # of the values that are not parameters


def sharded_jax_program(name: str, seed: int = 0) -> Module:
    """One of the programs; those with shardings of their own keep them."""
    eight_devices()
    module = hloom.parse(text_of(PROGRAMS[name]()), name)
    if "sharding" in module.to_text():
        return module
    rng = np.random.default_rng([seed, *name.encode()])
    for i in module.entry:
        chosen = i.opcode == "parameter" or (rng.random() < _SHARE and i is not module.entry.root)
        if i.shape.is_array and chosen:
            i.sharding = random_sharding(rng, _MESH, i.shape)
    module.num_partitions = _MESH.size
    return module


def jax_program_names() -> list[str]:
    importlib.import_module("programs.linear_algebra_programs")  # adds to PROGRAMS
    return sorted(PROGRAMS)


def sharded_jax_programs(seed: int = 0) -> Iterator[tuple[str, Module]]:
    """All programs, by name."""
    for name in jax_program_names():
        yield name, sharded_jax_program(name, seed)

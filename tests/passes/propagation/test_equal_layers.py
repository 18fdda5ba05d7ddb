"""What instructions of equal layers share is found by the identities of their attributes and shapes: programs in which
no two instructions share such an object are divided alike, also where one layer differs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import copy
from dataclasses import replace

import hloom
import pytest
from support.layered_programs import Model

LAYERS = {
    kind: Model(layers=3, batch=16, data=4, model=2, kind=kind, micro=1, loop=False).text() for kind in ("both", "fsdp")
}


def planted(text: str, change: Callable[[str], str]) -> str:
    """The program with the activation of its third layer changed."""
    (line,) = (found for found in text.splitlines() if re.match(r"\s+t\w*2 = .* tanh\(", found))
    return text.replace(line, change(line))


DIFFERENCES: dict[str, Callable[[str], str]] = {
    "none": lambda line: line,
    "op": lambda line: line.replace(" tanh(", " logistic("),
    "annotation": lambda line: f"{line}, sharding={{replicated}}",
    "type": lambda line: re.sub(r"(\S+) = f32(\S+) tanh\((.*)\)", r"""a.\1 = bf16\2 convert(\3)
  b.\1 = bf16\2 tanh(a.\1)
  \1 = f32\2 convert(b.\1)""", line),
    "constant": lambda line: re.sub(r"(\S+) = f32(\S+) tanh\((.*)\)", r"""a.\1 = f32[] constant(0.5)
  b.\1 = f32\2 broadcast(a.\1), dimensions={}
  c.\1 = f32\2 multiply(\3, b.\1)
  \1 = f32\2 tanh(c.\1)""", line),
    "shape": lambda line: re.sub(r"(\S+) = f32\[(\d+),(\d+)\](\S*) tanh\((.*)\)", r"""a.\1 = f32[\2,\3,1] reshape(\5)
  b.\1 = f32[\2,\3,1] tanh(a.\1)
  \1 = f32[\2,\3] reshape(b.\1)""", line),
}  # fmt: skip


def unshared(module: hloom.Module) -> hloom.Module:
    """Gives each instruction an object of its own for its attributes, its shape and its sharding."""
    for instruction in (i for computation in module for i in computation):
        instruction.attributes, instruction.shape = copy(instruction.attributes), replace(instruction.shape)
        instruction.sharding = copy(instruction.sharding)
    return module


@pytest.mark.share(2)
@pytest.mark.parametrize(("kind", "difference"), [*(("both", d) for d in DIFFERENCES), ("fsdp", "annotation")])
def test_layers_are_divided_as_if_each_were_alone(kind: str, difference: str) -> None:
    text = planted(LAYERS[kind], DIFFERENCES[difference])
    module, alone = hloom.parse(text), unshared(hloom.parse(text))
    entry = list(module.entry)
    assert len({id(i.shape) for i in entry}) < len(entry) / 3
    assert len({id(i.shape) for i in alone.entry}) == len(entry)
    assert (text == LAYERS[kind]) == (difference == "none")
    sharded = hloom.propagate(module)
    assert hloom.propagate(alone).to_text() == sharded.to_text()
    partitioned = hloom.partition(sharded)
    assert hloom.collectives(partitioned)
    assert hloom.partition(unshared(hloom.propagate(alone))).to_text() == partitioned.to_text()

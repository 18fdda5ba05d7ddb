"""The random programs are made of every op that can be partitioned: the families are measured against the table of ops.

What is left out stands here with its reason; that partitioning refuses it is tested too.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hloom.frontends import parse
from hloom.ir.diagnostics import CompileError
from hloom.ir.graph.op import OPS
from hloom.ir.ops.calls.targets import BEHAVIOURS
from hloom.passes.pipelines import partition
from ops.test_samples import SAMPLES
from programs.random.base import Family, one_call
from programs.random.generate import INNER, REGIONS

ROUNDS = 2000  # how often every family is asked at most
# An effect outside of the program must happen as often as in the program.
REFUSED = {"infeed", "outfeed", "send", "send-done", "recv", "recv-done"}
# Shardy's spelling of what the families write in GSPMD's: `shardy-regions` translates it (`test_manual`).
TRANSLATED = {"xla.sdy.GlobalToLocalShape", "xla.sdy.LocalToGlobalShape"}


def _made_by(family: Family, seed: int) -> set[str]:
    """The opcodes, and the targets of custom-calls, in a program of one call of the family."""
    b = one_call(family, random.Random(seed).randint, INNER)
    values = [i for c in (*b.module, b.computation) for i in c]
    return {i.opcode for i in values} | {getattr(i.attributes, "custom_call_target", i.opcode) for i in values}


def _made() -> Iterator[set[str]]:
    families = list(dict.fromkeys(f for group in (*INNER, REGIONS) for f in group))
    for seed in range(ROUNDS):
        for family in families:
            yield _made_by(family, seed)


@pytest.mark.slow
def test_every_opcode_is_made() -> None:
    wanted = (set(OPS) | set(BEHAVIOURS)) - REFUSED - TRANSLATED
    missing, others = set(wanted), set[str]()
    for made in _made():
        missing -= made
        others |= made - wanted
        if not missing:
            break
    assert missing == set()
    # Starts and dones of any op are in no table.
    assert {o for o in others if o.removesuffix("-start").removesuffix("-update").removesuffix("-done") == o} == set()


@pytest.mark.parametrize("opcode", sorted(REFUSED))
def test_what_is_left_out_is_refused(opcode: str) -> None:
    for text in SAMPLES[opcode]:
        module = parse(text)
        module.num_partitions = 2
        with pytest.raises(CompileError, match="has an effect outside the program, and cannot be partitioned"):
            partition(module)

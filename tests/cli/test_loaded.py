"""A command loads the rooms that it needs, and so starts soon."""

from __future__ import annotations

import pytest
from support.command_line import NAMED
from support.nursery import cold

READERS = ("frontends.proto", "frontends.stablehlo")
RANKS = ("runtime.mpi", "runtime.fabric.ranks")
LOADED = """
import sys
from hloom.__main__ import main
code = main([%r, %r])
print("\\nloaded", *(name for name in sys.modules if name.startswith("hloom.")))
sys.exit(code)
"""


@pytest.mark.parametrize(("line", "without", "needs"), [
    ("verify", ("passes.propagation", "passes.spmd", "passes.schedule", "runtime.plan", "driver", *READERS),
     "frontends.hlo_text"),
    ("partition", ("passes.schedule.schedule", "runtime.plan", *RANKS, *READERS), "passes.spmd.partition"),
    ("run", (*RANKS, *READERS), "runtime.simulator"),
    ("comm", ("passes.schedule.schedule", *RANKS, *READERS), "passes.spmd.partition"),
])  # fmt: skip
def test_rooms_that_a_command_loads(line: str, without: tuple[str, ...], needs: str) -> None:
    ended = cold(LOADED % (line, NAMED))
    assert ended.code == 0, ended.err
    _, _, names = ended.out.rpartition("\nloaded ")
    loaded = names.split()
    assert f"hloom.{needs}" in loaded
    assert not [name for name in loaded for room in without if f"{name}.".startswith(f"hloom.{room}.")]

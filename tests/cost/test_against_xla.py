"""Bytes that a device sends: no program sends more than with XLA's partitioner, but those with a written reason.

The bench runs in a process of its own, since XLA has to be told before it starts where to dump its modules.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from comm_programs.cases import programs
from comm_programs.reasons import REASONS
from support.command_line import ROOT, environment


def measured(*options: str) -> list[dict[str, Any]]:
    """The rows of `bench/comm_vs_xla.py --json`."""
    command = [sys.executable, str(ROOT / "bench" / "comm_vs_xla.py"), *options, "--json"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_some_programs() -> None:
    """One per family, in the time of starting JAX."""
    pytest.importorskip("jax")
    names = ["dot_two_dimensional", "dot_sum_of_partials", "reduce_to_tiles", "embedding_gradient", "fft_batched"]
    rows = measured(*names, "--ops", "--machines", "h100")
    assert [r["name"] for r in rows] == names
    assert all(r["hloom"]["bytes"] <= r["xla"]["bytes"] for r in rows), rows
    assert sum(r["hloom"]["bytes"] for r in rows) <= 0.9 * sum(r["xla"]["bytes"] for r in rows)
    for row in rows:
        ours, theirs = (row["machines"][who]["h100"] for who in ("hloom", "xla"))
        assert 0 < ours["seconds"] <= 1.02 * theirs["seconds"], row
        assert ours["multiply_adds"] <= theirs["multiply_adds"], row


@pytest.mark.slow
def test_no_program_sends_more_without_a_reason() -> None:
    pytest.importorskip("jax")
    rows = measured("--ops", "--models", "--machines")
    assert len(rows) >= 40
    assert {r["name"] for r in rows} >= set(programs())
    known = [r for r in rows if r["xla"] is not None]
    worse = {r["name"] for r in known if r["hloom"]["bytes"] > r["xla"]["bytes"]}
    assert worse == set(REASONS), "a reason is missing, or holds no longer"
    assert sum(r["hloom"]["bytes"] for r in known) <= 0.9 * sum(r["xla"]["bytes"] for r in known)

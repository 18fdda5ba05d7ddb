"""What does not fit into memory is found out before anything is allocated."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path

import hloom
import numpy as np
import pytest
from hloom.frontends.hlo_text import parse_sharding
from hloom.ir.diagnostics import CompileError
from hloom.ir.sharding.sharding import Sharding
from hloom.runtime.fabric.tiles import copied_bytes, shard
from hloom.runtime.inputs.inputs import inputs_for_module
from hloom.runtime.plan import limits
from support.command_line import environment
from support.processes import PATIENCE

LARGE_INPUT = """HloModule mid
ENTRY main {
  x = f32[60000,60000] parameter(0), sharding={devices=[8,1]<=[8]}
  ROOT y = f32[60000,60000] exponential(x)
}
"""
LARGE_TOGETHER = """HloModule inter
add { p = f32[] parameter(0)
 q = f32[] parameter(1)
 ROOT s = f32[] add(p, q) }
ENTRY main {
  x = f32[100000] parameter(0), sharding={devices=[8]<=[8]}
  a = f32[100000,100000] broadcast(x), dimensions={0}
  b = f32[100000,100000] broadcast(x), dimensions={1}
  m = f32[100000,100000] multiply(a, b)
  z = f32[] constant(0)
  ROOT r = f32[] reduce(m, z), dimensions={0,1}, to_apply=add
}
"""
MANY_INPUTS = "HloModule many\nENTRY main {\n" + "\n".join(
    f"  p{n} = f32[1000,1000,1000] parameter({n})" for n in range(4)
) + "\n  ROOT r = f32[] constant(0)\n}\n"  # fmt: skip


def limited(command: str, text: str, tmp_path: Path, most: int) -> tuple[int, str, float]:
    """Exit code, standard error and seconds of a command that may have so many bytes of addresses."""
    (tmp_path / "p.hlo").write_text(text)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        ["sh", "-c", f"ulimit -v {most >> 10} && exec {sys.executable} -m hloom {command} p.hlo"], cwd=tmp_path,
        env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert [p.name for p in tmp_path.iterdir()] == ["p.hlo"], "no reproducer of an internal error"
    return done.returncode, done.stderr, after.ru_utime - before.ru_utime


@pytest.mark.share(2)
@pytest.mark.parametrize("command", ["run", pytest.param("eval", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LARGE_INPUT, "p.hlo:3:3: error: no input can be made: f32[60000,60000] takes 14,400,000,000 bytes, the limit"),
        (LARGE_TOGETHER, "takes 40,000,000,000 bytes"),
        (MANY_INPUTS, "error: the inputs take 16,000,000,000 bytes, "),
    ],
)
def test_too_little_memory_is_one_diagnostic_at_once(command: str, text: str, message: str, tmp_path: Path) -> None:
    code, error, seconds = limited(command, text, tmp_path, 12_288_000_000)
    assert code == 65, error
    assert message in error
    assert error.count("error:") == 1
    assert seconds < 5


def test_inputs_are_added_up_before_one_is_made() -> None:
    lines = ("a = f32[300] parameter(0)", "b = f32[300] parameter(1)", "ROOT c = f32[300] add(a, b)")
    module = hloom.parse("ENTRY e {\n" + "\n".join(lines) + "\n}\n")
    with (
        limits.memory_limit(2399),
        pytest.raises(CompileError, match="the inputs take 2,400 bytes, 2,399 are available"),
    ):
        inputs_for_module(module)
    with limits.memory_limit(2400):
        assert len(inputs_for_module(module)) == 2


def test_tiles_are_added_up_before_one_is_cut() -> None:
    text = "ENTRY e { x = f32[4,6] parameter(0), sharding={devices=[1,2]<=[2]}\n ROOT y = f32[4,6] negate(x) }"
    local = hloom.partition(hloom.parse(text))
    message = "the tiles of the inputs on 2 devices take 96 bytes, 95 are available"
    with limits.memory_limit(95), pytest.raises(CompileError, match=message):
        hloom.simulate(local, [np.zeros((4, 6), np.float32)])


@pytest.mark.parametrize(
    "text", ["{replicated}", "{devices=[2,1]<=[2]}", "{devices=[1,2]<=[2]}", "{devices=[3,1]<=[3]}"]
)
def test_copied_bytes_are_those_that_cutting_copies(text: str) -> None:
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    sharding = parse_sharding(text)
    assert isinstance(sharding, Sharding)
    tiling = sharding.tiling(2)
    copies = [0 if np.shares_memory(tile := shard(array, tiling, d), array) else tile.nbytes for d in range(2)]
    assert max(copies) <= copied_bytes(array.shape, array.dtype, tiling)
    if "[3" not in text:  # of uneven tiles only the last ones are copied
        assert max(copies) == copied_bytes(array.shape, array.dtype, tiling)


def test_memory_that_runs_out_all_the_same_is_a_diagnostic(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*arguments: object) -> None:
        raise MemoryError("Unable to allocate 13.4 GiB")

    monkeypatch.setattr("hloom.runtime.inputs.inputs.draw_demanded", exhausted)
    with pytest.raises(CompileError, match=re.escape("inputs cannot be made: Unable to allocate 13.4 GiB")):
        inputs_for_module(hloom.parse("ENTRY e { ROOT x = f32[2] parameter(0) }"))


def test_limits_of_a_control_group_count() -> None:
    files = {
        "/proc/self/cgroup": "5:devices:/\n4:memory:/job/7\n0::/other\n",
        "/sys/fs/cgroup/memory/job/7/memory.limit_in_bytes": "3000\n",
        "/sys/fs/cgroup/memory/job/7/memory.usage_in_bytes": "1000\n",
        "/sys/fs/cgroup/memory/job/7/memory.stat": "cache 500\ntotal_inactive_file 400\n",
        "/sys/fs/cgroup/other/memory.max": "max\n",
        "/sys/fs/cgroup/memory.max": "2500\n",
        "/sys/fs/cgroup/memory.current": "100\n",
    }

    def text(path: Path) -> str:
        return files.get(str(path), "")

    assert limits.memory(text) == 2500
    assert limits.available(text) == 2400

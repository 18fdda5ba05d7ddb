"""`hloom run` on ranks: the program is read once; repeated runs, on ranks and simulated."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
from pathlib import Path

import numpy as np
import pytest
from support.command_line import NAMED, have_mpi, hloom, process

SHARDED = """HloModule plain
ENTRY main {
  x = f32[6,4] parameter(0), sharding={devices=[2,1]<=[2]}
  ROOT e = f32[6,4] exponential(x)
}
"""


@pytest.mark.skipif(not have_mpi(), reason="there is no mpiexec")
def test_ranks_do_not_read_the_program_again_nor_repeat_remarks(tmp_path: Path) -> None:
    """Folders that killed jobs of MPI left are in nobody's way: Open MPI names them after processes, whose numbers come
    again.
    """
    most = int(Path("/proc/sys/kernel/pid_max").read_text()) if Path("/proc/sys/kernel/pid_max").exists() else 99999
    for number in range(os.getpid(), os.getpid() + 2000):
        left = tmp_path / f"ompi.{number % most}"
        left.mkdir(mode=0o700)
        for name in (f"pmix.{socket.gethostname()}.tool.{number % most}", f"pmix.{socket.gethostname()}.tool"):
            (left / name).touch()
    once = tmp_path / "once.hlo"
    os.mkfifo(once)  # a second reader would wait for ever
    text = SHARDED.replace("HloModule plain", "HloModule plain, input_output_alias={ {}: (0, {}, may-alias) }")
    text = text.replace("exponential(x)", "exponential(x), sharding={replicated}")
    writer = threading.Thread(target=once.write_text, args=(text,))
    writer.start()
    done = process("run", once, "--ranks", "2", "--check", cwd=tmp_path, TMPDIR=str(tmp_path))
    writer.join()
    assert done.code == 0, done.err
    assert done.out.startswith("plain: 2 devices on 2 MPI ranks; ")
    assert done.err.count("remark: ") == done.err.count("parameter 0 is no longer donated to result {}") == 1


FOREIGN_OP = """
from dataclasses import dataclass
from hloom.ir.graph.attributes import Attributes
from hloom.ir.graph.op import Op, register

@dataclass(frozen=True, slots=True)
class Times(Attributes):
    factor: int = 1

@register
class Scaled(Op):
    opcode, attributes, arity = "test-scaled", Times, (1, 1)

    def kernel(self, call, compile):
        return lambda x: x * call.attributes.factor
"""


@pytest.mark.skipif(not have_mpi(), reason="there is no mpiexec")
def test_programs_that_cannot_be_pickled_run_on_ranks(tmp_path: Path) -> None:
    (tmp_path / "op.py").write_text(FOREIGN_OP)
    (tmp_path / "scaled.hlo").write_text(
        "HloModule scaled\nENTRY e {\n  x = s32[4] parameter(0), sharding={devices=[2]<=[2]}\n"
        "  ROOT r = s32[4] test-scaled(x), factor=3\n}\n"
    )
    x = np.arange(4, dtype=np.int32)
    np.savez(tmp_path / "in.npz", x=x)
    more = ("--ranks", "2", "--inputs", "in.npz", "--out", "out")
    done = process("run", "scaled.hlo", "--import", "op.py", *more, cwd=tmp_path)
    assert done.code == 0, done.err
    assert done.err.count("remark: ") == 1
    assert (np.load(tmp_path / "out" / "output_0.npy") == 3 * x).all()


@pytest.mark.parametrize("ranks", [
    None, pytest.param(2, marks=[pytest.mark.slow, pytest.mark.skipif(not have_mpi(), reason="no MPI")]),
])  # fmt: skip
def test_repeated_runs_give_the_same_results_and_times(ranks: int | None, tmp_path: Path) -> None:
    run, more = (process, ["--ranks", str(ranks)]) if ranks else (hloom, [])
    once, often = (run("run", NAMED, *more, "--json", *repeat, cwd=tmp_path) for repeat in ([], ["--repeat", "3"]))
    assert often.code == 0, often.err
    found = json.loads(often.out)
    times = found.pop("seconds")
    assert times["runs"] == 3
    assert 0 < times["median"] < 60
    assert 0 < times["first"] < 60
    assert found == json.loads(once.out)
    shown = hloom("run", NAMED, "--repeat", "2", cwd=tmp_path)
    assert re.search(r"(?m)^first run \S+ m?s, median of 2 \S+ m?s$", shown.out)

"""Runs code in processes that have imported numpy and nothing of Hloom: as cold as a new interpreter, and cheaper.

`cold` sends code to a process of its own, which never imports Hloom and forks a child for each text. A test's process
is warm: what another test imported may hide what an import forgets.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_PATIENCE = 60  # seconds for one text


@dataclass(frozen=True)
class Ended:
    """What a process left: exit code, standard output, standard error."""

    code: int
    out: str
    err: str


def cold(code: str, cwd: Path | None = None, **variables: str) -> Ended:
    """Runs code as `__main__` of a cold process, in a folder, with these environment variables."""
    nursery = _nursery()
    assert nursery.stdin is not None
    assert nursery.stdout is not None
    nursery.stdin.write(json.dumps({"code": code, "cwd": str(cwd or Path.cwd()), "variables": variables}) + "\n")
    nursery.stdin.flush()
    return Ended(**json.loads(nursery.stdout.readline()))


def command(line: str) -> str:
    """Returns the code that runs a command line of Hloom, given without its first word."""
    return f"import shlex, sys\nfrom hloom.__main__ import main\nsys.exit(main(shlex.split({line!r})))"


@cache
def _nursery() -> subprocess.Popen[str]:
    from support.command_line import environment

    # Compiled modules are kept: a cold process would compile them all.
    variables = {name: value for name, value in environment().items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.Popen(
        [sys.executable, __file__], env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _serve() -> None:
    """Reads jobs as lines of JSON until the input ends, and answers each with what its process left."""
    import numpy as np

    assert not [name for name in sys.modules if name.startswith("hloom")], np
    for line in sys.stdin:
        job: dict[str, Any] = json.loads(line)
        with tempfile.TemporaryFile("w+b") as out, tempfile.TemporaryFile("w+b") as err:
            child = os.fork()
            if not child:
                _run(job, out.fileno(), err.fileno())
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            said: list[str] = []
            for stream in (out, err):
                stream.seek(0)
                said.append(stream.read().decode(errors="replace"))
        print(json.dumps({"code": code, "out": said[0], "err": said[1]}), flush=True)


def _run(job: dict[str, Any], out: int, err: int) -> None:
    """Runs one job in this process, a child, and ends it."""
    import signal

    signal.alarm(_PATIENCE)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.chdir(job["cwd"])
    os.environ.update(job["variables"])
    code: Any = 1
    try:
        exec(compile(job["code"], "<cold>", "exec"), {"__name__": "__main__"})
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1 if code else 0)


if __name__ == "__main__":
    _serve()

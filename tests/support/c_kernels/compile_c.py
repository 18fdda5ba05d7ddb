"""Compiles C text with the compiler of the system. Only debugging and tests need one."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from hloom.codegen.native.compile_llvm import Native

FLAGS = ("-O1", "-ffp-contract=off", "-fwrapv", "-fno-math-errno", "-fno-trapping-math", "-w")


@cache
def compiler() -> str | None:
    """Returns the C compiler, or None if there is none."""
    return shutil.which("cc") or shutil.which("gcc")


def compiled(text: str, name: str = "kernel", cpu: str = "native") -> Native:
    """Returns the function of a C text. Raises RuntimeError with the compiler's messages if it does not compile."""
    found = compiler()
    if found is None:
        raise RuntimeError("there is no C compiler")
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "kernel.c"), Path(folder, "kernel.so")
        source.write_text(text)
        command = [found, *FLAGS, f"-march={cpu}", "-shared", "-fPIC", "-o", str(library), str(source), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr)
        function = getattr(ctypes.CDLL(str(library)), name)
    function.argtypes, function.restype = [ctypes.c_void_p], None
    return function

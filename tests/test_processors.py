"""The tests of numbers, as on other processors: their vectors, their BLAS, and XLA's code for them."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import import_module
from typing import Any

import pytest
from support.command_line import ROOT

OF_NUMBERS = ("runtime", "passes/fusion", "codegen", "ops", "cli/test_backends.py", "cli/test_backends_everywhere.py")
# What hides the features that a processor lacks: from OpenBLAS, from native code, from XLA, and words in numpy's names.
PROCESSORS = {
    "haswell": ("Haswell", "-avx512f", "AVX2", ("AVX512", "V4")),
    "zen": ("Zen", "-avx512f", "AVX2", ("AVX512", "V4")),
    "nehalem": ("Nehalem", "-fma,-avx", "AVX2", ("",)),  # no fused multiply-add; XLA told of SSE alone lacks f16
    "skylake": ("SkylakeX", "-avx512bf16,-avx512vnni,-avx512vbmi", "AVX512", ("ICL", "SPR")),
}


def variables(processor: str) -> dict[str, str]:
    """The environment in which programs take this processor for another one."""
    blas, native, xla, words = PROCESSORS[processor]
    numpy: Any = import_module("numpy._core._multiarray_umath")
    found = [name for name in numpy.__cpu_dispatch__ if numpy.__cpu_features__.get(name)]
    hidden = [name for name in found if any(word in name for word in words)]
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_max_isa={xla}".strip()
    return {"OPENBLAS_CORETYPE": blas, "HLOOM_CPU": native, "XLA_FLAGS": flags,
            "NPY_DISABLE_CPU_FEATURES": " ".join(hidden)}  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="pretends to be another x86-64")
@pytest.mark.parametrize("processor", PROCESSORS)
def test_numbers_on(processor: str) -> None:
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "--tb=short"]
    done = subprocess.run(
        [*command, *(f"tests/{place}" for place in OF_NUMBERS)],
        cwd=ROOT, env=os.environ | variables(processor), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr

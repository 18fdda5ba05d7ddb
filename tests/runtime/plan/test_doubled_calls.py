"""Computations that call others twice: their work doubles with each level, but not what is done before the run."""

from __future__ import annotations

from pathlib import Path

import hloom
import numpy as np
import pytest
from hloom.runtime.native.arrange import arranged
from hloom.runtime.native.kernels import NativeKernels
from support.calls import calls
from support.command_line import hloom as command
from support.loop_kernels import needs_llvm

ONE = np.ones((), np.float32)


def _doubling(levels: int) -> str:
    parts = ["f0 { p = f32[] parameter(0) one = f32[] constant(1) ROOT r = f32[] add(p, one) }"]
    for n in range(levels):
        body = f"a = f32[] call(p), to_apply=f{n} ROOT b = f32[] call(a), to_apply=f{n}"
        parts.append(f"f{n + 1} {{ p = f32[] parameter(0) {body} }}")
    last = f"ENTRY e {{ p = f32[] parameter(0) ROOT r = f32[] call(p), to_apply=f{levels} }}"
    return "\n".join(("HloModule m", *parts, last))


@pytest.mark.parametrize("backend", ["auto", "native", "reference"])
def test_calls_without_end_are_an_error_before_the_run(backend: str, tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(_doubling(40))
    done = command("eval", "m.hlo", "--backend", backend, cwd=tmp_path)
    assert (done.code, done.out) == (65, "")
    assert "m.hlo:43:7: error: after inlining the program has 6,597,069,766,6" in done.err


def test_functions_refuse_them_too() -> None:
    module = hloom.parse(_doubling(40))
    with pytest.raises(hloom.CompileError, match="at most 5,000,000 are possible"):
        hloom.evaluate(module, [ONE])
    with pytest.raises(hloom.CompileError, match="at most 5,000,000 are possible"):
        hloom.compile(module)


@needs_llvm
def test_a_computation_that_is_called_twice_is_arranged_once() -> None:
    module = hloom.parse(_doubling(10))
    with calls(arranged) as made:
        (result,) = hloom.evaluate(module, [ONE], NativeKernels())
    assert result == 1025
    assert len(made) <= 2 * 12

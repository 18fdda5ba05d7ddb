"""Pickles of programs are read without running what they name."""

from __future__ import annotations

import os
import pickle
import subprocess
from collections.abc import Callable
from typing import Any

import hloom
import numpy as np
import pytest
from hloom.ir.graph.inert import program_values
from hloom.ir.graph.module import Module, clone_module
from hloom.ir.graph.op import op_of
from hloom.ir.inert import plain_values
from hloom.ir.types.element_type import ELEMENT_TYPES
from hloom.passes.base import PassContext
from hloom.passes.pipelines import partition
from support.command_line import EXAMPLES


class Call:
    """Calls a function when it is unpickled."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.parts = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.parts


BAD = [
    Call(os.remove, "no file"),
    Call(eval, "1"),
    Call(print, "called"),
    Call(subprocess.Popen, ["true"]),
    Call(hloom.load, "/etc/passwd"),
    Call(np.load, "x.npy"),
    Call(np.save, "x.npy", 1),
    Call(op_of, "antigravity", "no-op"),
]


@pytest.mark.parametrize("bad", BAD, ids=lambda b: b.parts[0].__qualname__)
def test_nothing_is_called(bad: Call) -> None:
    data = pickle.dumps([bad])
    with pytest.raises((pickle.UnpicklingError, KeyError)):
        program_values(data)
    with pytest.raises(pickle.UnpicklingError, match="is no plain value"):
        plain_values(data)


@pytest.mark.parametrize("name", ["op_named.__globals__", "importlib", "sys.modules", "Op"])
def test_names_lead_to_nothing_else(name: str) -> None:
    text = [b"\x8c" + bytes([len(t)]) + t.encode() for t in ("hloom.ir.graph.op", name)]
    with pytest.raises(pickle.UnpicklingError):
        program_values(b"\x80\x04" + b"".join(text) + b"\x93.")


def test_values_come_through() -> None:
    plain = {"a": (1, 2.5, "t", b"b", None, True), "s": frozenset((1,)), 3: [{4}]}
    assert plain_values(pickle.dumps(plain)) == plain
    assert program_values(pickle.dumps((plain, 1j, slice(2)))) == (plain, 1j, slice(2))
    for kind in ELEMENT_TYPES.values():
        assert program_values(pickle.dumps(kind)) is kind
        if kind.numpy is not None:
            array = np.ones((2, 3), kind.numpy)
            read, one = program_values(pickle.dumps((array, array[0, 0])))
            assert read.dtype == array.dtype
            assert read.tobytes() == array.tobytes()
            assert one == array[0, 0]


def test_values_of_rooms_come_through_where_they_are_named() -> None:
    local = hloom.partition(hloom.load(EXAMPLES / "mlp_named.hlo"), machine="h100")
    data = pickle.dumps(local)
    copied = program_values(data, ["passes.result", "passes.resharding.base", "frontends.proto", "cost"])
    assert isinstance(copied, hloom.Partitioned)
    assert copied.to_text() == local.to_text()
    assert copied.certificate == local.certificate
    assert [str(r) for r in copied.remarks] == [str(r) for r in local.remarks] != []
    for rooms in ([], ["passes.result", "passes.resharding.search", "cost"]):
        with pytest.raises(pickle.UnpicklingError, match=r"hloom\.passes\.[\w.]+ is no plain value"):
            program_values(data, rooms)


STARTED = """HloModule started
ENTRY e {
  p = f32[2,3] parameter(0)
  s = ((f32[2,3]), f32[3,2]) transpose-start(p), dimensions={1,0}, backend_config={"n":"1"}
  ROOT d = f32[3,2] transpose-done(s)
}
"""


def test_programs_come_through() -> None:
    for module in (hloom.load(EXAMPLES / "transformer_scan_train.hlo"), hloom.parse(STARTED)):
        for stage in (module, partitioned(module)):
            copied = program_values(pickle.dumps(stage))
            assert copied.to_text() == stage.to_text()
            hloom.verify(copied)


def partitioned(module: Module) -> Module:
    local = clone_module(module)
    partition(local, PassContext(default_devices=2))
    return local

"""Modules, their parts and errors go through pickle and copy, as processes and caches need it."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import hloom
import numpy as np
import pytest
from hloom.ir.graph.op import OPS
from support.command_line import EXAMPLES, environment

Through = Callable[[Any], Any]
WAYS: list[Through] = [lambda value: pickle.loads(pickle.dumps(value)), copy.deepcopy]

CONTROL = """HloModule control
ENTRY main {
  a = f32[4] parameter(0), sharding={mesh['x'=2], [{'x'}]}, metadata={op_name="a"}
  b = f32[4] negate(a), frontend_attributes={k="v"}
  c = f32[4] tanh(a), control-predecessors={b}, backend_config={"n":"1"}
  ROOT t = (f32[4], f32[4]) tuple(c, b)
}
"""


@cache
def stages(name: str) -> tuple[hloom.Module, ...]:
    module = hloom.load(EXAMPLES / name)
    return module, hloom.propagate(module), hloom.partition(module)


@pytest.mark.parametrize("through", WAYS)
def test_modules(through: Through) -> None:
    for name in ("mlp_named.hlo", "transformer_scan_train.hlo"):
        for stage in stages(name):
            copied = through(stage)
            assert copied.to_text() == stage.to_text()
            assert copied.stage is stage.stage
            assert copied.meshes == stage.meshes
            assert all(c.parent is copied for c in copied)
            assert not {*copied} & {*stage}
            hloom.verify(copied)


@pytest.mark.parametrize("through", WAYS)
def test_a_copy_has_a_life_of_its_own(through: Through) -> None:
    module = hloom.parse(CONTROL)
    copied = through(module)
    assert copied.to_text() == module.to_text()
    a, b = copied.entry.find("a"), copied.entry.find("b")
    assert copied.entry.find("c").control_predecessors == (b,)
    assert a.users == {b: 1, copied.entry.find("c"): 1}
    assert a.location.line == 3
    copied.entry.replace_all_uses(b, copied.entry.build("abs", a, before=b))
    copied.entry.remove(b)
    assert "abs" not in module.to_text()
    hloom.verify(module)
    x = np.ones(4, np.float32)
    assert np.array_equal(hloom.evaluate(copied, [x])[1], x)


@pytest.mark.parametrize("through", WAYS)
def test_parts_stay_parts_of_the_same_module(through: Through) -> None:
    module = hloom.parse(CONTROL)
    for order in ({"m": module, "i": module.entry.root}, {"i": module.entry.root, "m": module}):
        copied = through(order)
        assert copied["i"] is copied["m"].entry.root
        assert copied["i"].parent is copied["m"].entry
    alone = through(module.entry)
    assert alone.parent is None
    assert [i.name for i in alone] == [i.name for i in module.entry]


STARTED = """HloModule started
ENTRY e {
  p = f32[2,3] parameter(0)
  s = ((f32[2,3]), f32[3,2]) transpose-start(p), dimensions={1,0}
  ROOT d = f32[3,2] transpose-done(s)
}
"""


@pytest.mark.parametrize("through", WAYS)
def test_starts_of_any_op(through: Through) -> None:
    module = hloom.parse(STARTED)
    assert through(module).to_text() == module.to_text()


@pytest.mark.parametrize("through", WAYS)
def test_deep_programs(through: Through) -> None:
    """A chain of instructions, and computations that call each other."""
    module = hloom.Module("deep")
    inner = None
    for level in range(1_200):
        c = module.new_computation(f"level_{level}", entry=True)
        value = c.parameter(0, "f32[]")
        c.build("negate", value) if inner is None else c.build("call", value, to_apply=inner)
        inner = c
    main = module.new_computation("main", entry=True)
    value = main.parameter(0, "f32[]")
    for _ in range(2_000):
        value = main.build("negate", value)
    main.build("call", value, to_apply=inner)
    copied = through(module)
    assert sum(map(len, copied)) == sum(map(len, module))
    assert copied.to_text() == module.to_text()


def test_serialized_modules(tmp_path: Path) -> None:
    path = tmp_path / "m.pb"
    path.write_bytes(hloom.load(EXAMPLES / "mlp_train.hlo").to_proto())
    module = hloom.load(path)
    for through in WAYS:
        assert through(module).to_proto() == module.to_proto()


def test_shallow_copies_share_no_computation() -> None:
    module = hloom.parse(CONTROL)
    copied = copy.copy(module)
    assert copied.entry is not module.entry
    assert module.entry.parent is module


def test_ops_are_the_registered_ones() -> None:
    for op in OPS.values():
        assert WAYS[0](op) is WAYS[1](op) is op


@pytest.mark.parametrize("module", ["ir.graph.op", "ir.tools.printer"])
def test_any_import_registers_ops_and_finds_writers(module: str) -> None:
    code = f"""
import hloom.{module}
from hloom.ir.graph.module import Module
from hloom.ir.graph.op import OPS
made = Module("m")
entry = made.new_computation("e", entry=True)
entry.root = entry.parameter(0, "f32[2]")
print(len(OPS), len(made.to_text()) > 0, len(made.to_proto()) > 0)
"""
    shown = subprocess.run(
        [sys.executable, "-c", code], env=environment(), check=True, capture_output=True, text=True
    ).stdout
    assert shown == f"{len(OPS)} True True\n"


USER_OP = """
import hloom
from hloom.ir.graph.op import Op, register

@register
class Twice(Op):
    opcode = "test-pickling-twice"
    is_elementwise = True
    def kernel(self, call, compile):
        return lambda x: x + x
"""
PROGRAM = "ENTRY e { x = f32[3] parameter(0) ROOT y = f32[3] test-pickling-twice(x) }"


def test_ops_of_users_are_imported(tmp_path: Path) -> None:
    """By the process that reads the pickle, which has not heard of them."""
    (tmp_path / "user_op.py").write_text(USER_OP)
    write = f"import user_op, hloom, pickle; pickle.dump(hloom.parse('{PROGRAM}'), open('m', 'wb'))"
    inputs = "[np.array([1.5, 2, 0], np.float32)]"
    read = f"import pickle, hloom, numpy as np; print(*hloom.evaluate(pickle.load(open('m', 'rb')), {inputs}))"
    shown = ""
    for code in (write, read):
        shown = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=environment(), check=True, capture_output=True, text=True
        ).stdout
    assert shown == "[3. 4. 0.]\n"


def test_errors_keep_their_diagnostics() -> None:
    with pytest.raises(hloom.CompileError) as error:
        hloom.parse(CONTROL.replace("tanh(a)", "tan(z)"), filename="c.hlo")
    for through in WAYS:
        copied = through(error.value)
        assert str(copied) == str(error.value)
        assert [d.render() for d in copied.diagnostics] == [d.render() for d in error.value.diagnostics]

"""Starts and dones become the ops that they stand for, and such programs can be partitioned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hloom import CompileError
from hloom.frontends import parse
from hloom.ir.tools.verifier import check
from hloom.passes.api import partition
from hloom.passes.base import PassContext, run_pipeline
from hloom.passes.cleanup.synchronous import Synchronous
from hloom.passes.named import parse_pipeline
from hloom.runtime import simulate
from support.async_programs import ASYNC, SYNC


def test_all_forms() -> None:
    module = parse(ASYNC)
    assert Synchronous().run(module, PassContext())
    check(module)
    wanted = sorted((i.name, i.opcode, str(i.shape)) for i in parse(SYNC).entry)
    assert sorted((i.name, i.opcode, str(i.shape)) for i in module.entry) == wanted
    assert not Synchronous().run(module, PassContext())


X = np.arange(8, dtype=np.float32)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("s = ((f32[8]), f32[3], s32[]) slice-start(x), slice={[1:7:2]} ROOT r = f32[3] slice-done(s)", X[1:7:2]),
        ("s = ((f32[8]), f32[8], s32[]) async-start(x), calls=w ROOT r = f32[8] async-done(s)", -X),
        (
            "s = (f32[8], f32[8], u32[]) copy-start(x) y = f32[8] abs(x), control-predecessors={s} "
            "d = f32[8] copy-done(s), control-predecessors={y} ROOT r = f32[8] add(d, y), control-predecessors={d}",
            X + X,
        ),
        (
            "s = (f32[8], f32[8], u32[]) copy-start(x) d = f32[8] copy-done(s), sharding={replicated} "
            "e = f32[8] copy-done(s) ROOT r = f32[8] add(d, e)",
            X + X,
        ),
        (
            "s = ((f32[8]), f32[8], (u32[3], token[])) negate-start(x) "
            "u = ((f32[8]), f32[8], (u32[3], token[])) negate-update(s) d = f32[8] negate-done(u) "
            "c = (u32[3], token[]) get-tuple-element(u), index=2 n = u32[3] get-tuple-element(c), index=0 "
            "y = f32[8] get-tuple-element(s), index=1 z = f32[8] add(d, y) k = f32[3] convert(n) "
            "q = f32[] constant(0) o = f32[8] pad(k, q), padding=0_5 ROOT r = f32[8] subtract(o, z)",
            X + X,
        ),
    ],
)
def test_partitioned(lines: str, expected: np.ndarray[Any, Any]) -> None:
    module = parse(
        "HloModule m, num_partitions=2\nw { p = f32[8] parameter(0) ROOT z = f32[8] negate(p) }\n"
        "ENTRY e { x = f32[8] parameter(0), sharding={devices=[2]<=[2]} " + lines + " }"
    )
    check(module)
    local = partition(module)
    assert not any("-start" in i.opcode for c in local for i in c)
    np.testing.assert_array_equal(simulate(local, [X])[0], expected)


def test_starts_are_refused_where_they_would_be_looked_into() -> None:
    module = parse("ENTRY e { x = f32[8] parameter(0) s = (f32[8], f32[8], u32[]) copy-start(x) "
                   "ROOT d = f32[8] copy-done(s) }")  # fmt: skip
    with pytest.raises(CompileError, match="pass propagate cannot look into copy-start s"):
        run_pipeline(parse_pipeline("propagate"), module, PassContext())


TRANSFERS = """HloModule m
w {{
  x = f32[] parameter(0)
  t = token[] parameter(1)
  s = (f32[], u32[], token[]) send(x, t), channel_id=1
  r = (f32[], u32[], token[]) recv(t), channel_id=2
  ROOT both = ((f32[], u32[], token[]), (f32[], u32[], token[])) tuple(s, r)
}}
ENTRY e {{
  x = f32[] parameter(0), sharding={{replicated}}
  t = token[] after-all()
  b = ((f32[], token[]), ((f32[], u32[], token[]), (f32[], u32[], token[])), s32[]) async-start(x, t), calls=w
  d = ((f32[], u32[], token[]), (f32[], u32[], token[])) async-done(b)
  s = (f32[], u32[], token[]) get-tuple-element(d), index=0
  r = (f32[], u32[], token[]) get-tuple-element(d), index=1
  {end}
}}
"""


@pytest.mark.parametrize(
    ("end", "dones"),
    [
        ("ROOT y = f32[] get-tuple-element(r), index=0", ["send-done", "recv-done"]),
        ("z = token[] send-done(s), channel_id=1 ROOT y = f32[] get-tuple-element(r), index=0",
         ["recv-done", "send-done"]),
        ("ROOT z = (f32[], token[]) recv-done(r), channel_id=2", ["send-done", "recv-done"]),
    ],
)  # fmt: skip
def test_the_done_of_a_group_of_transfers_awaits_those_without_one(end: str, dones: list[str]) -> None:
    local = parse(partition(parse(TRANSFERS.format(end=end))).to_text())
    check(local)
    assert [i.opcode for i in local.entry if i.opcode.endswith("-done")] == dones
    if "recv-done" not in end:
        (value,) = local.entry.root.operands if local.entry.root.opcode == "tuple" else [local.entry.root]
        assert value.operands[0].opcode == "recv-done"  # what has arrived, not the context


@pytest.mark.parametrize("devices", [1, 2])
def test_a_transfer_without_a_done_is_refused(devices: int) -> None:
    """It would be in flight for ever, and the program of each device would not be readable."""
    program = parse("""HloModule m
ENTRY e {
  t = token[] after-all()
  x = f32[3] parameter(0)
  s = (f32[3], u32[], token[]) send(x, t), channel_id=1
  ROOT r = f32[3] negate(x)
}""")
    with pytest.raises(CompileError, match="send s: is never awaited: it has no done"):
        partition(program, devices)

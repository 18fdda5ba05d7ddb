"""What is rewritten lies where it lay, with all that hung on it; a computation is put in order once."""

from __future__ import annotations

import pytest
from hloom.frontends import parse
from hloom.ir.graph.computation import Computation
from hloom.ir.graph.insertion import Insertions
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.op import AnyOp
from hloom.passes.base import PassContext
from hloom.passes.cleanup.rewriting import rewrite
from hloom.passes.cleanup.single_replica import SingleReplica
from support.calls import calls

PROGRAM = """HloModule m, num_partitions=2
ENTRY e {
  x = f32[8] parameter(0)
  a = f32[8] negate(x)
  b = f32[8] add(a, a), sharding={devices=[2]<=[2]}, frontend_attributes={k="v"}, control-predecessors={a}
  c = f32[8] multiply(b, b), control-predecessors={b}
  ROOT d = f32[8] add(c, b)
}"""


def _doubled(computation: Computation, instruction: Instruction) -> Instruction | None:
    if instruction.opcode != "add":
        return None
    left, right = instruction.operands
    return computation.build("subtract", left, computation.build("negate", right))


def test_takes_the_place() -> None:
    module = parse(PROGRAM)
    with calls(Insertions.settled) as made:
        assert rewrite(module, _doubled)
    assert sum(call["return"] is not call["order"] for call in made) == 1
    found = list(module.entry)
    assert [i.opcode for i in found] == [
        "parameter", "negate", "negate", "subtract", "multiply", "negate", "subtract",
    ]  # fmt: skip
    _, a, minus, b, c, _, d = found
    assert (b.name, d.name, module.entry.root) == ("b", "d", d)
    assert (str(b.sharding), dict(b.frontend_attributes)) == ("{devices=[2]<=[2]}", {"k": "v"})
    assert minus.sharding is None
    assert (minus.control_predecessors, b.control_predecessors, c.control_predecessors) == ((a,), (a,), (b,))
    with calls(Insertions.settled) as made:
        assert not rewrite(module, _doubled)
    assert all(call["return"] is call["order"] for call in made)


def test_only_ops_that_it_concerns_are_tried() -> None:
    asked: list[str] = []

    def concerns(op: AnyOp) -> bool:
        asked.append(op.opcode)
        return op.opcode == "multiply"

    module = parse(PROGRAM)
    assert not rewrite(module, _doubled, concerns)
    assert sorted(asked) == ["add", "multiply", "negate", "parameter"]
    assert rewrite(module, _doubled, lambda op: op.is_elementwise)
    assert [i.opcode for i in module.entry].count("subtract") == 2


@pytest.mark.parametrize("line", [
    "all-gather(x), dimensions={0}, replica_groups={{0}}",
    "all-to-all(x), dimensions={0}, replica_groups={}",
    "all-gather(x), dimensions={0}, replica_groups=[1,1]<=[1]",
    "collective-permute(x), source_target_pairs={{0,0}}",
    "all-gather(x), dimensions={0}, channel_id=1, replica_groups={{1},{0}}, use_global_device_ids=true",
    "all-gather(x), dimensions={0}, channel_id=1, replica_groups=[2,1]<=[2], use_global_device_ids=true",
    "collective-permute(x), channel_id=1, source_target_pairs={{0,0},{1,1}}",
])  # fmt: skip
def test_collectives_that_go_leave_their_attributes(line: str) -> None:
    module = parse(f"""HloModule m, num_partitions=2
ENTRY e {{
  x = f32[8] parameter(0)
  z = f32[8] negate(x)
  ROOT y = f32[8] {line}, frontend_attributes={{k="v"}}, control-predecessors={{z}}
}}""")
    assert SingleReplica().run(module, PassContext())
    root = module.entry.root
    assert (root.name, root.opcode, dict(root.frontend_attributes)) == ("y", "copy", {"k": "v"})
    assert [p.name for p in root.control_predecessors] == ["z"]


@pytest.mark.parametrize("line", [
    "all-reduce(x), channel_id=1, replica_groups={{0}}, to_apply=add",  # of replicas: it joins the partitions
    "all-reduce(x), channel_id=1, replica_groups={}, use_global_device_ids=true, to_apply=add",
    "collective-permute(x), channel_id=1, source_target_pairs={{0,0}}",  # partition 1 gets zeros
    "collective-permute(x), channel_id=1, source_target_pairs={{0,1},{1,0}}",
])  # fmt: skip
def test_collectives_among_partitions_stay(line: str) -> None:
    module = parse(f"""HloModule m, num_partitions=2
add {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }}
ENTRY e {{ x = f32[8] parameter(0)  ROOT y = f32[8] {line} }}""")
    assert not SingleReplica().run(module, PassContext())


def test_nothing_permuted_is_no_copy() -> None:
    module = parse("HloModule m\nENTRY e { x = f32[8] parameter(0)\n"
                   "ROOT y = f32[8] collective-permute(x), source_target_pairs={} }")  # fmt: skip
    assert not SingleReplica().run(module, PassContext())

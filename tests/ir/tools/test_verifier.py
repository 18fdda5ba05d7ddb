"""The verifier: each invariant is broken once, in a program that is otherwise right."""

from __future__ import annotations

import pytest
from hloom import partition
from hloom.frontends import parse, parse_shape, parse_sharding
from hloom.ir.diagnostics import CompileError
from hloom.ir.graph.attributes import NONE, Attributes
from hloom.ir.graph.computation import Computation
from hloom.ir.graph.module import EntryLayout, Module, Stage
from hloom.ir.ops.control import CallAttributes
from hloom.ir.tools.verifier import _late, check, verify  # pyright: ignore[reportPrivateUsage]
from support.calls import calls
from support.command_line import EXAMPLES

TEXT = """HloModule m, num_partitions=4

sum {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}

ENTRY e {
  p = f32[4,8] parameter(0)
  i = f32[] constant(0)
  n = f32[4,8] negate(p)
  r = f32[4] reduce(n, i), dimensions={1}, to_apply=sum
  ROOT t = (f32[4,8], f32[4]) tuple(n, r)
}
"""


@pytest.fixture
def module() -> Module:
    return parse(TEXT)


def messages(module: Module) -> list[str]:
    return [d.message for d in verify(module)]


def test_a_right_program_has_no_findings(module: Module) -> None:
    assert verify(module) == []
    check(module)


def test_check_raises_with_the_place(module: Module) -> None:
    negate = module.entry.find("n")
    assert negate is not None
    negate.shape = parse_shape("f32[4,9]")
    wanted = r"12:3: error: negate: declared shape f32\[4,9\] but operands give f32\[4,8\]"
    with pytest.raises(CompileError, match=wanted):
        check(module)


def test_order(module: Module) -> None:
    entry = module.entry
    negate = entry.find("n")
    assert negate is not None
    order = [i for i in entry if i is not negate]
    entry.reorder([*order, negate])
    assert messages(module) == ["r: operand n is not defined before it", "t: operand n is not defined before it"]


def test_control_predecessors(module: Module) -> None:
    entry = module.entry
    negate, reduced = entry.find("n"), entry.find("r")
    assert negate is not None
    assert reduced is not None
    reduced.control_predecessors = (negate,)
    assert messages(module) == []
    negate.control_predecessors = (reduced,)
    assert messages(module) == ["n: a control predecessor is not defined before it"]


def test_arity(module: Module) -> None:
    entry = module.entry
    negate, parameter = entry.find("n"), entry.find("p")
    assert negate is not None
    assert parameter is not None
    negate.operands.append(parameter)
    parameter.users[negate] = 2
    assert messages(module) == ["negate: takes 1 operand, found 2"]


def test_users(module: Module) -> None:
    parameter = module.entry.find("p")
    assert parameter is not None
    parameter.users.clear()
    assert messages(module) == ["p: its user list does not match the operands"]


def test_users_are_counted_one_by_one() -> None:
    """Also where their sum is right."""
    module = parse("ENTRY e { p = f32[] parameter(0) n = f32[] negate(p) ROOT a = f32[] add(p, p) }")
    parameter, negate, add = module.entry
    assert parameter.users == {negate: 1, add: 2}
    parameter.users.update({negate: 2, add: 1})
    assert messages(module) == ["p: its user list does not match the operands"]
    parameter.users.update({negate: 3, add: 0})
    assert messages(module) == ["p: its user list does not match the operands"]


def test_called_computations_belong_to_the_module(module: Module) -> None:
    del module.computations[0]
    assert messages(module) == ["r: calls sum, which is not in the module"]


def test_recursion(module: Module) -> None:
    first, second = Computation("first"), Computation("second")
    for computation, callee in ((first, second), (second, first)):
        parameter = computation.add("parameter", (), _number(module), parse_shape("f32[]"))
        computation.add("call", (parameter,), CallAttributes(callee), parse_shape("f32[]"))
        module.add_computation(computation)
    assert messages(module) == ["call: recursive call of first"]


def _number(module: Module) -> Attributes:
    """The attributes of parameter 0."""
    return module.entry.parameters[0].attributes


def test_parameters_are_dense(module: Module) -> None:
    entry = module.entry
    entry.add("parameter", (), _number(module), parse_shape("f32[]"), name="again")
    assert messages(module) == ["parameter 0 of e is defined twice"]


def test_empty_computation(module: Module) -> None:
    module.add_computation(Computation("nothing"))
    assert messages(module) == ["computation nothing has no instructions"]


@pytest.mark.parametrize(
    ("sharding", "problem"),
    [
        ("{devices=[2,2]<=[4]}", None),
        ("{mesh['x'=2,'y'=2], [{'x'}, {}]}", None),
        ("{maximal device=3}", None),
        ("{maximal device=4}", "sharding names device 4, the module has 4"),
        ("{devices=[2]<=[2]}", "sharding has 1 dimensions, f32[4,8] has rank 2"),
        ("{devices=[2,1]<=[2]}", "sharding is over 2 devices, the module has 4"),
        ("{devices=[2,4]<=[8]}", "sharding is over 8 devices, the module has 4"),
        ("{devices=[1,1]<=[1]}", None),
        ("{devices=[1]<=[1]}", "sharding has 1 dimensions, f32[4,8] has rank 2"),
        ("{mesh['x'=1], [{'x'}, {}]}", None),
        ("{mesh['x'=2], replicated}", None),
        ("{mesh['x'=2], [{}, {}], replicated={'x'}}", "sharding is over 2 devices, the module has 4"),
        ("{mesh['x'=2], manual}", "sharding is over 2 devices, the module has 4"),
        ("{devices=[2,2]7,1,2,3}", "sharding names device 7, the module has 4"),
        ("{{replicated}, {replicated}}", "sharding has 2 entries, f32[4,8] has 1 leaves"),
    ],
)
def test_shardings(module: Module, sharding: str, problem: str | None) -> None:
    negate = module.entry.find("n")
    assert negate is not None
    negate.sharding = parse_sharding(sharding)
    assert messages(module) == ([f"n: {problem}"] if problem else [])


def test_shardings_of_tuples(module: Module) -> None:
    module.entry.root.sharding = parse_sharding("{{devices=[2,2]<=[4]}, {devices=[2,2]<=[4]}}")
    assert messages(module) == ["t: sharding has 2 dimensions, f32[4] has rank 1"]


def test_entry_layout(module: Module) -> None:
    root = module.entry.root.shape
    module.entry_layout = EntryLayout((parse_shape("f32[4,8]{0,1}"),), root)
    assert messages(module) == []
    module.entry_layout = EntryLayout((parse_shape("f32[4,9]"),), root)
    assert messages(module) == ["entry_computation_layout: parameter 0 is f32[4,9] there, but f32[4,8] here"]
    module.entry_layout = EntryLayout((), root)
    assert messages(module) == ["entry_computation_layout has 0 parameters, e has 1"]


def test_sharded_programs_have_shardings_everywhere(module: Module) -> None:
    module.stage = Stage.SHARDED
    assert "n has no sharding" in messages(module)
    for instruction in module.entry:
        instruction.sharding = parse_sharding("{replicated}")
    assert messages(module) == []


def test_shardings_of_sharded_programs_are_over_their_devices() -> None:
    text = "HloModule m{}\nENTRY e {{ ROOT x = f32[8] parameter(0), sharding={{{}}} }}"
    sharded = ', frontend_attributes={hloom.stage="sharded"}'
    over = parse(text.format("", "devices=[4]<=[4]"))
    assert messages(over) == []  # the number of devices follows from it
    over.stage = Stage.SHARDED
    assert messages(over) == ["x: sharding is over 4 devices, the module has 1"]
    with pytest.raises(CompileError, match="names device 3, the module has 1"):
        parse(text.format(sharded, "maximal device=3"))
    for_four = parse(text.format(", num_partitions=4" + sharded, "devices=[4]<=[4]"))
    assert partition(for_four, 4).num_partitions == 4
    with pytest.raises(CompileError, match="sharded for 4 devices, 8 are asked for"):
        partition(for_four, 8)


def test_sharded_programs_have_shardings_in_loops_too() -> None:
    module = parse("""HloModule m
    f { a = f32[4] parameter(0) b = f32[4] negate(a) ROOT c = f32[4] negate(b) }
    add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT z = f32[] add(x, y) }
    g { a = f32[4] parameter(0) ROOT b = f32[4] call(a), to_apply=f }
    ENTRY e { p = f32[4] parameter(0) q = f32[4] call(p), to_apply=g z = f32[] constant(0)
      ROOT r = f32[] reduce(q, z), dimensions={0}, to_apply=add }""")
    module.stage = Stage.SHARDED
    for computation in module:
        if computation.name != "add":
            for instruction in computation:
                instruction.sharding = parse_sharding("{replicated}")
    assert messages(module) == []
    next(i for c in module for i in c if c.name == "f" and i.name == "b").sharding = None
    assert messages(module) == ["b has no sharding"]


LOCAL = """HloModule m, num_partitions=4, frontend_attributes={hloom.stage="local"}

sum {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}

ENTRY e {
  p = f32[4] parameter(0)
  ROOT a = f32[4] LAST
}
"""


@pytest.mark.parametrize(
    ("last", "problem"),
    [
        ("all-reduce(p), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=sum", None),
        ("all-reduce(p), channel_id=1, replica_groups={{0,1},{2,4}}, use_global_device_ids=true, to_apply=sum",
         "a: replica groups name device 4, the module has 4"),
        ("all-reduce(p), channel_id=1, replica_groups=[2,4]<=[8], use_global_device_ids=true, to_apply=sum",
         "a: replica groups are over 8 devices, the module has 4"),
        ('custom-call(p), custom_call_target="Sharding", sharding={replicated}',
         "a: a Sharding custom-call in a partitioned program"),
    ],
)  # fmt: skip
def test_local_programs(last: str, problem: str | None) -> None:
    module = parse(LOCAL.replace("LAST", last), verify=False)
    assert module.stage is Stage.LOCAL
    assert messages(module) == ([problem] if problem else [])


def test_nothing_is_assumed_of_instructions_built_by_hand() -> None:
    module = Module("hand")
    computation = module.add_computation(Computation("e"), entry=True)
    parameter = computation.add("parameter", (), _number(parse(TEXT)), parse_shape("f32[3]"))
    computation.add("negate", (parameter,), NONE, parse_shape("f32[4]"))
    (found,) = verify(module)
    assert found.location is None
    assert found.render().startswith("hloom: error: negate: declared shape f32[4] but operands give f32[3]")


def test_read_programs_are_in_order_by_themselves() -> None:
    """The verifier does not look at operands and users of programs just read, and would find nothing there."""
    with calls(_late, keep=False) as looked:
        read = [parse(text) for text in (TEXT, *((EXAMPLES / f"mlp_{n}.hlo").read_text() for n in ("named", "train")))]
    assert looked == []
    assert [message for module in read for message in messages(module)] == []
    wrong = parse("ENTRY e { p = f32[8] parameter(0) ROOT n = f32[4] negate(p) }", verify=False)
    assert [d.message for d in verify(wrong, frozenset())] == messages(wrong) != []

"""Strategies: files and settings that annotate a program, and what is wrong with them."""

from __future__ import annotations

from typing import Any

import hloom
import pytest
from hloom.ir.diagnostics import CompileError
from hloom.passes.annotating.strategy import Setting, Strategy, apply_strategy, parse_strategy

PROGRAM = """HloModule m
ENTRY e {
  w1 = f32[16,8] parameter(0), metadata={op_name="params['w1']"}
  w2 = f32[16,8] parameter(1), metadata={op_name="params['w2']"}
  bias = f32[8] parameter(2)
  s = f32[16,8] add(w1, w2), metadata={op_name="jit(f)/layer/add"}
  b = f32[16,8] broadcast(bias), dimensions={1}, metadata={op_name="jit(f)/layer/add"}
  ROOT r = f32[16,8] multiply(s, b)
}
"""


def annotated(text: str) -> dict[str, str]:
    module = hloom.parse(PROGRAM)
    apply_strategy(module, parse_strategy(text))
    return {i.name: str(i.sharding) for i in module.entry if i.sharding is not None}


MESH = "[mesh]\nx = 2\ny = 4\n[shardings]\n"


def test_patterns() -> None:
    found = annotated(MESH + '"w*" = ",y"\n"params[\'w2\']" = "x+y,?"\nbias = "-"\n"*/add" = "x,"\n')
    mesh = "mesh['x'=2,'y'=4]"
    assert found == {
        "w1": f"{{{mesh}, [{{}}, {{'y'}}]}}",
        "w2": f"{{{mesh}, [{{'x','y'}}, {{?}}]}}",
        "bias": f"{{{mesh}, [{{}}]}}",
        "s": f"{{{mesh}, [{{'x'}}, {{}}]}}",
        "b": f"{{{mesh}, [{{'x'}}, {{}}]}}",
    }


def test_sub_axes_and_numbers() -> None:
    module = hloom.parse(PROGRAM)
    apply_strategy(module, parse_strategy(MESH + '"w1" = "y:(1)2,y:(2)2"\n'))
    local = hloom.partition(module)
    assert [p.shape.dims for p in local.entry.parameters] == [(8, 4), (8, 4), (4,)]


def test_settings_override_the_file_and_the_program() -> None:
    module = hloom.parse(PROGRAM.replace("parameter(0),", "parameter(0), sharding={devices=[8,1]<=[8]},"))
    strategy = parse_strategy(MESH + '"w1" = "x,"\n')
    apply_strategy(module, Strategy(strategy.mesh, (*strategy.settings, Setting.parse("w1=,y"))))
    assert str(module.entry.parameters[0].sharding) == "{mesh['x'=2,'y'=4], [{}, {'y'}]}"


def test_a_strategy_alone_leaves_out_what_the_program_says() -> None:
    text = PROGRAM.replace("parameter(0),", "parameter(0), sharding={devices=[8,1]<=[8]},")
    module = hloom.parse(text)
    apply_strategy(module, parse_strategy("alone = true\n" + MESH + '"bias" = "x"\n'))
    assert [p.sharding is None for p in module.entry.parameters] == [True, True, False]
    with pytest.raises(CompileError, match="2:1: error: 'alone' must be true or false"):
        parse_strategy("\nalone = 1\n")


def test_mesh_of_the_program() -> None:
    """A mesh need not have a symbol; of several the one is meant that has the axes."""
    named = PROGRAM.replace("parameter(0),", "parameter(0), sharding={mesh['x'=2,'y'=4], [{'x'}, {}]},")
    module = hloom.parse(named)
    apply_strategy(module, Strategy(settings=[Setting.parse("w2=,y")]))
    assert str(module.entry.parameters[1].sharding) == "{mesh['x'=2,'y'=4], [{}, {'y'}]}"
    several = hloom.parse(named.replace("parameter(2)", "parameter(2), sharding={mesh['x'=8], [{'x'}]}"))
    apply_strategy(several, Strategy(settings=[Setting.parse("w2=x,y")]))
    assert str(several.entry.parameters[1].sharding) == "{mesh['x'=2,'y'=4], [{'x'}, {'y'}]}"
    with pytest.raises(CompileError, match=r"several meshes: mesh\['x'=2,'y'=4\], mesh\['x'=8\]"):
        apply_strategy(several, Strategy(settings=[Setting.parse("w2=x,")]))


def test_a_dict_says_what_a_file_says() -> None:
    module, other = hloom.parse(PROGRAM), hloom.parse(PROGRAM)
    hloom.apply_strategy(module, {"w*": ",y", "w1": "x,"}, {"x": 2, "y": 4})
    hloom.apply_strategy(other, parse_strategy("[mesh]\nx = 2\ny = 4\n[shardings]\n'w*' = ',y'\nw1 = 'x,'\n"))
    assert module.to_text() == other.to_text()
    hloom.apply_strategy(other, Strategy.of({"w1": ",x"}), {"x": 8})
    assert str(other.entry.parameters[0].sharding) == "{mesh['x'=8], [{}, {'x'}]}"
    with pytest.raises(CompileError, match="axis 'x' needs a size of at least 1"):
        hloom.apply_strategy(module, {"w1": "x,"}, {"x": 0})


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("[mesh]\nx = \n", 2, "Invalid value"),
        ("[mesh]\nx = 0\n", 2, "axis 'x' needs a size of at least 1"),
        ("[meshes]\nx = 2\n", 1, "there is no table 'meshes'"),
        ("mesh = 3\n", 1, "'mesh' must be a table"),
        ("[shardings]\nw1 = 'x'\n", 0, "the program names no mesh"),
        (MESH + "w1 = 3\n", 5, "must be a text"),
        (MESH + "w1 = 'x-1,'\n", 5, "'x-1' is no axis"),
        (MESH + "w1 = 'z,'\n", 5, "the mesh has no axis 'z'"),
        (MESH + "w1 = 'x,x'\n", 5, "an axis is used twice"),
        (MESH + "w1 = 'y:(1)3,'\n", 5, "has no part (1)3"),
        (MESH + "w1 = 'y:(0)2,'\n", 5, "'y:(0)2' is no axis"),
        (MESH + "w1 = 'y:(1)0,'\n", 5, "'y:(1)0' is no axis"),
        (MESH + "w1 = 'x'\n", 5, "parameter w1 is f32[16,8]"),
        (MESH + "v1 = 'x,'\n", 5, "'v1' fits no value"),
        (MESH + "s = 'x,,'\n", 5, "'s' fits no value of 3 dimensions"),
    ],
)
def test_errors(text: str, line: int, message: str) -> None:
    with pytest.raises(CompileError) as error:
        annotated(text)
    (found,) = error.value.diagnostics
    assert message.casefold() in found.message.casefold()
    assert found.line == line


@pytest.mark.parametrize("text", ["w1", "=x", ""])
def test_bad_settings(text: str) -> None:
    with pytest.raises(CompileError, match="PATTERN=AXES"):
        Setting.parse(text)


def test_a_dict_of_other_things_is_refused_in_words() -> None:
    module = hloom.parse(PROGRAM)
    shardings: Any = {"mesh": {"x": 2, "y": 4}}
    with pytest.raises(CompileError, match="the sharding of 'mesh' must be a text"):
        hloom.apply_strategy(module, shardings)
    sizes: Any = {"x": "2"}
    with pytest.raises(CompileError, match="axis 'x' needs a size of at least 1"):
        hloom.apply_strategy(module, {}, sizes)

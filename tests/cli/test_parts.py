"""The commands that look at parts of programs or at two of them: show --computation, isolate, diff, eval."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hloom import evaluate, load, parse
from hloom.__main__ import main
from hloom.ir.tools.difference import differences
from hloom.ir.tools.extract import find_instruction, isolate
from support.command_line import EXAMPLES, NAMED

NESTED = """HloModule nested
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
outer {
  p = f32[4,8] parameter(0)
  zero = f32[] constant(0)
  ROOT r = f32[4] reduce(p, zero), dimensions={1}, to_apply=add
}
ENTRY main {
  x = f32[4,8] parameter(0), sharding={mesh['a'=2], [{'a'}, {}]}
  y = f32[4,8] tanh(x)
  z = f32[4,8] multiply(y, y)
  r = f32[4] call(z), to_apply=outer
  ROOT n = f32[4] negate(r)
}
"""
ASYNC = """HloModule pair
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[4] parameter(0)
  s = f32[4] all-reduce-start(x), to_apply=add
  ROOT d = f32[4] all-reduce-done(s)
}
"""


def shown(capsys: pytest.CaptureFixture[str], *arguments: str | Path, code: int = 0) -> str:
    """What a command prints, on standard error if it fails."""
    assert main([str(a) for a in arguments]) == code
    out, err = capsys.readouterr()
    return err if code == 65 else out


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


# -- show


def test_show_one_computation(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "show", NAMED, "--computation", "%sum")
    assert text.splitlines()[0] == "%sum (a: f32[], b: f32[]) -> f32[] {"
    assert text.splitlines()[-1] == "}"
    assert shown(capsys, "show", NAMED, "--computation", "main").startswith("ENTRY %main (x: f32[8,16],")
    assert "there is no computation 'su' in mlp" in shown(capsys, "show", NAMED, "--computation", "su", code=65)


# -- isolate


def test_isolate_takes_what_is_called_along(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "nested.hlo", NESTED)
    text = shown(capsys, "isolate", path, "--inst", "%r")
    module = parse(text)
    assert [c.name for c in module] == ["add", "outer", "main"]
    assert [i.opcode for i in module.entry] == ["parameter", "call"]
    z = np.arange(32, dtype=np.float32).reshape(4, 8)
    assert np.array_equal(evaluate(module, [z])[0], z.sum(1))


def test_isolate_with_producers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "nested.hlo", NESTED)
    module = parse(shown(capsys, "isolate", path, "--inst", "z", "--depth", "1"))
    assert [i.name for i in module.entry] == ["x", "y", "z"]
    assert str(module.entry.parameters[0].sharding) == "{mesh['a'=2], [{'a'}, {}]}"
    whole = parse(shown(capsys, "isolate", path, "--inst", "n", "--depth", "99"))
    assert differences(whole, parse(NESTED)) == []


def test_isolate_inside_a_computation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "nested.hlo", NESTED)
    module = parse(shown(capsys, "isolate", path, "--inst", "r", "--computation", "outer"))
    assert [i.opcode for i in module.entry] == ["parameter", "parameter", "reduce"]
    assert parse(shown(capsys, "isolate", path, "--inst", "zero")).entry.root.opcode == "constant"


def test_isolate_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "nested.hlo", NESTED.replace("ROOT c =", "ROOT zero ="))
    refused = shown(capsys, "isolate", path, "--inst", "q", code=65)
    assert "no instruction 'q' in nested\n  help: instructions: " in refused
    two = shown(capsys, "isolate", path, "--inst", "zero", code=65)
    assert "there are 2 instructions 'zero', in the computations add, outer" in two
    with pytest.raises(SystemExit) as usage:
        main(["isolate", str(path)])
    assert usage.value.code == 2


def test_isolate_half_of_a_pair(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "pair.hlo", ASYNC)
    assert "error: " in shown(capsys, "isolate", path, "--inst", "d", code=65)
    assert len(parse(shown(capsys, "isolate", path, "--inst", "d", "--depth", "1")).entry) == 3


@pytest.mark.parametrize("name", ["mlp_train.hlo", "transformer_train.hlo", "transformer_scan_train.hlo"])
def test_every_instruction_can_be_isolated(name: str) -> None:
    module = load(EXAMPLES / name)
    instructions = list(module.entry)
    for instruction in instructions[:: max(1, len(instructions) // 40)]:
        alone = isolate(module, instruction)
        root = parse(alone.to_text()).entry.root
        assert (root.opcode, root.shape) == (instruction.opcode, instruction.shape)
        assert find_instruction(alone, instruction.name).op is instruction.op


# -- diff

# What does not count, and what does: an edit of NESTED.
SAME = [
    NESTED.replace("  y =", "  t =").replace("(y, y)", "(t, t)").replace("tanh(x)", 'tanh(x), metadata={op_name="t"}'),
    NESTED.replace("{mesh['a'=2], [{'a'}, {}]}", "{devices=[2,1]<=[2]}"),
    NESTED.replace("{mesh['a'=2], [{'a'}, {}]}", "{devices=[2,1]0,1}"),
    NESTED.replace("  y =", "  unused = f32[4,8] cosine(x)\n  y ="),
    NESTED.replace("f32[4,8] tanh", "f32[4,8]{1,0} tanh"),
    NESTED.replace("call(z), to_apply=outer", "call(z), to_apply=copy").replace("outer", "copy"),
]
OTHER = [
    ("tanh(x)", "cosine(x)", "opcode: tanh, cosine"),
    ("multiply(y, y)", "multiply(y, x)", "operand 1: y, x, but elsewhere y is y"),
    ("dimensions={1}", "dimensions={1}, backend_config={\"a\":1}", "backend_config"),
    ("constant(0)", "constant(-0.0)", "literal: f32[] 0, f32[] -0"),
    ("constant(0)", "constant(0), frontend_attributes={a=\"b\"}", "frontend_attributes"),
    ("[{'a'}, {}]", "[{}, {'a'}]", "sharding: {mesh['a'=2], [{'a'}, {}]}, {mesh['a'=2], [{}, {'a'}]}"),
    ("[{'a'}, {}]", "[{'a',?}, {}]", "sharding: "),
    ("add(a, b)", "add(b, a)", "operand 0: a, b, but elsewhere a is a"),
    ("HloModule nested", "HloModule nested, num_partitions=2", "num_partitions: 1, 2"),
]


@pytest.mark.parametrize("text", SAME)
def test_no_difference(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = write(tmp_path, "a.hlo", NESTED), write(tmp_path, "b.hlo", text)
    assert text != NESTED
    assert shown(capsys, "diff", a, b) == "no differences: nested and nested, 11 instructions\n"


@pytest.mark.parametrize(("old", "new", "what"), OTHER)
def test_difference(old: str, new: str, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = write(tmp_path, "a.hlo", NESTED), write(tmp_path, "b.hlo", NESTED.replace(old, new, 1))
    forth, back = shown(capsys, "diff", a, b, code=1), shown(capsys, "diff", b, a, code=1)
    assert what in forth
    assert what not in back or what.startswith(("backend", "frontend", "sharding: "))
    assert " difference" in forth.splitlines()[-1]


def test_diff_names_both_places(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    b = write(tmp_path, "b.hlo", "\n" + NESTED.replace("tanh(x)", "cosine(x)"))
    a = write(tmp_path, "a.hlo", NESTED)
    assert shown(capsys, "diff", a, b, code=1).splitlines() == [
        "computation main:",
        "  opcode: tanh, cosine",
        f"  - {a}:10:3: %y = f32[4,8] tanh(%x)",
        f"  + {b}:11:3: %y = f32[4,8] cosine(%x)",
        "1 difference",
    ]


def test_differences_of_signature_and_side_effects() -> None:
    plain = parse("ENTRY main { x = f32[4] parameter(0) ROOT y = f32[4] tanh(x) }")
    two = parse("ENTRY main { x = f32[4] parameter(0) z = f32[] parameter(1) ROOT y = f32[4] tanh(x) }")
    assert [d.what for d in differences(plain, two)] == ["number of parameters: 1, 2"]
    call = 'custom-call(x), custom_call_target="log", custom_call_has_side_effect=true'
    loud = parse(f"ENTRY main {{ x = f32[4] parameter(0) l = () {call} ROOT y = f32[4] tanh(x) }}")
    assert [d.what for d in differences(plain, loud)] == ["number of side effects: 0, 1"]
    assert differences(loud, loud) == []


def test_schedules_differ_only_in_scheduled_modules() -> None:
    text = """HloModule m, is_scheduled=true
ENTRY main { x = f32[4] parameter(0) a = f32[4] tanh(x) b = f32[4] cosine(x) ROOT y = f32[4] add(a, b) }
"""
    other = text.replace("a = f32[4] tanh(x) b = f32[4] cosine(x)", "b = f32[4] cosine(x) a = f32[4] tanh(x)")
    assert [d.what for d in differences(parse(text), parse(other))] == ["place in the schedule"]
    loose = text.replace(", is_scheduled=true", "")
    assert differences(parse(loose), parse(other.replace(", is_scheduled=true", ""))) == []


def test_channels_are_names() -> None:
    text = """HloModule m, num_partitions=4
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[4] parameter(0)
  a = f32[4] all-reduce(x), channel_id=1, replica_groups={{0,1},{2,3}}, to_apply=add, use_global_device_ids=true
  ROOT b = f32[4] all-reduce(a), channel_id=2, replica_groups={{0,1},{2,3}}, to_apply=add, use_global_device_ids=true
}
"""
    renamed = text.replace("channel_id=1", "channel_id=7").replace("{{0,1},{2,3}}", "[2,2]<=[4]")
    assert differences(parse(text), parse(renamed)) == []
    shared = differences(parse(text), parse(text.replace("channel_id=1", "channel_id=2")))
    assert [d.what for d in shared] == ["channel_id: 1, 2"]


def test_partitioned_program_differs_from_its_original(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    local = write(tmp_path, "local.hlo", shown(capsys, "partition", NAMED))
    text = shown(capsys, "diff", NAMED, local, code=1)
    assert text.startswith("modules:\n  num_partitions: 1, 8\n  stage: global, local\n")
    assert "opcode: subtract, subtract" not in text


# -- eval


def test_eval_writes_what_run_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "eval", NAMED, "--seed", "3", "--out", tmp_path / "one")
    assert [line.split(": ")[0] for line in text.splitlines()] == ["output 0 y", "output 1 loss"]
    shown(capsys, "run", NAMED, "--seed", "3", "--out", tmp_path / "all")
    for name in ("output_0.npy", "output_1.npy"):
        assert np.allclose(np.load(tmp_path / "one" / name), np.load(tmp_path / "all" / name), atol=1e-5)
    again = shown(capsys, "eval", NAMED, "--seed", "4")
    assert again != text


def test_eval_keeps_types_of_inputs_and_outputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = """HloModule types
ENTRY main {
  x = bf16[3] parameter(0)
  y = f8e4m3fn[3] convert(x)
  ROOT t = (bf16[3], f8e4m3fn[3], s4[]) tuple(x, y, n)
}
""".replace("  ROOT", "  n = s4[] constant(-3)\n  ROOT")
    first = write(tmp_path, "types.hlo", program)
    shown(capsys, "eval", first, "--out", tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert [a["type"] for a in manifest["arrays"]] == ["bf16", "f8e4m3fn", "s4"]
    second = write(tmp_path, "second.hlo", """HloModule second
ENTRY main { x = bf16[3] parameter(0) y = f8e4m3fn[3] parameter(1) n = s4[] parameter(2) ROOT s = s4[] add(n, n) }
""")
    assert shown(capsys, "eval", second, "--inputs", tmp_path / "out") == "output 0 s: int4[] -6\n"


def test_eval_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    local = write(tmp_path, "local.hlo", shown(capsys, "partition", NAMED))
    assert "is a per-device program for 8 devices and cannot run on one" in shown(capsys, "eval", local, code=65)
    assert "cannot be read" in shown(capsys, "eval", NAMED, "--inputs", tmp_path / "none", code=65)
    assert "standard input can be one" in shown(capsys, "diff", "-", "-", code=65)

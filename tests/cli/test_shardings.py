"""The commands about shardings, and strategies on the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hloom.__main__ import main
from hloom.ir.diagnostics import CATEGORIES
from hloom.passes.named import PASSES
from support.command_line import EXAMPLES
from support.command_line import hloom as command

MLP = str(EXAMPLES / "mlp_named.hlo")
PLAIN = """ENTRY e {
  x = f32[8,16] parameter(0)
  w1 = f32[16,32] parameter(1)
  h = f32[8,32] dot(x, w1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT y = f32[8,32] tanh(h)
}
"""


@pytest.fixture
def plain(tmp_path: Path) -> str:
    path = tmp_path / "plain.hlo"
    path.write_text(PLAIN)
    return str(path)


def test_shard_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shard", MLP, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["devices"] == 8
    assert found["mesh"] == {"x": 2, "y": 4}
    assert found["counts"] == {"values": 15, "annotated": 4, "propagated": 6, "replicated": 5}
    assert {v["name"]: v["axes"] for v in found["values"]}["h"] == "[x, y]"
    assert found["conflicts"] == []


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", MLP, "y"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "y: f32[8,4] [x, -]"
    assert lines[1] == "  axis x of dimension 0:"
    assert lines[-1].startswith("    target dimension 0, annotated (")


def test_explain_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", MLP, "h", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert {a["axis"] for a in found["axes"]} == {"x", "y"}


def test_explain_without(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", MLP, "h", "--without", "w1", "--without", "w2"]) == 0
    shown = capsys.readouterr().out
    assert "  h: [x, y] -> [x, -]\n" in shown


def test_explain_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", MLP, "hh"]) == 65
    assert "there is no value 'hh'" in capsys.readouterr().err


def test_rules(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", MLP]) == 0
    shown = capsys.readouterr().out
    assert "xw = dot ([i k], [k j]) -> [i j] {i=8, j=32, k=16} reduction={k}\n" in shown
    step = str(EXAMPLES / "transformer_train.hlo")
    few, every = ((main(["rules", step, *more]), capsys.readouterr().out.splitlines())[1] for more in ([], ["--all"]))
    more = sum(int(n) for n in re.findall(r" \(\+(\d+)\) = ", "\n".join(few)))
    assert len(few) + more == len(every) > 5 * len(few)


def test_picture(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["picture", "f32[8,6]", "[{'y'}, {'x'}]", "--mesh", "x=2,y=3"]) == 0
    assert "  6:8 |  2  |  5  |" in capsys.readouterr().out
    assert main(["picture", "f32[8,6]", "{devices=[2,2,2]<=[8]}"]) == 65


def test_settings(plain: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shard", plain, "--mesh", "x=2,y=4", "--set", "w*=,y", "--set", "x=x,"]) == 0
    shown = capsys.readouterr().out
    assert "[x, y]" in shown
    assert "5 values: 2 annotated" not in shown
    assert main(["run", plain, "--mesh", "x=2,y=4", "--set", "w*=,y", "--set", "x=x,", "--check"]) == 0
    assert "8 simulated devices" in capsys.readouterr().out


def test_settings_on_a_mesh_that_only_shardings_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shard", MLP, "--set", "w*=,y", "--json"]) == 0
    found = {v["name"]: v["axes"] for v in json.loads(capsys.readouterr().out)["values"]}
    assert (found["w1"], found["w2"]) == ("[-, y]", "[-, y]")
    assert main(["run", MLP, "--set", "w*=,y", "--mesh", "x=3,y=5", "--check"]) == 0
    assert "mlp: 15 simulated devices" in capsys.readouterr().out


def test_strategy_file(plain: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.toml"
    path.write_text('[mesh]\nx = 2\ny = 2\n[shardings]\n"w*" = "x,y"\n')
    assert main(["partition", plain, "--strategy", str(path)]) == 0
    assert "num_partitions=4" in capsys.readouterr().out
    assert main(["shard", plain, "--strategy", str(path), "--mesh", "x=4,y=2", "--set", "x=x,"]) == 0
    assert "f32[2,16]" in capsys.readouterr().out


def test_bad_strategy(plain: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.toml"
    path.write_text('[mesh]\nx = 2\n[shardings]\n"v*" = "x,"\n')
    assert main(["shard", plain, "--strategy", str(path)]) == 65
    assert f"{path}:4:2: error: 'v*' fits no value" in capsys.readouterr().err
    assert main(["shard", plain, "--strategy", str(tmp_path / "none.toml")]) == 65
    assert main(["shard", plain, "--set", "w1=x,"]) == 65


PATHS = """HloModule step
ENTRY e {
  p0 = f32[8,16] parameter(0), sharding={mesh['x'=2], [{'x'}, {}]}, metadata={op_name="st['p']['wte']"}
  p1 = f32[8,16] parameter(1), sharding={mesh['x'=2], [{'x'}, {}]}, metadata={op_name="st['p']['head']"}
  layer.1 = f32[8,16] tanh(p0), metadata={op_name="jit(f)/tanh"}
  layer.2 = f32[8,16] tanh(p1), metadata={op_name="jit(f)/tanh"}
  layer.3 = f32[8,16] tanh(layer.2)
  ROOT y = f32[8,16] add(layer.1, layer.3)
}
"""


@pytest.fixture
def paths(tmp_path: Path) -> str:
    path = tmp_path / "paths.hlo"
    path.write_text(PATHS)
    return str(path)


def test_values_are_called_by_paths(paths: str, capsys: pytest.CaptureFixture[str]) -> None:
    def explained(*arguments: str) -> str:
        assert main(["explain", paths, *arguments]) == 0
        return capsys.readouterr().out

    assert explained("st['p']['wte']") == explained("p0")
    assert [line.split(":")[0] for line in explained("st*").splitlines() if not line.startswith(" ")] == ["p0", "p1"]
    assert explained("jit(f)/tanh").startswith("layer.1: f32[8,16] [x, -]\n")
    changed = explained("layer.2", "--without", "st['p']*")
    assert changed.startswith("without st['p']*:\n  layer.2: [x, -] -> replicated\n")
    assert main(["explain", paths, "st['p']['wtx']"]) == 65
    assert "help: values: st['p']['wte'], " in capsys.readouterr().err
    assert main(["explain", paths, "nothing", "--without", "p0"]) == 65


def test_shard_shows_what_is_asked_for(paths: str, capsys: pytest.CaptureFixture[str]) -> None:
    def values(*arguments: str) -> list[str]:
        assert main(["shard", paths, *arguments]) == 0
        table = capsys.readouterr().out.partition("\n\n")[0]
        return [line.split("  ")[0] for line in table.splitlines()[1:]]

    assert values() == ["p0 (+1)", "layer.1 (+2)", "y"]
    assert values("--all") == ["p0", "p1", "layer.1", "layer.2", "layer.3", "y"]
    assert values("st['p']['head']", "y") == ["p1", "y"]
    assert main(["shard", paths, "layer.*", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [v["name"] for v in found["values"]] == ["layer.1", "layer.2", "layer.3"]
    assert [v["path"] for v in found["values"]] == ["jit(f)/tanh", "jit(f)/tanh", ""]
    assert found["counts"]["values"] == 6
    assert main(["shard", paths, "nothing"]) == 65
    assert "no value is called nothing" in capsys.readouterr().err


CALL = """ENTRY e {
  x = f32[8] parameter(0), sharding={devices=[4]<=[4]}
  ROOT y = f32[8] custom-call(x), custom_call_target="cli_test_twice"
}
"""


def test_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, code = tmp_path / "call.hlo", tmp_path / "twice.py"
    program.write_text(CALL)
    code.write_text('import hloom\n\n@hloom.custom_call("cli_test_twice", rule="([i]) -> [i]", replace=True)\n'
                    "def twice(x):\n    return x + x\n")  # fmt: skip
    assert main(["run", str(program), "--import", str(code), "--check"]) == 0
    assert "check passed" in capsys.readouterr().out


@pytest.mark.parametrize(("text", "line", "error"), [("x = 1\ny = z\n", 2, "NameError"), ("x = (\n", 1, "SyntaxError")])
def test_bad_import(text: str, line: int, error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, code = tmp_path / "call.hlo", tmp_path / "bad.py"
    program.write_text(CALL)
    code.write_text(text)
    assert main(["show", str(program), "--import", str(code)]) == 65
    assert f"{code}:{line}: {error}: " in capsys.readouterr().err
    assert main(["show", str(program), "--import", str(tmp_path / "none.py")]) == 65


PASS = """from dataclasses import dataclass
from hloom.ir.diagnostics import CATEGORIES
from hloom.passes.base import Pass
from hloom.passes.named import PASSES

@dataclass(frozen=True)
class CliTestPass(Pass):
    name = "cli-test-pass"
    message: str = "seen"
    def run(self, module, context):
        context.diagnostics.remark(self.message.upper(), category="cli-test")
        return False

PASSES[CliTestPass.name] = CliTestPass
CATEGORIES["cli-test"] = "what a test says"
"""


@pytest.fixture
def _forgotten() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """What an import registers goes after the test."""
    yield
    PASSES.pop("cli-test-pass", None)
    CATEGORIES.pop("cli-test", None)


@pytest.mark.usefixtures("_forgotten")
def test_arguments_name_what_an_import_registers(
    plain: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = tmp_path / "mine.py"
    code.write_text(PASS)
    opt = ["opt", plain, "--import", str(code)]
    assert main([*opt, "--passes", "cli-test-pass", "--dump-after", "cli-test-pass"]) == 0
    shown = capsys.readouterr().err
    assert shown.startswith("// after cli-test-pass\n")
    assert shown.endswith("remark: SEEN [cli-test]\n")
    assert main([*opt, "--passes", "cli-test-pass", "--werror=cli-test"]) == 65
    assert "error: SEEN [cli-test]" in capsys.readouterr().err
    code.write_text(PASS.replace("@dataclass(frozen=True)\n", ""))  # then there are no options
    assert main([*opt, "--passes", "cli-test-pass"]) == 0


@pytest.mark.usefixtures("_forgotten")
def test_an_error_in_code_of_the_user_is_theirs(plain: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = tmp_path / "mine.py"
    code.write_text(PASS.replace("self.message.upper()", "self.message.upper(1)"))
    assert main(["opt", plain, "--import", str(code), "--passes", "cli-test-pass"]) == 65
    assert capsys.readouterr().err.startswith(f"{code}:11: error: TypeError: str.upper() takes no arguments")
    code.write_text("import sys\nsys.exit(3)\n")
    assert main(["show", plain, "--import", str(code)]) == 65
    assert f"{code}:2: SystemExit: 3" in capsys.readouterr().err


def test_conflicts_of_equal_layers_are_one_line(tmp_path: Path) -> None:
    layer = """
  a{n} = f32[8,8] parameter({p}), sharding={{mesh['x'=2], [{{'x'}}, {{}}]}}
  b{n} = f32[8,8] parameter({q}), sharding={{mesh['x'=2], [{{}}, {{'x'}}]}}
  y{n} = f32[8,8] add(a{n}, b{n})"""
    body = "".join(layer.format(n=n, p=2 * n, q=2 * n + 1) for n in range(3))
    root = "ROOT t = (f32[8,8], f32[8,8], f32[8,8]) tuple(y0, y1, y2)"
    text = f"HloModule m, num_partitions=2\nENTRY e {{{body}\n  {root}\n}}"
    done = command("shard", "-", cwd=tmp_path, text=text)
    conflicts = done.out.partition("given up:\n")[2].partition("\n\n")[0].splitlines()
    assert len(conflicts) == 3  # the three of a layer
    assert all(line.endswith(" (+2)") for line in conflicts)

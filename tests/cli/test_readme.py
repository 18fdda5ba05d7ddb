"""What the README shows is what the commands print; rounding errors may differ from machine to machine."""

from __future__ import annotations

import re
from pathlib import Path

import hloom
import pytest
from hloom.__main__ import main
from hloom.cli.commands import COMMANDS
from hloom.frontends import parse_sharding
from hloom.ir.sharding.sharding import Sharding
from support.command_line import EXAMPLES, ROOT

README = (ROOT / "README.md").read_text()


def blocks(kind: str) -> list[str]:
    """The fenced blocks of one kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def commands() -> list[tuple[str, str]]:
    """Each `$ hloom ..` with what stands below it."""
    parts = [part for block in blocks("console") for part in block.split("$ hloom ")[1:]]
    return [(command, output) for command, _, output in (part.partition("\n") for part in parts)]


def without_errors(text: str) -> str:
    return re.sub(r"(error|that of one device) \d\S*e-\d+", r"\1 ?", text)


@pytest.mark.parametrize(("command", "output"), commands(), ids=[c for c, _ in commands()])
def test_command(
    command: str, output: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(command.split()) == 0
    shown = capsys.readouterr()
    remark = "hloom: remark: schedule: "  # what the schedule has done
    assert [line for line in shown.err.splitlines() if not line.startswith(remark)] == []
    assert without_errors(shown.out) == without_errors(output)


def test_there_are_commands() -> None:
    assert [c.split()[0] for c, _ in commands()] == [
        "shard", "explain", "run", "run", "comm", "prove", "schedule",
    ]  # fmt: skip


def test_all_commands_have_a_row() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    assert {name for name in COMMANDS if f"| `hloom {name}" not in page} == set()
    assert set(re.findall(r"^\| `hloom ([\w-]+)", README, re.MULTILINE)) < set(COMMANDS)


def test_all_public_names_have_a_row() -> None:
    page = (ROOT / "docs" / "python.md").read_text()
    assert {name for name in hloom.__all__ if not re.search(rf"\b{name}\b", page)} == set()
    types = page.split("These types")[1].split("\n| --- | --- |\n")[1].split("\n\n")[0]
    named = {name for row in types.splitlines() for name in re.findall(r"`(\w+)(?:\(\))?`", row.split("|")[1])}
    assert named <= set(hloom.__all__)


def test_excerpts(capsys: pytest.CaptureFixture[str]) -> None:
    texts = blocks("text")
    program = (EXAMPLES / "mlp_named.hlo").read_text()
    source = next(t for t in texts if t.startswith("ENTRY main"))
    assert source.removesuffix("  ...\n") in program
    assert main(["partition", str(EXAMPLES / "mlp_named.hlo")]) == 0
    partitioned = next(t for t in texts if "hloom.cause" in t)
    assert partitioned in capsys.readouterr().out


def test_diagnostic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The README leaves out the lines below the notes."""
    program = (EXAMPLES / "mlp_named.hlo").read_text().replace("dot(x, w1)", "dot(x, w2)")
    (tmp_path / "mlp.hlo").write_text(program)
    monkeypatch.chdir(tmp_path)
    assert main(["verify", "mlp.hlo"]) == 65
    wanted = next(t for t in blocks("text") if "error: dot" in t).splitlines()
    shown = capsys.readouterr().err.splitlines()
    assert [line for line in shown if line in wanted] == wanted


def test_sharding_spellings_are_read() -> None:
    lines = next(t for t in blocks("text") if t.startswith("sharding=")).splitlines()
    spelt = [re.match(r"sharding=(\{.*\})  ", line) for line in lines]
    found = [parse_sharding(match[1]) for match in spelt if match]
    meanings = [s.tiling(2) for s in found if isinstance(s, Sharding)]
    assert len(meanings) == 3
    assert meanings[0] == meanings[1] == meanings[2]


def test_python_example(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = blocks("python")
    monkeypatch.chdir(ROOT)
    exec(compile(example, "README.md", "exec"), {})
    shown = capsys.readouterr().out
    assert shown.startswith("HloModule mlp")
    *_, dot, total, compiled = shown.splitlines()
    assert [dot, total] == ["all-reduce 96 result of dot y", "all-reduce 4 result of reduce total"]
    assert compiled.split()[0] in ("native", "reference")

"""What the command line says of itself: versions, help with defaults and examples, completion; JSON; progress."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from hloom.__main__ import main
from hloom.cli.commands import COMMANDS, make_parser
from support.command_line import EXAMPLES, NAMED, ROOT, environment, hloom
from support.processes import PATIENCE

PARSERS = make_parser().commands


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["--version"])
    assert done.value.code == 0
    assert re.match(r"hloom \S+ \(Python 3\.\d+\.\d+, numpy \d", capsys.readouterr().out)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples_and_defaults(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([name, "--help"])
    shown = capsys.readouterr().out
    usage, _, _ = shown.partition("\n")
    assert usage.startswith(f"usage: hloom {name} [OPTION ..]")
    assert all(len(line) <= 80 for line in shown.splitlines())
    shown = shown.replace(" \\\n      ", " ")  # as shells continue lines
    assert PARSERS[name].description
    for example in COMMANDS[name].examples:
        assert f"\n  {example}\n" in shown
    for action in PARSERS[name].options():
        if isinstance(action.default, str | int) and action.nargs != 0 and action.default and action.dest != "help":
            assert f"(default: {action.default})" in " ".join(shown.split()), action.dest


def test_an_unknown_option_leads_to_the_help_of_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["comm", str(NAMED), "--unknown"])
    assert done.value.code == 2
    assert capsys.readouterr().err == (
        "usage: hloom comm [OPTION ..] FILE\nhloom comm: error: unrecognized arguments: --unknown\n"
        "  help: hloom comm --help lists the options\n")  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "error", "help"),
    [
        (["comm", str(NAMED), "--jsn"], "hloom comm: error: unrecognized arguments: --jsn",
         "did you mean --json? hloom comm --help lists the options"),
        (["comm", str(NAMED), "--devicse=4"], "hloom comm: error: unrecognized arguments: --devicse=4",
         "did you mean --devices? hloom comm --help lists the options"),
        (["verfy", str(NAMED)], "hloom: error: there is no command 'verfy'",
         "did you mean verify? hloom --help lists the commands"),
        (["transform"], "hloom: error: there is no command 'transform'", "hloom --help lists the commands"),
    ],
)  # fmt: skip
def test_misspelt_words_lead_to_near_ones(
    arguments: list[str], error: str, help: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as done:
        main(arguments)
    assert done.value.code == 2
    assert capsys.readouterr().err.endswith(f"\n{error}\n  help: {help}\n")


# Words of examples that take long, of commands that have shorter ones or run so in tests of their own.
_LONG = ("scan", "what-if", "8,16", "--time 5s", "schedule examples/tr", "forecast examples/tr", "report examples/tr")
RUNNABLE = [e for c in COMMANDS.values() for e in c.examples if "--ranks" not in e and e[:6] == "hloom "]


@pytest.mark.parametrize("line", [
    pytest.param(e, marks=[pytest.mark.slow] if any(word in e for word in _LONG) else [])
    for e in RUNNABLE if ">" not in e or "'" in e
])  # fmt: skip
def test_examples_run(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if " from-jax " in line:
        pytest.importorskip("jax")
    (tmp_path / "examples").symlink_to(EXAMPLES)
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(line)[1:]) == 0


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["hloom", "ex"], ["explain"]),
        (["hloom", "run", "--ra"], ["--ranks"]),
        (["hloom", "partition", "--form", "m"], ["manual"]),
        (["hloom", "verify", "prog"], ["program.hlo"]),
        (["hloom", "--ver"], ["--version"]),
    ],
)
def test_completion_in_bash(words: list[str], wanted: list[str], tmp_path: Path) -> None:
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    (tmp_path / "program.hlo").touch()
    ask = f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; _hloom; echo ${{COMPREPLY[@]}}"
    script = hloom("completion", "bash", cwd=tmp_path).out + ask
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == wanted


def test_completion_of_other_shells(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh"]) == 0
    assert "bashcompinit" in capsys.readouterr().out.splitlines()[0]
    assert main(["completion", "fish"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("seen_subcommand_from run' -l ranks -r" in line for line in lines)
    assert any("seen_subcommand_from partition' -l form -r -a 'local manual replica'" in line for line in lines)


# -- JSON

FORMS = {
    "verify": ["ok", "program", "stage", "diagnostics", "computations", "instructions"],
    "shard": ["program", "devices", "mesh", "counts", "values", "conflicts"],
    "comm": ["program", "devices", "sent_bytes", "exact", "kinds", "collectives", "work", "repeated_work",
             "contractions", "reshardings"],
    "memory": ["program", "devices", "parameters", "constants", "results", "aliased", "temporary", "peak", "at",
               "curve", "buffers", "native_arena"],
    "run": ["program", "devices", "sent_bytes", "exact", "kinds", "backend", "outputs"],
    "run --check": ["program", "devices", "sent_bytes", "exact", "kinds", "backend", "outputs", "passed",
                    "checks"],
    "eval": ["program", "backend", "outputs"],
    f"diff {NAMED}": ["equal", "differences"],
}


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert main([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def documented(value: Any) -> bool:
    """Whether the page on JSON has all keys, in records within records too."""
    page = (ROOT / "docs" / "json.md").read_text()
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return all(f"`{key}`" in page and (key in ("kinds", "mesh") or documented(inner)) for key, inner in items)
    return all(map(documented, cast("list[Any]", value))) if isinstance(value, list) else True


@pytest.mark.parametrize("command", FORMS)
def test_json(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, *rest = command.split()
    found = as_json(capsys, name, NAMED, *rest)
    assert list(found) == FORMS[command]
    assert documented({key: value for key, value in found.items() if key != "counts"})


def test_json_of_lists(capsys: pytest.CaptureFixture[str]) -> None:
    rules = as_json(capsys, "rules", NAMED)
    assert {"name": "y", "opcode": "dot", "rule": next(r["rule"] for r in rules if r["name"] == "y")} in rules
    plan = as_json(capsys, "reshard", "f32[8]", "{devices=[4]<=[4]}", "{replicated}")
    assert (plan["collectives"], plan["received_bytes"], plan["bound_bytes"]) == (1, 24, 24)
    for found in (rules, as_json(capsys, "explain", NAMED, "h"), [plan]):
        assert found
        assert documented(found)


def test_json_of_results(capsys: pytest.CaptureFixture[str]) -> None:
    outputs = as_json(capsys, "run", NAMED, "--check")["outputs"]
    assert [(o["name"], o["type"], o["dims"]) for o in outputs] == [("y", "f32", [8, 4]), ("loss", "f32", [])]
    assert outputs[0]["min"] < outputs[0]["mean"] < outputs[0]["max"]


def test_json_of_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.hlo"
    bad.write_text(Path(NAMED).read_text().replace("dot(x, w1)", "dot(x, w2)"))
    found = as_json(capsys, "verify", str(bad), code=65)
    assert not found["ok"]
    (first,) = found["diagnostics"]
    assert (first["file"], first["line"], first["severity"], len(first["notes"])) == (str(bad), 24, "error", 2)
    assert documented(found)
    other = tmp_path / "other.hlo"
    other.write_text(Path(NAMED).read_text().replace("tanh", "sine"))
    (difference,) = as_json(capsys, "diff", NAMED, str(other), code=1)["differences"]
    assert "tanh" in difference["left"]
    assert documented(difference)


# -- terminals


def on_terminal(code: str, **variables: str) -> str:
    """What Python code writes when its standard error is a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", code], env=environment(TERM="xterm", **variables), stderr=theirs,
                          stdout=subprocess.DEVNULL) as process:  # fmt: skip
        os.close(theirs)
        found = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # Linux says so that the other end is closed
                break
            if not part:
                break
            found += part
        process.wait(timeout=PATIENCE)
    os.close(ours)
    return found.decode()


SLOW = """import time
from hloom.report import progress
with progress.working("partitioning", {delay}, 0.1):
    time.sleep({seconds})
"""


def test_progress_on_a_terminal() -> None:
    shown = on_terminal(SLOW.format(seconds=1, delay=0.2))
    assert shown.startswith("\r\x1b[Khloom: partitioning, ")
    assert shown.endswith("\r\x1b[K")
    assert on_terminal(SLOW.format(seconds=0, delay=0.2)) == ""


def test_no_progress_in_a_pipe(capfd: pytest.CaptureFixture[str]) -> None:
    exec(compile(SLOW.format(seconds=0.3, delay=0), "slow", "exec"), {})
    assert capfd.readouterr().err == ""


def test_colors_of_messages() -> None:
    """The environment may ask for none."""
    once = "main(['verify', 'none.hlo'])"
    code = f"import os; from hloom.__main__ import main; os.environ.pop('NO_COLOR', None); {once}"
    code += "".join(f"; os.environ['NO_COLOR'] = '{asked}'; {once}" for asked in ("1", ""))
    words = ("\x1b[1;31merror:\x1b[0m", "error:", "\x1b[1;31merror:\x1b[0m")
    lines = (f"hloom: {word} none.hlo cannot be read: No such file or directory\r\n" for word in words)
    assert on_terminal(code) == "".join(lines)

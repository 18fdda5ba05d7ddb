"""Text of programs on a terminal: no control characters, short excerpts with the caret below its place."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import hloom
import pytest
from hloom.ir.diagnostics import Diagnostic, Location, Severity, SourceFile
from hloom.ir.shown import LONGEST_MESSAGE, for_terminal, visible
from hloom.report.terminal import show_program
from support.command_line import ROOT
from support.command_line import hloom as command_line

EVIL = "\x1b]0;title\x07\x1b[2J\x9b31m\u202e\r\x00"


def test_what_a_terminal_acts_on_is_escaped() -> None:
    assert visible(EVIL) == "\\x1b]0;title\\x07\\x1b[2J\\x9b31m\\u202e\\x0d\\x00"
    assert visible("tab\there\nüßé 日本 ✓") == "tab\there\nüßé 日本 ✓"
    assert visible("\udc80\U000e0041\u2028") == "\\udc80\\U000e0041\\u2028"
    assert visible(visible(EVIL)) == visible(EVIL)


def shown(text: str, start: int, end: int, width: int = 60) -> tuple[str, str]:
    where = Location(SourceFile("f", text), start, end)
    _, excerpt, carets = Diagnostic(Severity.ERROR, "m", where).render(width).splitlines()
    assert len(excerpt) <= width
    return excerpt, carets


def test_the_caret_stands_below_its_place() -> None:
    for text in ("x = bad(y)", "\x1b[2J = bad(y)", "\t\u202e bad", "e" * 500 + " bad " + "f" * 500, "bad" + "f" * 500):
        start = text.index("bad")
        excerpt, carets = shown(text, start, start + 3)
        assert carets.count("^") == 3
        assert excerpt[carets.index("^") :].startswith("bad")
    excerpt, _ = shown("e" * 500 + " bad " + "f" * 500, 501, 504)
    assert excerpt.startswith("  1 | ...eee")
    assert excerpt.endswith("fff...")
    excerpt, carets = shown("x" * 10**6, 10, 10**6 - 10)
    assert len(carets) == len(excerpt) - 3


def test_messages_are_short() -> None:
    assert for_terminal("a" * 1000) == "a" * 200 + "..." + "a" * 20
    assert for_terminal("word " * 10) == "word " * 10
    assert len(for_terminal("word " * 10**5)) < LONGEST_MESSAGE + 10


PROGRAM = """HloModule m, num_partitions=2
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[8] parameter(0), sharding={devices=[2]<=[2]}, metadata={op_name="EVIL" source_file="/EVIL" source_line=3}
  z = f32[] constant(0)
  ROOT y = f32[] reduce(x, z), dimensions={0}, to_apply=add, metadata={op_name="EVIL" source_file="/EVIL" source_line=3}
}
""".replace("EVIL", EVIL.replace("\x00", ""))
COMMANDS = [
    ("verify",), ("run",), ("run", "--check"), ("comm",), ("shard",), ("memory",), ("schedule",), ("prove",),
    ("rules",), ("bench", "--repeat", "1"), ("relate",), ("explain", "--", "y"),
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0])
def test_no_command_shows_control_characters(tmp_path: Path, command: tuple[str, ...]) -> None:
    file = tmp_path / "evil\x1b[2J.hlo"
    for text in (PROGRAM, PROGRAM.replace("add(a, b)", "foo\x1b[31m(a, b)"), PROGRAM + EVIL):
        file.write_text(text, encoding="utf-8")
        done = command_line(command[0], file, *command[1:], cwd=tmp_path)
        written = done.out + done.err
        assert written
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(written)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_programs_are_escaped_on_terminals_alone() -> None:
    for stream, shown in ((Terminal(), visible(EVIL)), (io.StringIO(), EVIL)):
        with contextlib.redirect_stdout(stream):
            show_program(EVIL)
        assert stream.getvalue() == shown


def test_errors_of_the_library_are_fit_to_print() -> None:
    with pytest.raises(hloom.CompileError) as error:
        hloom.parse(f"HloModule m\nENTRY e {{ ROOT x = f32[2] add{EVIL}() }}", filename=EVIL)
    assert not set("\x1b\x07\x9b\u202e\x00") & set(str(error.value))


def test_commands_print_by_what_escapes_alone() -> None:
    own = {"streams.py", "progress.py", "parser.py", "messages.py"}  # escaped there, or no text of programs
    files = [file for file in (ROOT / "cli").glob("*.py") if file.name not in own]
    assert [f.name for f in files if re.search(r"(?<![\w.])print\(|sys\.std(out|err)\.write", f.read_text())] == []

"""Remarks come after the results: those that cost most, equal ones once."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hloom.ir.diagnostics import Diagnostic, Severity
from hloom.report.remarks import ALL, FEW, NONE, chosen
from hloom.report.terminal import wrapped
from support.command_line import EXAMPLES, ROOT, environment
from support.command_line import hloom as command_line


def remark(text: str, cost: float = 0.0, severity: Severity = Severity.REMARK) -> Diagnostic:
    return Diagnostic(severity, text, category="work", cost=cost)


def test_equal_remarks_are_told_once() -> None:
    found = [remark(f"dot dot.{n} sends 1,024 bytes") for n in range(3)] + [remark("dot dot.9 sends 1,025 bytes")]
    shown, left_out = chosen(found, FEW)
    assert [d.message for d in shown] == [
        "dot dot.0 sends 1,024 bytes (and 2 more like it)", "dot dot.9 sends 1,025 bytes",
    ]  # fmt: skip
    assert left_out == 0
    assert chosen(found, ALL) == (found, 0)
    assert chosen(found, NONE) == ([], 0)


def test_the_most_expensive_are_told_and_all_warnings() -> None:
    found = [remark(f"remark {'abcdef'[n]}", float(n)) for n in range(6)]
    found += [remark(f"warning {'abcdef'[n]}", severity=Severity.WARNING) for n in range(5)]
    shown, left_out = chosen(found, FEW)
    assert [d.message for d in shown] == [*(f"warning {c}" for c in "abcde"), "remark f", "remark e", "remark d"]
    assert left_out == 3
    assert len(chosen(found, NONE)[0]) == 5


@pytest.mark.parametrize(("option", "remarks"), [((), 1), (("--remarks", "all"), 2), (("--remarks", "none"), 0)])
def test_the_command(tmp_path: Path, option: tuple[str, ...], remarks: int) -> None:
    done = command_line("comm", EXAMPLES / "transformer_train.hlo", *option, cwd=tmp_path)
    assert done.code == 0
    assert len(re.findall(r": remark: ", done.err)) == remarks
    assert ("(and 1 more like it) [work]" in done.err) == (option == ())
    assert max(map(len, re.findall(r"(?m)^ +\d* \| .*$", done.err)), default=0) <= 120


def test_results_come_first() -> None:
    command = [sys.executable, "-m", "hloom", "comm", "examples/transformer_train.hlo"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    )
    assert done.stdout.index("remark:") > done.stdout.index("bytes sent per device")
    readme = (ROOT / "README.md").read_text()
    assert done.stdout[done.stdout.index("examples/transformer_train.hlo:") :] in readme



def test_messages_break_between_words_on_a_terminal() -> None:
    line = "m.hlo:761:3: remark: dot dot.62 (transformer.py:114) is computed alike by groups of 4 devices: 65,536"
    text = f"{line}\n  761 | x = f32[]\n      | ^^^^^\n  help: one\n{'y' * 90}"
    for width in (40, 80):
        lines = wrapped(text, width).splitlines()
        assert all(len(found) <= width for found in lines[:-1])
        assert " ".join(found.strip() for found in lines[: lines.index("  761 | x = f32[]")]) == line
        assert lines[-4:] == text.splitlines()[1:]
    assert wrapped(text, 120) == text


def test_sums_in_a_narrower_type_are_bounded_and_checked(tmp_path: Path) -> None:
    ended = command_line("run", EXAMPLES / "mlp_named.hlo", "--check", "--reduce-in", "bf16", cwd=tmp_path)
    assert ended.code == 0, ended.out
    said = "is summed in bf16: an error of at most 0.016 of the sum of magnitudes; 64 bytes become 32 bytes"
    assert said in " ".join(ended.err.split())
    printed = command_line("partition", EXAMPLES / "mlp_named.hlo", "--reduce-in", "bf16", cwd=tmp_path).out
    assert printed.count("bf16[] add") == 1
    assert "bf16" not in command_line("partition", EXAMPLES / "mlp_named.hlo", cwd=tmp_path).out
    assert command_line("partition", EXAMPLES / "mlp_named.hlo", "--reduce-in", "s32", cwd=tmp_path).code == 2


def test_exchanges_in_eight_bits_are_bounded_and_checked(tmp_path: Path) -> None:
    options = "--check", "--reduce-in", "s8", "--gather-in", "f8e4m3fn", "--remarks", "all"
    ended = command_line("run", EXAMPLES / "transformer_scan_train.hlo", *options, cwd=tmp_path)
    assert ended.code == 0, ended.out
    assert "26 all-to-all (46 runs); 45700 bytes sent" in ended.out  # 137,348 in f32
    local = tmp_path / "local.hlo"
    local.write_text(command_line("partition", EXAMPLES / "transformer_scan_train.hlo", cwd=tmp_path).out)
    assert "26 all-to-all (46 runs)" in command_line("run", local, "--reduce-in", "s8", cwd=tmp_path).out
    said = " ".join(ended.err.split())
    assert "is gathered in f8e4m3fn: an error of at most 0.036 of the largest magnitude in each block of 256" in said
    assert "is summed in f32, sent in s8: an error of at most 0.0039 of the sum of the devices' largest" in said

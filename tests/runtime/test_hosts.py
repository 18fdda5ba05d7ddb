"""Hosts that do not answer, by an agent that is a script. No job is started here."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hloom.runtime.ranks.hosts import HostFile

AGENT = """#!/bin/sh
echo "$1" >> asked
case $1 in gone) exit 255 ;; hangs) sleep 60 ;; esac
"""


@pytest.mark.parametrize(
    ("lines", "left", "dead", "text"),
    [
        ("a slots=2\nb slots=2 # near\n\n# c\n", 8, [], ""),
        ("a slots=2\ngone slots=2\n", 4, ["gone"], "a slots=2\n"),
        ("a slots=2\nb slots=2\nhangs slots=2\ngone slots=2\n", 4, ["hangs", "gone"], "a slots=2\nb slots=2\n"),
        ("gone\nhangs\n", 8, [], ""),  # the agent is wrong, rather than all hosts
        ("localhost slots=4\n", 8, [], ""),
    ],
)
def test_dead_hosts_are_asked_once(
    lines: str, left: int, dead: list[str], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hosts").write_text(lines)
    (tmp_path / "agent").write_text(AGENT)
    (tmp_path / "agent").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PRTE_MCA_prte_default_hostfile", "hosts")
    monkeypatch.setenv("PRTE_MCA_plm_ssh_agent", str(tmp_path / "agent"))
    file, start = HostFile(deadline=1.5), time.monotonic()
    assert (file.leave_out_dead(8), file.dead, file.text) == (left, dead, text)
    assert time.monotonic() - start < 20
    if dead:
        assert file.leave_out_dead(left) == left
        asked = (tmp_path / "asked").read_text().split()
        assert [asked.count(host) for host in dead] == [1] * len(dead)


def test_without_a_host_file_or_an_agent_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PRTE_MCA_prte_default_hostfile", raising=False)
    assert (HostFile().leave_out_dead(8), HostFile().text) == (8, "")
    (tmp_path / "hosts").write_text("a slots=2\nb slots=2\n")
    monkeypatch.setenv("PRTE_MCA_prte_default_hostfile", str(tmp_path / "hosts"))
    monkeypatch.setenv("PRTE_MCA_plm_ssh_agent", str(tmp_path / "missing"))
    assert HostFile().leave_out_dead(8) == 8

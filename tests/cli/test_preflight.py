"""`hloom preflight`: names ranks that do not answer, cut links and slow ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from hloom.runtime.ranks.preflight import PreflightVerdict, RankReport, verdict_of
from support.command_line import NAMED, have_mpi, hloom, process


def report(rank: int, *heard: int, product: float = 1.0, copy: float = 1.0) -> RankReport:
    return RankReport(rank, "alpha", frozenset(heard), 0.1, product, copy)


@pytest.mark.parametrize(
    ("reports", "wanted"),
    [
        ([report(0, 1, 2), report(1, 0, 2), report(2, 0, 1)], PreflightVerdict((), (), ())),
        ([report(0, 2), report(2, 0)], PreflightVerdict((1,), (), ())),
        # Rank 0 has the report of 1 alone, and knows from it that 2 lives.
        ([report(0, 1), report(1, 0, 2)], PreflightVerdict((), ((0, 2),), ())),
        ([report(0, 1, 2), report(1, 0), report(2, 0)], PreflightVerdict((), ((1, 2),), ())),
        ([report(0, 1, 2), report(1, 0, 2, copy=3.0), report(2, 0, 1)], PreflightVerdict((), (), ((1, 3.0),))),
        ([report(0, 1, 3), report(1, 0, 3), report(3, 0)], PreflightVerdict((2,), ((1, 3),), ())),
        ([report(0)], PreflightVerdict((1, 2), (), ())),
    ],
)
def test_verdicts(reports: list[RankReport], wanted: PreflightVerdict) -> None:
    ranks = max(3, max(r.rank for r in reports) + 1)
    assert verdict_of(reports, ranks) == wanted
    assert wanted.passed == (wanted == PreflightVerdict((), (), ()))


@pytest.mark.skipif(not have_mpi(), reason="there is no mpiexec")
@pytest.mark.parametrize(
    ("fault", "code", "message"),
    [
        (("--fault", "0,0,stop"), 75, "hloom: error: rank 0 does not answer within 3 s: its process is stopped"),
        pytest.param(("--fault", "1,0,kill"), 75, "rank 1 does not answer within 3 s: its process is gone",
                     marks=pytest.mark.slow),
        pytest.param((), 0, "3 ranks on 1 hosts are well: 3 pairs", marks=pytest.mark.slow),
    ],
)
def test_ranks(fault: tuple[str, ...], code: int, message: str, tmp_path: Path) -> None:
    done = process("preflight", NAMED, "--ranks", "3", "--deadline", "3", *fault, cwd=tmp_path)
    assert (done.code, message in done.err + done.out) == (code, True), done.err


def test_preflight_needs_ranks(tmp_path: Path) -> None:
    done = hloom("preflight", NAMED, cwd=tmp_path)
    assert (done.code, "give --ranks" in done.err) == (2, True)


@pytest.mark.skipif(not have_mpi(), reason="there is no mpiexec")
def test_a_host_that_does_not_answer_is_named(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("alpha slots=2\nbeta slots=2\n")
    (tmp_path / "agent").write_text('#!/bin/sh\n[ "$1" = alpha ] || sleep 60\n')
    (tmp_path / "agent").chmod(0o755)
    variables = {"PRTE_MCA_prte_default_hostfile": "hosts", "PRTE_MCA_plm_ssh_agent": str(tmp_path / "agent")}
    done = process("preflight", NAMED, "--ranks", "4", "--deadline", "1", cwd=tmp_path, **variables)
    assert (done.code, "hloom: error: host beta does not answer within 2 s" in done.err) == (75, True), done.err

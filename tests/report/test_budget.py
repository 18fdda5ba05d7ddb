"""`assert_collectives`: budgets that are kept, each way to break one, and what the failure says."""

from __future__ import annotations

import hloom
import pytest
from comm_programs.cases import programs
from support.command_line import EXAMPLES, NAMED


def local(name: str) -> hloom.Module:
    return hloom.partition(hloom.parse(programs()[name]))


def test_kept() -> None:
    module = hloom.partition(hloom.load(NAMED))
    hloom.assert_collectives(module, all_reduce=2, all_gather=0, total=2, bytes_at_most=100)
    hloom.assert_collectives(module, all_reduce=range(1, 3), collective_permute=range(2))
    hloom.assert_collectives(module)


def test_broken_counts_and_bytes_are_told_with_the_table() -> None:
    module = hloom.partition(hloom.load(NAMED))
    with pytest.raises(AssertionError) as error:
        hloom.assert_collectives(module, all_reduce=1, all_gather=range(1, 4), total=range(1), bytes_at_most=99)
    first, _, rest = str(error.value).partition("\n\n")
    assert first == (
        "mlp: 2 all-reduce instructions, 1 allowed; 0 all-gather instructions, 1 to 3 allowed; "
        "2 collective instructions, 0 to 0 allowed; "
        "100 bytes sent per device, 99 allowed"
    )
    table, _, last = rest.partition("\n\n")
    assert [line.split()[:2] for line in table.splitlines()] == [
        ["kind", "bytes"], ["all-reduce", "96"], ["all-reduce", "4"]
    ]  # fmt: skip
    assert last == "2 all-reduce; 100 bytes sent per device"


def test_loops() -> None:
    """An instruction in a loop of five trips is one collective and five times its bytes."""
    module = local("while_sharded_state")
    sent = sum(c.sent_bytes for c in hloom.collectives(module))
    hloom.assert_collectives(module, total=1, bytes_at_most=sent)
    (one,) = hloom.collectives(module)
    with pytest.raises(AssertionError) as error:
        hloom.assert_collectives(module, total=5)
    assert str(error.value).startswith(f"{module.name}: 1 collective instruction (5 runs), 5 allowed\n")
    assert str(error.value).endswith(f"\n1 {one.kind} (5 runs); {sent:,} bytes sent per device")
    with pytest.raises(AssertionError, match=f"{sent:,} bytes sent per device, {sent - 1:,} allowed"):
        hloom.assert_collectives(module, bytes_at_most=sent - 1)
    text = programs()["while_sharded_state"].replace("five = s32[] constant(5)", "five = s32[] add(i, i)")
    module = hloom.partition(hloom.parse(text))
    hloom.assert_collectives(module, total=1)
    with pytest.raises(AssertionError, match="a loop runs an unknown number of times"):
        hloom.assert_collectives(module, bytes_at_most=10**9)


def test_work() -> None:
    module = hloom.partition(hloom.load(NAMED))
    hloom.assert_collectives(module, work_at_most=640)
    with pytest.raises(AssertionError) as error:
        hloom.assert_collectives(module, work_at_most=639)
    first, _, rest = str(error.value).partition("\n\n")
    assert first == "mlp: 640 multiply-adds per device, 639 allowed"
    assert rest.splitlines()[-4].split() == ["dot", "xw", "512", "1", "-"]
    assert rest.endswith("\n\n640 multiply-adds per device")


def test_repeated_work_is_named_and_trips_count() -> None:
    module = hloom.partition(hloom.load(EXAMPLES / "mlp_train.hlo"))
    found = hloom.contractions(module)
    work, repeated = sum(c.work for c in found), sum(c.repeated_work for c in found)
    assert 0 < repeated < work
    message = f": {work:,} multiply-adds per device, {repeated:,} of them repeated, 1 allowed"
    with pytest.raises(AssertionError, match=message):
        hloom.assert_collectives(module, work_at_most=1)
    scan = hloom.partition(hloom.load(EXAMPLES / "transformer_scan_train.hlo"))
    straight = hloom.partition(hloom.load(EXAMPLES / "transformer_train.hlo"))
    totals = [sum(c.work for c in hloom.contractions(m)) for m in (scan, straight)]
    assert totals[0] == totals[1]


def test_mistakes_in_the_call() -> None:
    with pytest.raises(TypeError, match=r"there is no collective 'allgather': .*all_gather, "):
        hloom.assert_collectives(local("dot_rows"), allgather=0)
    with pytest.raises(hloom.CompileError, match="is not partitioned") as error:
        hloom.assert_collectives(hloom.parse(programs()["dot_rows"]), all_gather=0)
    assert error.value.diagnostics[0].help == "partition it first: hloom.partition(module)"


def test_programs_that_are_not_partitioned_have_no_times_and_collectives() -> None:
    whole = hloom.parse(programs()["dot_rows"])
    with pytest.raises(hloom.CompileError, match="is not partitioned yet"):
        hloom.collectives(whole)
    with pytest.raises(hloom.CompileError, match="is not partitioned yet"):
        hloom.timeline(whole, "h100")

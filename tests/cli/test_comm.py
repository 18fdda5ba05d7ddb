"""`hloom comm`: the table of collectives, its totals, JSON; and `--werror` of all commands that partition."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.command_line import EXAMPLES, NAMED, hloom

# A factorisation needs its matrix whole; uneven rows waste most of a tile.
FALLS_BACK = """HloModule falls
ENTRY main {
  x = f32[8,8] parameter(0), sharding={mesh['a'=4], [{'a'}, {}]}
  ROOT y = f32[8,8] cholesky(x), lower=true, sharding={mesh['a'=4], [{'a'}, {}]},
    metadata={op_name="solve" source_file="m/model.py" source_line=7}
}
"""
PADDED = """HloModule padded
ENTRY main {
  x = f32[9,1000000] parameter(0), sharding={mesh['a'=8], [{'a'}, {}]}
  ROOT y = f32[9,1000000] exponential(x), sharding={mesh['a'=8], [{'a'}, {}]}
}
"""
LOOP = """HloModule loop
condition {
  s = (s32[], f32[4,8], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  limit = s32[] constant(5)
  ROOT more = pred[] compare(i, limit), direction=LT
}
body {
  s = (s32[], f32[4,8], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4,8] get-tuple-element(s), index=1
  w = f32[8,8] get-tuple-element(s), index=2, sharding={mesh['a'=4], [{'a'}, {}]}
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[4,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (s32[], f32[4,8], f32[8,8]) tuple(next, y, w)
}
ENTRY main {
  x = f32[4,8] parameter(0), sharding={mesh['a'=4], [{}, {'a'}]}
  w = f32[8,8] parameter(1), sharding={mesh['a'=4], [{'a'}, {}]}
  zero = s32[] constant(0)
  start = (s32[], f32[4,8], f32[8,8]) tuple(zero, x, w)
  end = (s32[], f32[4,8], f32[8,8]) while(start), condition=condition, body=body
  ROOT out = f32[4,8] get-tuple-element(end), index=1, sharding={replicated}
}
"""
# What XLA prints of a compiled program: scheduled, fused, trips of loops in the backend's words.
COMPILED = """HloModule compiled, is_scheduled=true, num_partitions=4
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
body {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8]{0} get-tuple-element(s), index=1
  r = f32[8]{0} all-reduce(x), channel_id=1, replica_groups=[2,2]<=[4], use_global_device_ids=true, to_apply=sum
  ROOT t = (s32[], f32[8]) tuple(i, r)
}
condition {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  ROOT c = pred[] compare(i, i), direction=LT
}
ENTRY main {
  x = f32[8]{0} parameter(0)
  start = (f32[8], f32[32]) all-gather-start(x), channel_id=2, replica_groups=[1,4]<=[4], dimensions={0},
    use_global_device_ids=true
  y = f32[32]{0} all-gather-done(start)
  zero = s32[] constant(0)
  s = (s32[], f32[8]) tuple(zero, x)
  w = (s32[], f32[8]) while(s), condition=condition, body=body, backend_config={"known_trip_count":{"n":"3"}}
  z = f32[8]{0} get-tuple-element(w), index=1
  ROOT t = (f32[32], f32[8]) tuple(y, z)
}
"""


def test_table(tmp_path: Path) -> None:
    done = hloom("comm", NAMED, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].split() == ["kind", "bytes", "sent", "runs", "groups", "cause", "source"]
    assert lines[1].split() == ["all-reduce", "96", "1", "2", "of", "4", "(y)", "result", "of", "dot", "y"]
    assert lines[2].split()[:7] == ["all-reduce", "4", "1", "4", "of", "2", "(x)"]
    assert lines[3:5] == ["", "mlp: 8 devices; 2 all-reduce; 100 bytes sent per device"]
    assert lines[-1].startswith("reshardings, each once; minimized: time on the default machine, 0.00102 us; ")
    assert [line.split() for line in lines[5:-2]] == [
        [], ["contraction", "multiply-adds", "runs", "repeated", "source"], ["dot", "xw", "512", "1", "-"],
        ["dot", "y", "128", "1", "-"], [], ["mlp:", "640", "multiply-adds", "per", "device"],
    ]  # fmt: skip


def test_partitioned_program_and_other_meshes(tmp_path: Path) -> None:
    local = hloom("partition", NAMED, cwd=tmp_path).out
    again = hloom("comm", "-", cwd=tmp_path, text=local).out
    assert hloom("comm", NAMED, cwd=tmp_path).out.partition("\n\nreshardings")[0] == again.rstrip("\n")
    other = hloom("comm", NAMED, "--mesh", "x=3,y=5", cwd=tmp_path)
    assert "3 of 5 (y)" in other.out
    assert "\nmlp: 15 devices; 2 all-reduce; 82 bytes sent per device\n" in other.out


def test_largest_first_with_totals_and_lines_of_the_source(tmp_path: Path) -> None:
    done = hloom("comm", EXAMPLES / "transformer_scan_train.hlo", cwd=tmp_path)
    assert done.code == 0, done.err
    table, totals, _ = done.out.split("\n\n")[:3]
    rows = [re.sub(r" \(\+\d+\)", "", line).split() for line in table.splitlines()[1:]]  # without (+N), the equal ones
    sent = [int(row[1].replace(",", "")) for row in rows]
    assert sent == sorted(sent, reverse=True)
    assert any(row[2] == "2" and any("transformer.py:" in word for word in row) for row in rows)  # once per layer
    assert sum(int(line.split()[2].replace(",", "")) for line in totals.splitlines()) == sum(sent)


def test_json(tmp_path: Path) -> None:
    done = hloom("comm", "--json", "-", cwd=tmp_path, text=LOOP)
    found = json.loads(done.out)
    assert (found["program"], found["devices"], found["exact"]) == ("loop", 4, True)
    assert found["sent_bytes"] == sum(c["sent_bytes"] for c in found["collectives"])
    assert found["sent_bytes"] == sum(k["sent_bytes"] for k in found["kinds"].values())
    for kind, totals in found["kinds"].items():
        own = [c for c in found["collectives"] if c["kind"] == kind]
        assert (totals["instructions"], totals["runs"]) == (len(own), sum(c["runs"] for c in own))
    assert sum(k["runs"] for k in found["kinds"].values()) > len(found["collectives"])
    moved = found["reshardings"]
    assert (moved["machine"], moved["count"] > 0) == ("the default machine", True)
    assert 0 < moved["bound_seconds"] <= moved["seconds"]
    loops = [c for c in found["collectives"] if c["runs"] == 5]
    assert loops
    assert all(c["sent_bytes"] == 5 * c["wire_bytes"] and c["cause"] and c["groups"] == "1 of 4 (a)" for c in loops)


def test_links_decide_between_bytes_and_collectives(tmp_path: Path) -> None:
    """A row of four numbers: one collective with real latencies, fewer bytes in two without."""
    text = """HloModule m, num_partitions=8
ENTRY e {
  x = f32[64] parameter(0), sharding={devices=[8]<=[8]}
  ROOT y = f32[64] copy(x), sharding={devices=[4,2]<=[2,4]T(1,0) last_tile_dim_replicate}
}
"""
    for links, count in (((), 2), (("--links", "1us/100GB"), 1)):
        found = json.loads(hloom("comm", "--json", "-", *links, cwd=tmp_path, text=text).out)
        assert len(found["collectives"]) == count


def test_work_of_equal_layers_is_one_line(tmp_path: Path) -> None:
    """Each layer of a deep program is less than a per cent, all together are most of it."""
    step = EXAMPLES / "transformer_train.hlo"
    folded, every = (hloom("comm", step, "--remarks", "none", *more, cwd=tmp_path).out for more in ((), ("--all",)))
    row = r"^(?:dot \S+(?: \(\+(\d+)\))?|(\d+) smaller) +([\d.]+) K "
    tables = [re.findall(row, out, re.MULTILINE) for out in (folded, every)]
    assert len(tables[0]) < len(tables[1])
    assert {more for more, _, _ in tables[1]} == {""}
    counts = [sum(int(more or 0) + int(smaller or 1) for more, smaller, _ in table) for table in tables]
    sums = [sum(float(n) for *_, n in table) for table in tables]
    assert counts[0] == counts[1]
    assert sums[0] == pytest.approx(sums[1], rel=0.01)


def test_work_and_what_devices_repeat(tmp_path: Path) -> None:
    """Every device sums up the whole product of its loop; five trips."""
    found = json.loads(hloom("comm", "--json", "-", cwd=tmp_path, text=LOOP).out)
    (dot,) = found["contractions"]
    assert (dot["opcode"], dot["runs"], dot["work"]) == ("dot", 5, 5 * dot["multiply_adds"])
    assert (found["work"], found["repeated_work"]) == (dot["work"], dot["repeated_work"])
    assert dot["work"] * 4 == 5 * 4 * 8 * 8 + 4 * dot["repeated_work"]
    train = EXAMPLES / "mlp_train.hlo"
    shown = hloom("comm", train, cwd=tmp_path).out.partition("\n\nreshardings")[0].splitlines()
    assert any(line.split()[:7] == ["dot", "dot_general.9", "98.3", "K", "1", "88", "%"] for line in shown)
    assert shown[-1] == "jit_train_step: 118 K multiply-adds per device, 73 % of them repeated"
    local = hloom("partition", train, cwd=tmp_path).out
    again = hloom("comm", "-", cwd=tmp_path, text=local).out.splitlines()
    assert again[-1] == shown[-1]
    heads = [line for line in hloom("shard", train, cwd=tmp_path).out.splitlines() if " 98.3 K " in line]
    assert heads
    assert all(" 88 %" in line for line in heads)


def test_work_of_what_xla_compiled_counts_fusions_and_trips(tmp_path: Path) -> None:
    text = COMPILED.replace("ENTRY main {", """inner {
  a = f32[8,16]{1,0} parameter(0)
  b = f32[16,4]{1,0} parameter(1)
  ROOT d = f32[8,4]{1,0} dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
ENTRY main {
  a = f32[8,16]{1,0} parameter(1)
  b = f32[16,4]{1,0} parameter(2)
  f = f32[8,4]{1,0} fusion(a, b), kind=kOutput, calls=inner""")
    done = hloom("comm", "-", cwd=tmp_path, text=text)
    assert done.out.endswith("dot d                  512     1         -\n\ncompiled: 512 multiply-adds per device\n")


def test_loops_of_unknown_length_are_marked(tmp_path: Path) -> None:
    text = LOOP.replace("limit = s32[] constant(5)", "limit = s32[] multiply(i, i)")
    done = hloom("comm", "-", cwd=tmp_path, text=text)
    assert done.code == 0, done.err
    assert "  1 per trip  " in done.out
    summaries = [line for line in done.out.splitlines() if line.startswith("loop: ")]
    assert len(summaries) == 2
    assert all("at least " in line for line in summaries)
    assert json.loads(hloom("comm", "--json", "-", cwd=tmp_path, text=text).out)["exact"] is False


def test_compiled_by_xla(tmp_path: Path) -> None:
    done = hloom("comm", "-", cwd=tmp_path, text=COMPILED)
    assert done.code == 0, done.err
    rows = [line.split()[:6] for line in done.out.splitlines()[1:3]]
    # f32[32] gathered from four: 96 bytes; f32[8] summed over two, three times: 96.
    assert rows == [["all-gather", "96", "1", "1", "of", "4"], ["all-reduce", "96", "3", "2", "of", "2"]]
    assert done.out.endswith("compiled: 4 devices; 1 all-gather, 1 all-reduce (3 runs); 192 bytes sent per device\n")


def test_no_collectives(tmp_path: Path) -> None:
    text = FALLS_BACK.replace("cholesky(x), lower=true", "negate(x)")
    assert hloom("comm", "-", cwd=tmp_path, text=text).out == (
        "falls: 4 devices; no collectives; 0 bytes sent per device\n"
    )


@pytest.mark.parametrize("command", [["comm"], ["partition"], ["run"], ["opt", "--passes=propagate,spmd-partition"]])
def test_werror(command: list[str], tmp_path: Path) -> None:
    remark = hloom(*command, "-", cwd=tmp_path, text=FALLS_BACK)
    assert remark.code == 0, remark.err
    assert remark.err.startswith(
        "<stdin>:4:8: remark: cholesky y (model.py:7) needs dimension 0 of operand 0 (f32[8,8]) whole on every device: "
        "each receives 192 bytes, its own tile has 64 [replication]\n"
    )
    assert "  help: annotate the operand as replicated if this is meant\n" in remark.err
    for option in ("--werror", "--werror=all", "--werror=padding,replication"):
        failed = hloom(*command, option, "-", cwd=tmp_path, text=FALLS_BACK)
        assert (failed.code, failed.out) == (65, ""), option
        assert failed.err == remark.err.replace(": remark: ", ": error: ")
    other = hloom(*command, "--werror=gather,donation", "-", cwd=tmp_path, text=FALLS_BACK)
    assert (other.code, other.out, other.err) == (0, remark.out, remark.err)


def test_werror_of_padding(tmp_path: Path) -> None:
    """Nine rows in eight tiles of two: 7/16 of all rows are padding."""
    shown = hloom("comm", "-", cwd=tmp_path, text=PADDED)
    assert shown.code == 0
    assert shown.err.splitlines()[0] == (
        "<stdin>:3:3: remark: parameter x: 3500000 of the 8000000 bytes of a tile of f32[9,1000000] are padding "
        "(and 1 more like it): 9 in 8 tiles of 2 [padding]"
    )
    assert hloom("comm", "-", "--werror", cwd=tmp_path, text=PADDED).code == 65
    small = PADDED.replace("1000000", "100000")  # a third of a MiB per tile
    assert hloom("comm", "-", "--werror", cwd=tmp_path, text=small).code == 0


def test_unknown_category(tmp_path: Path) -> None:
    done = hloom("comm", "--werror=speed", "-", cwd=tmp_path, text=PADDED)
    assert done.code == 2
    known = "replication, gather, work, padding, donation, deadlock, constant, close, or all"
    assert f"'speed' is no category: {known}" in done.err

"""Collectives on slices: values in the simulator, checks, and what a device must not do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hloom.frontends import parse
from hloom.ir.diagnostics import CompileError
from hloom.runtime import evaluate
from hloom.runtime.simulator import run_devices

Array = np.ndarray[Any, Any]


def ragged(entries: int = 2, kind: str = "s32", groups: str = "{{0,1}}", outputs: int = 4) -> str:
    lists = "\n".join(f"  l{n} = {kind}[{entries}] parameter({n + 2})" for n in range(4))
    return f"""HloModule m, num_partitions=2
ENTRY e {{
  x = f32[3] parameter(0)
  o = f32[{outputs}] parameter(1)
{lists}
  ROOT r = f32[{outputs}] ragged-all-to-all(x, o, l0, l1, l2, l3), channel_id=1, replica_groups={groups}
}}"""


def floats(*values: float) -> Array:
    return np.array(values, np.float32)


def ints(*values: int, kind: type[Any] = np.int32) -> Array:
    return np.array(values, kind)


def test_ragged_all_to_all_as_documented_by_jax() -> None:
    """The example of jax.lax.ragged_all_to_all."""
    empty = floats(0, 0, 0, 0)
    out = run_devices(parse(ragged()), [
        [floats(1, 2, 2), empty, ints(0, 1), ints(1, 2), ints(0, 0), ints(1, 1)],
        [floats(3, 4, 0), empty, ints(0, 1), ints(1, 1), ints(1, 2), ints(2, 1)],
    ])  # fmt: skip
    np.testing.assert_array_equal(out[0][0], [1, 3, 0, 0])
    np.testing.assert_array_equal(out[1][0], [2, 2, 4, 0])
    np.testing.assert_array_equal(empty, 0)


def test_ragged_all_to_all_with_several_slices_per_device_in_the_order_of_the_group() -> None:
    """Groups of one device and of two; the lists have two entries per device."""
    def lists(*values: Any) -> list[Array]:
        return [ints(*v, kind=np.int64) for v in values]

    out = run_devices(parse(ragged(4, "s64", "{{1,0}}", 6)), [
        # Member 1: two slices to device 1, two to itself.
        [floats(1, 2, 3), floats(*[-1] * 6), *lists((0, 2, 0, 1), (1, 1, 1, 0), (0, 5, 3, 0), (1, 2, 1, 0))],
        # Member 0: nothing and row 2 to itself, rows 0 and 1..2 to device 0.
        [floats(7, 8, 9), floats(*[-2] * 6), *lists((0, 2, 0, 1), (0, 1, 1, 2), (0, 2, 0, 4), (0, 1, 1, 1))],
    ])  # fmt: skip
    np.testing.assert_array_equal(out[0][0], [7, -1, -1, 1, 8, 9])
    np.testing.assert_array_equal(out[1][0], [1, -2, 9, -2, -2, 3])


BAD = {
    "sizes": ([(0, 1), (1, 2), (0, 0), (1, 1)], "member 0 of the group sends 2 rows to member 1, which expects 1"),
    "input": ([(0, 2), (1, 1), (0, 0), (1, 1)], None),
    "start": ([(0, 3), (1, 1), (0, 0), (1, 1)], "sends 1 rows to member 1 from row 3 on, its input has 3"),
    "place": ([(0, 1), (1, 1), (0, 4), (1, 1)], "for row 4 on, the output has 4"),
    "negative": ([(0, -1), (1, 1), (0, 0), (1, 1)], "from row -1 on"),
}


@pytest.mark.parametrize("case", BAD)
def test_ragged_all_to_all_of_what_is_not_there(case: str) -> None:
    lists, message = BAD[case]
    both = [
        [floats(1, 2, 3), floats(0, 0, 0, 0), *[ints(*v) for v in values]]
        for values in (lists, [(0, 1), (1, 1), (1, 1), (1, 1)])
    ]
    if message is None:
        run_devices(parse(ragged()), both)
        return
    with pytest.raises(CompileError, match=message):
        run_devices(parse(ragged()), both)


def permute(line: str, header: str = "num_partitions=2") -> str:
    return f"""HloModule m, {header}
ENTRY e {{
  x = s32[4,2] parameter(0)
  o = s32[5,2] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  z = s32[] constant(0)
  a = (s32[], s32[]) tuple(i, z)
  b = (s32[], s32[]) tuple(j, z)
  ab = ((s32[], s32[]), (s32[], s32[])) tuple(a, b)
  xs = (s32[4,2], s32[4,2]) tuple(x, x)
  os = (s32[5,2], s32[5,2]) tuple(o, o)
  ROOT r = {line}
}}"""


def buffers(i: list[int], j: list[int]) -> list[list[Array]]:
    """Device d has x = 10 d + 0..7 and o = -1 - d."""
    x, o = np.arange(8, dtype=np.int32).reshape(4, 2), np.full((5, 2), -1, np.int32)
    return [[x + 10 * d, o - d, np.asarray(a, np.int32), np.asarray(b, np.int32)] for d, (a, b) in enumerate(zip(i, j))]


_ONE = "s32[5,2] collective-permute(x, o, a, b), channel_id=1, source_target_pairs={{0,1}}, slice_sizes={{2,2}}"


def test_permute_of_a_slice() -> None:
    """The source's own input index, the target's own output index; who is no target keeps its output."""
    out = run_devices(parse(permute(_ONE)), buffers([1, 0], [0, 3]))
    np.testing.assert_array_equal(out[0][0], np.full((5, 2), -1))
    np.testing.assert_array_equal(out[1][0], [[-2, -2], [-2, -2], [-2, -2], [2, 3], [4, 5]])


def test_permute_of_a_slice_is_what_slices_and_a_permute_give() -> None:
    text = permute("s32[5,2] dynamic-update-slice(o, p, j, z)").replace(
        "  ROOT",
        "  s = s32[2,2] dynamic-slice(x, i, z), dynamic_slice_sizes={2,2}\n"
        "  p = s32[2,2] collective-permute(s), channel_id=1, source_target_pairs={{0,1},{1,0}}\n  ROOT",
    )
    in_place = permute(_ONE.replace("{{0,1}}", "{{0,1},{1,0}}"))
    for i, j in (([0, 2], [1, 3]), ([-5, 99], [99, -5])):  # indices out of range are moved alike
        wanted = run_devices(parse(text), buffers(i, j))
        for mine, yours in zip(run_devices(parse(in_place), buffers(i, j)), wanted, strict=True):
            np.testing.assert_array_equal(mine[0], yours[0])


def test_permute_of_two_slices() -> None:
    """Slice k goes with the k-th pair of its source."""
    text = permute(
        "s32[5,2] collective-permute(x, o, ab, ab), channel_id=1, source_target_pairs={{0,1},{1,0},{0,0},{1,1}}, "
        "slice_sizes={{1,2},{2,1}}"
    )
    out = run_devices(parse(text), buffers([3, 1], [0, 2]))
    np.testing.assert_array_equal(out[0][0], [[0, -1], [2, -1], [-1, -1], [12, 13], [-1, -1]])
    np.testing.assert_array_equal(out[1][0], [[-2, -2], [6, 7], [14, -2], [16, -2], [-2, -2]])


def test_permute_of_slices_of_two_buffers() -> None:
    text = permute(
        "(s32[5,2], s32[5,2]) collective-permute(xs, os, ab, ab), channel_id=1, source_target_pairs={{1,0}}, "
        "slice_sizes={{1,2},{4,2}}"
    )
    first, second = run_devices(parse(text), buffers([3, 2], [1, 3]))[0]
    np.testing.assert_array_equal(first, [[-1, -1], [-1, -1], [-1, -1], [14, 15], [-1, -1]])
    np.testing.assert_array_equal(second[1:], np.arange(8).reshape(4, 2) + 10)
    np.testing.assert_array_equal(second[0], [-1, -1])


def test_start_and_done_of_a_permute_of_slices() -> None:
    """The value of the start has the input and the result only."""
    started = permute("s32[5,2] collective-permute-done(s)").replace(
        "  ROOT",
        f"  s = (s32[4,2], s32[5,2], u32[], u32[]) {_ONE[8:].replace('permute(', 'permute-start(')}\n  ROOT",
    )
    given = buffers([1, 0], [0, 3])
    for mine, yours in zip(
        run_devices(parse(started), given), run_devices(parse(permute(_ONE)), given), strict=True
    ):
        np.testing.assert_array_equal(mine[0], yours[0])


def test_a_program_for_two_devices_is_not_run_on_one() -> None:
    with pytest.raises(CompileError, match="a per-device program for 2 devices and cannot run on one"):
        evaluate(parse(permute(_ONE)), buffers([1], [3])[0])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{{2,2}}", "{{2,3}}", "a slice of \\[2, 3\\] does not fit"),
        ("{{2,2}}", "{{2}}", "a slice of \\[2\\] does not fit"),
        ("{{2,2}}", "{{2,2},{2,2}}", "for 2 slices"),
        ("(x, o, a, b)", "(x, o, a)", "takes 4 operands"),
        ("(x, o, a, b)", "(x, o, i, b)", "must be a tuple of 2 scalar integers"),
        ("(x, o, a, b)", "(xs, o, a, b)", "same number of buffers"),
        ("{{0,1}}", "{{0,1},{0,0}}", "device 0 is a source twice"),
        (", slice_sizes={{2,2}}", "", "collective-permute"),
    ],
)
def test_wrong_slices(old: str, new: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        parse(permute(_ONE.replace(old, new)))

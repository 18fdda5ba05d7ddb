"""Every collective in the simulator, from hand-written LOCAL programs, in every spelling of groups and every mode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hloom.frontends import parse
from hloom.ir.diagnostics import CompileError
from hloom.ir.tools.process_grid import GroupMode, ProcessGrid, group_mode
from hloom.runtime.simulator import run_devices

Array = np.ndarray[Any, Any]
REDUCERS = """
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
first_plus_twice { a = f32[] parameter(0)  b = f32[] parameter(1)  t = f32[] constant(2)  c = f32[] multiply(b, t)
  ROOT r = f32[] add(a, c) }
"""


def local(line: str, shape: str = "f32[4]", partitions: int = 4, replicas: int = 1) -> str:
    return (
        f"HloModule m, replica_count={replicas}, num_partitions={partitions}\n{REDUCERS}"
        f"ENTRY e {{\n  x = {shape} parameter(0)\n  {line}\n}}"
    )


def devices(text: str, *inputs: Any) -> list[Array]:
    """The one result of each device, the inputs being those of devices 0, 1, .."""
    return [out[0] for out in run_devices(parse(text), [[np.asarray(i)] for i in inputs])]


def rows(count: int = 4, width: int = 4) -> list[Array]:
    """Row d holds 10 d + 0, 1, 2, .."""
    return [np.arange(width, dtype=np.float32) + 10 * d for d in range(count)]


GROUPS = {
    "explicit": "{{0,2},{1,3}}",
    "iota": "[2,2]<=[2,2]T(1,0)",
    "mesh": "mesh['x'=2,'y'=2] {'x'}",
}


@pytest.mark.parametrize("groups", GROUPS.values(), ids=GROUPS)
def test_all_reduce(groups: str) -> None:
    out = devices(
        local(f"ROOT r = f32[4] all-reduce(x), channel_id=1, replica_groups={groups}, use_global_device_ids=true, "
              "to_apply=add"),
        *rows(),
    )  # fmt: skip
    x = rows()
    for device, other in enumerate([2, 3, 0, 1]):
        np.testing.assert_array_equal(out[device], x[device] + x[other])


def test_all_reduce_with_any_computation_combines_in_group_order() -> None:
    text = local("ROOT r = f32[4] all-reduce(x), channel_id=1, replica_groups={{2,0},{1,3}}, "
                 "use_global_device_ids=true, to_apply=first_plus_twice")  # fmt: skip
    out, x = devices(text, *rows()), rows()
    np.testing.assert_array_equal(out[0], x[2] + 2 * x[0])
    np.testing.assert_array_equal(out[2], x[2] + 2 * x[0])
    np.testing.assert_array_equal(out[3], x[1] + 2 * x[3])


def test_variadic_all_reduce_reduces_each_operand() -> None:
    text = local("y = f32[4] negate(x)\n ROOT r = (f32[4], f32[4]) all-reduce(x, y), channel_id=1, replica_groups={}, "
                 "use_global_device_ids=true, to_apply=add")  # fmt: skip
    out = run_devices(parse(text), [[x] for x in rows()])
    for first, second in out:
        np.testing.assert_array_equal(first, sum(rows()))
        np.testing.assert_array_equal(second, -sum(rows()))


@pytest.mark.parametrize("groups", GROUPS.values(), ids=GROUPS)
def test_all_gather(groups: str) -> None:
    text = local(f"y = f32[2,2] reshape(x)\n ROOT r = f32[2,4] all-gather(y), channel_id=1, replica_groups={groups}, "
                 "dimensions={1}, use_global_device_ids=true")  # fmt: skip
    out = devices(text, *rows())
    np.testing.assert_array_equal(out[0], [[0, 1, 20, 21], [2, 3, 22, 23]])
    np.testing.assert_array_equal(out[2], out[0])
    np.testing.assert_array_equal(out[3], [[10, 11, 30, 31], [12, 13, 32, 33]])


def test_all_gather_keeps_the_order_of_the_group() -> None:
    text = local("ROOT r = f32[16] all-gather(x), channel_id=1, replica_groups={{3,1,0,2}}, dimensions={0}, "
                 "use_global_device_ids=true")  # fmt: skip
    x = rows()
    for out in devices(text, *x):
        np.testing.assert_array_equal(out, np.concatenate([x[3], x[1], x[0], x[2]]))


@pytest.mark.parametrize("groups", GROUPS.values(), ids=GROUPS)
def test_reduce_scatter(groups: str) -> None:
    text = local(f"ROOT r = f32[2] reduce-scatter(x), channel_id=1, replica_groups={groups}, dimensions={{0}}, "
                 "use_global_device_ids=true, to_apply=add")  # fmt: skip
    out, x = devices(text, *rows()), rows()
    np.testing.assert_array_equal(out[0], (x[0] + x[2])[:2])
    np.testing.assert_array_equal(out[2], (x[0] + x[2])[2:])
    np.testing.assert_array_equal(out[1], (x[1] + x[3])[:2])
    np.testing.assert_array_equal(out[3], (x[1] + x[3])[2:])


def test_all_to_all_along_a_dimension() -> None:
    text = local("ROOT r = f32[4] all-to-all(x), channel_id=1, replica_groups={}, dimensions={0}")
    out = devices(text, *rows())
    for device in range(4):
        np.testing.assert_array_equal(out[device], [device, 10 + device, 20 + device, 30 + device])


def test_all_to_all_follows_the_order_of_the_group() -> None:
    line = "ROOT r = f32[2,2] all-to-all(y), channel_id=1, replica_groups={{1,0},{2,3}}, dimensions={1}"
    text = local(f"y = f32[2,2] reshape(x)\n{line}")
    out = devices(text, *rows())
    np.testing.assert_array_equal(out[1], [[10, 0], [12, 2]])  # first of its group: the left columns
    np.testing.assert_array_equal(out[0], [[11, 1], [13, 3]])


def test_all_to_all_of_tuples() -> None:
    text = local("y = f32[4] negate(x)\n "
                 "ROOT r = (f32[4], f32[4]) all-to-all(x, y), channel_id=1, replica_groups={{0,1},{3,2}}")  # fmt: skip
    out, x = run_devices(parse(text), [[x] for x in rows()]), rows()
    np.testing.assert_array_equal(out[0], [x[0], x[1]])
    np.testing.assert_array_equal(out[1], [-x[0], -x[1]])
    np.testing.assert_array_equal(out[2], [-x[3], -x[2]])


def test_collective_permute_gives_zeros_to_others() -> None:
    text = local("ROOT r = f32[4] collective-permute(x), channel_id=1, source_target_pairs={{0,1},{1,2},{3,3}}")
    out, x = devices(text, *rows()), rows()
    np.testing.assert_array_equal(out, [np.zeros(4), x[0], x[1], x[3]])


def test_collective_broadcast() -> None:
    text = local("ROOT r = f32[4] collective-broadcast(x), channel_id=1, replica_groups={{2,0}}")
    out, x = devices(text, *rows()), rows()
    np.testing.assert_array_equal(out, [x[2], np.zeros(4), x[2], np.zeros(4)])


@pytest.mark.parametrize(
    ("attributes", "groups"),
    [
        ("replica_groups={{0,1}}", [[0, 2], [1, 3]]),  # replicas, within each partition
        ("channel_id=1, replica_groups={{0},{1}}", [[0, 1], [2, 3]]),  # all partitions of the replicas listed
        ("channel_id=1, replica_groups={{0,3},{1,2}}, use_global_device_ids=true", [[0, 3], [1, 2]]),
    ],
)
def test_modes_of_a_grid_of_two_by_two(attributes: str, groups: list[list[int]]) -> None:
    text = local(f"ROOT r = f32[4] all-reduce(x), {attributes}, to_apply=add", partitions=2, replicas=2)
    out = devices(text, *rows())
    for group in groups:
        for device in group:
            np.testing.assert_array_equal(out[device], sum(rows()[d] for d in group))


def test_permute_without_channel_is_between_replicas_and_with_one_between_partitions() -> None:
    line = "ROOT r = f32[4] collective-permute(x), %ssource_target_pairs={{0,1},{1,0}}"
    x = rows()
    across_replicas = devices(local(line % "", partitions=2, replicas=2), *x)
    np.testing.assert_array_equal(across_replicas, [x[2], x[3], x[0], x[1]])
    across_partitions = devices(local(line % "channel_id=1, ", partitions=2, replicas=2), *x)
    np.testing.assert_array_equal(across_partitions, [x[1], x[0], x[3], x[2]])


def test_order_across_replicas_and_partitions() -> None:
    # The specification runs over the partitions, and for each over the replicas of the group.
    grid = ProcessGrid(replicas=2, partitions=2)
    assert grid.process_groups(GroupMode.CROSS_REPLICA_AND_PARTITION, ((1, 0),)) == ((2, 0, 3, 1),)
    assert group_mode(True, True, False) is GroupMode.CROSS_REPLICA_AND_PARTITION


def test_device_ids() -> None:
    text = local("p = u32[] partition-id()\n q = u32[] replica-id()\n ROOT r = (u32[], u32[]) tuple(p, q)",
                 partitions=3, replicas=2)  # fmt: skip
    out = run_devices(parse(text), [[x] for x in rows(6)])
    assert [(int(p), int(q)) for p, q in out] == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ROOT r = f32[4] all-reduce(x), channel_id=1, replica_groups={{0,4}}, use_global_device_ids=true,\n"
         "to_apply=add",
         "entry 4 is out of range: the numbers count devices, and there are 4"),
        ("ROOT r = f32[4] all-reduce(x), replica_groups={{0,1}}, to_apply=add",
         "entry 1 is out of range: the numbers count replicas.*\n.*\n.*\n.*without channel_id"),
        ("ROOT r = f32[4] all-reduce(x), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true,\n"
         "to_apply=add",
         "device 2 is in no replica group"),
        ("ROOT r = f32[4] collective-permute(x), channel_id=1, source_target_pairs={{0,7}}",
         "target 7 is out of range"),
        ("ROOT r = f32[12] all-gather(x), channel_id=1, replica_groups={}, dimensions={0}, use_global_device_ids=true",
         r"a group of 4 gives dimensions \[16\], the instruction says f32\[12\]"),
        ("s = f32[3] slice(x), slice={[0:3]}\n"
         "ROOT r = f32[3] all-to-all(s), channel_id=1, replica_groups={}, dimensions={0}",
         "dimension 0 of size 3 cannot be cut for a group of 4"),
    ],
)  # fmt: skip
def test_errors_of_groups_have_a_place(line: str, message: str) -> None:
    with pytest.raises(CompileError, match=message) as caught:
        devices(local(line), *rows())
    assert caught.value.diagnostics[0].line >= 7

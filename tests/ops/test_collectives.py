"""Collectives: result shapes from groups or from the declared shape, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
from hloom.ir.graph.op import ShapeError
from hloom.ir.ops.collective_groups import known_group_size
from hloom.ir.sharding.mesh import AxisRef, Mesh
from hloom.ir.sharding.replica_groups import ExplicitGroups, IotaGroups, MeshGroups
from hloom.ir.types.shape import tuple_shape
from ops.build import reducer, rule, shape, shapes, use

LISTS = ExplicitGroups(((0, 1, 2, 3), (4, 5, 6, 7)))
IOTA = IotaGroups(4, 2, (8,), (0,))
MESH = MeshGroups(Mesh((("x", 2), ("y", 4))), (AxisRef("y"),))
ADD = reducer("add")


def test_group_sizes() -> None:
    assert [known_group_size(g) for g in (ExplicitGroups(), LISTS, IOTA, MESH)] == [None, 4, 2, 4]
    part = MeshGroups(Mesh((("x", 2), ("y", 4))), (AxisRef("x"), AxisRef("y", 2, 2)))
    assert known_group_size(part) == 4


def test_shapes() -> None:
    assert use("all-reduce", "f32[4]", replica_groups=LISTS, to_apply=ADD).shape == shape("f32[4]")
    assert use("all-gather", "f32[4,3]", replica_groups=MESH, dimensions=(1,)).shape == shape("f32[4,12]")
    assert use("all-gather", "f32[4,3]", "f32[4,24]", dimensions=(1,)).shape == shape("f32[4,24]")
    halved = use("reduce-scatter", "f32[4,8]", replica_groups=IOTA, dimensions=(1,), to_apply=ADD)
    assert halved.shape == shape("f32[4,4]")
    assert use("all-to-all", "f32[4,8]", replica_groups=LISTS, dimensions=(1,)).shape == shape("f32[4,8]")
    assert use("collective-permute", "f32[4]", source_target_pairs=((0, 1), (1, 0))).shape == shape("f32[4]")
    assert use("collective-broadcast", "f32[4]", replica_groups=LISTS).shape == shape("f32[4]")


def test_several_operands_give_a_tuple() -> None:
    pair = tuple_shape(shapes("f32[8] f32[12]"))
    assert use("all-gather", "f32[4] f32[6]", replica_groups=IOTA, dimensions=(0,)).shape == pair
    assert use("all-reduce", "f32[8] f32[12]", to_apply=ADD).shape == pair
    same = tuple_shape(shapes("f32[3] f32[3]"))
    exchanged = use("all-to-all", "f32[3] f32[3]", replica_groups=IOTA)
    assert exchanged.shape == same
    # What goes to different devices is divided alike.
    assert rule("all-to-all", exchanged) == "([i], [i]) -> ([i], [i]) {i=3}"


@pytest.mark.parametrize(
    ("opcode", "operands", "declared", "attributes", "message"),
    [
        ("all-reduce", "f32[4]", None, {"to_apply": reducer("add", "s32")}, "parameter 0 is s32[], but must be f32[]"),
        ("all-reduce", "f32[4]", None, {"to_apply": ADD, "replica_groups": ExplicitGroups(((0, 1), (1, 2)))},
         "all-reduce: device 1 is in replica_groups twice"),
        ("all-reduce", "f32[4]", None, {"to_apply": ADD, "replica_groups": IotaGroups(2, 3, (8,), (0,))},
         "all-reduce: replica_groups have 6 entries for 8 devices"),
        ("all-gather", "f32[4]", None, {"dimensions": (0,)},
         "all-gather over all devices needs a declared result shape"),
        ("all-gather", "f32[4]", "f32[10]", {"dimensions": (0,)},
         "dimension 0 changes from 4 to 10, which is not a multiple"),
        ("all-gather", "f32[4]", "f32[12]", {"dimensions": (0,), "replica_groups": LISTS},
         "dimension 0 changes from 4 to 12, a factor of 3, but the groups have 4 devices"),
        ("all-gather", "f32[4]", "f32[16]", {"dimensions": (1,)}, "dimension 1 is out of range for rank 1"),
        ("all-gather", "f32[4]", "f32[16]", {"dimensions": ()}, "all-gather needs one dimension, it has 0"),
        ("all-gather", "f32[4]", None, {"dimensions": (0,), "replica_groups": ExplicitGroups(((0, 1), (2,)))},
         "replica groups must have equal sizes, they have 1 and 2"),
        ("reduce-scatter", "f32[6]", None, {"dimensions": (0,), "to_apply": ADD, "replica_groups": LISTS},
         "dimension 0 of operand 0 is 6, not a multiple of the group size 4"),
        ("all-to-all", "f32[6]", None, {"dimensions": (0,), "replica_groups": LISTS},
         "dimension 0 is 6, not a multiple of the group size 4"),
        ("all-to-all", "f32[6] f32[6]", None, {"replica_groups": LISTS}, "2 operands for groups of 4 devices"),
        ("all-to-all", "f32[6] f32[5]", None, {}, "operand 1 is f32[5], operand 0 is f32[6]"),
        ("collective-permute", "f32[6]", None, {"source_target_pairs": ((0, 1), (2, 1))}, "device 1 is a target twice"),
        ("collective-permute", "f32[6]", None, {"source_target_pairs": ((0, 1), (0, 2))}, "device 0 is a source twice"),
    ],
)  # fmt: skip
def test_refuses(opcode: str, operands: str, declared: str | None, attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeError) as error:
        use(opcode, operands, declared, **attributes)
    assert message in error.value.message

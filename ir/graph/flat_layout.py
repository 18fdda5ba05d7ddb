"""The layout of a per-device program that keeps several arrays in one: which of its arrays holds which of the arrays
that users give and get.

    hloom.flat_layout={(1; w=0[0] f32[4,8] f32[8,8] {devices=[2,1]<=[2]} "params['w']"; u=0[32] ..)->(0; ..)}

The places of all parameters come first, then those of all results, in the order of the program before. `1` is an array
by itself, the program's parameter or result of that number. `w=0[32] ..` is a member of array 0 from its element 32 on,
in row-major order, on each device: then follow the shape of its tile, its global shape, its sharding (`{}`: none), and
the `op_name` of the parameter if it has one. The bytes are those of each device, so that members may be sharded in any
way, and padding stays inside of members.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..sharding.sharding import Sharding
from ..types.shape import Shape


@dataclass(frozen=True, slots=True)
class Member:
    """An array that is kept inside of another one from element `start` on. `shape` is that of its tile on a device,
    `whole` its global shape.
    """

    name: str
    start: int
    shape: Shape
    whole: Shape
    sharding: Sharding | None = None
    op_name: str = ""


@dataclass(frozen=True, slots=True)
class FlatMember:
    """The place of a parameter or result of the original program: the array of this number, or a member of that."""

    number: int
    member: Member | None = None


@dataclass(frozen=True, slots=True)
class FlatLayout:
    """Maps the parameters and results of the original program, in order, to the arrays that joining has left."""

    parameters: tuple[FlatMember, ...]
    results: tuple[FlatMember, ...]

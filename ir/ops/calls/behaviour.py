"""The attributes of custom-calls, and the base class of the behaviours of known targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from ...factors.sharding_rule import ShardingRule, replicated_rule
from ...graph.attributes import Attributes, DimLabels, Window
from ...graph.op import Algebra, Compile, Kernel, NotEvaluable, OpCall
from ...graph.value_range import Demand, Fact, Visitor
from ...strings import BracedText
from ...types.literal import Literal
from ...types.shape import Shape
from ..dot import Precisions
from ..structure import leaves_of

if TYPE_CHECKING:
    from ...graph.computation import Computation


class PaddingType(Enum):
    """The padding of a convolution behind the call."""

    INVALID = "PADDING_INVALID"
    VALID = "PADDING_VALID"
    SAME = "PADDING_SAME"


class CallSchedule(Enum):
    """The position of the call in the schedule."""

    NONE = "SCHEDULE_NONE"
    LATEST = "SCHEDULE_LATEST"
    EARLIEST = "SCHEDULE_EARLIEST"


class ApiVersion(Enum):
    """The calling convention of XLA for the function behind the call."""

    UNSPECIFIED = "API_VERSION_UNSPECIFIED"
    ORIGINAL = "API_VERSION_ORIGINAL"
    STATUS_RETURNING = "API_VERSION_STATUS_RETURNING"
    STATUS_RETURNING_UNIFIED = "API_VERSION_STATUS_RETURNING_UNIFIED"
    TYPED_FFI = "API_VERSION_TYPED_FFI"


@dataclass(frozen=True, slots=True)
class CustomCallAttributes(Attributes):
    custom_call_target: str
    window: Window | None = None
    dim_labels: DimLabels | None = None
    feature_group_count: int = 1
    batch_group_count: int = 1
    operand_precision: Precisions = ()
    padding_type: PaddingType = PaddingType.INVALID
    operand_layout_constraints: tuple[Shape, ...] | None = None
    custom_call_has_side_effect: bool = False
    literal: Literal | None = None
    output_to_operand_aliasing: BracedText | None = None
    schedule: CallSchedule = CallSchedule.NONE
    to_apply: Computation | None = None
    called_computations: tuple[Computation, ...] = ()
    api_version: ApiVersion = ApiVersion.ORIGINAL


Call = OpCall[CustomCallAttributes]


class Behaviour:
    """The properties of a target, by default of an unknown one. The methods are those of `Op`.

    `has_rule` means that the sharding rule allows some dimension to be sharded. `reads_format` means that the target is
    specific to the element types of its operands. `acts_on_tiles` means that every device calls the target with its
    tiles, wherever the program places the call.
    """

    has_rule = False
    reads_format = True
    is_identity = False
    only_annotates = False
    is_callback = False
    acts_on_tiles = False
    is_manual_boundary = False
    leaves_region = False
    algebra: Algebra | None = Algebra.OPAQUE

    def check(self, target: str, operands: Sequence[Shape], result: Shape) -> None:
        """Raises ShapeError if operands or result do not fit the target."""

    def sharding_rule(self, call: Call) -> ShardingRule:
        return replicated_rule(leaves_of(call.operands), leaves_of([call.shape]))

    def facts(self, call: Call, operands: Sequence[Fact], visitor: Visitor) -> list[Fact]:
        if self.is_identity or self.is_manual_boundary:
            return list(operands)
        return [Fact() for _ in range(call.shape.num_leaves)]

    def demands(
        self, call: Call, operands: Sequence[Fact], results: Sequence[Demand], visitor: Visitor
    ) -> list[Demand]:
        return list(results) if self.is_identity or self.is_manual_boundary else [None] * len(operands)

    def kernel(self, call: Call, compile: Compile) -> Kernel:
        target = call.attributes.custom_call_target
        raise NotEvaluable(
            f'custom-call target "{target}" is unknown, so it cannot be evaluated',
            f'define it in Python with hloom.custom_call("{target}"), for the command line in a file given to --import',
        )

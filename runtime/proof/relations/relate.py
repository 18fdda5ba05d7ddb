"""Relates all values of a partitioned program to those of the original, by one run of both over the field."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ....ir.brief import brief
from ....ir.checked_call import NotNegative, checked
from ....ir.diagnostics import CompileError
from ....ir.graph.instruction import Instruction
from ....ir.graph.interfaces import DeviceNumber, Draws
from ....ir.graph.module import Module
from ....ir.tools.bit_orders import without_bit_orders
from ....ir.tools.library_calls import without_library_calls
from ....ir.tools.placement import placed_like
from ....ir.types.literal import Array
from ...evaluator import UnpartitionedProgram
from ...simulator import SimulatedProgram
from ..flow import DataFlow, ValueLeaf
from ..inputs import MODES, TrialInputs
from ..kernels import FieldKernels
from ..oracle import Oracle
from .devices import DeviceAxes
from .find import Finder
from .index import Index
from .record import Recorder, Run
from .relation import Relation, RelationKind


@brief
@dataclass(frozen=True)
class Related:
    """A value of the partitioned program, and its arrays in each run of its computation. `finder` finds its relations
    when they are first asked for: the search for the first wrong instruction asks for few.
    """

    place: ValueLeaf
    runs: list[Run]
    finder: Finder

    @cached_property
    def relations(self) -> list[Relation]:
        """The relation in each run."""
        with np.errstate(all="ignore"):
            return [self.finder.relate(self.place, run) for run in self.runs]

    @cached_property
    def relation(self) -> Relation:
        """The relation of all runs together: NONE if one has none."""
        return max(self.relations, key=lambda r: _ORDER.index(r.kind))

    @property
    def instruction(self) -> Instruction:
        return self.place.instruction


@dataclass(frozen=True)
class RelationRow:
    """A value in words: its kind of relation, the value of the original, the offsets of its tiles by device, and all of
    these as a text.
    """

    name: str
    opcode: str
    shape: str
    kind: str
    value: str
    offsets: dict[int, list[int]]
    relation: str


_ORDER = (
    RelationKind.CONSTANT,
    RelationKind.DEVICE,
    RelationKind.TILE,
    RelationKind.REARRANGED,
    RelationKind.MASKED,
    RelationKind.PARTIAL,
    RelationKind.HOLES,
    RelationKind.NONE,
)


@brief
@dataclass(frozen=True)
class Relations:
    """The relations of all values of a partitioned program, in the order in which they are computed.

    `flow` is that of the partitioned program, `whole` that of the original; `index` has the values of the latter.
    """

    flow: DataFlow
    whole: DataFlow
    index: Index
    devices: DeviceAxes
    values: list[Related]
    is_complete: bool

    def rows(self) -> list[RelationRow]:
        """Describes each value."""
        return [self._row(value) for value in self.values]

    def _row(self, value: Related) -> RelationRow:
        shape = list(value.instruction.shape.leaves())[value.place.leaf]
        relation, parent = value.relation, value.instruction.parent
        inside = f"{parent.name}/" if parent is not None and parent is not self.flow.entry else ""
        return RelationRow(
            inside + str(value.place),
            value.instruction.opcode,
            str(shape.without_layout()),
            relation.kind.value,
            str(relation.value or ""),
            {d: list(offset[: shape.rank]) for d, offset in relation.offsets().items()},
            relation.text(self.devices, next(iter(value.runs[0].values())).shape, shape.rank),
        )

    @cached_property
    def by_place(self) -> dict[ValueLeaf, Related]:
        """The relation of each value, by the value."""
        return {v.place: v for v in self.values}

    def counts(self) -> dict[str, int]:
        """The number of values per kind of relation."""
        return dict(Counter(v.relation.kind.value for v in self.values))


def related(
    original: UnpartitionedProgram, local: SimulatedProgram, inputs: Sequence[Array], oracle: Oracle | None
) -> Relations:
    """Runs both programs on these inputs. `oracle` has the order of elements; None if they have none.

    Raises CompileError if the original cannot run.
    """
    whole = Recorder(DataFlow(original.executable.plan))
    original.run(inputs, whole)
    flow = DataFlow(local.executable.plan)
    recorder = Recorder(flow)
    with suppress(CompileError):  # devices that disagree about a result: its values are there all the same
        local.simulate(inputs, oracle.poison if oracle else True, recorder)
    collectives = local.executable.compilation.collectives
    devices = DeviceAxes(local.module, (c.groups for c in collectives if c.groups))
    drawn = {p for p in flow.places() if p.instruction.op.interface(Draws)}
    by_device = {p for p in flow.places() if p.instruction.op.interface(DeviceNumber)}
    varying = flow.made_from(drawn | flow.inputs)
    finder = Finder(Index(whole.values), devices, oracle, varying, flow.made_from(by_device))
    values = [Related(p, runs, finder) for p, runs in recorder.values.items()]
    complete = whole.is_complete and recorder.is_complete
    return Relations(flow, whole.flow, finder.index, devices, values, complete)


def as_ops(module: Module) -> Module:
    """Returns the program with ops for library calls, and for comparisons of the bits of floats."""
    return without_bit_orders(without_library_calls(module))


@checked
def relate(original: Module, local: Module, seed: NotNegative = 0) -> Relations:
    """Relates the values of a program per device to those of the program that it was made from.

    `relate(..).rows()` says for each value which part of which value of the original a device holds.

    Raises CompileError for programs that cannot be run over the field.
    """
    original = as_ops(original)
    local = placed_like(as_ops(local), original)
    of_oracle, of_inputs = np.random.SeedSequence((seed, 0)).spawn(2)
    oracle = Oracle(of_oracle)
    whole = UnpartitionedProgram(original, FieldKernels(original, oracle))
    divided = SimulatedProgram(local, FieldKernels(local, oracle))
    return related(whole, divided, TrialInputs(original).draw(of_inputs, MODES[0]), oracle)

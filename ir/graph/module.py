"""Modules: computations and header of a program, at one stage of compilation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import chain, count
from typing import Any

from ..checked_call import checked
from ..diagnostics import Diagnostic, SourceFile, fail
from ..in_notebooks import InNotebooks
from ..late import late
from ..reached import followers_first
from ..sharding.mesh import Mesh
from ..types.literal import Array
from ..types.shape import Shape
from .analyses import Analyses
from .clone import clone_computation
from .computation import Computation
from .flat_layout import FlatLayout
from .instruction import NO_FRONTEND_ATTRIBUTES, FrontendAttributes, Instruction


class Stage(Enum):
    """The stage of compilation of a module. The verifier has invariants for each."""

    GLOBAL = "global"  # whole-tensor shapes, some shardings
    SHARDED = "sharded"  # every value has a sharding
    LOCAL = "local"  # per-device shapes and explicit collectives: one program for all devices
    SCHEDULED = "scheduled"  # LOCAL, and the order of the instructions is the schedule


_WRITERS = {
    "text": "ir.tools.printer:module_text",
    "proto": "frontends.proto:write_module",
    "stablehlo": "frontends.stablehlo:write_text",
    "stablehlo bytecode": "frontends.stablehlo:write_bytecode",
}
"""The late names of the writers of modules by format. They belong to higher layers."""


@dataclass(frozen=True, slots=True)
class EntryLayout:
    """`entry_computation_layout={(parameters)->result}`."""

    parameters: tuple[Shape, ...]
    result: Shape


@checked
class Module(InNotebooks):
    """A program. `entry` is one of its `computations`, which are in any order; text has callees before callers.

    Header attributes that Hloom does not interpret are kept verbatim: `input_output_alias`, `buffer_donor`,
    `origin_recovery_table` (text with braces, empty if absent) and `stack_frames` (the four tables, as text). `meshes`
    are Shardy's, by symbol, from `xla.sdy.meshes`. `global_layout` of a LOCAL module gives the shapes of the program
    before partitioning, `flat_layout` the arrays that are kept inside of others since. `warnings` are those of reading
    its text. `analyses` are kept until edits make them wrong.
    """

    def __init__(self, name: str, source: SourceFile | None = None) -> None:
        self.name = name
        self.source = source
        self.stage = Stage.GLOBAL
        self.computations: list[Computation] = []
        self._entry: Computation | None = None
        self.is_scheduled = False
        self.replica_count = 1
        self.num_partitions = 1
        self.entry_layout: EntryLayout | None = None
        self.global_layout: EntryLayout | None = None
        self.flat_layout: FlatLayout | None = None
        self.allow_propagation_to_parameters: tuple[bool, ...] | None = None
        self.allow_propagation_to_output: tuple[bool, ...] | None = None
        self.input_output_alias = ""
        self.buffer_donor = ""
        self.alias_passthrough_params = False
        self.origin_recovery_table = ""
        self.frontend_attributes: FrontendAttributes = NO_FRONTEND_ATTRIBUTES
        self.meshes: dict[str, Mesh] = {}
        self.stack_frames = ""
        self.warnings: tuple[Diagnostic, ...] = ()
        self.analyses = Analyses()
        self.proto_extras: Any = None  # protobuf fields that HLO text cannot express
        self.example: tuple[Array, ...] = ()  # the arrays that came with the program, in the order of its inputs

    @property
    def entry(self) -> Computation:
        """The entry computation. Raises CompileError if the module has none."""
        if self._entry is None:
            fail(f"module {self.name} has no entry computation",
                 help="module.new_computation(name, entry=True) makes one, module.entry = .. chooses one")  # fmt: skip
        return self._entry

    @entry.setter
    def entry(self, computation: Computation) -> None:
        self._entry = computation

    @property
    def has_schedule(self) -> bool:
        """Whether the order of the instructions is the schedule of an execution, Hloom's or another compiler's."""
        return self.is_scheduled or self.stage is Stage.SCHEDULED

    @property
    def devices(self) -> int:
        """The number of devices that the program runs on: all partitions of all replicas."""
        return self.num_partitions * self.replica_count

    def add_computation(self, computation: Computation, entry: bool = False) -> Computation:
        """Appends a computation; `entry` makes it the entry."""
        computation.parent = self
        self.computations.append(computation)
        if entry:
            self._entry = computation
        return computation

    def new_computation(self, name: str, entry: bool = False) -> Computation:
        """Adds an empty computation, making its name unique; `entry` makes it the entry."""
        return self.add_computation(Computation(self.unique_computation_name(name)), entry)

    def clone_computation(self, source: Computation, name: str | None = None) -> Computation:
        """Adds a copy of a computation, which calls the same computations as the original."""
        free = self.unique_computation_name(name or source.name)
        return self.add_computation(clone_computation(source, lambda c: c, free))

    def take(self, other: Module) -> None:
        """Becomes another module: takes its header and its computations, which the other must not use any more."""
        vars(self).update(vars(other))
        for computation in self.computations:
            computation.parent = self

    def release(self) -> None:
        """Frees the memory of its instructions, which nobody may use any more, and of the analyses of them."""
        self.analyses = Analyses()
        for computation in self.computations:
            computation.release()

    def callees_first(self) -> list[Computation]:
        """Returns the computations with callees before callers, the order of HLO text, otherwise in their own order.

        Recursive computations, which the verifier rejects, come in an arbitrary order.
        """
        return followers_first(self.computations, Computation.called)

    def unique_computation_name(self, base: str) -> str:
        """Returns `base`, or `base.N` with the smallest N not yet used for a computation."""
        return next(self.unique_computation_names(base))

    def unique_computation_names(self, base: str) -> Iterator[str]:
        """Yields `base`, `base.1`, .., without those that are the names of computations now."""
        taken = {c.name for c in self.computations}
        names = chain((base,), (f"{base}.{number}" for number in count(1)))
        return (name for name in names if name not in taken)

    def __iter__(self) -> Iterator[Computation]:
        return iter(self.computations)

    def to_text(self) -> str:
        """Returns the module as HLO text that the parsers of XLA and Hloom accept."""
        text: str = late(_WRITERS["text"])(self)
        return text

    def to_proto(self) -> bytes:
        """Returns a serialized HloModuleProto that XLA accepts. Raises CompileError for anything it cannot express.

        Arrays without a layout get the default one, and names become unique across the module, as XLA requires.
        """
        data: bytes = late(_WRITERS["proto"])(self)
        return data

    def __copy__(self) -> Module:
        return clone_module(self)  # a computation belongs to one module

    def to_stablehlo(self) -> str:
        """Returns the module in StableHLO (extra `xla`). Raises CompileError if StableHLO cannot express it."""
        text: str = late(_WRITERS["stablehlo"])(self)
        return text

    def to_stablehlo_bytecode(self) -> bytes:
        """Returns the module as a portable artifact of StableHLO, which later versions read too (extra `xla`). Raises
        CompileError if StableHLO cannot express it.
        """
        data: bytes = late(_WRITERS["stablehlo bytecode"])(self)
        return data

    def __getstate__(self) -> tuple[list[Computation], dict[str, Any]]:
        state = {name: value for name, value in vars(self).items() if name != "analyses"}
        return self.callees_first(), state  # in this order callers find what they call

    def __setstate__(self, state: tuple[list[Computation], dict[str, Any]]) -> None:
        vars(self).update(state[1], analyses=Analyses())
        for computation in self.computations:
            computation.parent = self

    def __repr__(self) -> str:
        return f"<module {self.name}, {self.stage.value}, {len(self.computations)} computations>"


def clone_module(module: Module, instructions: dict[Instruction, Instruction] | None = None) -> Module:
    """Returns a deep copy, which shares no computation or instruction; `instructions` receives the copy of each."""
    copy, instructions = shell_of(module), {} if instructions is None else instructions
    copies: dict[Computation, Computation] = {}
    for computation in module.callees_first():
        copies[computation] = clone_computation(computation, copies.__getitem__, None, instructions)
        copy.add_computation(copies[computation], entry=computation is module.entry)
    copy.analyses = module.analyses.copied(module, copy, instructions)
    return copy


def shell_of(module: Module) -> Module:
    """Returns a module with the same header and no computations."""
    copy = Module(module.name, module.source)
    skipped = ("computations", "_entry", "name", "source", "analyses")
    copy.__dict__.update({k: v for k, v in module.__dict__.items() if k not in skipped})
    return copy


def lent(module: Module) -> Module:
    """Returns a module with the same header and the same computations, which must stay as they are."""
    other = shell_of(module)
    other.__dict__.update(computations=list(module.computations), _entry=module.entry)
    return other

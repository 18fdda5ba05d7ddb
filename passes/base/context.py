"""The context that passes share while they run: options, models of costs and ops, and findings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from ...cost.machine import DEFAULT, Machine
from ...cost.seconds import Clock
from ...ir.checked_call import checked
from ...ir.diagnostics import Diagnostics, Location, fail
from ...ir.graph.module import Module
from ...ir.graph.python_values import known_op
from ..op_sharding.choose import CHEAPEST, Chooser
from ..op_sharding.decide import Decider
from ..op_sharding.forms import LocalForms
from ..op_sharding.rules import Rules
from ..op_sharding.use import OpUses
from ..resharding.base.moves import Resharding
from ..spmd.local_forms import local_forms


@dataclass(frozen=True, slots=True)
class PassRecord:
    """The record of one pass in a pipeline: seconds, and whether the module changed."""

    name: str
    seconds: float
    changed: bool


AsRun = Callable[[Module, Machine], tuple[Module, Clock] | None]
"""Returns a program of each device as a machine runs it, with the clock of its ops; None where both are as written."""

Verify = Literal["foreign", "each", "end", "none"]
"""When a pipeline checks the module: after every pass that is not Hloom's, after each that changed it as well, at the
end only, or never. A violation raises InternalError with the name of the pass.
"""


@checked
@dataclass
class PassContext:
    """Options and findings that passes share.

    Options: `num_devices` is the number of devices that the user asks for; with None the program decides, and
    `default_devices` counts if it names none. `rules` are sharding rules from outside, which steer propagation and
    restrict the partitioner (`op_sharding/rules`); CompileError is raised for an unknown opcode. `machine` gives the
    times of collectives, memory traffic and work.
    `forms` are the local forms of ops; cost and partitioner read the same ones. They are `local_forms()` with
    overrides: without the form that an op needs, its tiles would compute other numbers, so CompileError is raised for
    missing ones. `chooser` chooses among the ways to divide an op. Devices add floats in the type `reduce_in` and
    gather them in the type `gather_in`, by default that of the arrays. `verify` says when to check the module.
    `explain` names an instruction: passes that decide about it tell why (`answer`). `after` is called with the name of
    each pass and the module. `as_run` tells how the machine runs a scheduled program, and forecasts of plans ask it.

    Findings: `answers` counts the explanations; passes append remarks, warnings and errors to `diagnostics`, the
    partitioner its plans to `reshardings`, and the pipeline one of the `records` per pass.
    """

    num_devices: int | None = None
    default_devices: int | None = None
    rules: Rules = field(default_factory=dict[str, Any])
    verify: Verify = "foreign"
    explain: str | None = None
    after: Callable[[str, Module], None] | None = None
    machine: Machine = DEFAULT
    forms: LocalForms = field(default_factory=local_forms)
    chooser: Chooser = CHEAPEST
    as_run: AsRun | None = None
    reduce_in: str | None = None
    gather_in: str | None = None
    diagnostics: Diagnostics = field(default_factory=Diagnostics)
    reshardings: list[Resharding] = field(default_factory=list[Resharding])
    records: list[PassRecord] = field(default_factory=list[PassRecord])
    answers: int = 0

    def __post_init__(self) -> None:
        missing = sorted(set(local_forms().entries) - set(self.forms.entries))
        if missing:
            fail(f"forms lacks the local forms of {', '.join(missing)}",
                 help="begin with hloom.local_forms() and override those that differ")
        for opcode in self.rules:
            known_op(opcode)

    def decider(self, devices: int) -> Decider:
        """Returns the decider for programs on this many devices."""
        return Decider(devices, self.machine, self.forms, OpUses(self.rules), self.chooser)

    def run_as(self, local: Module) -> tuple[Module, Clock | None]:
        """Returns the program of each device as the machine runs it, with its clock; the given one and None where
        nothing is known of that.
        """
        found = self.as_run(local, self.machine) if self.as_run is not None else None
        return (local, None) if found is None else found

    @property
    def has_own_forms(self) -> bool:
        """Whether some local form is not Hloom's."""
        return self.forms.entries != local_forms().entries

    def answer(self, reason: str, location: Location | None) -> None:
        """Remarks on a pass's decision about the instruction that `explain` names."""
        self.answers += 1
        self.diagnostics.remark(reason, location)

"""The result of partitioning: the program of each device, and the findings on the way."""

from __future__ import annotations

from functools import cached_property

from ..cost.machine import DEFAULT, Machine
from ..ir.diagnostics import Diagnostic, Severity
from ..ir.graph.module import Module
from .base import PassContext
from .resharding.base.moves import Resharding
from .resharding.certificate import ProgramCertificate


class Partitioned(Module):
    """A LOCAL module that knows how it was made; it stands wherever a module is expected.

    `remarks` say what the program loses (repeated work, gathers, padding), `warnings` are those of the text it was read
    from and of the passes, both with places in the text.
    """

    @staticmethod
    def of(module: Module, context: PassContext) -> Partitioned:
        """The result of passes that ran on `module` with this context. The module must not be used any more."""
        found = context.diagnostics.found
        result = Partitioned(module.name, module.source)
        result.take(module)
        result.warnings = (*module.warnings, *(d for d in found if d.severity is Severity.WARNING))
        result.remarks = tuple(d for d in found if d.severity is Severity.REMARK)
        result._reshardings, result._machine = tuple(context.reshardings), context.machine
        return result

    remarks: tuple[Diagnostic, ...] = ()
    _reshardings: tuple[Resharding, ...] = ()
    _machine: Machine = DEFAULT

    @property
    def module(self) -> Module:
        """The program itself."""
        return self

    @cached_property
    def certificate(self) -> ProgramCertificate:
        """The time of each resharding on the machine, and the bytes that it sends, with lower bounds."""
        return ProgramCertificate.of(self._reshardings, self.num_partitions, self._machine)

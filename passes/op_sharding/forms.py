"""The registry of local forms: how ops run on tiles that need more there than the same op on smaller operands.

The registry of a run stands in its context: whoever weighs how an op is divided asks it what that exchanges, and the
partitioner how it is emitted. A form is known by the opcode, or by the target of a custom-call: `custom-call TopK`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...ir.diagnostics import InternalError
from ...ir.graph.attributes import Attributes
from ...ir.ops.calls.custom_call import CustomCallAttributes
from .assignment import LocalForm

_built_in: dict[str, LocalForm] = {}


@dataclass(frozen=True, slots=True)
class LocalForms:
    """Local forms by name. Nothing changes a registry: `override` makes another one."""

    entries: Mapping[str, LocalForm]

    def of(self, opcode: str, attributes: Attributes) -> LocalForm | None:
        """The form of an op; None if its tiles need the op itself and nothing else."""
        if isinstance(attributes, CustomCallAttributes):
            opcode = f"{opcode} {attributes.custom_call_target}"
        return self.entries.get(opcode)

    def override(self, name: str, form: LocalForm) -> LocalForms:
        """The registry with another form under this name, or one more."""
        return LocalForms({**self.entries, name: form})


def register(name: str, form: LocalForm) -> None:
    """Adds a form to those that every context begins with. Raises InternalError if there is one of this name."""
    if name in _built_in:
        raise InternalError(f"{name} has a local form already: override it in the context", "local forms")
    _built_in[name] = form


def built_in() -> LocalForms:
    """The forms registered so far: those of Hloom itself, once the partitioner is imported."""
    return LocalForms(dict(_built_in))

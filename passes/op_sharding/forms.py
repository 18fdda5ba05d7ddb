"""The registry of local forms: how ops run on tiles where the same op on smaller operands does not suffice.

Each run has a registry in its `PassContext`. Cost functions ask it for the time of a form's exchange, the partitioner
asks it for the code that emits the op. A form is registered under an opcode, or under the target of a custom-call:
`custom-call TopK`.
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
    """Local forms by name. Immutable: `override` returns another registry."""

    entries: Mapping[str, LocalForm]

    def of(self, opcode: str, attributes: Attributes) -> LocalForm | None:
        """Returns the local form of an op, or None if its tiles need only the op itself."""
        if isinstance(attributes, CustomCallAttributes):
            opcode = f"{opcode} {attributes.custom_call_target}"
        return self.entries.get(opcode)

    def override(self, name: str, form: LocalForm) -> LocalForms:
        """Returns a registry with `form` under this name, in place of an existing one if there is one."""
        return LocalForms({**self.entries, name: form})


def register(name: str, form: LocalForm) -> None:
    """Adds a form to those that every context begins with. Raises InternalError if the name is taken."""
    if name in _built_in:
        raise InternalError(f"{name} has a local form already: override it in the context", "local forms")
    _built_in[name] = form


def built_in() -> LocalForms:
    """Returns the forms registered so far; Hloom's own are registered when the partitioner is imported."""
    return LocalForms(dict(_built_in))

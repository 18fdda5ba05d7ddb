"""The registry of local forms: how ops run on tiles where the same op on smaller operands does not suffice.

Each run has a registry in its `PassContext`. Cost functions ask it for the time of a form's exchange, the partitioner
asks it for the code that emits the op. The name of a form is an opcode, or the target of a custom-call:
`custom-call TopK`. The forms that Hloom has are `spmd.local_forms.local_forms()`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...ir.brief import brief
from ...ir.checked_call import checked
from ...ir.graph.attributes import Attributes
from ...ir.ops.calls.behaviour import CustomCallAttributes
from .assignment import LocalForm

Forms = Mapping[str, LocalForm]


@brief
@dataclass(frozen=True, slots=True)
class LocalForms:
    """Local forms by name. Immutable: `override` returns another registry."""

    entries: Forms

    def of(self, opcode: str, attributes: Attributes) -> LocalForm | None:
        """Returns the local form of an op, or None if its tiles need only the op itself."""
        if isinstance(attributes, CustomCallAttributes):
            opcode = f"{opcode} {attributes.custom_call_target}"
        return self.entries.get(opcode)

    @checked
    def override(self, name: str, form: LocalForm) -> LocalForms:
        """Returns a registry with `form` under this name, in place of an existing one if there is one."""
        return LocalForms({**self.entries, name: form})

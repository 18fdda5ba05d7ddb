"""Converts a module's `origin_recovery_table` between text and OriginalValueRecoveryTableProto.

An entry tells how to recover an array of the original program from others: `{"old" {0}} : {"new"}`, and optionally a
quoted module that computes it. Such a module is text within text, and a message within the message.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ...ir.strings import quote, unescape
from .wire import ProtoError, Record

_ARRAY = r"\{\s*(?:\"((?:[^\"\\]|\\.)*)\"\s*(?:\{([\d,\s]*)\})?)?\s*\}"
_ENTRY = re.compile(rf"\s*{_ARRAY}\s*:\s*{_ARRAY}\s*(?:,\s*\"((?:[^\"\\]|\\.)*)\"\s*)?,?\s*", re.DOTALL)


def recovery_text(table: Record, module_text: Callable[[Record], str]) -> str:
    """Returns `{ {"a"} : {"b"}, "HloModule .." .. }`. `module_text` prints the modules inside. Raises ProtoError."""
    entries: list[str] = []
    for entry in table.subs("entries"):
        old, new = (_array_text(entry, f"{age}_original_array") for age in ("old", "new"))
        module = f", {quote(module_text(entry.sub('recovery_module')))}" if "recovery_module" in entry.values else ""
        entries.append(f"{{{old}}} : {{{new}}}{module}")
    return "{ " + " ".join(entries) + " }" if entries else ""


def _array_text(entry: Record, field: str) -> str:
    if field not in entry.values:
        return ""
    array = entry.sub(field)
    index = array.ints("shape_index")
    return quote(array.str("instruction_name")) + (f" {{{','.join(map(str, index))}}}" if index else "")


def set_recovery(table: Record, text: str, module_record: Callable[[str], Record]) -> None:
    """Writes the entries into the message. `module_record` parses the modules inside. Raises ProtoError."""
    end, place = len(text) - 1, 1
    while text[place:end].strip():
        match = _ENTRY.match(text, place, end)
        if match is None:
            rest = text[place:end].strip()[:20]
            raise ProtoError(f"origin_recovery_table: no entry can be read at '{rest}'")
        place = match.end()
        old_name, old_index, new_name, new_index, module = match.groups()
        entry = table.new("entries")
        _set_array(entry, "old_original_array", old_name, old_index)
        _set_array(entry, "new_original_array", new_name, new_index)
        if module is not None:
            entry.values["recovery_module"] = module_record(unescape(module))


def _set_array(entry: Record, field: str, name: str | None, index: str | None) -> None:
    if name is not None:
        array = entry.new(field)
        array.set("instruction_name", unescape(name))
        array.set("shape_index", [int(n) for n in (index or "").split(",") if n.strip()])

"""Local forms, by op family: each file lists its own as `FORMS`, and `local_forms` joins them.

Whoever needs the forms asks for them; nothing happens on import.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from ....ir.diagnostics import InternalError
from ...op_sharding.assignment import LocalForm
from ...op_sharding.forms import Forms, LocalForms
from . import (
    bitcast,
    convolution,
    device_number,
    dynamic,
    fft,
    indexed,
    iota,
    normalization,
    random,
    reduce,
    reshape,
    select_and_scatter,
    slicing,
    sort,
    topk,
    windows,
)

_FAMILIES = (
    bitcast, convolution, device_number, dynamic, fft, indexed, iota, normalization, random, reduce, reshape,
    select_and_scatter, slicing, sort, topk, windows,
)  # fmt: skip


@cache
def local_forms() -> LocalForms:
    """Returns Hloom's own local forms."""
    return LocalForms(joined(family.FORMS for family in _FAMILIES))


def joined(families: Iterable[Forms]) -> Forms:
    """Joins the forms of several files. Raises InternalError if two have a form of one name."""
    entries: dict[str, LocalForm] = {}
    for forms in families:
        for name, form in forms.items():
            if name in entries:
                raise InternalError(f"{name} has two local forms", "local forms")
            entries[name] = form
    return entries

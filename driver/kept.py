"""Keeps the compiled programs of files, so that the next compilation of one begins at once.

The key is the files, byte for byte, the options, and the host. Values that cannot be pickled, as of custom-calls of a
user's own file, are not kept.
"""

from __future__ import annotations

import os
import pickle
import platform
from collections.abc import Mapping, Sequence

from ..ir.graph import keeping
from ..ir.user_files import read_bytes
from ..runtime.ranks.launch import inside_launcher
from .program import Program


def key_of(
    file: str, named: Sequence[str], options: Mapping[str, object], ranks: int | None
) -> tuple[str, ...] | None:
    """Returns the key of the program that `options` make of a file for so many ranks. `named` are values of options
    that may name files, whose contents count then. None if nothing is kept, or a file cannot be read.
    """
    if not os.path.isfile(file):
        return None
    try:
        contents = [read_bytes(name) for name in (file, *filter(os.path.isfile, named))]
    except OSError:
        return None
    where = repr((ranks, inside_launcher(), platform.node()))
    return keeping.key_of("run", *contents, repr(sorted(options.items())), where)


def load(key: tuple[str, ...] | None) -> Program | None:
    """Returns the program of a key, with its diagnostics; None if it is not kept."""
    found = keeping.load(key)
    if found is None:
        return None
    program, diagnostics = Program.of_parts(*found[0]), found[1]
    program.diagnostics = tuple(diagnostics)
    return program


def store(key: tuple[str, ...] | None, program: Program) -> None:
    """Keeps a program under a key, if that is not None."""
    keeping.store(key, lambda: (program.packed(), pickle.dumps(list(program.diagnostics))))

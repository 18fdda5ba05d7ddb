"""The key by which `hloom run` keeps what it has made of a program, so that the next run of it begins at once.

It is the file and the files that options name, byte for byte, the options, and the host. Options that come after the
program is made, such as those of inputs and outputs, are not part of it. Programs that are no files, and those with
Python files of their own (`--import`), are made anew each time.
"""

from __future__ import annotations

import argparse
import os
import platform

from ..ir.graph import keeping
from ..ir.user_files import read_bytes
from ..runtime.ranks.launch import inside_launcher

_LATER = frozenset({
    "argv", "inputs", "seed", "seeds", "out", "trace", "timeout", "json", "tolerance", "allow_nan", "collectives",
    "werror", "remarks", "noted",
})  # fmt: skip
_FILES = ("machine", "strategy")  # options that may name files


def key_of(args: argparse.Namespace, ranks: int | None) -> tuple[str, ...] | None:
    """Returns the key of a run's program; None if it is not kept."""
    if not args.keeps or not os.path.isfile(args.file) or args.imports:
        return None
    try:
        contents = [read_bytes(args.file)]
        named = [getattr(args, option) or "" for option in _FILES]
        contents += [read_bytes(name) for name in named if os.path.isfile(name)]
    except OSError:
        return None
    options = {name: value for name, value in vars(args).items() if name not in _LATER and not callable(value)}
    where = repr((ranks, inside_launcher(), platform.node()))
    return keeping.key_of("run", *contents, repr(sorted(options.items())), where)

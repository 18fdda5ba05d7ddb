"""Implements `hloom machine`: lists machines, prints one as a machine file, or measures this one.

`calibrate --ranks N` starts itself again on N ranks, which all measure; rank 0 writes the file.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ..cost.calibrated import machine_of
from ..cost.machine_file import MachineFile, load_machine
from ..cost.machine_text import machine_text
from ..cost.presets import PRESETS, SUFFIX
from ..driver.backend import Backend
from ..ir.diagnostics import fail
from ..ir.user_files import write_text
from ..report.machines import machine_record, presets_table
from ..report.progress import telling
from ..report.terminal import say, show_program
from .exit_codes import EXIT_OK
from .messages import answer, print_json

CALIBRATE = "calibrate"


def machine(args: argparse.Namespace) -> int:
    """Runs `hloom machine` and returns its exit code. Raises CompileError for a name that is none, and
    argparse.ArgumentTypeError for options that do not belong together.
    """
    if args.name == CALIBRATE:
        return _calibrate(args)
    if args.name is None:
        return answer(args, lambda: {"machines": list(PRESETS)}, presets_table)
    file = _named(args.name)
    _print(args, file, PRESETS.text(args.name) if args.name in PRESETS else machine_text(file))
    return EXIT_OK


def _named(name: str) -> MachineFile:
    if name.endswith(SUFFIX):
        return load_machine(name)
    if name not in PRESETS:
        fail(f"'{name}' is no machine", help=f"write one of {', '.join(PRESETS)}, calibrate, or a file .toml")
    return PRESETS.file(name)


def _print(args: argparse.Namespace, file: MachineFile, text: str) -> None:
    if args.json:
        print_json(machine_record(file))
    else:
        show_program(text)


def _calibrate(args: argparse.Namespace) -> int:
    from ..driver.calibration import measured
    from ..runtime.allocator import keep_freed_memory
    from ..runtime.ranks.launch import inside_launcher, launch, world

    keep_freed_memory()
    if args.ranks is not None and not inside_launcher():
        return launch(args.argv, args.ranks)
    comm = world(args.ranks) if inside_launcher() else None
    path = Path(args.out) if args.out is not None else None
    found = measured(comm, Backend.fastest(args.backend), telling)
    file = machine_of(found, path.stem if path is not None else "this-machine")
    if comm is not None and comm.rank != 0:
        return EXIT_OK
    text = machine_text(file)
    if path is not None:
        write_text(path, text)
    if path is None or args.json:
        _print(args, file, text)
    else:
        say(f"wrote {path}")
    return EXIT_OK

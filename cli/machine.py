"""Implements `hloom machine`: lists machines, prints one as a machine file, or measures this one.

`calibrate --ranks N` starts itself again on N ranks, which all measure; rank 0 writes the file.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from ..cost.calibrated import machine_of
from ..cost.machine_file import MachineFile, load_machine
from ..cost.machine_text import machine_text
from ..cost.presets import PRESETS, SUFFIX, machine_summary
from ..driver.backend import AUTO, NATIVE, REFERENCE, Backend, has_native_code
from ..ir.diagnostics import fail
from ..report.columns import columns
from ..report.progress import working
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
    if args.ranks is not None or args.out is not None:
        raise argparse.ArgumentTypeError("--ranks and --out are for hloom machine calibrate")
    if args.name is None:
        return _list(args)
    file = _named(args.name)
    if args.json:
        _print_json(file)
    else:
        show_program(PRESETS.text(args.name) if args.name in PRESETS else machine_text(file))
    return EXIT_OK


def _named(name: str) -> MachineFile:
    if name.endswith(SUFFIX):
        return load_machine(name)
    if name not in PRESETS:
        fail(f"'{name}' is no machine", help=f"write one of {', '.join(PRESETS)}, calibrate, or a file .toml")
    return PRESETS.file(name)


def _list(args: argparse.Namespace) -> int:
    rows = [("machine", "memory", "bf16", "links"), *((n, *machine_summary(m)) for n, m in PRESETS.items())]
    return answer(args, lambda: {"machines": list(PRESETS)}, lambda: columns(rows, (False,) * 4))


def _print_json(file: MachineFile) -> None:
    print_json({"name": file.name, "machine": asdict(file.machine), "sources": dict(file.sources)})


def _calibrate(args: argparse.Namespace) -> int:
    from ..driver.calibration import measured
    from ..runtime.allocator import keep_freed_memory
    from ..runtime.ranks.launch import inside_launcher, launch, world

    keep_freed_memory()
    if args.ranks is not None and not inside_launcher():
        return launch(args.argv, args.ranks)
    comm = world(args.ranks) if inside_launcher() else None
    path = Path(args.out) if args.out is not None else None
    native = args.backend == NATIVE or (args.backend == AUTO and has_native_code())
    backend = Backend(NATIVE if native else args.backend if args.backend != AUTO else REFERENCE)
    file = machine_of(measured(comm, backend, working), path.stem if path is not None else "this-machine")
    if comm is not None and comm.rank != 0:
        return EXIT_OK
    if path is not None:
        path.write_text(machine_text(file), encoding="utf-8")
    if args.json:
        _print_json(file)
    elif path is None:
        show_program(machine_text(file))
    else:
        say(f"wrote {path}")
    return EXIT_OK

"""Shares code among commands: reading a program, showing diagnostics, exit codes, the reproducer of an internal error.
"""

from __future__ import annotations

import argparse
import json
import math
import runpy
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from .. import frontends
from ..cost.presets import parse_machine
from ..ir.diagnostics import CATEGORIES, CompileError, Diagnostic, Severity, fail
from ..ir.graph.module import Module, Stage
from ..ir.sharding.mesh import LARGEST_MESH
from ..passes.annotating.remesh import remesh
from ..passes.annotating.strategy import Setting, Strategy, apply_strategy, load_strategy, named_meshes
from ..passes.base import PassContext
from ..passes.pipelines import remarks
from .progress import working
from .streams import tell

EXIT_OK = 0
EXIT_CHECK_FAILED = 1
EXIT_USAGE = 2
EXIT_UNPROVED = 3
EXIT_BAD_INPUT = 65
EXIT_INTERNAL = 70
EXIT_MEMORY = 71  # EX_OSERR


def read_program(args: argparse.Namespace, quiet: bool = False) -> Module:
    """Reads the module of the FILE argument, annotates it by `--strategy` and `--set`, and resizes its meshes by
    `--mesh`.

    `--mesh` also gives the mesh where neither the strategy nor the program names one. Prints warnings about the text,
    unless `quiet`. Raises CompileError, also for warnings that `--werror` names.
    """
    with working(f"reading {args.file}"):
        module = frontends.load(args.file)
    _tell(args, module.warnings, quiet)
    sizes: dict[str, int] | None = getattr(args, "mesh", None)
    strategy = _strategy(args)
    if (sizes or strategy) and module.stage is not Stage.GLOBAL:
        option = "--mesh" if sizes else "--strategy"
        fail(f"{option} needs a program that is not yet sharded, this one is {module.stage.value}")
    if strategy is not None and sizes and not named_meshes(module):
        strategy, sizes = replace(strategy, mesh=sizes), None
    if strategy is not None and strategy.mesh is not None:
        apply_strategy(module, strategy)
        strategy = None
    if sizes:
        remesh(module, sizes)  # the strategy's mesh too, which by default is the program's
    if strategy is not None:
        apply_strategy(module, strategy)
    return module


def run_imports(args: argparse.Namespace) -> None:
    """Runs the files of `--import`, which may register names that other arguments use, and then reads those arguments.

    Raises CompileError for errors in a file, argparse.ArgumentTypeError for unknown names.
    """
    for path in getattr(args, "imports", ()):
        _run_user_file(path)
    if hasattr(args, "werror"):
        args.werror = categories(args.werror)


def _run_user_file(path: str) -> None:
    """Runs a Python file of the user. Raises CompileError with the place of an error in it."""
    try:
        runpy.run_path(path)
    except OSError as error:
        fail(f"{path} cannot be read: {error.strerror or error}")
    except (Exception, SystemExit) as error:
        place = user_place(error, [path])
        fail(f"{place or path}: {type(error).__name__}: {error}", help="--import runs this file first")


def user_place(error: BaseException, paths: Sequence[str]) -> str | None:
    """Returns `file:line` of the last call in an error's traceback that is in one of these files; None if there is
    none.
    """
    if isinstance(error, SyntaxError) and error.filename in paths:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    return next((f"{f.filename}:{f.lineno}" for f in reversed(frames) if f.filename in paths), None)


def _strategy(args: argparse.Namespace) -> Strategy | None:
    """Combines `--strategy` and `--set`; None if neither is given."""
    path, settings = getattr(args, "strategy", None), getattr(args, "set", ())
    if path is None and not settings:
        return None
    strategy = load_strategy(path) if path is not None else Strategy()
    return replace(strategy, settings=(*strategy.settings, *map(Setting.parse, settings)))


def mesh_sizes(text: str) -> dict[str, int]:
    """Parses `x=2,y=4` into a dict. Raises argparse.ArgumentTypeError."""
    sizes: dict[str, int] = {}
    for part in text.split(","):
        name, _, size = part.partition("=")
        if not name or not size.isdecimal() or int(size) < 1 or name in sizes:
            raise argparse.ArgumentTypeError(f"'{text}' is not of the form x=2,y=4")
        sizes[name] = int(size)
    if math.prod(sizes.values()) > LARGEST_MESH:
        raise argparse.ArgumentTypeError(f"a mesh has at most {LARGEST_MESH} devices, their numbers have 32 bits")
    return sizes


def device_count(text: str) -> int:
    """Parses a number of devices. Raises argparse.ArgumentTypeError."""
    if positive(text) > LARGEST_MESH:
        raise argparse.ArgumentTypeError(f"there are at most {LARGEST_MESH} devices, their numbers have 32 bits")
    return int(text)


def positive(text: str) -> int:
    """Parses a whole number of at least 1. Raises argparse.ArgumentTypeError."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of at least 1")
    return int(text)


def not_negative(text: str) -> int:
    """Parses a whole number of at least 0. Raises argparse.ArgumentTypeError."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of at least 0")
    return int(text)


def tolerance(text: str) -> float:
    """Parses a number of at least 0. Raises argparse.ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of at least 0")
    return value


def names(text: str) -> frozenset[str]:
    """Parses `a,b` into a set. The names are checked after the files of `--import` have run."""
    return frozenset(text.split(","))


def categories(names: frozenset[str]) -> frozenset[str]:
    """Returns the categories of diagnostics that `--werror` names, or all. Raises argparse.ArgumentTypeError."""
    if names == frozenset(("all",)):
        return frozenset(CATEGORIES)
    for name in sorted(names - set(CATEGORIES)):
        raise argparse.ArgumentTypeError(f"argument --werror: '{name}' is no category: {', '.join(CATEGORIES)}, or all")
    return names


def context_for(args: argparse.Namespace, default_devices: int | None = None) -> PassContext:
    """Returns the context of passes that the arguments describe."""
    machine = parse_machine(getattr(args, "machine", ""), getattr(args, "links", ""))
    return PassContext(num_devices=getattr(args, "devices", None), default_devices=default_devices, machine=machine)


def print_json(value: object) -> None:
    """Prints the output of `--json`; docs/json.md describes its forms."""
    print(json.dumps(value, indent=1))


def show_diagnostics(diagnostics: Iterable[Diagnostic]) -> None:
    """Prints diagnostics on standard error."""
    for diagnostic in diagnostics:
        tell(diagnostic.render())


def report(args: argparse.Namespace, context: PassContext, quiet: bool = False) -> None:
    """Prints the diagnostics of passes. Raises CompileError with those that `--werror` turns into errors."""
    _tell(args, remarks(context), quiet)


def _tell(args: argparse.Namespace, found: Sequence[Diagnostic], quiet: bool) -> None:
    fatal = [d for d in found if d.category in getattr(args, "werror", ())]
    if not quiet:
        show_diagnostics(d for d in found if d not in fatal)
    if fatal:
        raise CompileError([replace(d, severity=Severity.ERROR) for d in fatal])


def internal_error(argv: list[str], args: argparse.Namespace, error: Exception) -> int:
    """Reports an unexpected exception and returns its exit code: an error of the user's own pass or custom-call, or a
    bug of Hloom.
    """
    place = user_place(error, getattr(args, "imports", ()))
    if place is not None:
        tell(f"{place}: error: {type(error).__name__}: {error}")
        return EXIT_BAD_INPUT
    path = write_reproducer(argv, error)
    tell(f"hloom: internal error: {type(error).__name__}: {error}")
    tell(f"  help: please report this{f' with {path}' if path else ''}")
    return EXIT_INTERNAL


def write_reproducer(argv: list[str], error: BaseException) -> Path | None:
    """Writes the reproducer of an internal error: command, traceback, and the program if it was a file."""
    lines = [f"// hloom {' '.join(argv)}", "//"]
    lines += [f"// {line}" for line in "".join(traceback.format_exception(error)).splitlines()]
    for argument in argv:
        path = Path(argument)
        if path.suffix in (".hlo", ".txt") and path.is_file():
            lines += ["", path.read_text(errors="replace")]
    for number in range(100):
        target = Path(f"hloom-reproducer-{number}.hlo")
        try:
            with target.open("x", encoding="utf-8", errors="backslashreplace") as file:
                file.write("\n".join(lines) + "\n")
        except FileExistsError:
            continue
        except OSError:
            return None
        return target
    return None

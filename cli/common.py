"""Shares code among commands: reading a program, showing diagnostics, exit codes."""

from __future__ import annotations

import argparse
from dataclasses import replace

from .. import frontends
from ..cost.presets import parse_machine
from ..driver.compile import to_local
from ..ir.diagnostics import Diagnostic, Severity, fail
from ..ir.disk_cache import refusal
from ..ir.graph.module import Module, Stage, clone_module
from ..passes.annotating.strategy import Setting, Strategy, annotate, load_strategy
from ..passes.base import PassContext
from ..passes.pipelines import remarks
from .messages import tell_found
from .streams import working


def read_program(args: argparse.Namespace, quiet: bool = False) -> Module:
    """Reads the module of the FILE argument, annotates it by `--strategy` and `--set`, and resizes its meshes by
    `--mesh`.

    Prints warnings about the text, unless `quiet`. Raises CompileError, also for warnings that `--werror` names.
    """
    with working(f"reading {args.file}"):
        module = frontends.load(args.file)
    unsafe = refusal()
    if unsafe and not quiet:
        tell_found(args, [Diagnostic(Severity.REMARK, unsafe, help="HLOOM_CACHE names another folder")], quiet)
    tell_found(args, module.warnings, quiet)
    sizes: dict[str, int] | None = getattr(args, "mesh", None)
    strategy = _strategy(args)
    if (sizes or strategy) and module.stage is not Stage.GLOBAL:
        option = "--mesh" if sizes else "--strategy"
        fail(f"{option} needs a program that is not yet sharded, this one is {module.stage.value}")
    annotate(module, strategy, sizes)
    return module


def _strategy(args: argparse.Namespace) -> Strategy | None:
    """Combines `--strategy` and `--set`; None if neither is given."""
    path, settings = getattr(args, "strategy", None), getattr(args, "set", ())
    if path is None and not settings:
        return None
    strategy = load_strategy(path) if path is not None else Strategy()
    return replace(strategy, settings=(*strategy.settings, *map(Setting.parse, settings)))


def partitioned(args: argparse.Namespace, program: Module) -> tuple[Module, PassContext]:
    """Returns the partitioned copy of a program, unless it is the program of each device already, with the context of
    the passes, whose diagnostics are printed. Raises CompileError.
    """
    local, context = clone_module(program), context_for(args)
    to_local(local, context, working)
    report(args, context)
    return local, context


def context_for(args: argparse.Namespace, default_devices: int | None = None) -> PassContext:
    """Returns the context of passes that the arguments describe."""
    machine = parse_machine(getattr(args, "machine", ""), getattr(args, "links", ""))
    return PassContext(num_devices=getattr(args, "devices", None), default_devices=default_devices, machine=machine)


def require_schedule(args: argparse.Namespace) -> None:
    """Raises argparse.ArgumentTypeError for options of a schedule without one."""
    if args.memory is not None and not args.schedule:
        raise argparse.ArgumentTypeError("--memory limits what --schedule may use: give both")
    if args.flat_parameters and not args.schedule:
        raise argparse.ArgumentTypeError("--flat-parameters joins what --schedule gathers together: give both")


def report(args: argparse.Namespace, context: PassContext, quiet: bool = False) -> None:
    """Prints the diagnostics of passes. Raises CompileError with those that `--werror` turns into errors."""
    tell_found(args, remarks(context), quiet)

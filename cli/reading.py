"""Reads the program of a command. Loads no passes that divide programs, which many commands do without."""

from __future__ import annotations

import argparse

from .. import frontends
from ..ir.diagnostics import Diagnostic, Severity, fail
from ..ir.disk_cache import refusal
from ..ir.graph.module import Module, Stage
from ..passes.annotating.strategy import annotate, strategy_of
from ..report.progress import working
from .messages import tell_found


def read_program(args: argparse.Namespace, quiet: bool = False) -> Module:
    """Reads the module of the FILE argument, annotates it by `--strategy` and `--set`, and resizes its meshes by
    `--mesh`.

    Prints warnings about the text, unless `quiet`. Raises CompileError, also for warnings that `--werror` names.
    """
    with working(f"reading {args.file}"):
        module = frontends.load(args.file)
    unsafe = refusal()
    if unsafe and not quiet:
        tell_found(args, [Diagnostic(Severity.REMARK, unsafe, help="HLOOM_CACHE names another folder")])
    tell_found(args, module.warnings, quiet)
    sizes: dict[str, int] | None = getattr(args, "mesh", None)
    strategy = strategy_of(getattr(args, "strategy", None), getattr(args, "set", ()))
    if (sizes or strategy) and module.stage is not Stage.GLOBAL:
        option = "--mesh" if sizes else "--strategy"
        fail(f"{option} needs a program that is not yet sharded, this one is {module.stage.value}")
    annotate(module, strategy, sizes)
    return module

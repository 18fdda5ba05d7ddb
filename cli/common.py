"""Shares code among commands that run passes: their context, dividing a program, showing diagnostics."""

from __future__ import annotations

import argparse

from ..cost.presets import parse_machine
from ..ir.graph.module import Module, clone_module
from ..passes.base import PassContext
from ..passes.pipelines import remarks
from ..passes.stages import to_local
from ..report.progress import working
from .messages import tell_found


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
    return PassContext(
        num_devices=getattr(args, "devices", None), default_devices=default_devices, machine=machine,
        reduce_in=getattr(args, "reduce_in", None), gather_in=getattr(args, "gather_in", None),
    )  # fmt: skip


def report(args: argparse.Namespace, context: PassContext, quiet: bool = False) -> None:
    """Prints the diagnostics of passes. Raises CompileError with those that `--werror` turns into errors."""
    tell_found(args, remarks(context), quiet)

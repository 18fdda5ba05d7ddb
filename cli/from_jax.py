"""Implements `hloom from-jax FILE.py:FUNCTION`: runs a user's file and writes the program that JAX makes of it."""

from __future__ import annotations

import argparse

from ..frontends.jax.user_file import from_file
from ..ir.user_files import write_text
from ..report.progress import working
from ..report.terminal import say, show_program
from .exit_codes import EXIT_OK
from .messages import tell_found


def from_jax_command(args: argparse.Namespace) -> int:
    """Writes the HLO of the program that a function of a Python file returns."""
    path, _, name = args.place.rpartition(":")
    with working(f"running {path}"):
        module = from_file(path, name, args.devices)
    tell_found(args, module.warnings)
    if args.out is None:
        show_program(module.to_text())
        return EXIT_OK
    write_text(args.out, module.to_text())
    say(f"{args.out}: {module.name}, {len(module.entry.parameters)} parameters, {sum(map(len, module))} instructions")
    return EXIT_OK

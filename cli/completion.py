"""Implements `hloom completion SHELL`: a script that completes commands, options and files."""

from __future__ import annotations

import argparse

from ..report.completion import completion
from ..report.terminal import show_program
from .exit_codes import EXIT_OK


def completion_command(args: argparse.Namespace) -> int:
    """Prints the completion script for a shell."""
    from .commands import make_parser  # which lists this command too

    parser = make_parser()
    show_program(completion("hloom", parser, parser.commands, args.shell))
    return EXIT_OK

"""Runs the command line: dispatches commands and sets exit codes. `cli` has the commands and their arguments.

Exit codes: 0 ok, 1 a check failed or programs differ, 2 usage, 3 nothing could be proved, 4 programs agree, but some
results are tested only, 65 the input does not parse or verify (or, with --werror, leads to a remark), 69 MPI is
missing, 70 internal error (a reproducer file is written), 71 out of memory, 74 output cannot be written, 75 an MPI rank
died, or others waited for it in vain.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def _parsed(argv: list[str]) -> argparse.Namespace:
    from .cli.commands import COMMANDS, make_parser

    named = [name for name in argv[:1] if name in COMMANDS]  # the parsers of the others take 5 ms
    # A bare --werror must not take the file that follows it as its value.
    args = make_parser(named or COMMANDS).parse_args(["--werror=all" if a == "--werror" else a for a in argv])
    args.argv = argv
    return args


def _dispatch(args: argparse.Namespace) -> int:
    from .cli.arguments import obey
    from .cli.commands import COMMANDS
    from .cli.messages import read_categories, tell_noted
    from .ir.late import late
    from .ir.user_python import run_python

    command = COMMANDS[args.command]
    for path in getattr(args, "imports", ()):  # which may register names that other arguments use
        run_python(path, help="--import runs this file first")
    read_categories(args)
    obey(args, command.arguments)
    try:
        code: int = late(command.place)(args)
    finally:
        if getattr(args, "noted", ()):
            sys.stdout.flush()  # results come first
            tell_noted(args)
    return code


def _guarded(argv: list[str]) -> int:
    """Runs a command; every error of the user or the machine ends in an exit code and a one-line message."""
    from .cli.exit_codes import EXIT_OUTPUT
    from .cli.streams import prepare_streams

    if not prepare_streams():
        return EXIT_OUTPUT
    args = argparse.Namespace(command="")
    try:
        try:
            args = _parsed(argv)
            return _dispatch(args)
        finally:
            sys.stdout.flush()  # flush here, because at the end of the process it is too late to report an error
    except (Exception, KeyboardInterrupt) as error:
        from .cli.failure import failed

        return failed(error, args, argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    from .runtime.ranks.launch import finish_rank, inside_launcher

    arguments = list(sys.argv[1:] if argv is None else argv)
    if inside_launcher():
        return finish_rank(lambda: _guarded(arguments))
    return _guarded(arguments)


if __name__ == "__main__":
    sys.exit(main())

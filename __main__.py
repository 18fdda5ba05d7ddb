"""The command line: exit codes, and which command runs. What the commands do, and their arguments, are in `cli`.

Exit codes: 0 ok, 1 a check failed or programs differ, 2 usage, 65 input does not parse or verify (or, with --werror,
leads to a remark), 69 MPI missing, 70 internal error (a reproducer file is written), 75 an MPI rank died.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence


def _dispatch(args: argparse.Namespace, argv: list[str]) -> int:
    from .cli import comm, evaluate, parts, reshard, shardings, text
    from .cli.common import run_imports

    run_imports(args)
    if args.command == "run":
        from .cli.run import run

        return run(args, argv)
    commands: dict[str, Callable[[argparse.Namespace], int]] = {
        "partition": text.partition_command, "shard": shardings.shard, "opt": text.opt, "verify": text.verify,
        "show": parts.show, "isolate": parts.isolate_command, "diff": parts.diff, "eval": evaluate.evaluate_command,
        "reshard": reshard.reshard_command, "comm": comm.comm, "explain": shardings.explain_command,
        "rules": shardings.rules, "picture": shardings.picture_command,
    }  # fmt: skip
    return commands[args.command](args)


def _guarded(argv: list[str]) -> int:
    from .cli.arguments import make_parser
    from .cli.common import EXIT_BAD_INPUT, EXIT_INTERNAL, EXIT_USAGE, show_diagnostics, user_place, write_reproducer
    from .ir.diagnostics import CompileError
    from .runtime.mpi import MpiMissing

    # A bare --werror must not take the file that follows it as its value.
    args = make_parser().parse_args(["--werror=all" if a == "--werror" else a for a in argv])
    try:
        return _dispatch(args, argv)
    except CompileError as error:
        show_diagnostics(error.diagnostics)
        return EXIT_BAD_INPUT
    except argparse.ArgumentTypeError as error:
        print(f"hloom {args.command}: error: {error}", file=sys.stderr)
        return EXIT_USAGE
    except MpiMissing as error:
        print(f"hloom: error: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        # Whoever reads our output has seen enough; there is nothing left to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        place = user_place(error, getattr(args, "imports", ()))
        if place is not None:  # a pass or a custom-call of the user's
            print(f"{place}: error: {type(error).__name__}: {error}", file=sys.stderr)
            return EXIT_BAD_INPUT
        path = write_reproducer(argv, error)
        print(f"hloom: internal error: {type(error).__name__}: {error}", file=sys.stderr)
        print(f"  help: please report this{f' with {path}' if path else ''}", file=sys.stderr)
        return EXIT_INTERNAL


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    from .runtime.launch import finish_rank, inside_launcher

    arguments = list(sys.argv[1:] if argv is None else argv)
    if inside_launcher():
        return finish_rank(lambda: _guarded(arguments))
    return _guarded(arguments)


if __name__ == "__main__":
    sys.exit(main())

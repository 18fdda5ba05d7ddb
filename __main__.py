"""Runs the command line: dispatches commands and sets exit codes. `cli` has the commands and their arguments.

Exit codes: 0 ok, 1 a check failed or programs differ, 2 usage, 3 nothing could be proved, 65 the input does
not parse or verify (or, with --werror, leads to a remark), 69 MPI is missing, 70 internal error (a reproducer file is
written), 71 out of memory, 74 output cannot be written, 75 an MPI rank died, or others waited for it in vain.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence


def _dispatch(args: argparse.Namespace, argv: list[str]) -> int:
    from .cli import comm, evaluate, parts, reshard, shardings, text
    from .cli.common import run_imports

    run_imports(args)
    if args.command == "run":
        from .cli.run import run

        return run(args, argv)
    if args.command == "prove":
        from .cli.prove import prove_command

        return prove_command(args)
    if args.command == "relate":
        from .cli.relate import relate_command

        return relate_command(args)
    commands: dict[str, Callable[[argparse.Namespace], int]] = {
        "partition": text.partition_command, "shard": shardings.shard, "opt": text.opt, "verify": text.verify,
        "show": parts.show, "isolate": parts.isolate_command, "diff": parts.diff, "eval": evaluate.evaluate_command,
        "reshard": reshard.reshard_command, "comm": comm.comm, "explain": shardings.explain_command,
        "rules": shardings.rules, "picture": shardings.picture_command, "completion": text.completion_command,
    }  # fmt: skip
    return commands[args.command](args)


def _parsed(argv: list[str]) -> argparse.Namespace:
    from .cli.arguments import make_parser

    # A bare --werror must not take the file that follows it as its value.
    return make_parser().parse_args(["--werror=all" if a == "--werror" else a for a in argv])


def _guarded(argv: list[str]) -> int:
    """Runs a command; every error of the user or the machine ends in an exit code and a one-line message."""
    from .cli.common import EXIT_BAD_INPUT, EXIT_MEMORY, EXIT_USAGE, internal_error, show_diagnostics
    from .cli.streams import EXIT_OUTPUT, output_failed, prepare_streams, tell
    from .ir.diagnostics import CompileError
    from .runtime.outputs import OutputError
    from .runtime.ranks.failed import RankFailed
    from .runtime.ranks.library import MpiMissing

    if not prepare_streams():
        return EXIT_OUTPUT
    args = argparse.Namespace(command="")
    try:
        try:
            args = _parsed(argv)
            return _dispatch(args, argv)
        finally:
            sys.stdout.flush()  # flush here, because at the end of the process it is too late to report an error
    except OutputError as error:
        show_diagnostics(error.diagnostics)
        return error.exit_code
    except CompileError as error:
        show_diagnostics(error.diagnostics)
        return EXIT_BAD_INPUT
    except argparse.ArgumentTypeError as error:
        tell(f"hloom {args.command}: error: {error}")
        return EXIT_USAGE
    except MpiMissing as error:
        tell(f"hloom: error: {error}")
        return error.exit_code
    except RankFailed as error:
        if not error.reported:
            tell(f"hloom: error: {error}")
        return error.exit_code
    except OSError as error:
        return output_failed(error)
    except MemoryError:
        tell("hloom: error: out of memory")
        return EXIT_MEMORY
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        return internal_error(argv, args, error)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    from .runtime.ranks.launch import finish_rank, inside_launcher

    arguments = list(sys.argv[1:] if argv is None else argv)
    if inside_launcher():
        return finish_rank(lambda: _guarded(arguments))
    return _guarded(arguments)


if __name__ == "__main__":
    sys.exit(main())

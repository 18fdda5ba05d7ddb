"""Extends argparse: shows defaults and examples, and reports when help cannot be printed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


class _Formatter(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """Keeps the line breaks of examples, and shows informative defaults."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        default = action.default
        shown = (isinstance(default, str) and default) or (isinstance(default, int) and not isinstance(default, bool))
        return super()._get_help_string(action) if shown and default != argparse.SUPPRESS else action.help


class Parser(argparse.ArgumentParser):
    """A parser of the command line, or of one command; `commands` are its commands by name.

    `later` are functions that add its arguments when they are first needed: a command line needs those of one command.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_Formatter, **options)
        self.commands: Mapping[str, Parser] = {}
        self.later: Sequence[Callable[[Parser], object]] = ()

    def parse_known_args(self, *arguments: Any, **options: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Parses arguments, as argparse calls it for the chosen command."""
        self.complete()
        return super().parse_known_args(*arguments, **options)

    def complete(self) -> Parser:
        """Adds the arguments that are not yet added, and returns the parser."""
        later, self.later = self.later, ()
        for add in later:
            add(self)
        return self

    def print_help(self, file: Any = None) -> None:
        """Prints the help, and fails if it cannot be written, which argparse itself would ignore."""
        print(self.format_help(), end="", file=file or sys.stdout)

    def options(self) -> list[argparse.Action]:
        """Returns the options, whose names begin with a dash."""
        return [action for action in self.complete()._actions if action.option_strings]

    def show_examples(self, lines: Sequence[str]) -> None:
        """Puts examples at the end of the help."""
        self.epilog = "\n".join(("examples:", *(f"  {line}" for line in lines)))


class Version(argparse.Action):
    """Prints the versions of Hloom and its dependencies, from their metadata, without importing them."""

    def __init__(self, option_strings: Sequence[str], dest: str, **_: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS,
                         help="print the versions of Hloom and of what it uses, and exit")

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(versions())
        parser.exit()


def versions() -> str:
    """Returns `hloom 0.1.0 (Python 3.12.1, numpy 2.1.0, ..)`; packages that are not installed are left out."""
    import importlib.metadata
    import platform

    found = [f"Python {platform.python_version()}"]
    own = "unknown"
    for name in ("hloom", "numpy", "ml_dtypes", "jaxlib", "mpi4py", "openmpi"):
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        own = version if name == "hloom" else own
        found += [f"{name} {version}"] if name != "hloom" else []
    return f"hloom {own} ({', '.join(found)})"

"""Extends argparse: shows defaults and examples, and reports when help cannot be printed."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

_CHOICE = re.compile(r"invalid choice: '(.*?)' \(")  # of argparse
_WORD = re.compile(r"""(?:[^\s"']|"[^"]*"|'[^']*')+""")  # of a line of shell


class _Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """Breaks descriptions between words and examples as shells continue lines, and shows informative defaults."""

    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        if action.nargs == argparse.PARSER:
            self._action_max_length += 2  # of commands, whose indentation argparse forgets

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = text.splitlines()
        return "\n".join(_continued(line, width) if line.startswith(" ") else textwrap.fill(line, width)
                         for line in lines)  # fmt: skip

    def _get_help_string(self, action: argparse.Action) -> str | None:
        default = action.default
        shown = (isinstance(default, str) and default) or (isinstance(default, int) and not isinstance(default, bool))
        return super()._get_help_string(action) if shown and default != argparse.SUPPRESS else action.help


def _continued(line: str, width: int) -> str:
    """Returns a line of shell in lines that fit, those after the first further to the right."""
    rows = ["  "]
    for word in _WORD.findall(line):
        if len(rows[-1]) + len(word) + 3 > width and rows[-1].strip():
            rows.append("      ")
        rows[-1] += f"{word} "
    return " \\\n".join(row.rstrip() for row in rows)


def _used(action: argparse.Action) -> str:
    """Returns a positional argument or a required option as the usage shows it; nothing for other options."""
    value = str(action.metavar or "|".join(action.choices or ()) or action.dest)
    if action.option_strings:
        return f"{action.option_strings[0]} {value}" if action.required else ""
    return {"?": f"[{value}]", "*": f"[{value} ..]"}.get(str(action.nargs), value)


class Parser(argparse.ArgumentParser):
    """A parser of the command line, or of one command; `commands` are its commands by name.

    `later` are functions that add its arguments when they are first needed: a command line needs those of one command.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_Formatter, **options)
        self.commands: Mapping[str, Parser] = {}
        self.later: Sequence[Callable[[Parser], object]] = ()

    def parse_known_args(self, *arguments: Any, **options: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Parses arguments, as argparse calls it for the chosen command, which reports those that it has not."""
        self.complete()
        found, unknown = super().parse_known_args(*arguments, **options)
        if hasattr(found, "only"):  # argparse itself takes patterns that stand before the options
            first = next((n for n, word in enumerate(unknown) if word.startswith("-")), len(unknown))
            found.only, unknown = [*found.only, *unknown[:first]], unknown[first:]
        if unknown and not self.commands:
            names = [name for action in self.options() for name in action.option_strings if len(name) > 2]
            near = difflib.get_close_matches(unknown[0].partition("=")[0], names, 1, 0.66)
            self.error(f"unrecognized arguments: {' '.join(unknown)}", near)
        return found, unknown

    def complete(self) -> Parser:
        """Adds the arguments that are not yet added, and returns the parser."""
        later, self.later = self.later, ()
        for add in later:
            add(self)
        if later and not self.commands:
            self.usage = " ".join((f"{self.prog} [OPTION ..]", *filter(None, map(_used, self._actions))))
        return self

    def error(self, message: str, near: Sequence[str] = ()) -> NoReturn:
        """Reports wrong usage, words that may be meant, and where help is, and exits."""
        self.print_usage(sys.stderr)
        if self.commands and (bad := _CHOICE.search(message)):
            message, near = f"there is no command '{bad[1]}'", difflib.get_close_matches(bad[1], self.commands, 1, 0.66)
        meant = f"did you mean {near[0]}? " if near else ""
        listed = "commands" if self.commands else "options"
        self.exit(2, f"{self.prog}: error: {message}\n  help: {meant}{self.prog} --help lists the {listed}\n")

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
        from ..ir.installed import versions

        print(versions())
        parser.exit()

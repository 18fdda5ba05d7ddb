"""Writes scripts that complete the commands, options and files of a command line in a shell, from its parsers."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from typing import Protocol

SHELLS = ("bash", "zsh", "fish")


class CompletedParser(Protocol):
    """The parser of a command line, or of one of its commands."""

    description: str | None

    def options(self) -> Sequence[argparse.Action]:
        """Returns the options, whose names begin with a dash."""
        ...


def completion(program: str, whole: CompletedParser, commands: Mapping[str, CompletedParser], shell: str) -> str:
    """Returns the script for one of SHELLS, for the user's start-up file or completion folder. `whole` has the options
    before a command.
    """
    if shell == "fish":
        return _fish(program, whole, commands)
    # zsh understands bash's completions.
    zsh = "autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    return zsh + _bash(program, whole, commands)


def _bash(program: str, whole: CompletedParser, commands: Mapping[str, CompletedParser]) -> str:
    values = {
        name: " ".join(map(str, action.choices))
        for command in commands.values() for action in command.options() if action.choices is not None
        for name in action.option_strings
    }  # fmt: skip
    cases = [f"    {name}) words='{' '.join(_names(command))}' ;;" for name, command in commands.items()]
    reply = "COMPREPLY=($(compgen -W '{}' -- \"$cur\"));"
    choices = [f"    {name}) {reply.format(words)} return ;;" for name, words in values.items()]
    return "\n".join((
        f"_{program}() {{",
        '  local cur="${COMP_WORDS[COMP_CWORD]}" words=',
        '  case "${COMP_WORDS[COMP_CWORD-1]}" in', *choices, "  esac",
        "  if ((COMP_CWORD == 1)); then",
        f"    {reply.format(' '.join((*commands, *_names(whole))))} return",
        "  fi",
        '  case "${COMP_WORDS[1]}" in', *cases, "  esac",
        '  if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "$words" -- "$cur"))',
        '  else COMPREPLY=($(compgen -f -- "$cur")); fi',
        "}",
        f"complete -o filenames -F _{program} {program}",
        "",
    ))  # fmt: skip


def _fish(program: str, whole: CompletedParser, commands: Mapping[str, CompletedParser]) -> str:
    first = f"complete -c {program} -n __fish_use_subcommand"
    lines = [f"{first} {_fish_option(action)}" for action in whole.options()]
    for name, command in commands.items():
        lines.append(f"{first} -a {name} -d {shlex.quote(command.description or '')}")
        lines += [f"complete -c {program} -n '__fish_seen_subcommand_from {name}' {_fish_option(action)}"
                  for action in command.options()]  # fmt: skip
    return "\n".join([*lines, ""])


def _fish_option(action: argparse.Action) -> str:
    long = next(name for name in action.option_strings if name.startswith("--")).removeprefix("--")
    takes = "" if action.nargs == 0 else " -r"
    choices = f" -a {shlex.quote(' '.join(map(str, action.choices)))}" if action.choices is not None else ""
    return f"-l {long}{takes}{choices} -d {shlex.quote(action.help or '')}"


def _names(parser: CompletedParser) -> list[str]:
    return [name for action in parser.options() for name in action.option_strings if name.startswith("--")]

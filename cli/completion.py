"""Implements `hloom completion SHELL`: a script that completes commands, options and files, generated from the parser.
"""

from __future__ import annotations

import argparse
import shlex

from ..report.terminal import show_program
from .exit_codes import EXIT_OK
from .parser import Parser

SHELLS = ("bash", "zsh", "fish")


def completion(parser: Parser, shell: str) -> str:
    """Returns the script for one of SHELLS, for the user's start-up file or completion folder."""
    if shell == "fish":
        return _fish(parser)
    # zsh understands bash's completions.
    return ("autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else "") + _bash(parser)


def _bash(parser: Parser) -> str:
    values = {
        name: " ".join(map(str, action.choices))
        for command in parser.commands.values() for action in command.options() if action.choices is not None
        for name in action.option_strings
    }  # fmt: skip
    cases = [f"    {name}) words='{' '.join(_names(command))}' ;;" for name, command in parser.commands.items()]
    reply = "COMPREPLY=($(compgen -W '{}' -- \"$cur\"));"
    choices = [f"    {name}) {reply.format(words)} return ;;" for name, words in values.items()]
    return "\n".join((
        "_hloom() {",
        '  local cur="${COMP_WORDS[COMP_CWORD]}" words=',
        '  case "${COMP_WORDS[COMP_CWORD-1]}" in', *choices, "  esac",
        "  if ((COMP_CWORD == 1)); then",
        f"    {reply.format(' '.join((*parser.commands, *_names(parser))))} return",
        "  fi",
        '  case "${COMP_WORDS[1]}" in', *cases, "  esac",
        '  if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "$words" -- "$cur"))',
        '  else COMPREPLY=($(compgen -f -- "$cur")); fi',
        "}",
        "complete -o filenames -F _hloom hloom",
        "",
    ))  # fmt: skip


def _fish(parser: Parser) -> str:
    lines = [f"complete -c hloom -n __fish_use_subcommand {_fish_option(a)}" for a in parser.options()]
    for name, command in parser.commands.items():
        about = shlex.quote(command.description or "")
        lines.append(f"complete -c hloom -n __fish_use_subcommand -a {name} -d {about}")
        lines += [f"complete -c hloom -n '__fish_seen_subcommand_from {name}' {_fish_option(a)}"
                  for a in command.options()]  # fmt: skip
    return "\n".join([*lines, ""])


def _fish_option(action: argparse.Action) -> str:
    long = next(name for name in action.option_strings if name.startswith("--")).removeprefix("--")
    takes = "" if action.nargs == 0 else " -r"
    choices = f" -a {shlex.quote(' '.join(map(str, action.choices)))}" if action.choices is not None else ""
    return f"-l {long}{takes}{choices} -d {shlex.quote(action.help or '')}"


def _names(parser: Parser) -> list[str]:
    return [name for action in parser.options() for name in action.option_strings if name.startswith("--")]


def completion_command(args: argparse.Namespace) -> int:
    """Prints the completion script for a shell."""
    from .commands import make_parser  # which lists this command too

    show_program(completion(make_parser(), args.shell))
    return EXIT_OK

"""Lists the commands: what each is for, which arguments it takes, and the late name of the function that runs it.

`hloom --help` and `--version` load none of the functions, and a command loads its own alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from . import arguments
from .examples import EXAMPLES
from .parser import Parser


class Command(NamedTuple):
    """A command: a line of help, a function that defines its arguments, the function that runs it."""

    help: str
    define: Callable[[Parser], None]
    place: str


COMMANDS = {
    "run": Command("partition a program and run it on simulated devices, or on MPI ranks with --ranks",
                   arguments.run, "cli.run:run"),
    "bench": Command("run a program repeatedly on simulated devices, or on MPI ranks, and print where the time goes",
                     arguments.bench, "cli.bench:bench"),
    "prove": Command("prove that the partitioned program equals the original, over a finite field",
                     arguments.prove, "cli.prove:prove_command"),
    "relate": Command("print which part of which value each value of the partitioned program is",
                      arguments.relate, "cli.relate:relate_command"),
    "eval": Command("run an unpartitioned program on one device", arguments.evaluate, "cli.evaluate:evaluate_command"),
    "partition": Command("print the program that each device runs", arguments.partition, "cli.text:partition_command"),
    "opt": Command("run passes and print the program", arguments.opt, "cli.text:opt"),
    "comm": Command("print the collectives of the partitioned program, most bytes first",
                    arguments.comm, "cli.comm:comm"),
    "memory": Command("print the live memory of the partitioned program, and what lives at its peak",
                      arguments.memory, "cli.memory:memory"),
    "schedule": Command("schedule the partitioned program, and print when its collectives run and what hides them",
                        arguments.schedule, "cli.schedule:schedule"),
    "forecast": Command("forecast the time of a step on a machine, what it waits for, and its memory",
                        arguments.forecast, "cli.forecast:forecast"),
    "machine": Command("list machines, print one as a file, or measure this one",
                       arguments.machine, "cli.machine:machine"),
    "shard": Command("print the sharding of every value", arguments.shard, "cli.shardings:shard"),
    "explain": Command("explain where the sharding of a value comes from",
                       arguments.explain, "cli.shardings:explain_command"),
    "rules": Command("print the sharding rule of every op", arguments.rules, "cli.shardings:rules"),
    "picture": Command("draw which devices hold which tiles of an array",
                       arguments.picture, "cli.shardings:picture_command"),
    "reshard": Command("print the cheapest plan from one sharding to another",
                       arguments.reshard, "cli.reshard:reshard_command"),
    "from-jax": Command("write the program of a JAX function as HLO", arguments.from_jax,
                        "cli.from_jax:from_jax_command"),
    "show": Command("print the program as Hloom reads it", arguments.show, "cli.parts:show"),
    "isolate": Command("print a program of one instruction, its inputs as parameters",
                       arguments.isolate, "cli.parts:isolate_command"),
    "diff": Command("compare two programs; names, order and spellings of shardings do not count",
                    arguments.diff, "cli.parts:diff"),
    "verify": Command("check a program", arguments.verify, "cli.text:verify"),
    "completion": Command("print a script that completes commands and options in a shell",
                          arguments.completion, "cli.completion:completion_command"),
}  # fmt: skip
"""The commands by name, in the order of the help."""


def make_parser() -> Parser:
    """Returns the parser of the command line. Each command defines its arguments when it is chosen."""
    parser = Parser(prog="hloom", description="Parse, shard, partition and run XLA HLO programs, without XLA.")
    parser.define = arguments.version
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        made = commands.add_parser(name, help=command.help, description=command.help)
        made.define = command.define
        made.show_examples(EXAMPLES[name])
    parser.commands = commands.choices
    return parser

"""Defines the arguments of all commands."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..cost.presets import PRESETS
from ..runtime.inputs.specs import KINDS
from .common import device_count, mesh_sizes, names, not_negative, positive, tolerance
from .completion import SHELLS
from .examples import EXAMPLES
from .parser import Parser, Version

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[Parser]  # pyright: ignore[reportPrivateUsage]


_WITH_JSON = ("run", "eval", "comm", "shard", "explain", "rules", "reshard", "diff", "verify", "prove", "relate")


def make_parser() -> Parser:
    """Returns the parser of the command line."""
    parser = Parser(
        prog="hloom", description="Parse, shard, partition and run XLA HLO programs, without XLA."
    )
    parser.add_argument("--version", action=Version)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _running(commands)
    _partitioning(commands)
    _shardings(commands)
    _looking(commands)
    parser.commands = commands.choices
    for name in _WITH_JSON:
        parser.commands[name].add_argument("--json", action="store_true", help="print JSON (see docs/json.md)")
    for name, command in parser.commands.items():
        command.show_examples(EXAMPLES[name])
    return parser


def _other(commands: Commands, name: str, help: str) -> Parser:
    """Adds a command that takes no program."""
    return commands.add_parser(name, help=help, description=help)


def _command(commands: Commands, name: str, help: str, devices: bool = True) -> Parser:
    """Adds a command on a program; with `devices`, one that partitions it."""
    made = _other(commands, name, help)
    made.add_argument("file", metavar="FILE", help="HLO text; - is standard input")
    made.add_argument("--import", dest="imports", metavar="FILE.py", action="append", default=[],
                      help="run this Python file first, for its custom-calls and rules")
    if devices:
        made.add_argument("--devices", type=device_count, metavar="N", help="number of devices")
        made.add_argument("--mesh", type=mesh_sizes, metavar="x=2,y=4", help="other sizes for named mesh axes")
        made.add_argument("--strategy", metavar="FILE", help="a file with shardings of the program")
        made.add_argument("--set", metavar="PATTERN=AXES,..", action="append", default=[],
                          help="shard the parameters with these names, such as 'w*=,y'")
        _add_machine(made)
    return made


def _add_machine(command: Parser) -> None:
    command.add_argument("--machine", metavar="NAME", default="",
                         help=f"the devices to decide for: {', '.join(PRESETS)}, or rates such as "
                              "'work=bf16:400T,f32:60T;memory=2TB'")
    command.add_argument("--links", metavar="TEXT", default="",
                         help="latency/bandwidth between devices, and from certain strides on: '1us/100GB;8:5us/25GB'")


def _add_werror(command: Parser) -> None:
    command.add_argument("--werror", type=names, metavar="CATEGORY,..", default=frozenset[str](),
                         help="fail on remarks and warnings; with =.. only of these categories")


def _running(commands: Commands) -> None:
    run = _command(commands, "run", "partition a program and run it on simulated devices, or on MPI ranks with --ranks")
    run.add_argument("--ranks", type=positive, metavar="N", help="run on N MPI ranks")
    run.add_argument("--timeout", type=positive, metavar="SECONDS",
                     help="with ranks: give up after waiting this long for a rank (default: HLOOM_TIMEOUT, "
                     "else never while the rank answers)")
    run.add_argument("--check", action="store_true", help="compare with the unpartitioned program on one device")
    run.add_argument("--tolerance", type=tolerance, metavar="T",
                     help="with --check: allow errors of T times the largest magnitude of each result, in place of "
                          "the allowances for rounding")
    run.add_argument("--seeds", type=positive, metavar="N", default=1, help="with --check: check N seeds, from --seed")
    run.add_argument("--allow-nan", action="store_true", help="with --check: results may hold NaN and infinities")
    _add_werror(run)

    prove = _command(commands, "prove", "prove that the partitioned program equals the original, over a finite field")
    prove.add_argument("local", metavar="LOCAL", nargs="?",
                       help="a program per device that another partitioner made of FILE (default: Hloom makes it)")
    prove.add_argument("--all-inputs", action="store_true",
                       help="of an equal program, also say what holds for all inputs, integers and comparisons too")
    prove.add_argument("--trials", type=positive, metavar="N", default=4, help="number of runs")
    prove.add_argument("--seed", type=not_negative, metavar="N", default=0, help="seed of the trials")
    _add_werror(prove)

    relate = _command(commands, "relate", "print which part of which value each value of the partitioned program is")
    relate.add_argument("only", metavar="PATTERN", nargs="*",
                        help="show only values with these names, in which * matches anything")
    relate.add_argument("--seed", type=not_negative, metavar="N", default=0, help="seed of the run")
    _add_werror(relate)

    evaluate = _command(commands, "eval", "run an unpartitioned program on one device", devices=False)
    for made in (run, evaluate):
        made.add_argument("--inputs", default="random", metavar="random|zeros|NAME=KIND;..|FILE",
                          help="random numbers in ranges that the program implies (the default), zeros, settings of "
                               "single inputs (the others random), or an .npz file or folder of .npy files by names. "
                               f"NAME is a parameter or JAX path, * any characters; KIND: {KINDS}. "
                               "For example 'pos=int[0,50257); nu*=uniform[0,1)'")
        made.add_argument("--seed", type=not_negative, metavar="N", default=0, help="seed of random inputs")
        made.add_argument("--out", metavar="DIR", help="write the outputs there as .npy files")


def _partitioning(commands: Commands) -> None:
    partition = _command(commands, "partition", "print the program that each device runs")
    partition.add_argument("--form", choices=("local", "manual", "replica"), default="local",
                           help="local: per device; manual, replica: for XLA to compile for all devices")

    opt = _command(commands, "opt", "run passes and print the program")
    opt.add_argument("--passes", required=True, metavar="P,P{option=value}", help="passes, in order")
    opt.add_argument("--dump-after", metavar="P,P|all", help="print the program after these passes on standard error")
    opt.add_argument("--time", action="store_true", help="print the time of each pass on standard error")

    comm = _command(commands, "comm", "print the collectives of the partitioned program, most bytes first")

    for made in (partition, opt, comm):
        _add_werror(made)


def _shardings(commands: Commands) -> None:
    shard = _command(commands, "shard", "print the sharding of every value")
    shard.add_argument("only", metavar="PATTERN", nargs="*",
                       help="show only values with these names or JAX paths, in which * matches anything")
    shard.add_argument("--all", action="store_true", help="also show values whose names differ only in numbers")
    shard.add_argument("--text", action="store_true", help="print HLO text with the shardings instead of a table")
    _add_werror(shard)

    explain = _command(commands, "explain", "explain where the sharding of a value comes from")
    explain.add_argument("value", metavar="VALUE", help="a name, such as dot.3 or tuple.1[2], or a JAX path")
    explain.add_argument("--without", metavar="NAME", action="append", default=[],
                         help="show what changes if this value is not annotated")

    _command(commands, "rules", "print the sharding rule of every op", devices=False)

    picture = _other(commands, "picture", "draw which devices hold which tiles of an array")
    picture.add_argument("shape", metavar="SHAPE", help="such as f32[32,32,32]")
    picture.add_argument("sharding", metavar="SHARDING", help="as HLO writes it, or [{'x'}, {}] with --mesh")
    picture.add_argument("--mesh", type=mesh_sizes, metavar="x=2,y=4", help="the mesh of a sharding without one")

    reshard = _other(commands, "reshard", "print the cheapest plan from one sharding to another")
    reshard.add_argument("shape", metavar="SHAPE", help="such as f32[32,32,32]")
    reshard.add_argument("source", metavar="FROM", help="a sharding as HLO writes it, or [{'x'}, {}] with --mesh")
    reshard.add_argument("target", metavar="TO", help="likewise")
    reshard.add_argument("--mesh", type=mesh_sizes, metavar="x=2,y=4", help="the mesh of shardings without one")
    reshard.add_argument("--memory", type=positive, metavar="BYTES", help="limit on the bytes of the array on a device")
    _add_machine(reshard)


def _looking(commands: Commands) -> None:
    """Adds the commands that neither change nor partition the program."""
    show = _command(commands, "show", "print the program as Hloom reads it", devices=False)
    show.add_argument("--computation", metavar="NAME", help="print only this computation")

    isolate = _command(commands, "isolate", "print a program of one instruction, its inputs as parameters",
                       devices=False)
    isolate.add_argument("--inst", required=True, metavar="NAME", help="the instruction")
    isolate.add_argument("--computation", metavar="NAME", help="the computation it is in, if not the entry")
    isolate.add_argument("--depth", type=not_negative, default=0, metavar="N",
                         help="keep N levels of its operands")

    diff = _command(commands, "diff", "compare two programs; names, order and spellings of shardings do not count",
                    devices=False)
    diff.add_argument("other", metavar="OTHER", help="HLO text; - is standard input")

    _add_werror(_command(commands, "verify", "check a program", devices=False))

    completion = _other(commands, "completion", "print a script that completes commands and options in a shell")
    completion.add_argument("shell", choices=SHELLS, help="the shell")

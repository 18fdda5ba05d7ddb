"""Defines the arguments that several commands share, and parses the values of arguments.

An argument is a function that adds itself to the parser of a command, so a command has a tuple of them; a rule among
them says which do not fit together. Values that are none raise argparse.ArgumentTypeError.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ..ir.diagnostics import CompileError
from ..ir.late import late
from ..report.remarks import FEW, SHOWN
from .parser import Parser

Argument = Callable[[Parser], object]
T = TypeVar("T")


def argument(*names: str, **settings: Any) -> Argument:
    """Returns an argument that `add_argument` adds with these settings."""
    return lambda parser: parser.add_argument(*names, **settings)


def option(name: str, metavar: str, help: str, **settings: Any) -> Argument:
    """Returns an option whose value the help calls `metavar`."""
    return argument(name, metavar=metavar, help=help, **settings)


def count(name: str, help: str, **settings: Any) -> Argument:
    """Returns an option with a number N of at least 1."""
    return argument(name, type=positive, metavar="N", help=help, **settings)


def flag(name: str, help: str) -> Argument:
    """Returns an option without a value."""
    return argument(name, action="store_true", help=help)


def defaults(**values: object) -> Argument:
    """Returns the values of arguments that a command does not offer."""
    return lambda parser: parser.set_defaults(**values)


@dataclass(frozen=True)
class Rule:
    """Refuses options that do not fit together, with a message, among the arguments of a command."""

    wrong: Callable[[argparse.Namespace], object]
    message: str

    def __call__(self, parser: Parser) -> None:
        """Adds nothing to a parser."""


def needs(name: str, other: str, message: str) -> Rule:
    """Returns the rule that an option is refused without another one; both are names of values."""
    return Rule(lambda args: getattr(args, name) and not getattr(args, other), message)


def obey(args: argparse.Namespace, arguments: Iterable[Argument]) -> None:
    """Raises argparse.ArgumentTypeError for the first rule among the arguments of a command that its values break."""
    for rule in arguments:
        if isinstance(rule, Rule) and rule.wrong(args):
            raise argparse.ArgumentTypeError(rule.message)


def _value(
    read: Callable[[str], T], message: str, fits: Callable[[T], bool] = lambda value: True
) -> Callable[[str], T]:
    """Returns a parser of values by `read`. It refuses texts that raise ValueError, and values that do not fit, with
    this message after the text, and those that raise CompileError with its message.
    """

    def parse(text: str) -> T:
        try:
            found = read(text)
            if fits(found):
                return found
        except CompileError as error:
            raise argparse.ArgumentTypeError(error.diagnostics[0].message) from None
        except ValueError:
            pass
        raise argparse.ArgumentTypeError(f"'{text}' {message}")

    return parse


def device_count(text: str) -> int:
    """Parses a number of devices."""
    from ..ir.sharding.mesh import LARGEST_MESH

    if positive(text) > LARGEST_MESH:
        raise argparse.ArgumentTypeError(f"there are at most {LARGEST_MESH} devices, their numbers have 32 bits")
    return int(text)


def backend_name(text: str) -> str:
    """Returns the name of a backend, also from the environment."""
    from ..driver.backend import BACKENDS

    if text not in BACKENDS:
        raise argparse.ArgumentTypeError(f"'{text}' is none of {', '.join(BACKENDS)}")
    return text


def _at_least(least: int, text: str) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of at least {least}")
    return int(text)


def _list(text: str, read: Callable[[str], T], separator: str = ",", length: int | None = None) -> tuple[T, ...]:
    parts = text.split(separator)
    if length not in (None, len(parts)):
        raise ValueError(text)
    return tuple(map(read, parts))


def _names(text: str) -> frozenset[str]:
    """Parses `a,b` into a set. The names are checked after the files of `--import` have run."""
    return frozenset(text.split(","))


def _job_mix(text: str) -> tuple[tuple[int, int], ...]:
    pairs = [(chips, jobs) for chips, jobs in (part.split(":") for part in text.split(","))]
    return tuple((positive(chips), positive(jobs)) for chips, jobs in pairs)


def _is_place(text: str) -> bool:
    path, _, name = text.rpartition(":")
    return bool(path) and name.isidentifier()


positive, parts, not_negative = (partial(_at_least, least) for least in (1, 2, 0))
"""Parse a whole number of at least 1, 2 or 0."""
positive_list = partial(_list, read=positive)
"""Parses `64,256` into numbers of at least 1."""
seconds = _value(float, "is not a positive number of seconds", lambda number: number > 0)
"""Parses a positive number of seconds, `inf` for no limit."""
duration = _value(lambda text: float(text[: -1 if text[-1:] in ("s", "m") else None]) * (60.0 if "m" in text else 1.0),
                  "is not a positive time such as 60s or 2m", lambda number: number > 0)  # fmt: skip
"""Parses a number of seconds, or of minutes as `2m`."""
output = _value(lambda text: late("ir.user_files:writable")(text), "")
"""Finds out before long work whether a file that it names can be written; raises OSError."""
tolerance = _value(float, "is not a number of at least 0", lambda number: 0 <= number < math.inf)
mesh_sizes = _value(lambda text: late("ir.sharding.mesh:parse_sizes")(text), "is not of the form x=2,y=4")
"""Parses `x=2,y=4` into a dict."""
python_place = _value(str, "is not of the form FILE.py:FUNCTION", _is_place)
extent = _value(partial(_list, read=positive, separator="x", length=3), "is not of the form 4x4x4")
job_mix = _value(_job_mix, "is not of the form CHIPS:JOBS,.., such as 1024:2,256:4")
"""Parses `1024:2,256:4`: the chips of a job and the number of such jobs."""
shares = _value(partial(_list, read=float), "are not numbers between 0 and 1, such as 0.99,0.999",
                lambda found: all(0 < share < 1 for share in found))  # fmt: skip
fault = _value(lambda text: late("runtime.fabric.rehearsal:Fault").parse(text),
               "is not of the form RANK,COLLECTIVE,kill|stop|slow|drop-host[,START]")  # fmt: skip
byte_count = _value(lambda text: positive(str(int(late("cost.sizes:Bytes")(text)))),
                    "is not a number of bytes such as 12GB")  # fmt: skip


def machine(parser: Parser) -> None:
    """Adds the options that name the machine to decide for."""
    from ..cost.presets import PRESETS

    parser.add_argument("--machine", metavar="NAME|FILE", default="",
                        help=f"the devices to decide for: {', '.join(PRESETS)}, a machine file FILE.toml, or rates "
                             "such as 'work=bf16:400T,f32:60T;memory=2TB'")
    parser.add_argument("--links", metavar="TEXT", default="",
                        help="latency/bandwidth between devices, and from certain strides on: '1us/100GB;8:5us/25GB'")


def backend(parser: Parser) -> None:
    """Adds the option that names a backend."""
    from ..driver.backend import BACKENDS, default_backend

    parser.add_argument("--backend", metavar="|".join(BACKENDS), type=backend_name,
                        default=default_backend(),
                        help="who computes: fused native code, numpy op by op (reference), or auto: native code where "
                             "it is there and saves more time than compiling takes, else the reference (default: "
                             "HLOOM_BACKEND, else auto)")


def ranks(parser: Parser) -> None:
    """Adds the options of runs on MPI ranks."""
    from ..runtime.ranks.mode import MODES

    parser.add_argument("--ranks", type=positive, metavar="N", help="run on N MPI ranks")
    parser.add_argument("--timeout", type=positive, metavar="SECONDS",
                        help="with ranks: give up after waiting this long for a rank (default: HLOOM_TIMEOUT, "
                             "else never while the rank answers)")
    parser.add_argument("--collectives", choices=MODES,
                        help="with ranks: how ranks of one node communicate: through shared memory (an error if there "
                             "is too little), through MPI, or auto: through shared memory if there is enough (default: "
                             "HLOOM_COLLECTIVES, else auto)")


def inputs(parser: Parser) -> None:
    """Adds the options that give a program its inputs."""
    from ..runtime.inputs.specs import KINDS

    parser.add_argument("--inputs", default="", metavar="example|random|zeros|NAME=KIND;..|FILE",
                        help="arrays that FILE.py:FUNCTION gives (default with seed 0), random numbers in ranges that "
                             "the program implies, zeros, settings of single ones, .npz file or .npy folder by names. "
                             f"NAME is a parameter or JAX path, * any characters; KIND: {KINDS}. "
                             "For example 'pos=int[0,50257); nu*=uniform[0,1)'")
    parser.add_argument("--seed", type=not_negative, metavar="N", default=0, help="seed of random --inputs")


def step_inputs(parser: Parser) -> None:
    """Adds the options that give the inputs of each step of a training run."""
    parser.add_argument("--inputs", default="random", metavar="random|NAME=KIND;..|FILE|FILE.py:FUNCTION",
                        help="all but the state, for each step: random numbers, another seed for each step (the "
                             "default), settings or files as of `hloom run`, where {step} is the number of the step, "
                             "or a Python function that takes this number, from 0 on, and returns the arrays in order "
                             "or by name")
    parser.add_argument("--seed", type=not_negative, metavar="N", default=0, help="seed of random state and inputs")


def remarks(default: str = FEW) -> tuple[Argument, ...]:
    """Returns the options that say which remarks are told, and which end the command."""
    return (
        argument("--remarks", choices=SHOWN, default=default,
                 help="the remarks to print after the results: the few that cost most, equal ones once, all, or none"),
        option("--werror", "CATEGORY,..", "fail on remarks and warnings; with =.. only of these categories",
               type=_names, default=frozenset[str]()),
    )  # fmt: skip


PROGRAM = (
    argument("file", metavar="FILE",
             help="HLO, as text or serialized, StableHLO, or FILE.py:FUNCTION of JAX; - is standard input"),
    option("--import", "FILE.py", "run this Python file first, for its custom-calls and rules", dest="imports",
           action="append", default=[]),
)  # fmt: skip
"""The program of a command."""

_STRATEGY = option("--strategy", "FILE", "a file with shardings of the program")
_STRATEGIES = option("--strategy", "FILE", "a file with shardings of the program; several are compared",
                     dest="strategies", action="append", default=[])  # fmt: skip
_DIVIDED = (
    option("--devices", "N", "number of devices", type=device_count),
    option("--mesh", "x=2,y=4", "other sizes for named mesh axes", type=mesh_sizes),
    option("--set", "PATTERN=AXES,..", "shard the parameters with these names, such as 'w*=,y'", action="append",
           default=[]),
    machine,
)  # fmt: skip
_EXCHANGED = (
    argument("--reduce-in", choices=("f64", "f32", "bf16", "f16", "s8", "f8e4m3fn"),
             help="the type in which devices add floats, or send what they add in f32, in eight bits with a scale per "
                  "block (default: that of the arrays); remarks bound the error, which --check allows"),
    argument("--gather-in", choices=("bf16", "f16", "s8", "f8e4m3fn"),
             help="the type in which devices gather floats (default: that of the arrays), in the same way"),
)  # fmt: skip
PARTITIONED = (*PROGRAM, _STRATEGY, *_DIVIDED, *_EXCHANGED)
"""The program of a command that partitions it, and how."""
COMPARED = (*PROGRAM, _STRATEGIES, *_DIVIDED)
"""The same for a command that compares strategies."""

FLAT = flag("--flat-parameters", "keep parameters that a schedule gathers together in one buffer, so that packing them "
                                 "is free; arrays are given and shown one by one")  # fmt: skip

BATCH = option("--split-batch", "N", "try to compute the batch in N parts, each of which computes while the other ones "
               "communicate; keep that if it is faster", type=parts, default=0)  # fmt: skip

AS_IS = (
    flag("--as-is", "keep the order of the program, and its collectives"),
    Rule(lambda args: args.as_is and args.memory, "--memory limits what a new order may use, --as-is asks for none"),
    Rule(lambda args: args.as_is and args.split_batch, "--split-batch asks for another program, --as-is for none"),
)  # fmt: skip
ALL = flag("--all", "show each of those that differ in numbers only")


def memory(metavar: str = "12GB", when: str = "") -> Argument:
    """Returns the option that limits the memory of a device."""
    return argument("--memory", type=byte_count, metavar=metavar,
                    help=f"{when}the most bytes that the program may take on a device")


SCHEDULED_MEMORY = (
    memory(when="with --schedule: "),
    needs("memory", "schedule", "--memory limits what --schedule may use: give both"),
)
SCHEDULE = (
    argument("--schedule", action=argparse.BooleanOptionalAction,
             help="combine collectives and order the program, so that they run beside computation (default: on ranks, "
                  "where --machine forecasts that it saves more time than it takes)"),
    *SCHEDULED_MEMORY,
    FLAT,
    BATCH,
    needs("flat_parameters", "schedule", "--flat-parameters joins what --schedule gathers together: give both"),
    needs("split_batch", "schedule", "--split-batch is for --schedule: give both"),
)  # fmt: skip

CHECKPOINT = (
    option("--checkpoint", "DIR",
           "write the state to this folder while the program runs, and begin with the newest state there", type=Path),
    option("--every", "N|60s|auto", "write after N steps, after so many seconds, or as often as loses the least time, "
           "given the measured time of a write and the failures of machines (default: auto)", default="auto"),
    count("--keep", "the number of checkpoints that stay (default: 2)", default=2),
)  # fmt: skip
"""Checkpoints of a training run."""

FAULT = option("--fault", "RANK,COLLECTIVE,kill|stop|slow|drop-host[,START]", "rehearse a failure: the rank dies, "
               "stops, becomes slow or loses its host at its collective of this number, counted from 0 over all steps, "
               "or while it writes the checkpoint of a step (write:STEP in place of the number), in the first start of "
               "the job or that of this number", type=fault, action="append", default=[])  # fmt: skip

RECOVERY = (
    argument("--on-failure", choices=("restart", "fold", "shrink"),
             help="with ranks: when one is lost, start the job again from the newest checkpoint: on as many ranks, "
                  "with the same devices on one rank less (fold), or with fewer devices on one rank less (shrink)"),
    option("--spares", "N", "with fold or shrink: ranks that stand by, and take the place of lost ones",
           type=not_negative, default=0),
    option("--snapshots", "N", "with fold or shrink: keep the state in the memory of ranks every N steps, and what one "
           "rank alone holds on another one too (default: 1; 0: the checkpoint has to do)", type=not_negative,
           default=1),
    count("--starts", "with --on-failure: the most starts of the job (default: 5)", default=5),
    FAULT,
    flag("--preflight", "with ranks: try all of them first, as `hloom preflight`"),
    argument("--start", type=not_negative, default=0, help=argparse.SUPPRESS),  # the number of this start
    *(needs(name.replace("-", "_"), "ranks", f"--{name} is about ranks: give --ranks")
      for name in ("on-failure", "fault", "preflight")),
    needs("on_failure", "checkpoint", "--on-failure goes on from a checkpoint: give --checkpoint"),
    Rule(lambda args: (args.spares, args.snapshots) != (0, 1) and args.on_failure not in ("fold", "shrink"),
         "--spares and --snapshots are for jobs that go on: give --on-failure fold or shrink"),
    Rule(lambda args: args.starts != 5 and not args.on_failure, "--starts is for --on-failure: give both"),
    Rule(lambda a: not a.checkpoint and (a.every, a.keep) != ("auto", 2), "--every and --keep need --checkpoint"),
)  # fmt: skip
"""Failures of ranks in a training run."""

TRACE = option("--trace", "F.json", "write what the last run did, and when, on each rank: a file for Perfetto "
               "(ui.perfetto.dev)", type=Path)  # fmt: skip
JSON = flag("--json", "print JSON (see docs/json.md)")
CRITICAL = flag("--critical", "print the longest path through the program")
EVEN = flag("--even", "give parameters and results equal tiles alone, as jax.jit needs, and FILE.py:FUNCTION always")
OUT = option("--out", "DIR", "write the outputs there as .npy files")

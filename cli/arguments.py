"""Defines the arguments of each command: one function per command, and one per group that several share."""

from __future__ import annotations

import os
from argparse import BooleanOptionalAction
from pathlib import Path

from .completion import SHELLS
from .parser import Parser, Version
from .remarks import ALL, FEW, SHOWN
from .values import (
    byte_count,
    device_count,
    mesh_sizes,
    names,
    not_negative,
    positive,
    python_place,
    seconds,
    tolerance,
)


def version(parser: Parser) -> None:
    """Defines the option of Hloom itself."""
    parser.add_argument("--version", action=Version)


def _program(made: Parser) -> None:
    """Defines the program of a command."""
    made.add_argument("file", metavar="FILE", help="HLO, as text or serialized, or StableHLO; - is standard input")
    made.add_argument("--import", dest="imports", metavar="FILE.py", action="append", default=[],
                      help="run this Python file first, for its custom-calls and rules")


def _partitioned(made: Parser) -> None:
    """Defines the program of a command that partitions it, and how."""
    _program(made)
    made.add_argument("--devices", type=device_count, metavar="N", help="number of devices")
    made.add_argument("--mesh", type=mesh_sizes, metavar="x=2,y=4", help="other sizes for named mesh axes")
    made.add_argument("--strategy", metavar="FILE", help="a file with shardings of the program")
    made.add_argument("--set", metavar="PATTERN=AXES,..", action="append", default=[],
                      help="shard the parameters with these names, such as 'w*=,y'")
    _machine(made)


def _machine(made: Parser) -> None:
    from ..cost.presets import PRESETS

    made.add_argument("--machine", metavar="NAME|FILE", default="",
                      help=f"the devices to decide for: {', '.join(PRESETS)}, a machine file FILE.toml, or rates such "
                           "as 'work=bf16:400T,f32:60T;memory=2TB'")
    made.add_argument("--links", metavar="TEXT", default="",
                      help="latency/bandwidth between devices, and from certain strides on: '1us/100GB;8:5us/25GB'")


def _schedule(made: Parser) -> None:
    made.add_argument("--schedule", action=BooleanOptionalAction,
                      help="combine collectives and order the program, so that they run beside computation (default: "
                           "on ranks, where --machine forecasts that it saves more time than it takes)")
    made.add_argument("--memory", type=byte_count, metavar="12GB",
                      help="with --schedule: the most bytes that the program may take on a device")
    _flat(made)


def _flat(made: Parser) -> None:
    made.add_argument("--flat-parameters", action="store_true",
                      help="keep parameters that a schedule gathers together in one buffer, so that packing them is "
                           "free; arrays are given and shown one by one")


def _critical(made: Parser) -> None:
    made.add_argument("--critical", action="store_true", help="print the longest path through the program")


def _remarks(made: Parser, default: str = FEW) -> None:
    """Defines which remarks are told, and which end the command."""
    made.add_argument("--remarks", choices=SHOWN, default=default,
                      help="the remarks to print after the results: the few that cost most, equal ones once, all, or "
                           "none")
    made.add_argument("--werror", type=names, metavar="CATEGORY,..", default=frozenset[str](),
                      help="fail on remarks and warnings; with =.. only of these categories")


def _json(made: Parser) -> None:
    made.add_argument("--json", action="store_true", help="print JSON (see docs/json.md)")


def _ranks(made: Parser) -> None:
    from ..runtime.ranks.mode import MODES

    made.add_argument("--ranks", type=positive, metavar="N", help="run on N MPI ranks")
    made.add_argument("--timeout", type=positive, metavar="SECONDS",
                      help="with ranks: give up after waiting this long for a rank (default: HLOOM_TIMEOUT, "
                           "else never while the rank answers)")
    made.add_argument("--collectives", choices=MODES,
                      help="with ranks: how ranks of one node communicate: through shared memory (an error if there is "
                           "too little), through MPI, or auto: through shared memory if there is enough (default: "
                           "HLOOM_COLLECTIVES, else auto)")


def _inputs(made: Parser) -> None:
    from ..runtime.inputs.specs import KINDS

    made.add_argument("--inputs", default="random", metavar="random|zeros|NAME=KIND;..|FILE",
                      help="random numbers in ranges that the program implies (the default), zeros, settings of "
                           "single inputs (the others random), or an .npz file or folder of .npy files by names. "
                           f"NAME is a parameter or JAX path, * any characters; KIND: {KINDS}. "
                           "For example 'pos=int[0,50257); nu*=uniform[0,1)'")
    made.add_argument("--seed", type=not_negative, metavar="N", default=0, help="seed of random inputs")


def _backend(made: Parser) -> None:
    from ..driver.backend import AUTO, BACKENDS
    from .values import backend_name

    made.add_argument("--backend", metavar="|".join(BACKENDS), type=backend_name,
                      default=os.environ.get("HLOOM_BACKEND") or AUTO,
                      help="who computes: fused native code, numpy op by op (reference), or auto: native code where it "
                           "is there and saves more time than compiling takes, else the reference (default: "
                           "HLOOM_BACKEND, else auto)")


def _out(made: Parser) -> None:
    made.add_argument("--out", metavar="DIR", help="write the outputs there as .npy files")


def _trace(made: Parser) -> None:
    made.add_argument("--trace", type=Path, metavar="F.json",
                      help="write what the last run did, and when, on each rank: a file for Perfetto (ui.perfetto.dev)")


def run(made: Parser) -> None:
    """Defines the arguments of `hloom run`."""
    _partitioned(made)
    _ranks(made)
    _backend(made)
    made.add_argument("--check", action="store_true", help="compare with the unpartitioned program on one device")
    made.add_argument("--tolerance", type=tolerance, metavar="T",
                      help="with --check: allow errors of T times the largest magnitude of each result, in place of "
                           "the allowances for rounding")
    made.add_argument("--seeds", type=positive, metavar="N", default=1, help="with --check: check N seeds, from --seed")
    made.add_argument("--allow-nan", action="store_true", help="with --check: results may hold NaN and infinities")
    made.add_argument("--repeat", type=positive, metavar="N",
                      help="run N times on the same inputs, and print the time of the first run and the median")
    _trace(made)
    _schedule(made)
    _remarks(made)
    made.set_defaults(keeps=True, is_long=False)
    _inputs(made)
    _out(made)
    _json(made)


def bench(made: Parser) -> None:
    """Defines the arguments of `hloom bench`."""
    _partitioned(made)
    _ranks(made)
    _backend(made)
    made.add_argument("--repeat", type=positive, metavar="N", default=10, help="number of runs after the first")
    _trace(made)
    made.set_defaults(check=False, out=None, keeps=False, is_long=True)  # it measures how long compiling takes
    _schedule(made)
    _remarks(made)
    _inputs(made)
    _json(made)


def prove(made: Parser) -> None:
    """Defines the arguments of `hloom prove`."""
    _partitioned(made)
    made.add_argument("local", metavar="LOCAL", nargs="?",
                      help="a program per device that another partitioner made of FILE (default: Hloom makes it)")
    made.add_argument("--all-inputs", action="store_true",
                      help="of a program without a difference, also count the values that are right for all inputs")
    made.add_argument("--trials", type=positive, metavar="N",
                      help="number of runs (default: as many as the decisions of the program need)")
    made.add_argument("--seed", type=not_negative, metavar="N", default=0, help="seed of the trials")
    made.add_argument("--timeout", type=seconds, metavar="S", default=60.0,
                      help="seconds after which the proof ends undecided (default: 60)")
    _remarks(made)
    _json(made)


def relate(made: Parser) -> None:
    """Defines the arguments of `hloom relate`."""
    _partitioned(made)
    made.add_argument("only", metavar="PATTERN", nargs="*",
                      help="show only values with these names, in which * matches anything")
    made.add_argument("--seed", type=not_negative, metavar="N", default=0, help="seed of the run")
    _remarks(made)
    _json(made)


def evaluate(made: Parser) -> None:
    """Defines the arguments of `hloom eval`."""
    _program(made)
    _backend(made)
    _inputs(made)
    _out(made)
    _json(made)


def partition(made: Parser) -> None:
    """Defines the arguments of `hloom partition`."""
    _partitioned(made)
    made.add_argument("--form", choices=("local", "manual", "replica"), default="local",
                      help="local: per device; manual, replica: for XLA to compile for all devices")
    _schedule(made)
    _remarks(made)


def opt(made: Parser) -> None:
    """Defines the arguments of `hloom opt`."""
    _partitioned(made)
    made.add_argument("--passes", required=True, metavar="P,P{option=value}", help="passes, in order")
    made.add_argument("--dump-after", metavar="P,P|all", help="print the program after these passes on standard error")
    made.add_argument("--explain", metavar="NAME", help="tell what the pass fusion decided about this op, and why")
    made.add_argument("--time", action="store_true", help="print the time of each pass on standard error")
    _remarks(made, ALL)


def comm(made: Parser) -> None:
    """Defines the arguments of `hloom comm`."""
    _partitioned(made)
    _remarks(made)
    _json(made)


def memory(made: Parser) -> None:
    """Defines the arguments of `hloom memory`."""
    _partitioned(made)
    made.add_argument("--largest", type=positive, metavar="N", default=10, help="list the N largest buffers")
    _remarks(made)
    _json(made)


def schedule(made: Parser) -> None:
    """Defines the arguments of `hloom schedule`."""
    _partitioned(made)
    made.add_argument("--memory", type=byte_count, metavar="12GB",
                      help="the most bytes that the program may take on a device")
    _flat(made)
    made.add_argument("--as-is", action="store_true", help="keep the order of the program, and its collectives")
    _critical(made)
    made.add_argument("--trace", type=Path, metavar="F.json",
                      help="write the forecast as a file for Perfetto (ui.perfetto.dev)")
    made.add_argument("--measured", metavar="TRACE.json",
                      help="compare with what hloom run --trace wrote of this program")
    _remarks(made, ALL)
    _json(made)


def forecast(made: Parser) -> None:
    """Defines the arguments of `hloom forecast`."""
    _partitioned(made)
    made.add_argument("--memory", type=byte_count, metavar="12GB",
                      help="the most bytes that the program may take on a device")
    made.add_argument("--as-is", action="store_true", help="keep the order of the program, and its collectives")
    made.add_argument("--batch-of", metavar="PARAM", default="",
                      help="count the elements of this parameter per second if they are integers, or else its rows")
    _critical(made)
    _remarks(made)
    _json(made)


def shard(made: Parser) -> None:
    """Defines the arguments of `hloom shard`."""
    _partitioned(made)
    made.add_argument("only", metavar="PATTERN", nargs="*",
                      help="show only values with these names or JAX paths, in which * matches anything")
    made.add_argument("--all", action="store_true", help="also show values whose names differ only in numbers")
    made.add_argument("--text", action="store_true", help="print HLO text with the shardings instead of a table")
    _remarks(made)
    _json(made)


def explain(made: Parser) -> None:
    """Defines the arguments of `hloom explain`."""
    _partitioned(made)
    made.add_argument("value", metavar="VALUE", help="a name, such as dot.3 or tuple.1[2], or a JAX path")
    made.add_argument("--without", metavar="NAME", action="append", default=[],
                      help="show what changes if this value is not annotated")
    _json(made)


def rules(made: Parser) -> None:
    """Defines the arguments of `hloom rules`."""
    _program(made)
    _json(made)


def picture(made: Parser) -> None:
    """Defines the arguments of `hloom picture`."""
    made.add_argument("shape", metavar="SHAPE", help="such as f32[32,32,32]")
    made.add_argument("sharding", metavar="SHARDING", help="as HLO writes it, or [{'x'}, {}] with --mesh")
    made.add_argument("--mesh", type=mesh_sizes, metavar="x=2,y=4", help="the mesh of a sharding without one")


def reshard(made: Parser) -> None:
    """Defines the arguments of `hloom reshard`."""
    made.add_argument("shape", metavar="SHAPE", help="such as f32[32,32,32]")
    made.add_argument("source", metavar="FROM", help="a sharding as HLO writes it, or [{'x'}, {}] with --mesh")
    made.add_argument("target", metavar="TO", help="likewise")
    made.add_argument("--mesh", type=mesh_sizes, metavar="x=2,y=4", help="the mesh of shardings without one")
    made.add_argument("--memory", type=positive, metavar="BYTES", help="limit on the bytes of the array on a device")
    _machine(made)
    _json(made)


def machine(made: Parser) -> None:
    """Defines the arguments of `hloom machine`."""
    made.add_argument("name", nargs="?", metavar="NAME|FILE.toml|calibrate",
                      help="the machine to print, or calibrate to measure this one; without it: list all names")
    made.add_argument("--ranks", type=positive, metavar="N",
                      help="calibrate on N MPI ranks, with their collectives")
    _backend(made)
    made.add_argument("-o", "--out", metavar="FILE.toml", help="write what calibrate finds to this file")
    _json(made)


def from_jax(made: Parser) -> None:
    """Defines the arguments of `hloom from-jax`."""
    made.add_argument("place", metavar="FILE.py:FUNCTION", type=python_place,
                      help="a function without arguments that returns (f, args), or f lowered by JAX; args are arrays "
                           "or jax.ShapeDtypeStructs")
    made.add_argument("--out", metavar="F.hlo", help="write the program there (default: standard output)")
    made.add_argument("--devices", type=positive, metavar="N", help="give JAX N virtual CPU devices for its meshes")


def show(made: Parser) -> None:
    """Defines the arguments of `hloom show`."""
    _program(made)
    made.add_argument("--computation", metavar="NAME", help="print only this computation")
    made.add_argument("--as", dest="form", choices=("hlo", "stablehlo"), default="hlo", help="the language to print")


def isolate(made: Parser) -> None:
    """Defines the arguments of `hloom isolate`."""
    _program(made)
    made.add_argument("--inst", required=True, metavar="NAME", help="the instruction")
    made.add_argument("--computation", metavar="NAME", help="the computation it is in, if not the entry")
    made.add_argument("--depth", type=not_negative, default=0, metavar="N", help="keep N levels of its operands")


def diff(made: Parser) -> None:
    """Defines the arguments of `hloom diff`."""
    _program(made)
    made.add_argument("other", metavar="OTHER", help="HLO text; - is standard input")
    _json(made)


def verify(made: Parser) -> None:
    """Defines the arguments of `hloom verify`."""
    _program(made)
    _remarks(made, ALL)
    _json(made)


def completion(made: Parser) -> None:
    """Defines the arguments of `hloom completion`."""
    made.add_argument("shell", choices=SHELLS, help="the shell")

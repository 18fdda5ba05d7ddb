"""Lists the commands: what each is for, its function, its arguments, and examples for its help, which a test runs.

`hloom --help` and `--version` load none of the functions, and a command loads its own alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ..report.completion import SHELLS
from ..report.remarks import ALL
from . import arguments as a
from .arguments import JSON, OUT, PARTITIONED, PROGRAM, SCHEDULE, TRACE, Argument, argument, flag
from .parser import Parser, Version


class Command(NamedTuple):
    """A command: a line of help, the late name of its function, its arguments in the order of the help, examples."""

    help: str
    place: str
    arguments: tuple[Argument, ...]
    examples: tuple[str, ...]


COMMANDS = {
    "run": Command(
        "partition a program and run it on simulated devices, or on MPI ranks with --ranks", "cli.run:run",
        (*PARTITIONED, a.ranks, a.backend,
         flag("--check", "compare with the unpartitioned program on one device"),
         a.option("--tolerance", "T", "with --check: allow errors of T times the largest magnitude of each result, in "
                  "place of the allowances for rounding", type=a.tolerance),
         a.count("--seeds", "with --check: check N seeds, from --seed", default=1),
         flag("--allow-nan", "with --check: results may hold NaN and infinities"),
         a.Rule(lambda args: args.tolerance is not None and not args.check, "--tolerance needs --check"),
         a.needs("allow_nan", "check", "--allow-nan needs --check"),
         a.Rule(lambda args: args.seeds > 1 and not args.check, "--seeds needs --check"),
         a.count("--repeat", "run N times on the same inputs, and print the time of the first run and the median"),
         TRACE, *SCHEDULE, *a.remarks(), a.defaults(keeps=True, is_long=False), a.inputs, OUT, JSON),
        ("hloom run examples/mlp_named.hlo --check",
         "hloom run examples/mlp_named.hlo --mesh x=3,y=5 --check --seeds 3",
         "hloom run examples/transformer_train.hlo --ranks 4 --out results"),
    ),
    "train": Command(
        "run a step program on its own results, with checkpoints", "cli.train:train",
        (*PARTITIONED, a.ranks, a.backend,
         a.option("--steps", "K", "stop when K steps are done", type=a.positive, required=True),
         a.count("--state", "the first N arrays of the parameters are the state, which the program returns first "
                 "(default: as many as it returns with equal types and dimensions)"),
         a.option("--initial", "random|zeros|NAME=KIND;..|FILE",
                  "the state before step 0, as --inputs (default: random)", default="random"),
         *a.CHECKPOINT, *a.RECOVERY,
         a.option("--metrics", "F.jsonl", "write a line of JSON for each step", type=Path),
         a.defaults(check=False, out=None, trace=None, keeps=True, is_long=True, repeat=None),
         *SCHEDULE, *a.remarks(), a.step_inputs, JSON),
        ("hloom train examples/mlp_train.hlo --steps 5 --metrics losses.jsonl",
         "hloom train examples/mlp_train.hlo --steps 5 --checkpoint steps --every 2",
         "hloom train examples/transformer_train.hlo --steps 5 --ranks 4 --inputs batches.py:batch",
         "hloom train examples/mlp_train.hlo --steps 9 --ranks 4 --checkpoint d --on-failure fold --fault 1,20,kill"),
    ),
    "preflight": Command(
        "try all ranks, links and groups of a program before it runs", "cli.preflight:preflight",
        (*PARTITIONED, a.ranks, a.backend,
         a.option("--deadline", "S", "seconds of one wait", type=a.seconds, default=5.0),
         a.FAULT,
         a.defaults(check=False, out=None, trace=None, keeps=True, is_long=True, repeat=None, schedule=None,
                    memory=None, flat_parameters=False, split_batch=0),
         *a.remarks("none")),
        ("hloom preflight examples/mlp_named.hlo --ranks 4 --deadline 2",),
    ),
    "goodput": Command(
        "print the share of a machine that is in slices without a failed host", "cli.goodput:goodput",
        (a.option("--pod", "4x4x4", "the extent of the pod in cubes", type=a.extent, default=(4, 4, 4)),
         a.count("--hosts", "hosts of a cube", default=16),
         a.count("--chips", "chips of a cube", default=64),
         a.option("--slices", "N,..", "chips of a slice", type=a.positive_list, default=(64, 256, 1024, 2048, 3072)),
         a.option("--availability", "P,..", "the share of time that a host is up", type=a.shares,
                  default=(0.99, 0.995, 0.999)),
         a.count("--need", "also the chance that so many cubes are up"),
         a.option("--events", "DAYS", "also simulate failures and repairs over so many days", type=a.seconds),
         a.option("--repair", "HOURS", "with --events: mean hours to repair a host", type=a.seconds, default=4.0),
         a.option("--seed", "N", "seed of --events", type=a.not_negative, default=0),
         a.option("--state", "12GB", "bytes of a job's state: also what checkpoints and failures cost",
                  type=a.byte_count),
         a.option("--write", "1GB", "with --state: bytes per second that a host writes", type=a.byte_count,
                  default=10**9),
         a.option("--restart", "S", "with --state: seconds from a failure to work", type=a.seconds, default=360.0),
         a.option("--program", "FILE",
                  "a step program: its state is that of --state, its steps are those between checkpoints"),
         a.option("--mix", "CHIPS:JOBS,..", "also the goodput of so many jobs of these sizes, the largest first",
                  type=a.job_mix),
         a.option("--torus", "8x8x8", "also the bandwidth that a torus keeps when a link is missing", type=a.extent),
         a.machine, JSON),
        ("hloom goodput", "hloom goodput --slices 1024 --state 1TB", "hloom goodput --pod 4x6x6 --need 130",
         "hloom goodput --mix 1024:2,256:6 --events 100 --torus 4x4x8",
         "hloom goodput --program examples/mlp_train.hlo --machine tpu-v4"),
    ),
    "bench": Command(
        "run a program repeatedly on simulated devices, or on MPI ranks, and print where the time goes",
        "cli.bench:bench",
        (*PARTITIONED, a.ranks, a.backend,
         a.count("--repeat", "number of runs after the first", default=10),
         TRACE, a.defaults(check=False, out=None, keeps=False, is_long=True),  # it measures how long compiling takes
         *SCHEDULE, *a.remarks(), a.inputs, JSON),
        ("hloom bench examples/mlp_named.hlo --repeat 3", "hloom bench examples/mlp_named.hlo --backend native"),
    ),
    "prove": Command(
        "prove that the partitioned program equals the original, over a finite field", "cli.prove:prove_command",
        (*PARTITIONED,
         argument("local", metavar="LOCAL", nargs="?",
                  help="a program per device that another partitioner made of FILE (default: Hloom makes it)"),
         flag("--all-inputs",
              "of a program without a difference, also count the values that are right for all inputs"),
         a.count("--trials", "number of runs (default: as many as the decisions of the program need)"),
         a.option("--seed", "N", "seed of the trials", type=a.not_negative, default=0),
         a.option("--timeout", "S", "seconds after which the proof ends undecided (default: 60)", type=a.seconds,
                  default=60.0),
         *a.remarks(), JSON),
        ("hloom prove examples/mlp_named.hlo", "hloom prove examples/mlp_named.hlo --mesh x=3,y=5 --trials 8"),
    ),
    "relate": Command(
        "print which part of which value each value of the partitioned program is", "cli.prove:relate_command",
        (*PARTITIONED,
         argument("only", metavar="PATTERN", nargs="*",
                  help="show only values with these names, in which * matches anything"),
         a.option("--seed", "N", "seed of the run", type=a.not_negative, default=0),
         *a.remarks(), JSON),
        ("hloom relate examples/mlp_named.hlo", "hloom relate examples/mlp_named.hlo 'all-*' --mesh x=3,y=5"),
    ),
    "eval": Command(
        "run an unpartitioned program on one device", "cli.evaluate:evaluate_command",
        (*PROGRAM, a.backend, a.inputs, OUT, JSON),
        ("hloom eval examples/mlp_named.hlo --inputs zeros", "hloom eval examples/mlp_named.hlo --seed 7 --out one"),
    ),
    "partition": Command(
        "print the program that each device runs", "cli.partition:partition_command",
        (*PARTITIONED,
         argument("--form", choices=("local", "manual", "replica"), default="local",
                  help="local: per device; manual, replica: for XLA to compile for all devices"),
         *SCHEDULE, *a.remarks()),
        ("hloom partition examples/mlp_named.hlo",
         "hloom partition examples/mlp_named.hlo --set 'w*=,y' --form manual"),
    ),
    "opt": Command(
        "run passes and print the program", "cli.partition:opt",
        (*PARTITIONED,
         a.option("--passes", "P,P{option=value}", "passes, in order", required=True),
         a.option("--dump-after", "P,P|all", "print the program after these passes on standard error"),
         a.option("--explain", "NAME", "tell what the pass fusion decided about this op, and why"),
         flag("--time", "print the time of each pass on standard error"),
         *a.remarks(ALL)),
        ("hloom opt examples/mlp_named.hlo --passes propagate,spmd-partition,cse,dce",
         "hloom opt examples/mlp_named.hlo --passes propagate --dump-after all --time"),
    ),
    "comm": Command(
        "print the collectives of the partitioned program, most bytes first", "cli.comm:comm",
        (*PARTITIONED, a.ALL,
         a.option("--what-if", "MACHINE", "show the decisions that another machine turns", default=""),
         flag("--close", "remark on decisions that turn on less than the error of the machine's forecasts"),
         *a.remarks(), JSON),
        ("hloom comm examples/mlp_named.hlo", "hloom comm examples/mlp_named.hlo --mesh x=4,y=2 --json",
         "hloom comm examples/transformer_train.hlo --machine h100 --what-if tpu-v4 --close"),
    ),
    "memory": Command(
        "print the live memory of the partitioned program, and what lives at its peak", "cli.comm:memory",
        (*PARTITIONED,
         a.count("--largest", "list the N largest buffers", default=10),
         *a.remarks(), JSON),
        ("hloom memory examples/mlp_named.hlo", "hloom memory examples/mlp_named.hlo --mesh x=4,y=2 --largest 5"),
    ),
    "forecast": Command(
        "forecast the time of a step on a machine, what it waits for, and its memory",
        "cli.schedule:forecast",
        (*PARTITIONED,
         a.memory(),
         a.BATCH,
         *a.AS_IS,
         a.option("--batch-of", "PARAM",
                  "count the elements of this parameter per second if they are integers, or else its rows", default=""),
         a.CRITICAL, *a.remarks(), JSON),
        ("hloom forecast examples/transformer_train.hlo --machine h100",
         "hloom forecast examples/transformer_scan_train.hlo --machine tpu-v5e --critical"),
    ),
    "plan": Command(
        "find the shardings of a program that take the least time on a machine", "cli.plan:plan_command",
        (*PROGRAM, a.machine,
         a.option("--devices", "N", "number of devices", type=a.device_count),
         a.option("--mesh", "8x16|x=2,y=4|all", "the mesh to plan for; all: every two-dimensional mesh of the devices "
                  "(default: the program's mesh, or one axis)"),
         a.memory("32GB"),
         a.option("--keep", "PATTERN[=AXES,..]",
                  "keep the shardings of these parameters, as annotated or as given: 'batch=data,'", action="append",
                  default=[]),
         a.EVEN,
         a.option("--time", "60s", "about how long to search (default: 60s)", type=a.duration, default=60.0),
         flag("--pareto", "print plans for ever less memory, too; it takes as long again"),
         flag("--explain", "print the buffers at the peak, and the time with other memory, links and devices"),
         argument("-o", "--out", metavar="F.hlo", type=a.output, help="write the annotated program to this file"),
         a.option("--strategy-out", "F.toml",
                  "write the fewest annotations that reproduce the plan, as a file for --strategy; to find them may "
                  "take as long again", type=a.output),
         *a.remarks(), JSON),
        ("hloom plan examples/mlp_train.hlo --machine tpu-v4 --time 5s",
         "hloom plan examples/mlp_named.hlo --machine h100 --mesh 4x2 --keep 'x=data,' --time 5s -o planned.hlo"),
    ),
    "sweep": Command(
        "compare meshes and machines for a program: the best sharding of each, the fastest first",
        "cli.plan:sweep_command",
        (*PROGRAM,
         a.option("--machine", "NAME|FILE", "a machine to compare, as for other commands; give several",
                  action="append", default=[]),
         a.option("--devices", "N,..", "numbers of devices", type=a.positive_list, default=()),
         a.option("--meshes", "all|8x16;x=2,y=4;..",
                  "the meshes: all of one or two axes in both orders, or these", default="all"),
         a.option("--set", "PATTERN=AXES,..",
                  "shard the parameters with these names so on every mesh, such as 'batch=data,'", action="append",
                  default=[]),
         a.memory("32GB"),
         a.EVEN,
         a.option("--best", "N", "schedule the N best for a forecast, while there is time",
                  type=a.not_negative, default=5),
         a.count("--rows", "rows of the table", default=20),
         a.option("--time", "60s", "about how long it may take (default: 60s)", type=a.duration, default=60.0),
         argument("-o", "--out", metavar="F.hlo", type=a.output, help="write the program annotated for the best mesh"),
         *a.remarks(), JSON),
        ("hloom sweep examples/mlp_train.hlo --machine tpu-v4 --machine h100 --devices 8,16 --best 1",
         "hloom sweep examples/mlp_named.hlo --machine h100 --meshes '8;4x2;2x4' --best 2 --json"),
    ),
    "schedule": Command(
        "schedule the partitioned program, and print when its collectives run and what hides them",
        "cli.schedule:schedule",
        (*PARTITIONED,
         argument("only", metavar="PATTERN", nargs="*",
                  help="show only collectives whose name, kind, cause, source, groups or state fits; * matches "
                       "anything"),
         a.ALL,
         a.memory(),
         a.FLAT, a.BATCH,
         *a.AS_IS, a.CRITICAL,
         a.option("--trace", "F.json", "write the forecast as a file for Perfetto (ui.perfetto.dev)", type=a.output),
         a.option("--measured", "TRACE.json", "compare with what hloom run --trace wrote of this program"),
         *a.remarks(), JSON),
        ("hloom schedule examples/transformer_train.hlo --machine h100",
         "hloom schedule examples/transformer_scan_train.hlo --machine cpu-cluster --trace forecast.json"),
    ),
    "report": Command(
        "write a page on the partitioned program: its layers, collectives, times, memory and shardings",
        "cli.report:report_command",
        (*a.COMPARED,
         a.Rule(lambda args: args.json == (args.out is not None),
                "one of -o FILE.html, for a page, and --json is needed"),
         flag("--schedule", "combine collectives and order the program first"),
         *a.SCHEDULED_MEMORY,
         flag("--xla", "set XLA's own partitioning beside it, from the same annotations (needs jax)"),
         a.option("--measured", "TRACE.json", "set the times that hloom run --trace wrote beside it"),
         a.Rule(lambda args: args.measured is not None and len(args.strategies) > 1,
                "--measured is the run of one program: give one strategy at most"),
         argument("-o", "--out", metavar="FILE.html", type=a.output, help="write the page there; it needs no other"),
         *a.remarks(), JSON),
        ("hloom report examples/transformer_train.hlo -o report.html --machine h100",
         "hloom report examples/mlp_named.hlo --json --schedule"),
    ),
    "machine": Command(
        "list machines, print one as a file, or measure this one", "cli.machine:machine",
        (argument("name", nargs="?", metavar="NAME|FILE.toml|calibrate",
                  help="the machine to print, or calibrate to measure this one; without it: list all names"),
         a.count("--ranks", "calibrate on N MPI ranks, with their collectives"),
         a.backend,
         argument("-o", "--out", metavar="FILE.toml", type=a.output, help="write what calibrate finds to this file"),
         a.Rule(lambda args: args.name != "calibrate" and
                (args.ranks, args.out, args.backend) != (None, None, a.late("driver.backend:default_backend")()),
                "--ranks, --backend and --out are for hloom machine calibrate"),
         JSON),
        ("hloom machine", "hloom machine h100 > ours.toml", "hloom machine calibrate --ranks 4 -o ours.toml"),
    ),
    "shard": Command(
        "print the sharding of every value", "cli.shardings:shard",
        (*PARTITIONED, argument("only", metavar="PATTERN", nargs="*",
                                help="show only values with these names or JAX paths, in which * matches anything"),
         flag("--all", "show each of the values that are alike"),
         flag("--text", "print HLO text with the shardings instead of a table"),
         flag("--minimal", "print annotations that imply all others instead, as few as a search finds"),
         a.Rule(lambda args: args.minimal and (args.text or args.all or args.only), "--minimal shows no other values"),
         *a.remarks(), JSON),
        ("hloom shard examples/mlp_named.hlo", "hloom shard examples/mlp_train.hlo --minimal",
         "hloom shard examples/transformer_train.hlo \"state['first']*\" '*dot_general*'"),
    ),
    "explain": Command(
        "explain where the sharding of a value comes from", "cli.shardings:explain_command",
        (*PARTITIONED,
         argument("value", metavar="VALUE", help="a name, such as dot.3 or tuple.1[2], or a JAX path"),
         a.option("--without", "NAME", "show what changes if this value is not annotated", action="append", default=[]),
         JSON),
        ("hloom explain examples/mlp_named.hlo square",
         "hloom explain examples/transformer_train.hlo \"state['first']['embedding']\"",
         "hloom explain examples/mlp_named.hlo h --without w1"),
    ),
    "rules": Command(
        "print the sharding rules of ops, those of equal ops once", "cli.shardings:rules",
        (*PROGRAM, flag("--all", "print a line for each op"), JSON), ("hloom rules examples/mlp_named.hlo",),
    ),
    "picture": Command(
        "draw which devices hold which tiles of an array", "cli.shardings:picture_command",
        (argument("shape", metavar="SHAPE", help="such as f32[32,32,32]"),
         argument("sharding", metavar="SHARDING", help="as HLO writes it, or [{'x'}, {}] with --mesh"),
         a.option("--mesh", "x=2,y=4", "the mesh of a sharding without one", type=a.mesh_sizes)),
        ("hloom picture f32[8,6] \"[{'y'}, {'x'}]\" --mesh x=2,y=3",
         "hloom picture f32[8,6] '{devices=[4,2]<=[8]}'"),
    ),
    "reshard": Command(
        "print the cheapest plan from one sharding to another", "cli.shardings:reshard_command",
        (argument("shape", metavar="SHAPE", help="such as f32[32,32,32]"),
         argument("source", metavar="FROM", help="a sharding as HLO writes it, or [{'x'}, {}] with --mesh"),
         argument("target", metavar="TO", help="likewise"),
         a.option("--mesh", "x=2,y=4", "the mesh of shardings without one", type=a.mesh_sizes),
         a.option("--memory", "BYTES", "limit on the bytes of the array on a device", type=a.positive),
         a.machine, JSON),
        ("hloom reshard f32[8,6] \"[{'x'}, {}]\" \"[{}, {'x'}]\" --mesh x=2",
         "hloom reshard f32[8] '{devices=[4]<=[4]}' '{replicated}' --links 1us/100GB"),
    ),
    "from-jax": Command(
        "write the program of a JAX function as HLO", "cli.from_jax:from_jax_command",
        (argument("place", metavar="FILE.py:FUNCTION", type=a.python_place,
                  help="a function without arguments that returns (f, args), or f lowered by JAX; args are arrays or "
                       "jax.ShapeDtypeStructs"),
         argument("-o", "--out", metavar="F.hlo", type=a.output, help="write the program there (default: print it)"),
         a.count("--devices", "give JAX N virtual CPU devices for its meshes")),
        ("hloom from-jax examples/train_step.py:program --out step.hlo",
         "hloom from-jax examples/train_step.py:program > step.hlo"),
    ),
    "show": Command(
        "print the program as Hloom reads it", "cli.text:show",
        (*PROGRAM,
         a.option("--computation", "NAME", "print only this computation"),
         argument("--as", dest="form", choices=("hlo", "stablehlo"), default="hlo", help="the language to print")),
        ("hloom show examples/mlp_named.hlo", "hloom show examples/mlp_named.hlo --computation sum",
         "hloom show examples/mlp_named.hlo --as stablehlo > mlp.mlir"),
    ),
    "isolate": Command(
        "print a program of one instruction, its inputs as parameters", "cli.text:isolate_command",
        (*PROGRAM,
         a.option("--inst", "NAME", "the instruction", required=True),
         a.option("--computation", "NAME", "the computation it is in, if not the entry"),
         a.option("--depth", "N", "keep N levels of its operands", type=a.not_negative, default=0)),
        ("hloom isolate examples/mlp_named.hlo --inst y --depth 2",),
    ),
    "diff": Command(
        "compare two programs; names, order and spellings of shardings do not count", "cli.text:diff",
        (*PROGRAM, argument("other", metavar="OTHER", help="HLO text; - is standard input"), JSON),
        ("hloom diff examples/mlp_named.hlo examples/mlp_named.hlo",),
    ),
    "verify": Command(
        "check a program", "cli.text:verify",
        (*PROGRAM, *a.remarks(ALL), JSON), ("hloom verify examples/mlp_named.hlo",),
    ),
    "doctor": Command(
        "say what is installed on this machine, and what is missing for what", "cli.doctor:doctor", (JSON,),
        ("hloom doctor",),
    ),
    "completion": Command(
        "print a script that completes commands and options in a shell", "cli.completion:completion_command",
        (argument("shell", choices=SHELLS, help="the shell"),),
        ('eval "$(hloom completion bash)"', "hloom completion fish > ~/.config/fish/completions/hloom.fish"),
    ),
}  # fmt: skip
"""The commands by name, in the order of the help."""


def make_parser(names: Iterable[str] = COMMANDS) -> Parser:
    """Returns the parser of command lines that name these commands. Each adds its arguments when it is chosen."""
    parser = Parser(prog="hloom", description="Parse, shard, partition and run XLA HLO programs, without XLA.")
    parser.later = (argument("--version", action=Version),)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in names:
        command = COMMANDS[name]
        made = commands.add_parser(name, help=command.help, description=command.help)
        made.later = command.arguments
        made.show_examples(command.examples)
    parser.commands = commands.choices
    return parser

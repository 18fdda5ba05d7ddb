"""What fuzzing runs: each target takes an input as far as it comes, says how far, and raises what must not come out.

A `CompileError` may come out wherever a user's input is first looked at. What Hloom made of an accepted input (its
print, its serialized form, the partitioned program) must be right: there a `CompileError` is a mistake of Hloom's, and
raised as `Wrong`.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import random
import re
import shlex
import sys
import tempfile
import zlib
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import hloom
from fuzzing.agreement import random_program, run_everywhere
from fuzzing.messages import message
from fuzzing.programs import corpus, large, lowered, program, sharded_program, swept_program
from fuzzing.schedules import problem_after, scheduled_program
from fuzzing.shardings import sharded
from fuzzing.strings import command, string
from hloom.__main__ import main
from hloom.codegen import manual_module, replica_module
from hloom.cost.links import parse_links
from hloom.frontends import parse_replica_groups, parse_shape, parse_sharding
from hloom.frontends.proto import read_module
from hloom.ir.diagnostics import fail
from hloom.ir.sharding.mesh import Mesh, parse_sizes
from hloom.ir.sharding.sharding import Sharding
from hloom.ir.tools.difference import differences
from hloom.ir.tools.trip_count import trip_count
from hloom.ir.tools.verifier import verify
from hloom.passes.annotating.strategy import Setting, Strategy, apply_strategy, parse_strategy
from hloom.passes.base import PassContext
from hloom.passes.named import parse_pipeline
from hloom.report.collectives import collectives_table, summary
from hloom.report.picture import picture
from hloom.report.shardings import solved
from hloom.runtime.inputs.inputs import make_inputs
from support.command_line import EXAMPLES, NAMED, ROOT
from support.nursery import cold

Result = TypeVar("Result")
MOST_BYTES = 1 << 22  # of all values of a program that is evaluated
MOST_TRIPS = 20
SWEPT = (2, 4, 8)  # numbers of devices
MACHINES = ("", "h100", "tpu-v4", "cpu-cluster", "work=f32:1T;memory=20TB")
# What has two spellings of one meaning: a type of comparison that operands have anyway, updates and dones of a start,
# the one computation of a custom-call.
_ALIKE = re.compile(
    r"type: (?:SIGNED|UNSIGNED|FLOAT), none|opcode: (?:async-(update|done), [\w\-]+-\1|[\w\-]+-(update|done), async-\2)"
    r"|to_apply: (%\S+), none; called_computations: \{\}, \{\3\}"
)


class Wrong(Exception):
    """What Hloom made is not what it should be."""


@dataclass(frozen=True)
class Target:
    """`make` gives an input, `run` says how far it comes; of a binary one each character is a byte."""

    make: Callable[[random.Random], str]
    run: Callable[[str], str]
    is_binary: bool = False


def _made(what: str, make: Callable[[], Result]) -> Result:
    """The result of what must work."""
    try:
        return make()
    except hloom.CompileError as error:
        raise Wrong(f"{what}: {error}") from error


def _same(what: str, found: str, wanted: str) -> None:
    if found != wanted:
        pairs = zip(found.splitlines(), wanted.splitlines(), strict=False)
        line, other = next(((a, b) for a, b in pairs if a != b), ("one is longer", ""))
        raise Wrong(f"{what} differs\n  found  {line[:300]}\n  wanted {other[:300]}")


def _reprinted(module: hloom.Module) -> str:
    """The text of a module, which reads as the same module."""
    text = module.to_text()
    _same("the print of the print", _made("reading the print", lambda: hloom.parse(text)).to_text(), text)
    return text


def _reserialized(module: hloom.Module) -> tuple[hloom.Module, bytes] | None:
    """Through the serialized form and back; None if that has no place for something, which it then says."""
    try:
        data = module.to_proto()
    except hloom.CompileError:
        return None
    again = _made("reading the serialized module", lambda: read_module(data))
    found = [d.what for d in differences(module, again) if not _ALIKE.fullmatch(d.what)]
    if found:
        raise Wrong(f"serializing changes the program: {found[0]}")
    if again.to_proto() != data:
        raise Wrong("serialized again, it differs")
    return again, data


def run_text(text: str) -> str:
    """Read, verified, printed and read, serialized and read."""
    module = hloom.parse(text)
    _reprinted(module)
    found = _reserialized(module)
    if found is None:
        return "not serialized"
    again, data = found
    # What is read has all names and layouts that the serialized form asks for, so now text says it all.
    if hloom.parse(_reprinted(again)).to_proto() != data:
        raise Wrong("the print of the serialized module, serialized, differs")
    return "serialized"


def run_sweep(text: str) -> str:
    """As text and serialized, then partitioned for several numbers of devices and machines, with the forms as they are
    or given, each printed, read and verified.
    """
    module = hloom.parse(text)
    _reprinted(module)
    _reserialized(module)
    reached, chosen = "parsed", zlib.crc32(text.encode("utf-8", "surrogatepass"))
    for number, devices in enumerate(SWEPT):
        machine = MACHINES[(chosen + number) % len(MACHINES)]
        forms = hloom.local_forms().override("none", hloom.LocalForm(hloom.LocalOp.emit)) if chosen % 5 == 0 else None
        with refusals():
            local = hloom.partition(module, devices, machine=machine, forms=forms)
            _reprinted(local)
            reached = "partitioned"
    return reached


_COLD = """import hloom
{first}
try:
    print(hloom.partition(hloom.parse({text!r}), {devices}).to_text())
except hloom.CompileError as error:
    print("refused", error)
"""
FIRST = ("hloom.local_forms()", "hloom.PassContext()", "hloom.builder", "hloom.simulate", "hloom.reshard_plan", "")


def run_cold(text: str) -> str:
    """Partitioned in a process that used nothing of Hloom before, it is the program that this process makes."""
    hloom.parse(text)
    chosen = zlib.crc32(text.encode("utf-8", "surrogatepass"))
    try:
        wanted = hloom.partition(hloom.parse(text), SWEPT[chosen % 3]).to_text()
    except hloom.CompileError as error:
        wanted = f"refused {error}"
    ended = cold(_COLD.format(first=FIRST[chosen % len(FIRST)], text=text, devices=SWEPT[chosen % 3]))
    if ended.code:
        raise Wrong(f"in a cold process: {ended.err}")
    _same("the program of a cold process", ended.out.rstrip("\n"), wanted.rstrip("\n"))
    return "refused everywhere" if wanted.startswith("refused") else "the same"


def run_schedules(value: str) -> str:
    """Through the passes that the first line names: sound, within memory, no slower, and with the same results."""
    line, _, text = value.partition("\n")
    if problem := problem_after(line, text, is_small(hloom.parse(text))):
        raise Wrong(f"{line}: {problem}")
    return "the same"


def run_proto(data: bytes) -> str:
    """Read, verified, printed and read, serialized and read."""
    module = read_module(data)
    _reprinted(module)
    return "serialized" if _reserialized(module) else "not serialized"


def run_pipeline(text: str) -> str:
    """Propagated, partitioned, measured, printed for XLA, evaluated, simulated and proved if that takes little."""
    module = hloom.parse(text)
    devices = None if "sharding" in text else 4
    reached = ["parsed"]
    with refusals():
        context = PassContext(num_devices=devices, verify="each")
        found = solved(_made("cloning", lambda: hloom.parse(module.to_text())), context)
        _reprinted(found.module)
        list(found.rows())
        list(found.disputes())
        reached.append("propagated")
        local = hloom.partition(module, devices)
        if problems := verify(local):
            raise Wrong(f"the partitioned program is not valid: {problems[0]}")
        _reprinted(local)
        _measure(local)
        reached.append("partitioned")
        for form in (manual_module, replica_module):
            with refusals():
                _reprinted(form(local))
        if is_small(module) and is_small(local):
            with refusals():
                hloom.evaluate(module, make_inputs([p.shape for p in module.entry.parameters]))
                reached.append("evaluated")
            with refusals():
                hloom.simulate(local, make_inputs([p.shape for p in module.entry.parameters]))
                reached.append("simulated")
                verdict = hloom.prove(module, local, trials=1)
                if verdict.outcome == "differs":
                    raise Wrong(f"the partitioned program differs: {verdict}")
                reached.append("proved" if verdict.is_equal else "simulated")
    return reached[-1]


@contextlib.contextmanager
def refusals() -> Generator[None]:
    """A block that a diagnostic may end, if it comes before memory is asked for."""
    try:
        yield
    except hloom.CompileError as error:
        if "out of memory" in str(error) or not error.diagnostics:
            raise Wrong(f"only seen when it was too late: {error}") from error


def _measure(local: hloom.Module) -> None:
    found = hloom.collectives(local)
    collectives_table(found)
    summary(found)


def is_small(module: hloom.Module) -> bool:
    """Whether running a program takes little time and memory. What a program says itself of its trips may be wrong."""
    instructions = [i for c in module for i in c]
    loops = [i for i in instructions if i.opcode == "while"]
    trips = [MOST_TRIPS + 1 if "known_trip_count" in i.call.config else trip_count(i) for i in loops]
    return (
        sum(i.shape.byte_size for i in instructions) * module.num_partitions < MOST_BYTES
        and module.num_partitions * module.replica_count <= 8
        and len(loops) < 4
        and all(n is not None and n <= MOST_TRIPS for n in trips)
    )


def run_like_xla(text: str) -> str:
    """What XLA reads in our print and in our serialized form is what it reads in its own; and we read its own so."""
    hlo: Any = importlib.import_module("jaxlib._hlo")
    theirs, module = hlo.hlo_module_from_text(text), hloom.parse(text)
    printed = _reprinted(module)
    if hloom.parse(printed).entry.root.sharding != module.entry.root.sharding:
        raise Wrong(f"the print {printed} reads as another sharding")
    _reserialized(module)
    data: bytes = theirs.as_serialized_hlo_module_proto()

    def reread(text: str) -> str:
        return hlo.hlo_module_from_text(text).to_string()

    def deserialized(data: bytes) -> str:
        return hlo.HloModule.from_serialized_hlo_module_proto(data).to_string()

    _same("what XLA reads in the serialized module", deserialized(module.to_proto()), deserialized(data))
    _same("what we read in XLA's", reread(read_module(data).to_text()), deserialized(data))
    found, wanted = reread(printed), theirs.to_string()
    if found == wanted:
        return "the same"
    if "devices=[]" in wanted:
        return "not readable"  # not by XLA itself
    # Its print of what is unreduced among all devices is read as the plain word.
    _same("what XLA reads", found, reread(wanted))
    return "the same on second reading"


# -- strings


def _sharding(text: str) -> None:
    found = parse_sharding(text)
    _same("sharding", str(_made("reading the print", lambda: parse_sharding(str(found)))), str(found))
    if isinstance(found, Sharding) and found.mesh is not None and found.mesh.size <= 64:
        shape = parse_shape(f"f32[{','.join(['8'] * len(found.dims))}]")
        with contextlib.suppress(KeyError, ValueError):  # as `hloom picture` does
            picture(shape, found)


def _shape(text: str) -> None:
    found = parse_shape(text)
    _same("shape", str(_made("reading the print", lambda: parse_shape(str(found)))), str(found))


def _groups(text: str) -> None:
    found = parse_replica_groups(text)
    _same("groups", str(_made("reading the print", lambda: parse_replica_groups(str(found)))), str(found))


def _mesh(text: str) -> None:
    try:
        parse_sizes(text)
    except ValueError as error:
        fail(str(error))


def _strategy(text: str) -> None:
    apply_strategy(hloom.load(NAMED), parse_strategy(text))


def _setting(text: str) -> None:
    apply_strategy(hloom.load(NAMED), Strategy(settings=[Setting.parse(text)]))


def _rule(text: str) -> None:
    hloom.propagate(hloom.load(NAMED), rules={"dot": text})


def _shardy_rule(text: str) -> None:
    run_pipeline(
        "HloModule m\nENTRY e {\n  x = f32[8,16] parameter(0), sharding={devices=[2,1]<=[2]}\n  ROOT c = f32[8,16] "
        f'custom-call(x), custom_call_target="t", frontend_attributes={{xla.sdy.sharding_rule="{text}"}}\n}}'
    )


def _constant(text: str) -> None:
    run_text(f"HloModule m\nENTRY e {{\n  ROOT c = {text}\n}}")


_READERS: dict[str, Callable[[str], object]] = {
    "sharding": _sharding, "shape": _shape, "groups": _groups, "pipeline": parse_pipeline, "mesh": _mesh,
    "links": lambda text: parse_links(text, Mesh((("x", 2), ("y", 4)))), "setting": _setting, "strategy": _strategy,
    "rule": _rule, "shardy_rule": _shardy_rule, "constant": _constant,
}  # fmt: skip


def run_strings(text: str) -> str:
    """Read by the reader that the first word names, printed and read again."""
    kind, _, value = text.partition(" ")
    _READERS[kind](value)
    return "read"


# -- command lines


def run_cli(line: str) -> str:
    """Run in this process: exit codes 0, 1, 2 and 65 are right, with a message where it is not 0."""
    # As a terminal would have it: what cannot be encoded is an error on standard output.
    out, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8", kind) for kind in ("strict", "backslashreplace"))
    program = io.TextIOWrapper(io.BytesIO((EXAMPLES / "mlp_named.hlo").read_bytes()))
    arguments = [str(ROOT / word) if word.startswith("examples/") else word for word in shlex.split(line)]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stdout(out):
        with contextlib.redirect_stderr(errors), _standard_input(program):
            try:
                code = main(arguments)
            except SystemExit as end:
                code = int(end.code or 0)
        if left := os.listdir(folder):
            raise Wrong(f"exit code {code}; left {left}: {_said(errors)[-1000:]}")
    said = _said(out) + _said(errors)
    if code not in (0, 1, 2, 65) or (code and not said.strip()) or "Traceback" in said:
        raise Wrong(f"exit code {code}: {_said(errors)[-1000:]}")
    return f"exit code {code}"


def _said(stream: io.TextIOWrapper) -> str:
    stream.flush()
    return cast("io.BytesIO", stream.buffer).getvalue().decode("utf-8", "replace")


@contextlib.contextmanager
def _standard_input(program: io.TextIOWrapper) -> Generator[None]:
    before, sys.stdin = sys.stdin, program
    try:
        yield
    finally:
        sys.stdin = before


TARGETS: dict[str, Target] = {
    "text": Target(lambda rng: program(rng, corpus()), run_text),
    "proto": Target(lambda rng: message(rng).decode("latin-1"), lambda text: run_proto(text.encode("latin-1")), True),
    "pipeline": Target(lambda rng: sharded_program(rng, corpus()), run_pipeline),
    "lowered": Target(lambda rng: sharded_program(rng, lowered()), run_pipeline),
    "sweep": Target(lambda rng: swept_program(rng, (*corpus(), *large())), run_sweep),
    "cold": Target(lambda rng: swept_program(rng, corpus()), run_cold),
    "sweep-lowered": Target(lambda rng: swept_program(rng, lowered()), run_sweep),
    "schedules": Target(scheduled_program, run_schedules),
    "agreement": Target(random_program, run_everywhere),
    "shardings": Target(sharded, run_like_xla),
    "strings": Target(string, run_strings),
    "cli": Target(command, run_cli),
}

"""Broken and absurd programs: whatever the text, a module or a CompileError comes out, soon and without much memory.

Mutants are made from real modules by seeds, so a failure can be had again by its number. Each goes through parser,
verifier, printer and parser again, the partitioner, and the evaluator if it is small and has no loop (a mutated loop
need not end). `pytest -m slow` tries many more.
"""

from __future__ import annotations

import random
import re
import resource
import signal
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType

import hloom
import pytest
from command_line import EXAMPLES
from hloom.runtime.inputs import make_inputs
from ops.test_samples import SAMPLES

SEEDS_PER_RUN = 400
RUNS, SLOW_RUNS = 8, 400
SECONDS = 20  # a case may take; real ones take a tenth of a second
MEGABYTES = 512  # a case may add to the memory of the process

_TOKEN = re.compile(r"%?[A-Za-z_][\w.\-]*|-?\d+(?:\.\d+)?|[^\w\s]|\s+")
_NUMBER = re.compile(r"(?<![\w.])-?\d+")
_ABSURD = (
    "0",
    "-1",
    "2147483648",
    "9223372036854775807",
    "99999999999999999999",
    "1000000000000",
    "4294967296",
    "1e999",
    "nan",
    "inf",
    "{}",
    "()",
    "?",
    "<=4",
    "f32[1000000000000]",
    "(",
    "{",
    '"',
    "/*",
    "%",
    "\0",
    "é",
    "{...}",
)


@cache
def corpus() -> tuple[str, ...]:
    """Examples, golden cases, and the samples of all ops."""
    here = Path(__file__).parent
    paths = [here / "rich.hlo", *(EXAMPLES / name for name in ("mlp_named.hlo", "mlp_train.hlo"))]
    golden = sorted((here.parent / "passes" / "golden").glob("*.hlo"))
    cases = [case for path in golden for case in re.split(r"^//.*\n", path.read_text(), flags=re.MULTILINE)]
    samples = [text for texts in SAMPLES.values() for text in texts]
    return tuple(text for text in (*[path.read_text() for path in paths], *cases, *samples) if _is_module(text))


def _is_module(text: str) -> bool:
    try:
        return len(hloom.parse(text).entry) > 1
    except hloom.CompileError:
        return False


def mutant(seed: int) -> str:
    """A damaged module: tokens lost, doubled, swapped or replaced, numbers absurd, lines moved, the end cut off."""
    rng = random.Random(seed)
    text = rng.choice(corpus()[:12] if rng.random() < 0.2 else corpus())
    if rng.random() < 0.15:
        return text[: rng.randrange(len(text))]
    if rng.random() < 0.25:
        lines = text.splitlines(keepends=True)
        for _ in range(rng.randint(1, 3)):
            lines.insert(rng.randrange(len(lines)), lines.pop(rng.randrange(len(lines))))
        return "".join(lines)
    if rng.random() < 0.4:
        numbers = list(_NUMBER.finditer(text))
        for match in sorted(rng.sample(numbers, min(len(numbers), rng.randint(1, 3))), key=lambda m: -m.start()):
            text = text[: match.start()] + rng.choice((*_ABSURD[:8], *"0123456789")) + text[match.end() :]
        return text
    tokens = _TOKEN.findall(text)
    for _ in range(rng.randint(1, 4)):
        _damage(rng, tokens)
    return "".join(tokens)


def _damage(rng: random.Random, tokens: list[str]) -> None:
    place, other = rng.randrange(len(tokens)), rng.randrange(len(tokens))
    kind = rng.randrange(5)
    if kind == 0:
        del tokens[place]
    elif kind == 1:
        tokens.insert(place, tokens[place])
    elif kind == 2:
        tokens[place], tokens[other] = tokens[other], tokens[place]
    elif kind == 3:
        tokens[place] = tokens[other]
    else:
        tokens[place] = rng.choice(_ABSURD)


@contextmanager
def bounded(what: str) -> Generator[None]:
    """Fails if the block takes long or much memory."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"{what} takes longer than {SECONDS} s")

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    previous = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < MEGABYTES * 1024, f"{what} took {grown // 1024} MB"


def outcome(text: str) -> str:
    """How far a program comes: `rejected`, `parsed`, `partitioned` or `evaluated`. Raises what must not come out."""
    try:
        module = hloom.parse(text)
    except hloom.CompileError as error:
        return "rejected" if error.diagnostics and str(error) else "rejected silently"
    printed = module.to_text()
    assert hloom.parse(printed).to_text() == printed
    reached = "parsed"
    try:
        hloom.partition(module, None if "sharding" in text else 4)
        reached = "partitioned"
        if small(module):
            hloom.evaluate(module, make_inputs([p.shape for p in module.entry.parameters]))
            reached = "evaluated"
    except hloom.CompileError as error:
        reached += "" if error.diagnostics else " and refused silently"
    return reached


def small(module: hloom.Module) -> bool:
    """Whether evaluating takes little time and memory."""
    instructions = [i for c in module for i in c]
    return all(i.opcode != "while" for i in instructions) and sum(i.shape.byte_size for i in instructions) < 1 << 22


@pytest.mark.parametrize("run", range(RUNS))
def test_mutants(run: int) -> None:
    assert try_mutants(run).keys() <= {"rejected", "parsed", "partitioned", "evaluated"}


@pytest.mark.slow
@pytest.mark.parametrize("run", range(RUNS, SLOW_RUNS))
def test_many_mutants(run: int) -> None:
    assert try_mutants(run).keys() <= {"rejected", "parsed", "partitioned", "evaluated"}


def try_mutants(run: int) -> Counter[str]:
    found = Counter[str]()
    for seed in range(run * SEEDS_PER_RUN, (run + 1) * SEEDS_PER_RUN):
        with bounded(f"mutant {seed}"):
            try:
                found[outcome(mutant(seed))] += 1
            except Exception as error:
                raise AssertionError(f"mutant {seed}: {type(error).__name__}: {error}") from error
    return found


def test_mutants_come_far_enough() -> None:
    """Most mutants are refused, but not all: the later stages see some too."""
    assert len(corpus()) > 10
    assert {outcome(text) for text in corpus()} >= {"evaluated"}
    found = Counter(outcome(mutant(seed)) for seed in range(10_000, 10_060))
    assert found["rejected"] > 10
    assert found["evaluated"] >= 3


# -- absurd programs


def entry(*lines: str, header: str = "", before: str = "") -> str:
    return f"HloModule m{header}\n{before}\nENTRY main {{\n" + "\n".join(lines) + "\n}\n"


def calls(levels: int, times: int) -> str:
    """Computations that call each other, `times` times each."""
    parts = ["f0 { p = f32[] parameter(0) ROOT n = f32[] negate(p) }"]
    for n in range(levels):
        body = " ".join(f"c{k} = f32[] call({f'c{k - 1}' if k else 'p'}), to_apply=f{n}" for k in range(times))
        parts.append(f"f{n + 1} {{ p = f32[] parameter(0) {body} }}")
    return entry("x = f32[] parameter(0)", f"ROOT r = f32[] call(x), to_apply=f{levels}", before="\n".join(parts))


BIG = "f32[1000000000000]"
X = "x = f32[] parameter(0)"
MANY = 100_000
ONES = ",".join("1" * 1000)
ADD = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }"

# What it is; the text; what the diagnostic says, or None if the program is all right.
ABSURD: dict[str, tuple[Callable[[], str], str | None]] = {
    "tuple of many": (
        lambda: entry(X, f"ROOT t = ({', '.join(['f32[]'] * MANY)}) tuple({', '.join('x' * MANY)})"),
        None,
    ),
    "add of many": (lambda: entry(X, f"ROOT t = f32[] add({', '.join('x' * MANY)})"), "takes 2 operands, found 100000"),
    "parameters": (lambda: entry(*[f"x{n} = f32[] parameter({n})" for n in range(5000)]), None),
    "chain": (lambda: entry("x0 = f32[] parameter(0)", *[f"x{n + 1} = f32[] negate(x{n})" for n in range(5000)]), None),
    "deep tuple": (lambda: entry(f"ROOT x = {'(' * MANY}f32[]{')' * MANY} parameter(0)"), "nested deeper than"),
    "deep operands": (lambda: entry(X, f"ROOT y = {'negate(' * 5000}x{')' * 5000}"), "nested deeper than"),
    "deep constant": (lambda: entry(f"ROOT c = f32[1] constant({'{' * MANY}1{'}' * MANY})"), "brace"),
    "deep sharding": (
        lambda: entry(f"ROOT x = f32[] parameter(0), sharding={'{' * MANY}replicated{'}' * MANY}"),
        "nested",
    ),
    "deep attribute": (lambda: entry(f"{X}, frontend_attributes={{a={'{' * MANY}{'}' * MANY}}}"), None),
    "deep open braces": (lambda: entry(f"{X}, metadata={'{' * MANY}"), "is not closed"),
    "deep calls": (lambda: calls(3000, 1), "calls nest 3002 levels deep, at most 100 are possible"),
    "exponential calls": (lambda: calls(60, 2), "with its calls written out the program has"),
    "cycle": (
        lambda: entry(
            "x = f32[] parameter(0)", before="f { p = f32[] parameter(0) ROOT c = f32[] call(p), to_apply=f }"
        ),
        "no computation 'f' so far",
    ),
    "cycle of two": (
        lambda: entry(
            X,
            before="f { p = f32[] parameter(0) ROOT c = f32[] call(p), to_apply=g }\n"
            "g { p = f32[] parameter(0) ROOT c = f32[] call(p), to_apply=f }",
        ),
        "no computation 'g' so far",
    ),
    "big iota": (lambda: entry(f"ROOT y = {BIG} iota(), iota_dimension=0"), "takes 4,000,000,000,000 bytes"),
    "big broadcast": (
        lambda: entry(X, f"ROOT y = {BIG} broadcast(x), dimensions={{}}"),
        "takes 4,000,000,000,000 bytes",
    ),
    "parameter of rank 1000": (
        lambda: entry(f"x = f32[{ONES}] parameter(0)", f"ROOT y = f32[{ONES}] negate(x)"),
        "no input can be made: an array of 1000 dimensions",
    ),
    "big parameter": (
        lambda: entry(f"x = {BIG} parameter(0)", f"ROOT y = {BIG} negate(x)"),
        "no input can be made: f32[1000000000000] takes 4,000,000,000,000 bytes",
    ),
    "big constant": (lambda: entry(f"ROOT y = {BIG} constant({{1}})"), "1000000000000 values expected here, found 1"),
    "big elided": (lambda: entry(f"ROOT y = {BIG} constant({{...}})"), "constant without values"),
    "big and empty": (lambda: entry("ROOT y = f32[0,1000000000000] constant({})"), None),
    "overflow": (lambda: entry("ROOT x = f32[4294967296,4294967296,4294967296] parameter(0)"), "too many elements"),
    "largest": (lambda: entry("ROOT x = f32[9223372036854775807] parameter(0)"), "too many elements"),
    "dimension": (lambda: entry(f"ROOT x = f32[{'9' * MANY}] parameter(0)"), "does not fit 64 bits"),
    "dynamic dimension": (lambda: entry(f"ROOT x = f32[<={'9' * MANY}] parameter(0)"), "does not fit 64 bits"),
    "rank": (lambda: entry(f"ROOT x = f32[{','.join('1' * MANY)}] parameter(0)"), "at most 1024"),
    "rank of 1000": (
        lambda: entry("c = f32[] constant(1)", f"ROOT y = f32[{ONES}] broadcast(c), dimensions={{}}"),
        "broadcast y: an array of 1000 dimensions cannot be evaluated, numpy has at most 64",
    ),
    "constant of rank 65": (lambda: entry(f"ROOT c = f32[{ONES[:129]}] constant({'{' * 65}1{'}' * 65})"), "64"),
    "deep inline computations": (
        lambda: entry(X, f"ROOT y = f32[] call(x), to_apply={'{ z = f32[] call(), to_apply=' * 3000}{'}' * 3000}"),
        "computations nested deeper than",
    ),
    "layout": (lambda: entry(f"ROOT x = f32[1]{{{'9' * MANY}}} parameter(0)"), "layout"),
    "number": (lambda: entry(f"ROOT x = f32[] parameter({'9' * MANY})"), "integer expected"),
    "far parameter": (lambda: entry("ROOT x = f32[] parameter(999999999999)"), "0 expected next"),
    "integer": (lambda: entry(f"ROOT x = s32[2] constant({{1, {'9' * MANY}}})"), "does not fit s32"),
    "float": (lambda: entry(f"ROOT x = f32[] constant({'9' * MANY})"), "does not fit f32"),
    "devices": (
        lambda: entry(
            "ROOT x = f32[8] parameter(0), sharding={devices=[8,125000000000]<=[1000000000000] last_tile_dim_replicate}"
        ),
        "32 bits",
    ),
    "mesh": (
        lambda: entry("ROOT x = f32[8] parameter(0), sharding={mesh['a'=1000000000000], [{'a'}]}"),
        "size of an axis",
    ),
    "unknown axis": (lambda: entry("ROOT x = f32[8] parameter(0), sharding={mesh['a'=2], [{'b'}]}"), "'b'"),
    "partitions": (lambda: entry(X, header=", num_partitions=99999999999"), "num_partitions"),
    "groups": (
        lambda: entry(
            "x = f32[8] parameter(0)",
            "ROOT y = f32[8] all-gather(x), dimensions={0}, replica_groups=[1,1000000000000]<=[1000000000000]",
        ),
        "32 bits",
    ),
    "padding": (
        lambda: entry(
            "x = f32[8] parameter(0)",
            "z = f32[] constant(0)",
            f"ROOT y = pad(x, z), padding={2**63 - 1}_{2**63 - 1}_{2**63 - 1}",
        ),
        "too many elements",
    ),
    "window": (
        lambda: entry(
            X, "ROOT y = f32[] reduce-window(x, x), window={size=99999999999999999999}, to_apply=add", before=ADD
        ),
        "window",
    ),
    "index": (
        lambda: entry("x = (f32[]) parameter(0)", "ROOT y = f32[] get-tuple-element(x), index=99999999999999999999"),
        "does not fit 64 bits",
    ),
    "nul": (lambda: entry(X + "\0"), "found"),
    "open comments": (lambda: entry("/*" * MANY), ""),
    "backslashes": (lambda: entry(f'{X}, metadata={{op_name="{chr(92) * (MANY + 1)}'), "is not closed"),
    "empty": (lambda: "", "the text is empty"),
    "spaces": (lambda: " " * 1_000_000, "the text is empty"),
    "parentheses": (lambda: "(" * MANY, "is not closed"),
    "braces": (lambda: "{" * MANY, "expected"),
    "equals signs": (lambda: "=" * MANY, "expected"),
    "long name": (lambda: entry(f"{'x' * MANY} = f32[] parameter(0)"), None),
}


@pytest.mark.parametrize("name", ABSURD)
def test_absurd(name: str) -> None:
    make, message = ABSURD[name]
    text = make()
    with bounded(name):
        said = ""
        try:
            module = hloom.parse(text)
            hloom.partition(module, 4)
            hloom.evaluate(module, make_inputs([p.shape for p in module.entry.parameters]))
        except hloom.CompileError as error:
            said = str(error)
    assert (said == "") == (message is None), said[:500]
    assert message is None or message in said

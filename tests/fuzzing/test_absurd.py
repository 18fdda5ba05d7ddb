"""Absurd programs: deep nesting, huge numbers, very many operands, cycles, sizes that no machine has.

Whatever the text, a module or a CompileError comes out, soon and without much memory: nothing is allocated before it is
checked, and nothing recurses to death. What passes the checks is propagated, partitioned, measured, printed and run.
"""

from __future__ import annotations

from collections.abc import Callable

import hloom
import pytest
from fuzz import Crash, attempt, bounded
from fuzzing.programs import entry
from fuzzing.targets import TARGETS
from hloom.report.collectives import collectives_table
from hloom.runtime.inputs.inputs import make_inputs


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
COMMENTS = "/**/// {[*/\n" * 5000
ADD = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }"

# What it is; the text; what the diagnostic says, or None if the program is all right.
ABSURD: dict[str, tuple[Callable[[], str], str | None]] = {
    "tuple of many": (
        lambda: entry(X, f"ROOT t = ({', '.join(['f32[]'] * 5_000)}) tuple({', '.join('x' * 5_000)})"),
        None,
    ),
    "add of many": (lambda: entry(X, f"ROOT t = f32[] add({', '.join('x' * MANY)})"), "takes 2 operands, found 100000"),
    "parameters": (lambda: entry(*[f"x{n} = f32[] parameter({n})" for n in range(2000)]), None),
    "chain": (lambda: entry("x0 = f32[] parameter(0)", *[f"x{n + 1} = f32[] negate(x{n})" for n in range(2000)]), None),
    "comments": (lambda: entry(X, f"ROOT y = f32[]{COMMENTS} negate(x{COMMENTS})"), None),
    "deep tuple": (lambda: entry(f"ROOT x = {'(' * MANY}f32[]{')' * MANY} parameter(0)"), "nested deeper than"),
    "deep operands": (lambda: entry(X, f"ROOT y = {'negate(' * 5000}x{')' * 5000}"), "nested deeper than"),
    "deep constant": (lambda: entry(f"ROOT c = f32[1] constant({'{' * MANY}1{'}' * MANY})"), "brace"),
    "deep sharding": (
        lambda: entry(f"ROOT x = f32[] parameter(0), sharding={'{' * MANY}replicated{'}' * MANY}"),
        "nested",
    ),
    "deep attribute": (lambda: entry(f"{X}, frontend_attributes={{a={'{' * MANY}{'}' * MANY}}}"), None),
    "deep open braces": (lambda: entry(f"{X}, metadata={'{' * MANY}"), "is not closed"),
    "deep calls": (lambda: calls(1000, 1), "calls nest 1002 levels deep, at most 100 are possible"),
    "exponential calls": (lambda: calls(60, 2), "after inlining the program has"),
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
    "big elided": (lambda: entry(f"ROOT y = {BIG} constant({{...}})"), "takes 4,000,000,000,000 bytes"),
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
    with bounded():
        said = ""
        try:
            module = hloom.parse(text)
            local = hloom.partition(module, 4)
            collectives_table(hloom.collectives(local))
            printed = local.to_text()
            assert hloom.parse(printed).to_text() == printed
            hloom.evaluate(module, make_inputs([p.shape for p in module.entry.parameters]))
        except hloom.CompileError as error:
            said = str(error)
    assert (said == "") == (message is None), said[:500]
    assert message is None or message in said


LONG = ("tuple of many", "parameters", "chain", "deep calls")  # seconds each


@pytest.mark.share(2)
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in LONG else n for n in ABSURD])
def test_absurd_programs_as_text_and_serialized(name: str) -> None:
    """Those that are accepted survive both."""
    result = attempt(TARGETS["text"], ABSURD[name][0]())
    assert not isinstance(result, Crash), result.report

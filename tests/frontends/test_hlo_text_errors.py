"""Malformed programs: each must be refused at the right place with the right words, and nothing may crash.

The cases stand in text files: `==== line:column message`, then the text. In `malformed_instructions.txt` the text is a
line of the small entry computation below; in `malformed_modules.txt` it is everything up to a `|`.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hloom.frontends import load, parse, parse_replica_groups, parse_shape, parse_sharding
from hloom.ir.diagnostics import CompileError, Diagnostic
from hloom.ir.sharding.sharding import TupleSharding

FOLDER = Path(__file__).parent
FRAME = "HloModule m\n\nENTRY e {\n  p = f32[4,8] parameter(0)\n  ", "\n}\n"


def _cases(name: str) -> list[tuple[str, int, int, str]]:
    cases: list[tuple[str, int, int, str]] = []
    for part in (FOLDER / name).read_text().split("==== ")[1:]:
        head, text = part.split("\n", 1)
        place, message = head.split(" ", 1)
        line, column = place.split(":")
        cases.append((text.removesuffix("\n").removesuffix("|"), int(line), int(column), message))
    return cases


def _refused(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        parse(text, "x.hlo")
    first = caught.value.diagnostics[0]
    assert (first.line, first.column, first.message) == (line, column, message)
    assert f"x.hlo:{line}:{column}: error: {message}" in first.render()


@pytest.mark.parametrize(("text", "line", "column", "message"), _cases("malformed_instructions.txt"))
def test_malformed_instruction(text: str, line: int, column: int, message: str) -> None:
    _refused(FRAME[0] + text + FRAME[1], line, column, message)


@pytest.mark.parametrize(("text", "line", "column", "message"), _cases("malformed_modules.txt"))
def test_malformed_module(text: str, line: int, column: int, message: str) -> None:
    _refused(text, line, column, message)


def test_all_mistakes_are_reported_at_once() -> None:
    text = FRAME[0] + "a = f32[4,8] negat(p)\n  b = f32[4,8] negate(a)\n  c = f32[4,8] negate(q)\n  d = f33[] tanh(p)"
    with pytest.raises(CompileError) as caught:
        parse(text + FRAME[1])
    # `b` depends on `a`, which could not be read, so it is not reported.
    assert [d.line for d in caught.value.diagnostics] == [5, 7, 8]


@pytest.mark.parametrize(
    ("computations", "columns"),
    [
        ("f { ROOT q = f32[] negat() }", [20]),
        ("f { p = f32[] parameter(0) q = f32[] add(p, x), metadata={op_name=\"}\"} /* } */ ROOT r = f32[] tanh(q) }",
         [45]),
        ("f { q = f32[] negate(x }", [21]),
        ("f { q = f32[] negat() } g { q = token[] after-all() } h { q = f32[] tan(x) }", [15, 73]),
    ],
)  # fmt: skip
def test_computations_of_one_line_end_there(computations: str, columns: list[int]) -> None:
    with pytest.raises(CompileError) as caught:
        parse(f"HloModule m\n{computations}\nENTRY e {{\n  ROOT p = f32[2] parameter(0)\n}}")
    assert [(d.line, d.column) for d in caught.value.diagnostics] == [(2, c) for c in columns]


def test_a_computation_may_end_on_the_line_of_a_lost_instruction() -> None:
    text = """HloModule m
f { p = f32[] parameter(0)
  q = f32[] negat(p), sharding={replicated}}
  s = f32[] negate(p)
  ROOT r = f32[] tan(x) }  // of f
ENTRY e { p = f32[] parameter(0)
  ROOT c = f32[] call(p), to_apply=f }
"""
    with pytest.raises(CompileError) as caught:
        parse(text)
    assert [(d.line, d.message) for d in caught.value.diagnostics] == [
        (3, "opcode 'negat' is not supported"), (5, "no instruction 'x' so far")
    ]


def test_a_lost_root_is_not_reported_again() -> None:
    text = """HloModule m
f (p: f32[2]) -> f32[2] {
  p = f32[2] parameter(0)
  ROOT q = f32[2] negat(p)
}
ENTRY e (p: f32[2]) -> (f32[2]) {
  p = f32[2] parameter(0)
  q = f32[2] call(p), to_apply=f
  ROOT r = (f32[2]) tuple(q)
}
"""
    with pytest.raises(CompileError) as caught:
        parse(text)
    assert [d.message for d in caught.value.diagnostics] == ["opcode 'negat' is not supported"]


def test_help_suggests_the_nearest_word() -> None:
    for text, help in [("negat(p)", "'negate'"), ("transpose(p), dimension={1,0}", "'dimensions'")]:
        with pytest.raises(CompileError) as caught:
            parse(FRAME[0] + "a = f32[4,8] " + text + FRAME[1])
        assert help in (caught.value.diagnostics[0].help or "")


@pytest.mark.parametrize(
    ("text", "column", "help"),
    [
        ("a = f32[4,8] neg(p)", 16, "did you mean 'negate'? docs/ops.md lists all opcodes"),
        ("a = f32[4,8] Negate(p)", 16, "did you mean 'negate'? docs/ops.md lists all opcodes"),
        ("a = f32[4,8] mul(p, p)", 16, "did you mean 'mulhi' or 'multiply'? docs/ops.md lists all opcodes"),
        ("a = f32[4,8] matmul(p, p)", 16, "did you mean 'dot'? docs/ops.md lists all opcodes"),
        ("a = f32[4,8] softmax(p)", 16, "docs/ops.md lists all opcodes"),
        ("a = i32[4,8] negate(p)", 7, "did you mean 's32'?"),
        ("a = bool[4,8] negate(p)", 7, "did you mean 'pred'?"),
        ("a = BFloat16[4,8] negate(p)", 7, "did you mean 'bf16'?"),
        ("a = u6[4,8] negate(p)", 7, "one of u64"),
        ("a = f32 negate(p)", 7, "write f32[] for a scalar, f32[8,16] for an array"),
        ("a = f32[4,8]{1,1} negate(p)", 15, "a layout lists each dimension once, {1,0} for rows"),
        ("a = f32[4,8] add(p, 1.0)", 23,
         "names begin with a letter or _, and a number is a constant, such as f32[] constant(1)"),
        ("a = f32[4,8] negate(p);", 25, "no ';' ends an instruction"),
        ("# of a", 3, "comments begin with //"),
        ("return p", 10, "an instruction is written NAME = SHAPE OPCODE(OPERANDS), the result with ROOT before it"),
        ("a = f32[8,4] transpose(p)", 27, "it follows the operands, such as dimensions={0,1}"),
        ("a = f32[8,4] transpose(p), dimensions=[1,0]", 41, "lists stand in braces, such as {0,1}"),
        ("a = f32[8,4] transpose(p), dimensions=1", 41, "write {1}"),
        ("a = f32[8,4] iota(), iota_dimension={1}", 39, "write 1, without braces"),
        ("a = f32[8,4] custom-call(p), custom_call_target=f", 51, 'write "f"'),
        ("a = f32[4,8] pad(p, p), padding=1x1", 35, "such as 1_1x0_2 for two dimensions"),
        ("a = f32[4,8] all-gather(p), replica_groups={0,1}, dimensions={0}", 46, "for one group write {{0,1}}"),
        ("a = f32[4,8] collective-permute(p), source_target_pairs={0,1}", 59, "such as {{0,1},{1,2}}"),
        ("a = f32[2] constant(1,2)", 24, "an array stands in braces, such as {1,2}"),
        ("a = f32[2] constant([1,2])", 23, "write all values in braces, or broadcast a scalar constant"),
        ("a = f32[2,1] constant({1,2})", 29, "each of its 2 dimensions has braces, as in { {1,2}, {3,4} }"),
        ("a = f32[] constant(Infinity)", 22, "write inf, -inf or nan"),
        ("a = f32[4,8] negate(p), sharding={P('x')}", 37,
         "for example {devices=[2,1]<=[2]}, {mesh['x'=2,'y'=4], [{'x'}, {}]} or {replicated}"),
        ("a = f32[4,8] negate(p), sharding={devices=[2,1,2]<=[4] last_tile_dim_replicated}", 58,
         "did you mean 'last_tile_dim_replicate'?"),
        ("a = f32[4,8] negate(p), sharding={devices=[2,1,2]<=[4]}", 3,
         "last_tile_dim_replicate after the devices says that the last number counts copies"),
        ("a = f32[4,8] negate(p), sharding={devices=[2]<=[2]}", 3, "each dimension has a number, 1 where it is whole"),
        ("a = f32[4,8] negate(p), sharding={mesh['x'=2], [{'x'}]}", 3,
         "each dimension has its axes in braces, {} where it is whole"),
        ("a = f32[4,8] add(p, s32[4,8] convert(p))", 3, "convert one of them, to f32 or s32"),
        ("a = f32[4,8] add(p, f32[] constant(1))", 3,
         "no op broadcasts by itself: broadcast one of them to the shape of the other"),
        ("a = f32[4,4] dot(p, p), lhs_contracting_dims={1}", 3,
         "lhs_contracting_dims and rhs_contracting_dims name them in pairs"),
        ("a = f32[4,4] dot(p, p)", 3, "without attributes these are empty: lhs_batch_dims, lhs_contracting_dims, "
         "rhs_batch_dims, rhs_contracting_dims"),
        ('a = f32[4,8] negate(p), frontend_attributes={a="b "c" d"}', 54, 'a quote in a text is written \\"'),
        ("a = f32[4,8] reverse(p), dimensions={2}", 3, "they are numbered from 0"),
    ],
)  # fmt: skip
def test_help_tells_what_to_write(text: str, column: int, help: str) -> None:
    with pytest.raises(CompileError) as caught:
        parse(FRAME[0] + text + FRAME[1])
    first = caught.value.diagnostics[0]
    assert (first.line, first.column, first.help) == (5, column, help)


@pytest.mark.parametrize(
    ("text", "place", "help"),
    [
        ("entry e { ROOT p = f32[] parameter(0) }", (1, 1), "capitals and small letters differ"),
        ("HloModule m\nentry e { ROOT p = f32[] parameter(0) }", (2, 7), "write ENTRY in capitals"),
        ("HloModule m\nENTRY e { ROOT p = f32[] parameter(0) }\n}", (3, 1), "this brace closes nothing"),
        ('{"a": 1}', (1, 1),
         "HLO text begins with HloModule NAME, or with a computation; else it is a single instruction"),
        ("HloModule m\nfunc f(p: f32[]) { ROOT p = f32[] parameter(0) }", (2, 6),
         "a computation is written NAME { .. } or NAME (x: f32[8]) -> f32[8] { .. }, the main one after ENTRY"),
    ],
)  # fmt: skip
def test_help_tells_how_texts_begin(text: str, place: tuple[int, int], help: str) -> None:
    with pytest.raises(CompileError) as caught:
        parse(text)
    first = caught.value.diagnostics[0]
    assert (first.line, first.column, first.help) == (*place, help)


def test_a_computation_without_its_last_brace_ends_where_the_next_begins() -> None:
    text = """HloModule m
f (p: f32[]) -> f32[] {
  p = f32[] parameter(0)
  ROOT q = f32[] negate(p)

ENTRY e {
  p = f32[] parameter(0)
  ROOT c = f32[] negat(p)
}
"""
    with pytest.raises(CompileError) as caught:
        parse(text)
    first, second = caught.value.diagnostics
    assert (first.line, first.column, first.message) == (2, 23, "computation 'f' is not closed")
    assert [(n.line, n.message) for n in first.notes] == [(6, "a '}' is missing before this")]
    assert (second.line, second.message) == (8, "opcode 'negat' is not supported")


def test_shape_errors_name_the_operands() -> None:
    with pytest.raises(CompileError) as caught:
        parse(FRAME[0] + "a = f32[4,9] negate(p)" + FRAME[1])
    assert "4:3: note: p is f32[4,8] here" in caught.value.diagnostics[0].render()


def test_without_verification_shapes_are_believed() -> None:
    module = parse(FRAME[0] + "a = f32[4,9] negate(p)" + FRAME[1], verify=False)
    assert module.entry.root.shape == parse_shape("f32[4,9]")


@pytest.mark.parametrize("reader", [parse_shape, parse_sharding, parse_replica_groups])
def test_single_values_have_places_too(reader: object) -> None:
    assert callable(reader)
    with pytest.raises(CompileError) as caught:
        reader("!")
    assert caught.value.diagnostics[0].column == 1


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_byte_order_mark_is_no_part_of_the_text(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_bytes(f"{FRAME[0]}a = f32[4,8] negate(p){FRAME[1]}".encode(encoding))
    assert load(tmp_path / "m.hlo").entry.root.name == "a"
    with pytest.raises(CompileError, match=r"<string>:1:1: error: HloModule expected"):
        parse("\ufeff", verify=False)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_wide_text_is_named(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_bytes("HloModule m".encode(encoding))
    with pytest.raises(CompileError, match=rf"m.hlo is {encoding.upper()} text, UTF-8 is expected"):
        load(tmp_path / "m.hlo")


def test_names_of_types_are_no_names_of_instructions() -> None:
    with pytest.raises(CompileError) as caught:
        parse(FRAME[0] + "u1 = f32[4,8] negate(p)\n  b = f32[4,8] negate(u1)" + FRAME[1])
    (error,) = caught.value.diagnostics
    assert "'u1': that is the name of an element type" in error.message
    assert "rename it, to 'u1_' for example" in (error.help or "")


def test_load(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.hlo", tmp_path / "bad.hlo"
    good.write_text(FRAME[0] + FRAME[1])
    assert load(good).name == "m"
    bad.write_bytes(b"HloModule m\n\xff")
    with pytest.raises(CompileError, match=r"bad.hlo:2:1: error: not UTF-8: byte 0xff"):
        load(bad)
    with pytest.raises(CompileError, match="cannot be read"):
        load(tmp_path / "none.hlo")


def test_deep_and_large_texts_do_not_exhaust_anything() -> None:
    huge = "a = f32[1000000000,1000000000] constant({{1}})"
    number = "a = s32[] constant(" + "9" * 5000 + ")"
    braces = "a = f32[] negate(p), backend_config=" + "{" * 50000
    nested = "a = f32[] call(p), to_apply=" + "{ x = f32[] call(p), to_apply=" * 100
    sharding = "a = f32[4,8] negate(p), sharding=" + "{" * 5000 + "}" * 5000
    for text in (huge, number, braces, nested, sharding):
        with pytest.raises(CompileError):
            parse(FRAME[0] + text + FRAME[1])


def _only_compile_errors(text: str) -> None:
    """Whatever else is raised fails the test."""
    found: list[Diagnostic] = []
    try:
        parse(text)
    except CompileError as error:
        found = error.diagnostics
    assert all(d.location is not None and d.render() for d in found)


def test_truncated_texts() -> None:
    text = (FOLDER / "rich.hlo").read_text()
    for end in range(0, len(text), 13):
        _only_compile_errors(text[:end])


def test_mutated_texts() -> None:
    text = (FOLDER / "rich.hlo").read_text()
    dice = random.Random(7)
    alphabet = "{}()[]<>=,:;\"'\\/*%@#-+.0129 abTEf_?\n\x00é"
    for _ in range(300):
        place, char = dice.randrange(len(text)), dice.choice(alphabet)
        kind = dice.randrange(3)
        keep = text[place + 1 :] if kind == 0 else text[place:]
        _only_compile_errors(text[:place] + (char + keep if kind < 2 else text[place + 1 :]))


@pytest.mark.slow
def test_all_truncations() -> None:
    text = (FOLDER / "rich.hlo").read_text()
    for end in range(len(text)):
        _only_compile_errors(text[:end])


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("{{replicated}, {devices=[2]<=[4]}}", 30, "2 tiles, but the list has 4 devices"),
        ("{{replicated}, /*index=1*/{devices=[2]<=[2]}, {maximal device=x}}", 62, "unexpected 'x'"),
        ("{{replicated},}", 14, "unexpected '}'"),
        ("{{replicated}, {}}", 16, "unexpected '}'"),
        ("{{replicated},", 14, "ends too early"),
        ("{{replicated}, {manual}x", 23, "unexpected 'x'"),
        ("{{replicated}, {{manual}}}", 16, "unexpected '{'"),
    ],
)
def test_errors_of_elements_are_placed_in_the_whole_sharding(text: str, place: int, message: str) -> None:
    with pytest.raises(CompileError, match=rf"1:{place + 1}: error: .*{re.escape(message)}"):
        parse_sharding(text)


def test_elements_of_a_tuple_are_read_as_shardings_alone() -> None:
    elements = ["{devices=[2,4]<=[8]}", "{replicated}", "{maximal device=3}", "{devices=[2,4]<=[8]}"]
    found = parse_sharding("{ " + ",/*index=5*/ ".join(elements) + " }")
    assert isinstance(found, TupleSharding)
    assert found.elements == tuple(map(parse_sharding, elements))

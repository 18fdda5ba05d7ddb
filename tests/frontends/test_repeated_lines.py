"""Lines like earlier ones are copied: module, places and messages are those of reading every line."""

from __future__ import annotations

import random
from collections.abc import Callable

import hloom
import pytest
from fuzzing.programs import corpus, large, program
from hloom.frontends.hlo_text.repeated_lines import Body, RepeatedLines
from support.calls import calls

TWICE = """HloModule m
ENTRY e {
  a = f32[4]{0} parameter(0)
  b = f32[4]{0} exponential(a), metadata={op_name="first"}
  c = f32[4]{0} exponential(b), metadata={op_name="second"}
  d = f32[4]{0} exponential(c), metadata={op_name="third"}
  ROOT r = f32[4]{0} add(c, d)
}
"""


def described(text: str) -> object:
    """All that reading a text gives: messages with their places, or instructions with theirs."""
    try:
        module = hloom.parse(text)
    except hloom.CompileError as error:
        return str(error)
    lines = [(i.name, i.location and (i.location.start, i.location.end), i.metadata, i.attributes, i.shape,
              i.sharding, i.shardy, [o.name for o in i.operands], c.root is i) for c in module for i in c]
    return [str(lines), module.to_text(), [str(w) for w in module.warnings]]


def nothing(_: RepeatedLines, place: int, __: Body) -> int:
    return place


@pytest.fixture
def line_by_line(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], object]:
    def read(text: str) -> object:
        with monkeypatch.context() as patch:
            patch.setattr(RepeatedLines, "read", nothing)
            return described(text)

    return read


def kept(text: str) -> int:
    """Reads a text and returns how many of its lines were not copied though they have the common form."""
    with calls(RepeatedLines.keep) as made:
        hloom.parse(text)
    return len(made)


def test_a_line_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kept(TWICE) == 3  # the parameter, one exponential, the sum
    module = hloom.parse(TWICE)
    assert [i.metadata.op_name for i in module.entry if i.metadata] == ["first", "second", "third"]
    assert module.entry.root.name == "r"


@pytest.mark.parametrize("change", [
    ("exponential(c)", "exponential(missing)"),
    ("d = f32[4]{0} exp", "c = f32[4]{0} exp"),
    ("d = f32[4]{0} exp", "ROOT d = f32[4]{0} exp"),
    ('"third"}', '"third"}\n  , sharding={replicated}'),
    ('"third"}', '"third"} /* open'),
    ('"third"}', '"third"}, metadata={op_name="fourth"}'),
    ("  d = f32", "  true = f32"),
    ("  d = f32", "  f32 = f32"),
    ("a = f32[4]{0} parameter(0)", "a = f32[3]{0} parameter(0)"),
])  # fmt: skip
def test_changed_lines(change: tuple[str, str], line_by_line: Callable[[str], object]) -> None:
    text = TWICE.replace(*change)
    assert text != TWICE
    assert described(text) == line_by_line(text)


def test_operands_of_other_shapes_are_not_copied() -> None:
    text = TWICE.replace("c = f32[4]{0} exponential(b)", "c = f32[1,4]{1,0} reshape(b)")
    with pytest.raises(hloom.CompileError, match="declared shape f32"):
        hloom.parse(text)


def test_control_predecessors_are_those_of_each_line(line_by_line: Callable[[str], object]) -> None:
    text = TWICE.replace("exponential(b)", "exponential(a), control-predecessors={b}")
    text = text.replace("exponential(c)", "exponential(a), control-predecessors={b}")
    assert described(text) == line_by_line(text)
    assert [[p.name for p in i.control_predecessors] for i in hloom.parse(text).entry] == [[], [], ["b"], ["b"], []]


def test_computations_in_place_are_read_each_time(line_by_line: Callable[[str], object]) -> None:
    call = "f32[4]{0} call(a), to_apply={ x = f32[4]{0} parameter(0) ROOT y = f32[4]{0} negate(x) }"
    text = TWICE.replace("f32[4]{0} exponential(a)", call).replace("f32[4]{0} exponential(b)", call)
    module = hloom.parse(text)
    called = [i.called()[0] for i in module.entry if i.opcode == "call"]
    assert called[0] is not called[1]
    assert described(text) == line_by_line(text)


def test_real_programs(line_by_line: Callable[[str], object]) -> None:
    for text in (*random.Random(0).sample(corpus(), 60), *large()):
        assert described(text) == line_by_line(text)


@pytest.mark.parametrize("seed", range(60))
def test_damaged_programs(seed: int, line_by_line: Callable[[str], object]) -> None:
    text = program(random.Random(seed), corpus())
    assert described(text) == line_by_line(text)


@pytest.mark.slow
def test_many_damaged_programs(line_by_line: Callable[[str], object]) -> None:
    for seed in range(5_000):
        rng = random.Random(seed)
        text = program(rng, large() if seed % 20 == 0 else corpus())
        assert described(text) == line_by_line(text), seed


REDUCED = """HloModule m
s1 { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
s2 {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
s3 {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}
s4 {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(y, x)
}
s5 {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] maximum(y, x)
}
ENTRY e {
  p = f32[4,4]{1,0} parameter(0)
  zero = f32[] constant(0)
  r1 = f32[4]{0} reduce(p, zero), dimensions={0}, to_apply=s2, metadata={op_name="a"}
  r2 = f32[4]{0} reduce(p, zero), dimensions={0}, to_apply=%s3
  r3 = f32[4]{0} reduce(p, zero), dimensions={0}, to_apply=s4
  r4 = f32[4]{0} reduce(p, zero), dimensions={0}, to_apply=s5
  r5 = f32[4]{0} reduce(p, zero), dimensions={0}, to_apply=s3
  r6 = f32[4]{0} reduce(p, zero), dimensions={1}, to_apply=s3
  ROOT t = (f32[4]{0}, f32[4]{0}, f32[4]{0}, f32[4]{0}, f32[4]{0}, f32[4]{0}) tuple(r1, r2, r3, r4, r5, r6)
}
"""


def test_lines_that_apply_equal_computations_are_alike(line_by_line: Callable[[str], object]) -> None:
    with calls(RepeatedLines.keep) as made:
        module = hloom.parse(REDUCED)
    assert [c["instruction"].name for c in made if c["instruction"].called()] == ["r1", "r3", "r4", "r6"]
    assert [i.called()[0].name for i in module.entry if i.called()] == ["s2", "s3", "s4", "s5", "s3", "s3"]
    assert described(REDUCED) == line_by_line(REDUCED)


@pytest.mark.parametrize("change", [
    ("r2 = f32[4]{0} reduce(p, zero), dimensions={0}, to_apply=%s3", "r2 = f32[4]{0} reduce(p, p), to_apply=s3"),
    ("to_apply=s3\n  r6", "to_apply=s3, to_apply=s2\n  r6"),
    ("to_apply=s3\n  r6", "to_apply=s9\n  r6"),
    ("to_apply=s3\n  r6", "to_apply=e\n  r6"),
    ("ROOT z = f32[] add(x, y)", "ROOT z = (f32[]) tuple(x)"),
    ("ROOT z = f32[] add(x, y)", "z = f32[] add(x, y)\n  ROOT w = f32[] copy(x)"),
    ("x = f32[] parameter(0)", "x = f32[] parameter(1)"),
])  # fmt: skip
def test_changed_computations(change: tuple[str, str], line_by_line: Callable[[str], object]) -> None:
    text = REDUCED.replace(*change)
    assert text != REDUCED
    assert described(text) == line_by_line(text)


def test_all_wrong_lines_are_reported_though_they_are_alike() -> None:
    wrong = "".join(f"{name} = f32[3]{{0}} negate({of})\n  " for name, of in zip("mno", "bcd", strict=True))
    text = TWICE.replace("ROOT", f"{wrong}ROOT")
    with pytest.raises(hloom.CompileError) as caught:
        hloom.parse(text)
    assert len(caught.value.diagnostics) == 3

"""`hloom.custom_call`: meanings and sharding rules of custom-calls from Python, and what users may do wrong."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import hloom
import numpy as np
import pytest
from hloom.ir.ops.calls.user_calls import USER_BEHAVIOURS
from hloom.passes.base import PassContext
from hloom.passes.pipelines import partition

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def no_definitions_stay() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    before = dict(USER_BEHAVIOURS)
    yield
    USER_BEHAVIOURS.clear()
    USER_BEHAVIOURS.update(before)


def program(operands: str, result: str, sharding: str = "", extra: str = "") -> hloom.Module:
    """One custom-call of target `mine`, on line 5 or so, whose operands are parameters with this sharding."""
    parameters = "".join(
        f"  p{n} = {shape} parameter({n}){sharding}\n" for n, shape in enumerate(operands.split())
    )
    names = ", ".join(f"p{n}" for n, _ in enumerate(operands.split()))
    call = f'  ROOT r = {result} custom-call({names}), custom_call_target="mine"{extra}\n'
    return hloom.parse(f"HloModule m\nENTRY e {{\n{parameters}{call}}}\n", filename="m.hlo")


def floats(*dims: int) -> Array:
    return np.random.default_rng(0).standard_normal(dims).astype(np.float32)


def failure(module: hloom.Module, *inputs: Array) -> hloom.Diagnostic:
    with pytest.raises(hloom.CompileError) as error:
        hloom.evaluate(module, list(inputs))
    (found,) = error.value.diagnostics
    return found


def test_an_array_and_a_tuple() -> None:
    @hloom.custom_call("mine")
    def sums(x: Array, y: Array) -> tuple[Array, Array]:  # pyright: ignore[reportUnusedFunction]
        return x + y, x.sum(1)

    x, y = floats(2, 3), floats(2, 3)
    both, rows = hloom.evaluate(program("f32[2,3] f32[2,3]", "(f32[2,3], f32[2])"), [x, y])
    np.testing.assert_array_equal(both, x + y)
    np.testing.assert_array_equal(rows, x.sum(1))


def test_the_function_stays_callable_and_gets_the_backend_config() -> None:
    @hloom.custom_call("mine")
    def scale(x: Array, config: str) -> Array:
        return x * np.float32(config.strip("{}").split("=")[1])

    np.testing.assert_array_equal(scale(np.ones(2, np.float32), "{by=3}"), [3, 3])
    for extra in (', backend_config="by=2"', ", backend_config={by=2}"):
        (found,) = hloom.evaluate(program("f32[2]", "f32[2]", extra=extra), [np.ones(2, np.float32)])
        np.testing.assert_array_equal(found, [2, 2])


def test_a_definition_may_come_after_the_program_and_after_a_start() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[2] parameter(0)
  s = ((f32[2]), f32[2], s32[]) custom-call-start(x), custom_call_target="mine", backend_config="5"
  ROOT d = f32[2] custom-call-done(s)
}"""
    module = hloom.parse(text)
    assert "hloom.custom_call" in (failure(module, floats(2)).help or "")
    hloom.custom_call("mine")(lambda x, config: x + np.float32(config))
    np.testing.assert_array_equal(hloom.evaluate(module, [np.ones(2, np.float32)])[0], [6, 6])


def test_an_unknown_target_says_what_helps() -> None:
    found = failure(program("f32[2]", "f32[2]"), floats(2))
    assert found.message == 'custom-call r: custom-call target "mine" is unknown, so it cannot be evaluated'
    assert found.help == (
        'define it in Python with hloom.custom_call("mine"), for the command line in a file given to --import'
    )
    assert (found.line, found.column) == (4, 8)


@pytest.mark.parametrize(
    ("result", "function", "message"),
    [
        ("f32[2]", lambda x: x.astype(np.float64), "returned float64[2], the program declares float32[2]"),
        ("f32[3]", lambda x: x, "returned float32[2], the program declares float32[3]"),
        ("f32[2]", lambda x: None, "returned nothing, the program declares f32[2]"),
        ("f32[2]", lambda x: [1.0, 2.0], "returned a value of type list, the program declares f32[2]"),
        ("(f32[2])", lambda x: x, "returned a value of type ndarray, the program declares a tuple of 1"),
        ("(f32[2], s32[])", lambda x: (x,), "returned 1 values, the program declares a tuple of 2"),
        ("f32[2]", lambda: 1, "raised TypeError: "),
        ("f32[2]", lambda x: x.reshape(7), "raised ValueError: cannot reshape array of size 2"),
    ],
)
def test_wrong_functions(result: str, function: Callable[..., Any], message: str) -> None:
    hloom.custom_call("mine")(function)
    found = failure(program("f32[2]", result), floats(2))
    assert found.message.startswith(f'custom-call r: the function of target "mine" {message}')
    assert (found.line, found.column) == (4, 8)


def test_an_exception_says_where_it_was_raised() -> None:
    @hloom.custom_call("mine")
    def fails(x: Array) -> Array:  # pyright: ignore[reportUnusedFunction]
        raise KeyError("no such thing")

    found = failure(program("f32[2]", "f32[2]"), floats(2))
    assert found.message.endswith("raised KeyError: 'no such thing'")
    assert (found.help or "").startswith(f"it was raised at {__file__}:")


def test_operands_cannot_be_written_to() -> None:
    @hloom.custom_call("mine")
    def writes(x: Array) -> Array:  # pyright: ignore[reportUnusedFunction]
        x += 1
        return x

    assert "read-only" in failure(program("f32[2]", "f32[2]"), floats(2)).message


def test_targets_are_defined_once_and_built_in_ones_never() -> None:
    hloom.custom_call("mine")
    with pytest.raises(ValueError, match='"mine" is already defined'):
        hloom.custom_call("mine")
    hloom.custom_call("mine", replace=True)(lambda x: x)
    assert hloom.evaluate(program("f32[2]", "f32[2]"), [floats(2)])[0].shape == (2,)
    with pytest.raises(ValueError, match='"TopK" is built in'):
        hloom.custom_call("TopK", replace=True)


@pytest.mark.parametrize(
    ("rule", "culprit", "message"),
    [
        ("([i]) -> [i 7", "7", "expected the name of a factor"),
        ("([i]) -> [i] permutation={i}", "i", "cannot exchange data along i"),
        ("([i]) -> [i] reduction={i}", "i", "the reduction factor i must occur in operands only"),
        ("([i j]) -> [i]", "j", "j occurs in operands only: it must be listed in replicate={j} or reduction={j}"),
        ("([i]) -> [i j]", "j", "j occurs in results only: it must be listed in replicate={j}"),
    ],
)
def test_rules_without_sense(rule: str, culprit: str, message: str) -> None:
    with pytest.raises(hloom.CompileError) as error:
        hloom.custom_call("mine", rule=rule)
    (found,) = error.value.diagnostics
    assert message in found.message
    assert str(found).startswith(f'sharding rule of target "mine":1:{rule.index(culprit) + 1}: error: ')
    assert "mine" not in USER_BEHAVIOURS


def test_a_rule_that_does_not_fit_is_an_error_at_the_call() -> None:
    hloom.custom_call("mine", rule="([i j]) -> [i] replicate={j}")
    with pytest.raises(hloom.CompileError) as error:
        program("f32[2]", "f32[2]")
    assert error.value.diagnostics[0].message == "sharding rule: operand 0 is f32[2], the rule gives it 2 dimensions"
    assert error.value.diagnostics[0].line == 4


def test_a_rule_younger_than_the_program_that_does_not_fit() -> None:
    module = program("f32[4]", "f32[4]", ", sharding={devices=[2]<=[2]}")
    hloom.custom_call("mine", rule="([i j]) -> [i] replicate={j}")
    with pytest.raises(hloom.CompileError, match="the rule gives it 2 dimensions"):
        hloom.partition(module)


def test_a_call_is_run_on_tiles_by_its_rule() -> None:
    met: list[tuple[int, ...]] = []

    @hloom.custom_call("mine", rule="([b i k], [k j]) -> ([b i j], [b i]) replicate={j} reduction={k}")
    def product(x: Array, y: Array) -> tuple[Array, Array]:  # pyright: ignore[reportUnusedFunction]
        met.append(x.shape)
        return x @ y, x.sum(-1)

    text = program("f32[5,4,37] f32[37,3]", "(f32[5,4,3], f32[5,4])").to_text()
    text = text.replace("parameter(0)", "parameter(0), sharding={mesh['a'=2,'b'=2], [{'a'}, {}, {'b'}]}")
    module = hloom.parse(text.replace("parameter(1)", "parameter(1), sharding={mesh['a'=2,'b'=2], [{'b'}, {}]}"))
    inputs = [floats(5, 4, 37), floats(37, 3)]
    expected = hloom.evaluate(module, inputs)
    met.clear()
    local = hloom.partition(module)
    found = hloom.simulate(local, inputs, poison=True)
    assert met == [(3, 4, 19)] * 4
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_without_a_rule_everything_is_computed_everywhere() -> None:
    met: list[tuple[int, ...]] = []

    @hloom.custom_call("mine")
    def double(x: Array) -> Array:  # pyright: ignore[reportUnusedFunction]
        met.append(x.shape)
        return x * 2

    module = program("f32[6]", "f32[6]", ", sharding={devices=[3]<=[3]}")
    context = PassContext()
    (found,) = hloom.simulate(partition(module, context), [floats(6)])
    assert met == [(6,)] * 3
    (warning,) = (d for d in context.diagnostics.found if d.severity is hloom.Severity.WARNING)
    assert warning.message == "custom-call mine has no sharding rule: every device computes all of it (24 bytes)"
    assert 'hloom.custom_call("mine", rule=' in (warning.help or "")
    assert warning.line == 4
    np.testing.assert_array_equal(found, floats(6) * 2)


def test_layout_constraints_are_those_of_the_tiles() -> None:
    hloom.custom_call("mine", rule="([b i], [b]) -> [b i] replicate={i}")
    extra = ", operand_layout_constraints={f32[6,4]{0,1}, f32[6]{0}}"
    module = program("f32[6,4] f32[6]", "f32[6,4]", extra=extra)
    text = module.to_text().replace("parameter(0)", "parameter(0), sharding={devices=[3,1]<=[3]}")
    local = hloom.partition(hloom.parse(text)).to_text()
    assert "operand_layout_constraints={f32[2,4]{0,1}, f32[2]{0}}" in local

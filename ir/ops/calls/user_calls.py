"""User-defined targets of custom-calls: `hloom.custom_call`.

A definition belongs to the process, not to a module, and may come before or after a program is read. Errors of a user's
function (an exception, results of a wrong type or shape) are reported at the custom-call.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ...checked_call import checked
from ...diagnostics import fail
from ...factors.rule_text import RuleText, parse_rule
from ...factors.sharding_rule import FactorKind, ShardingRule
from ...graph.op import Compile, Kernel, NotEvaluable, ShapeError, Value
from ...graph.own_values import as_declared
from ...types.shape import Shape
from ..structure import leaves_of
from .behaviour import Behaviour, Call
from .targets import BEHAVIOURS

Function = TypeVar("Function", bound=Callable[..., Any])

USER_BEHAVIOURS: dict[str, Behaviour] = {}
"""The targets defined so far, by name."""


@checked
def custom_call(target: str, *, rule: str | None = None, replace: bool = False) -> Callable[[Function], Function]:
    """Defines the function and the sharding rule of a custom-call target; usable as a decorator.

        @hloom.custom_call("row_sums", rule="([b i]) -> [b] replicate={i}")
        def row_sums(x):
            return x.sum(1, dtype=x.dtype)

    The function takes the operands as numpy arrays (read-only), and returns an array, or a tuple of arrays where the
    result is a tuple, of exactly the shapes and types that the program declares. If it has a parameter `config`, it is
    given the text of the backend_config there. `numpy.float32` is f32; other types are those of ml_dtypes.

    `rule` specifies how the op may be divided among devices, as in `([b i k], [b k j]) -> [b i j] reduction={k}`: one
    list of factors per operand and result (per element of a tuple), sizes only where shapes do not determine them. A
    factor is pass-through unless it is listed after `reduction=` (results are partial, and combined by `monoid=`: add,
    the default, multiply, maximum, minimum, and, or, xor) or `replicate=` (unsharded). The function then runs on tiles.
    Along a factor that does not divide evenly, tiles end in arbitrary padding, or in the monoid's identity for a
    reduction factor. Without a rule every device computes the full op, with a warning.

    The definition and its rule are valid from this call on. As a decorator, it returns the function unchanged. Built-in
    targets cannot be redefined, others only with `replace`. Raises ValueError if the target is taken, CompileError with
    the place in the rule if that is malformed or unsupported.
    """
    if target in BEHAVIOURS:
        raise ValueError(f'custom-call target "{target}" is built in')
    if target in USER_BEHAVIOURS and not replace:
        raise ValueError(f'custom-call target "{target}" is already defined; replace=True replaces it')
    made = UserCall(target, None if rule is None else _checked_rule(target, rule))
    USER_BEHAVIOURS[target] = made

    def define(function: Function) -> Function:
        made.define(function)
        return function

    return define


def _checked_rule(target: str, text: str) -> RuleText:
    """Parses a rule and checks that it is valid for a function on tiles. Raises CompileError."""
    rule = parse_rule(text, f'sharding rule of target "{target}"')
    taken, given = ({n for v in values for dim in v for n in dim} for values in (rule.operands, rule.results))
    for name in rule.factors:
        kind = rule.kind(name)
        if kind is FactorKind.PERMUTATION:
            raise rule.error(name, f"the function of a custom-call cannot exchange data along {name}")
        if kind is FactorKind.REDUCTION and (name in given or name not in taken):
            raise rule.error(name, f"the reduction factor {name} must occur in operands only")
        if kind is FactorKind.PASS and (name not in taken or name not in given):
            where = "operands" if name in taken else "results"
            raise rule.error(name, f"{name} occurs in {where} only: it must be listed in replicate={{{name}}}"
                             + (f" or reduction={{{name}}}" if name in taken else ""))
    return rule


class UserCall(Behaviour):
    """A user-defined target, with an optional rule and an optional function."""

    def __init__(self, target: str, rule: RuleText | None) -> None:
        self.target = target
        self.rule = rule
        self.has_rule = rule is not None
        self.function: Callable[..., Any] | None = None
        self.takes_config = False

    def define(self, function: Callable[..., Any]) -> None:
        """Sets the function."""
        self.function = function
        try:
            self.takes_config = "config" in inspect.signature(function).parameters
        except ValueError:  # some C functions have no signature
            self.takes_config = False

    def check(self, target: str, operands: Sequence[Shape], result: Shape) -> None:
        if self.rule is not None:
            self.rule.rule(leaves_of(operands), leaves_of([result]))

    def sharding_rule(self, call: Call) -> ShardingRule:
        if self.rule is None:
            return super().sharding_rule(call)
        try:
            return self.rule.rule(leaves_of(call.operands), leaves_of([call.shape]))
        except ShapeError as error:  # the rule may be defined after the program was verified
            fail(f'custom-call target "{self.target}": {error}', help=error.help)

    def kernel(self, call: Call, compile: Compile) -> Kernel:
        function = self.function
        if function is None:
            raise NotEvaluable(f'custom-call target "{self.target}" has a sharding rule, but no function',
                               f'decorate one with hloom.custom_call("{self.target}", ..)')
        named = {"config": call.config} if self.takes_config else {}

        def run(*operands: Value) -> Value:
            try:
                result = function(*map(_read_only, operands), **named)
            except Exception as error:
                raise NotEvaluable(f'the function of target "{self.target}" raised {_described(error)}',
                                   _place(error)) from error
            return as_declared(result, call.shape, f'the function of target "{self.target}"')

        return run


def _read_only(value: Value) -> Value:
    """Makes arrays read-only, because instructions share values."""
    if isinstance(value, tuple):
        return tuple(map(_read_only, value))  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]
    if value is None:
        return None
    view = np.asarray(value).view()
    view.flags.writeable = False
    return view


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def _place(error: Exception) -> str | None:
    """Returns the line of the user's file that raised the error. The first frame is `run` above."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    return f"it was raised at {frames[-1].filename}:{frames[-1].lineno}" if frames else None

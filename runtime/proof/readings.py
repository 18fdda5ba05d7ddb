"""Other readings of a program and its partitioned form, for those that differ over the field by rounding alone.

Another compiler may have folded constants, chosen another form of a root, or computed in wider types than the program
says. A program that differs is read again as if that had not been done. If the programs are equal then, they are; but
where roundings had to be left out, only plain numbers can tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from ...ir.diagnostics import CompileError
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module, clone_module
from ...ir.graph.op import Algebra, Role
from ...ir.time_limit import TimeLimit
from ...ir.tools.unfused import unfused
from ...ir.types.shape import Shape
from ..check.retype import retyped
from .constants import compute_constants, explain_constants
from .numbers import difference_on_numbers
from .roots import expand_roots
from .verdict import Verdict

Prove = Callable[[Module, Module], Verdict]

_UP_TO = "the rounding of constants and roots, which another compiler writes otherwise"
_UNROUNDED = "over the field the outputs differ only by where numbers are rounded to narrower types"


@dataclass(frozen=True)
class Reading:
    """Both programs in another form."""

    original: Module
    local: Module


def read_again(original: Module, local: Module, verdict: Verdict, seed: int, prove: Prove) -> tuple[Verdict, Reading]:
    """Returns the verdict on another reading of programs that differ, and the reading; the given ones if it stays."""
    given = Reading(original, local)
    if verdict.outcome == "differs":
        with suppress(CompileError, TimeLimit):
            return _read_again(given, verdict, seed, prove)
    return verdict, given


def _read_again(given: Reading, verdict: Verdict, seed: int, prove: Prove) -> tuple[Verdict, Reading]:
    readings = list[Reading]()
    for reading in _readings(given.original, given.local):
        readings.append(reading)
        again = prove(reading.original, reading.local)
        if again.outcome != "differs":
            return replace(again, up_to=_UP_TO), reading
    for reading in readings or [given] if _is_widened(given) else ():
        if prove(retyped(reading.original), retyped(reading.local)).agrees:
            if difference_on_numbers(reading.original, reading.local, seed):
                break
            return replace(verdict, outcome="unproved", difference=None, origin=None, problem=_UNROUNDED), reading
    return verdict, given


def _readings(original: Module, local: Module) -> Iterator[Reading]:
    inlined = [clone_module(unfused(m, (Role.CALL, Role.FUSION))) for m in (original, local)]
    changed = [expand_roots(m) for m in inlined]
    for change in (explain_constants, compute_constants):
        reading = Reading(*map(clone_module, inlined))
        if change(reading.original, reading.local) or any(changed):
            yield reading


def _is_widened(given: Reading) -> bool:
    """Whether the partitioned program computes less in narrow floats than the original, and converts more of them to
    wider ones, as compilers for processors do that do not compute in these.
    """
    before, after = ([i for c in m for i in c] for m in (given.original, given.local))
    return sum(map(_computes_narrowly, before)) > sum(map(_computes_narrowly, after)) and (
        sum(map(_widens, before)) < sum(map(_widens, after)))  # fmt: skip


def _computes_narrowly(i: Instruction) -> bool:
    if i.op.role is not None or i.op.algebra_of(i.call) in (None, Algebra.MOVE, Algebra.MADE, Algebra.CONVERSION):
        return False
    floats = [s for s in (i.shape, *(o.shape for o in i.operands)) if s.is_array and s.element.is_float]
    return bool(floats) and all(map(_is_narrow, floats))


def _widens(i: Instruction) -> bool:
    return i.op.algebra is Algebra.CONVERSION and _is_narrow(i.operands[0].shape) and not _is_narrow(i.shape)


def _is_narrow(shape: Shape) -> bool:
    return shape.is_array and shape.element.is_float and shape.element.bits < 32

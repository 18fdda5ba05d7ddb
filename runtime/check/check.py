"""Checks a partitioned program: compares its results on all devices with those of the unpartitioned program on one.

The caller runs the partitioned program twice on the same devices, unchanged and in f64 (`wide_program`), and compares
both runs with a `Reference`. In f64, where rounding hides nothing, a constant that is off by one unit in its last place
shows. In its own types the program may err about as much as one device does. A reference that holds NaN
although the inputs hold none proves nothing, and fails; so do infinities, but for those that the program writes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...ir.brief import brief
from ...ir.graph.module import Module
from ...ir.graph.op import Role
from ...ir.ops.structure import ConstantAttributes
from ...ir.types.element_type import ElementType
from ...ir.types.literal import Array
from .errors import NO_ERROR, LargestError, magnitudes
from .judge import Judge, Judgement, Mismatch
from .reference import Reference, element_types, float_types, widened
from .retype import F64, WIDE, retyped


@brief
@dataclass(frozen=True)
class WideRun:
    """A partitioned program in f64, and its inputs."""

    program: Module
    inputs: list[Array]

    @staticmethod
    def of(local: Module, inputs: Sequence[Array], exchanged: Sequence[ElementType] = ()) -> WideRun:
        """Converts all floats of a LOCAL program and of its global inputs to f64, and so integers that devices exchange
        in place of floats.
        """
        return WideRun(retyped(local, {**WIDE, **dict.fromkeys(exchanged, F64)}), widened(inputs))


def wide_program(reference: Reference, local: Module, exchanged: Sequence[ElementType] = ()) -> WideRun | None:
    """Returns the program to run for the comparison in f64; None if the program is in f64 already, or f64 is out of
    reach. Devices exchange floats in the types `exchanged`.
    """
    integers = [t for t in exchanged if t.is_integer and t in element_types(reference.program)]
    if integers:
        reference.give_up(f"devices exchange floats in {integers[0].name}, and the program computes in it")
    if reference.wide is None or float_types(local) <= {"f64", "c128"}:
        return None
    return WideRun.of(local, reference.inputs, exchanged)


@dataclass(frozen=True)
class CheckVerdict:
    """The result of a check. `undefined` says why the reference proves nothing, `not_wide` why f64 was not used.

    `noise` lists results that are rounding errors for the most part, even in f64: they pass, and are not tested. The
    errors are the largest of the tested results, if there are any.
    """

    outputs: int
    differences: tuple[Mismatch, ...]
    in_f64: LargestError | None
    own: LargestError
    one_device: LargestError
    types: tuple[str, ...] = ()
    turned: int = 0
    undefined: str = ""
    not_wide: str = ""
    noise: tuple[int, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.differences and not self.undefined

    def record(self) -> dict[str, Any]:
        """Returns the verdict as JSON. Infinite errors, which JSON cannot represent, are null."""

        def worst(found: LargestError | None) -> dict[str, Any] | None:
            return found and {**asdict(found), "error": found.error if math.isfinite(found.error) else None}

        errors = {name: worst(getattr(self, name)) for name in ("in_f64", "own", "one_device")}
        return {"passed": self.passed, **asdict(self), **errors}

    def __str__(self) -> str:
        lines = [f"{len(self.differences)}/{self.outputs} outputs differ from those of one device"]
        lines += [f"  {difference}" for difference in self.differences]
        if self.types:
            lines += self._precision()
        if self.turned:
            lines.append(f"  {self.turned} elements differ where rounding decides (near ties)")
        if self.noise:
            lines.append(f"  {len(self.noise)}/{self.outputs} outputs are rounding errors with these inputs, even in "
                         f"f64, and not tested; first output {self.noise[0]}")  # fmt: skip
        if self.undefined:
            lines.append(f"  this proves nothing: {self.undefined}")
        return "\n".join(lines)

    def _precision(self) -> list[str]:
        own = f"in {', '.join(self.types)}: error {self.own.error:.1e}"
        if self.in_f64 is None:
            return [f"  {own} of a result's scale; there is no reference in f64: {self.not_wide}"]
        return [
            f"  in f64: error {self.in_f64.error:.1e} of a result's scale",
            f"  {own}, that of one device {self.one_device.error:.1e}",
        ]


def judge(
    reference: Reference,
    outputs: Sequence[Array],
    in_f64: Sequence[Array] | None,
    devices: int,
    tolerance: float | None = None,
    allow_nan: bool = False,
    exchanged: Sequence[ElementType] = (),
) -> CheckVerdict:
    """Judges the results of a partitioned run, in own types and in f64 (None: `wide_program` returned None).

    `tolerance` is the allowed error, relative to each result's largest magnitude; it replaces the allowances for
    rounding. Devices exchange floats in the types `exchanged`; narrower ones than those of the arrays round more.
    """
    types = tuple(sorted(reference.types))
    if len(outputs) != len(reference.own):
        reason = f"there are {len(outputs)} outputs, {len(reference.own)} were expected"
        found = (Mismatch(min(len(outputs), len(reference.own)), reason),)
        return CheckVerdict(len(reference.own), found, None, NO_ERROR, NO_ERROR, types)
    if in_f64 is None and reference.is_wide:
        in_f64 = outputs
    with np.errstate(all="ignore"):
        judges = Judge(reference, devices, tolerance, exchanged)
        judged = [judges.judge(n, actual, None if in_f64 is None else in_f64[n]) for n, actual in enumerate(outputs)]
        undefined = "" if allow_nan else _undefined(reference)
        if not undefined and judged and all(j.is_noise for j in judged):
            undefined = "rounding decides about all results; give other --inputs"
    return _verdict(reference, judged, types, undefined)


def _verdict(reference: Reference, judged: list[Judgement], types: tuple[str, ...], undefined: str) -> CheckVerdict:
    def worst(errors: list[LargestError]) -> LargestError:
        return max(errors, key=lambda w: w.error, default=NO_ERROR)

    # Errors of what is not tested are as large as it, and would hide those of the rest.
    tested = [j for j in judged if not j.is_noise or j.difference is not None] or judged
    return CheckVerdict(
        len(judged),
        tuple(j.difference for j in judged if j.difference is not None),
        worst([j.in_f64 for j in tested]) if reference.wide is not None else None,
        worst([j.own for j in tested]),
        worst([j.one_device for j in tested]),
        types,
        sum(j.turned for j in judged),
        undefined,
        reference.why_not_wide,
        tuple(n for n, j in enumerate(judged) if j.is_noise),
    )


def _undefined(reference: Reference) -> str:
    """Returns which results of the reference hold NaN or infinities that prove nothing; empty if inputs hold some."""
    if any(not _finite(a).all() for a in reference.inputs):
        return ""
    written = _writes_infinity(reference.program)
    for what, test in (("NaN", np.isnan), ("infinity", np.isinf)):
        places = [_places(reference, n, test, written) for n in range(len(reference.own))]
        found = [n for n, at in enumerate(places) if at.any()]
        if found:
            index = np.argwhere(places[found[0]])[0].tolist()
            return (
                f"{len(found)} of {len(reference.own)} results contain {what}, first at output {found[0]} {index}; "
                "give other --inputs, or --allow-nan"
            )
    return ""


def _places(reference: Reference, output: int, test: Callable[[Array], Array], written: bool) -> Array:
    """Returns where a result has NaN, or infinity, that proves nothing.

    An infinity proves as much as another value if the program itself writes infinities (the maximum of an empty
    segment is -inf), f64 gives the same one, so that it is no overflow, and the result has finite values, too.
    """
    own = reference.own[output]
    at = test(_floats(own))
    if reference.wide is None:
        return at
    wide = reference.wide[output]
    at |= test(_floats(wide))
    if written and test is np.isinf and np.isfinite(_floats(own)).any():
        at &= ~np.equal(own.astype(wide.dtype), wide)
    return at


def _writes_infinity(program: Module) -> bool:
    """Returns whether a constant of the program is infinite."""
    constants = (i for c in program for i in c if i.op.role is Role.CONSTANT)
    literals = (i.attributes_as(ConstantAttributes).literal for i in constants)
    arrays = (leaf.array for literal in literals for leaf in literal.leaves() if leaf.array is not None)
    return any(np.isinf(_floats(array)).any() for array in arrays)


def _floats(array: Array) -> Array:
    return magnitudes(array) if array.dtype.kind not in "biu" else np.zeros(array.shape)


def _finite(array: Array) -> Array:
    return np.isfinite(_floats(array))

"""Custom-calls of LAPACK, which JAX emits for linear algebra on CPUs (`lapack_spotrf_ffi` and others).

A *signature* describes a routine, like those of numpy's generalized functions. Each operand and result has a letter for
its elements (T: the routine's type, R and C: real and complex of its precision, I: s32) and names for the dimensions of
one matrix; k is the minimum of m and n. Dimensions before those are batch dimensions, the same for all. The signature
determines the shape check and the sharding rule: batches are divided, matrices are not. The backend_config holds the
options as ASCII codes (`uplo = 76 : ui8`) or numbers.

Results are NaN where LAPACK fails (`info` is not 0), and 0 where LAPACK leaves them undefined.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from ...factors.sharding_rule import FactorKind, RuleBuilder, ShardingRule
from ...graph.op import Compile, Kernel, NotEvaluable, OpCall, ShapeError, Value
from ...types.element_type import ELEMENT_TYPES, S32, ElementType
from ...types.shape import Shape
from ..checks import text
from ..linear_algebra import Transposition, TriangularSolve, TriangularSolveAttributes
from ..structure import leaves_of
from . import lapack_routines as routines
from .behaviour import Behaviour, Call

Options = dict[str, str | int]
# The element types T, R and C, by the first letter of a routine's name.
_TYPES = {
    "s": ("f32", "f32", "c64"),
    "d": ("f64", "f64", "c128"),
    "c": ("c64", "f32", "c64"),
    "z": ("c128", "f64", "c128"),
}
_LETTERS = {"uplo": "LU", "side": "LR", "diag": "UN", "trans_x": "NTC", "sort": "N", "compute_left": "VN",
            "compute_right": "VN"}  # fmt: skip


@dataclass(frozen=True)
class LapackArray:
    """One operand or result of a signature."""

    letter: str
    dims: tuple[str, ...]


def _signature(source: str) -> tuple[list[LapackArray], list[LapackArray]]:
    """Parses `T(m,m) -> T(m,m), I()` into operands and results."""

    def arrays(side: str) -> list[LapackArray]:
        return [
            LapackArray(a, tuple(dims.split(",")) if dims else ()) for a, dims in re.findall(r"(\w)\(([\w,]*)\)", side)
        ]

    operands, _, results = source.partition("->")
    return arrays(operands), arrays(results)


def _options(config: str) -> Options:
    """Parses `{uplo = 76 : ui8, high = 4 : i32, left = true}` into `uplo="L"`, `high=4`, `left=1`."""
    found: Options = {}
    for name, value, kind in re.findall(r"(\w+) = (-?\d{1,9}|true|false)\b(?: : (\w+))?", config):
        number = int(value == "true") if value in ("true", "false") else int(value)
        found[name] = chr(number) if kind == "ui8" and 0 <= number < 256 else number
    return found


@dataclass(frozen=True)
class Routine(Behaviour):
    """A routine: its name, signature, element types, and options by name with their supported letters (none for a
    number).
    """

    name: str
    signature: str
    types: tuple[str, str, str]
    options: tuple[tuple[str, str], ...]

    has_rule = True

    @cached_property
    def arrays(self) -> tuple[list[LapackArray], list[LapackArray]]:
        return _signature(self.signature)

    def element(self, letter: str) -> ElementType:
        """Returns the element type for a letter of the signature."""
        return S32 if letter == "I" else ELEMENT_TYPES[self.types["TRC".index(letter)]]

    def batch(self, operands: Sequence[Shape]) -> tuple[int, ...]:
        """Returns the batch dimensions."""
        return operands[0].dims[: operands[0].rank - len(self.arrays[0][0].dims)]

    def check(self, target: str, operands: Sequence[Shape], result: Shape) -> None:
        wanted, given = self.arrays
        leaves = leaves_of([result])
        help = f"its operands and results are {self.signature}"
        if len(operands) != len(wanted) or len(leaves) != len(given) or result.is_tuple != (len(given) > 1):
            raise ShapeError(f"custom-call {target} has other operands or results", help)
        batch, sizes = self.batch(operands), dict[str, int]()
        for array, shape in zip((*wanted, *given), (*operands, *leaves), strict=True):
            if array is given[0]:
                sizes["k"] = min(sizes.get("m", 0), sizes.get("n", 0))
            own = shape.dims[len(batch) :]
            fits = shape.element is self.element(array.letter) and not shape.is_dynamic
            fits = fits and shape.dims[: len(batch)] == batch and len(own) == len(array.dims)
            if not fits or any(sizes.setdefault(name, n) != n for name, n in zip(array.dims, own, strict=True)):
                wants = f"{self.element(array.letter).name}[{','.join((*map(str, batch), *array.dims))}]"
                raise ShapeError(f"custom-call {target}: {text(shape)} does not fit {wants}", help)

    def sharding_rule(self, call: Call) -> ShardingRule:
        b, size = RuleBuilder(), len(self.batch(call.operands))
        batch = [b.factor(n) for n in call.operands[0].dims[:size]]

        def value(shape: Shape) -> list[int | None]:
            return [*batch, *(b.factor(n, FactorKind.REPLICATE) for n in shape.dims[size:])]

        return b.rule([value(s) for s in call.operands], [value(s) for s in call.shape.leaves()])

    def chosen(self, call: Call) -> Options:
        """Returns the options in the backend_config. Raises NotEvaluable if one is missing or unknown."""
        found = _options(call.config)
        for name, letters in self.options:
            if name not in found:
                raise NotEvaluable(f'the backend_config of {self.name} has no "{name}"')
            if letters and str(found[name]) not in letters:
                raise NotEvaluable(f"the backend_config of {self.name}: {name} {found[name]} is unknown")
        return {name: found[name] for name, _ in self.options}


@dataclass(frozen=True)
class MatrixRoutine(Routine):
    """A routine computed by `function` on stacks of matrices; see `lapack_routines`."""

    function: Callable[..., tuple[Any, ...]]

    def kernel(self, call: Call, compile: Compile) -> Kernel:
        options, batch, leaves = self.chosen(call), self.batch(call.operands), list(call.shape.leaves())

        def stack(x: Any) -> Any:
            return x.reshape(math.prod(batch), *x.shape[len(batch) :])

        def run(*operands: Value) -> Value:
            results = [np.zeros(leaf.dims, leaf.element.numpy) for leaf in leaves]
            if all(x.size for x in operands):
                self._fill(options, [stack(x) for x in operands], [stack(x) for x in results])
            return tuple(results) if call.shape.is_tuple else results[0]

        return run

    def _fill(self, options: Options, operands: list[Any], results: list[Any]) -> None:
        """Fills in the results. If the routine fails, halves the stack until the matrix is found for which it does."""
        try:
            for result, value in zip(results, self.function(*operands, **options), strict=True):
                if value is not None:
                    result[...] = value
        except np.linalg.LinAlgError:
            half = len(operands[0]) // 2
            for part in (slice(0, half), slice(half, None)) if half else ():
                self._fill(options, [x[part] for x in operands], [x[part] for x in results])
            for result in () if half else results:
                result[...] = 1 if result.dtype == np.int32 else np.nan
        except ValueError as error:
            raise ShapeError(f"the sizes and options of {self.name} do not fit each other: {error}") from error


class TriangularRoutine(Routine):
    """trsm, computed by triangular-solve."""

    def _as_op(self, call: Call) -> OpCall[TriangularSolveAttributes]:
        """Returns the equivalent triangular-solve. Raises NotEvaluable for bad options, ShapeError for bad shapes."""
        options = self.chosen(call)
        turn = {"N": Transposition.NONE, "T": Transposition.TRANSPOSE, "C": Transposition.ADJOINT}
        attributes = TriangularSolveAttributes(
            options["side"] == "L", options["uplo"] == "L", options["diag"] == "U", turn[str(options["trans_x"])]
        )
        _SOLVE.infer_shape(call.operands, attributes, call.shape)
        return OpCall(call.operands, attributes, call.shape)

    def sharding_rule(self, call: Call) -> ShardingRule:
        try:
            return _SOLVE.sharding_rule(self._as_op(call))
        except (NotEvaluable, ShapeError):  # reported when it is evaluated
            return super().sharding_rule(call)

    def kernel(self, call: Call, compile: Compile) -> Kernel:
        return _SOLVE.kernel(self._as_op(call), compile)


_SOLVE = TriangularSolve()


class AnyType(Behaviour):
    """A target whose name does not determine the operand type: selects one routine per type."""

    has_rule = True

    def __init__(self, routines: Sequence[Routine]) -> None:
        self.routines = {routine.element("T"): routine for routine in routines}

    def check(self, target: str, operands: Sequence[Shape], result: Shape) -> None:
        if not operands or operands[0].element not in self.routines:
            names = ", ".join(element.name for element in self.routines)
            raise ShapeError(f"custom-call {target} takes arrays of {names}")
        self.routines[operands[0].element].check(target, operands, result)

    def sharding_rule(self, call: Call) -> ShardingRule:
        return self.routines[call.operands[0].element].sharding_rule(call)

    def kernel(self, call: Call, compile: Compile) -> Kernel:
        return self.routines[call.operands[0].element].kernel(call, compile)


def _perturbed(types: tuple[str, str, str]) -> Routine:
    """Returns JAX's solver of possibly singular tridiagonal systems."""
    limits = np.finfo(str(ELEMENT_TYPES[types[1]].numpy))
    function = partial(routines.solve_perturbed, epsilon=float(limits.eps), tiny=float(limits.tiny))
    return MatrixRoutine("tridiagonal_solve", "T(m), T(m), T(m), T(m,n) -> T(m,n)", types, (), function)


def _routines(name: str, signature: str, function: Callable[..., tuple[Any, ...]] | None, kinds: str, *options: str,
              modes: str = "") -> dict[str, Behaviour]:  # fmt: skip
    """Returns a routine for each type in `kinds`, the first letters of its name."""
    known = tuple((option, modes if option == "mode" else _LETTERS.get(option, "")) for option in options)
    made: dict[str, Behaviour] = {}
    for kind in kinds:
        common = (name, signature, _TYPES[kind], known)
        made[f"lapack_{kind}{name}_ffi"] = MatrixRoutine(*common, function) if function else TriangularRoutine(*common)
    return made


def _behaviours(kinds: str, is_real: bool) -> dict[str, Behaviour]:
    """Returns all routines of real or of complex types."""
    w = "T(m), T(m)" if is_real else "T(m)"  # eigenvalues
    return {
        **_routines("potrf", "T(m,m) -> T(m,m), I()", routines.potrf, kinds, "uplo"),
        **_routines("trsm", "T(p,p), T(m,n) -> T(m,n)", None, kinds, "side", "uplo", "diag", "trans_x"),
        **_routines("getrf", "T(m,n) -> T(m,n), I(k), I()", routines.getrf, kinds),
        **_routines("geqrf", "T(m,n) -> T(m,n), T(k)", routines.geqrf, kinds),
        **_routines("geqp3", "T(m,n), I(n) -> T(m,n), I(n), T(k)", routines.geqp3, kinds),
        **_routines("orgqr" if is_real else "ungqr", "T(m,n), T(t) -> T(m,n)", routines.orgqr, kinds),
        **_routines("ormqr" if is_real else "unmqr", "T(p,t), T(t), T(m,n) -> T(m,n)", routines.ormqr, kinds, "left",
                    "transpose"),
        **_routines("syevd" if is_real else "heevd", "T(m,m) -> T(m,m), R(m), I()", routines.syevd, kinds, "mode",
                    "uplo", modes="VN"),
        **_routines("gesdd", "T(m,n) -> T(m,n), R(k), T(m,u), T(v,n), I()", routines.gesdd, kinds, "mode", modes="ASN"),
        **_routines("gesvd", "T(m,n) -> T(m,n), R(k), T(m,u), T(v,n), I()", routines.gesdd, kinds, "mode", modes="ASN"),
        **_routines("geev", f"T(m,m) -> {w}, C(m,m), C(m,m), I()", routines.geev, kinds, "compute_left",
                    "compute_right"),
        **_routines("gees", f"T(m,m) -> T(m,m), T(m,m), {w}, I(), I()", routines.gees, kinds, "mode", "sort",
                    modes="VN"),
        **_routines("gehrd", "T(m,m) -> T(m,m), T(l), I()", routines.gehrd, kinds, "low", "high"),
        **_routines("sytrd" if is_real else "hetrd", "T(m,m) -> T(m,m), R(m), R(l), T(l), I()", routines.sytrd,
                    kinds, "uplo"),
        **_routines("gtsv", "T(m), T(m), T(m), T(m,n) -> T(m), T(m), T(m), T(m,n), I()", routines.gtsv, kinds),
    }


BEHAVIOURS: dict[str, Behaviour] = {
    **_behaviours("sd", is_real=True),
    **_behaviours("cz", is_real=False),
    "tridiagonal_solve_perturbed_ffi": AnyType([_perturbed(types) for types in _TYPES.values()]),
}

"""Functions of floats, expanded into operations of the loop IR.

An expansion is written for one type. `wide` makes one for f32 from arithmetic in f64, for functions whose error would
otherwise be hard to bound. docs/native.md lists the greatest errors, which the tests measure. All give the results of
IEEE 754 for NaN, infinities, zeros of both signs and subnormal numbers.
"""

from __future__ import annotations

from collections.abc import Callable

from ..loops import Function, Lane, Node
from .arctangent import atan2
from .exponential import erf_f32, erf_f64, exp, expm1, logistic, tanh_f32, tanh_f64
from .formats import F32, F64, wide
from .hyperbolic import acos, acosh, asin, asinh, atanh, cosh, sinh
from .logarithm import log1p, log_f32, log_f64
from .powers import cbrt, power_f32, power_f64
from .trigonometric import cosine_f32, cosine_f64, sine_f32, sine_f64, tangent_f32, tangent_f64

EXPANSIONS: dict[tuple[Function, Lane], Callable[..., Node]] = {
    (Function.EXP, Lane.F32): exp(F32),
    (Function.EXP, Lane.F64): exp(F64),
    (Function.EXPM1, Lane.F32): expm1(F32),
    (Function.EXPM1, Lane.F64): expm1(F64),
    (Function.LOGISTIC, Lane.F32): logistic(F32),
    (Function.LOGISTIC, Lane.F64): logistic(F64),
    (Function.TANH, Lane.F32): tanh_f32,
    (Function.TANH, Lane.F64): tanh_f64,
    (Function.LOG, Lane.F32): log_f32,
    (Function.LOG, Lane.F64): log_f64,
    (Function.LOG1P, Lane.F32): wide(log1p),
    (Function.LOG1P, Lane.F64): log1p,
    (Function.ERF, Lane.F32): erf_f32,
    (Function.ERF, Lane.F64): erf_f64,
    (Function.SIN, Lane.F32): sine_f32,
    (Function.SIN, Lane.F64): sine_f64,
    (Function.COS, Lane.F32): cosine_f32,
    (Function.COS, Lane.F64): cosine_f64,
    (Function.TAN, Lane.F32): tangent_f32,
    (Function.TAN, Lane.F64): tangent_f64,
    (Function.CBRT, Lane.F32): wide(cbrt),
    (Function.CBRT, Lane.F64): cbrt,
    (Function.ATAN2, Lane.F32): wide(atan2),
    (Function.ATAN2, Lane.F64): atan2,
    (Function.POW, Lane.F32): power_f32,
    (Function.POW, Lane.F64): power_f64,
    (Function.SINH, Lane.F32): wide(sinh),
    (Function.SINH, Lane.F64): sinh,
    (Function.COSH, Lane.F32): wide(cosh),
    (Function.COSH, Lane.F64): cosh,
    (Function.ASINH, Lane.F32): wide(asinh),
    (Function.ASINH, Lane.F64): asinh,
    (Function.ACOSH, Lane.F32): wide(acosh),
    (Function.ACOSH, Lane.F64): acosh,
    (Function.ATANH, Lane.F32): wide(atanh),
    (Function.ATANH, Lane.F64): atanh,
    (Function.ASIN, Lane.F32): wide(asin),
    (Function.ASIN, Lane.F64): asin,
    (Function.ACOS, Lane.F32): wide(acos),
    (Function.ACOS, Lane.F64): acos,
}

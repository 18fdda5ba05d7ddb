"""Judges one result of a partitioned run against the reference: equal, explained by rounding, or different.

Every result is judged twice. *In f64* the partitioned program and the reference hardly round, so a difference is one of
the programs; integers must be equal. *In its own types* the error of the partitioned run, against the reference in f64,
may be a small multiple of the error that the unpartitioned run has in the same band of magnitudes (as often larger as
the unit of rounding of a narrower type that devices exchange). Where that is not enough, further runs on one device
decide: those that add up sums in other parts show the roundings inside of sums, whose terms may cancel; of samples with
random rounding, fine ones estimate the size of rounding errors to first order, and coarse ones show which elements
rounding can flip (near ties of an argmax, say).

An element passes as soon as any allowance covers it; only then is the next, more expensive one computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ...ir.types.element_type import ElementType, from_numpy
from ...ir.types.literal import Array
from .errors import NO_ERROR, Bands, LargestError, distance, largest_error_of, magnitudes, place_of_largest
from .reference import FINE_BITS, Reference
from .retype import limits_of

Allowance = Array  # of absolute error, per element

F64_FLOOR = 2.0**-46  # times a band's top: above the rounding of f64, far below that of f32
F64_FLOOR_OF_ALL = 2.0**-48  # times the greatest band's top: the error of a long sum of such numbers in f64
_F64_FACTOR = 4.0  # times the deviations of samples, which round more coarsely than f64 does
_FLOOR_ULPS = 4.0
_COARSE_BITS = -1  # of coarse samples: they round to twice the unit of the own type, as two runs differ by two errors
_SAMPLES = 12
_NOISE = 2.0**-12  # times a band's top: an error in f64 that leaves an element no more than a few right digits


@dataclass(frozen=True)
class Mismatch:
    """A result that differs from the reference."""

    output: int
    reason: str

    def __str__(self) -> str:
        return f"output {self.output}: {self.reason}"


@dataclass(frozen=True)
class Judgement:
    """The outcome for one result. Errors are relative to its largest magnitude; `turned` counts the elements that
    differ because rounding can flip them. `is_noise` says that rounding decides about most elements even in f64, so
    that their equality is not tested.
    """

    difference: Mismatch | None = None
    in_f64: LargestError = NO_ERROR
    own: LargestError = NO_ERROR
    one_device: LargestError = NO_ERROR
    turned: int = 0
    is_noise: bool = False


def own_factor(devices: int) -> float:
    """Returns by which factor the error may exceed that of one device: sums over devices round once more per device,
    and these errors add up like the square root of their number.
    """
    return 4.0 + 2.0 * devices**0.5


class Judge:
    """Compares results with a reference. `tolerance`, times a result's largest magnitude, replaces all allowances.
    Devices exchange floats in the types `exchanged`, beside their own.
    """

    def __init__(
        self, reference: Reference, devices: int, tolerance: float | None,
        exchanged: Sequence[ElementType] = (),
    ) -> None:
        self.reference, self.exchanged = reference, exchanged
        self.factor = own_factor(devices)
        self.tolerance = tolerance

    def judge(self, output: int, actual: Array, in_f64: Array | None) -> Judgement:
        """Judges one result: as computed in own types, and in f64 (None if not run in f64)."""
        expected = self.reference.own[output]
        if actual.dtype != expected.dtype or actual.shape != expected.shape:
            return Judgement(Mismatch(output, f"{_type(actual)} instead of {_type(expected)}"))
        if expected.dtype.kind in "biu" or from_numpy(expected.dtype).is_integer:
            return self._judge_exact(output, actual, in_f64)
        return self._judge_floats(output, actual, in_f64)

    # -- integers and predicates

    def _judge_exact(self, output: int, actual: Array, in_f64: Array | None) -> Judgement:
        expected, wide = self.reference.own[output], self.reference.wide
        if in_f64 is not None and wide is not None:
            wrong = np.asarray(in_f64 != wide[output])
            fine = self._unexplained(output, wrong, wide[output], FINE_BITS)
            if fine.any():
                return Judgement(_differs(output, fine, in_f64, wide[output], " in f64"))
        wrong = np.asarray(actual != expected)
        left = self._unexplained(output, wrong, expected, _COARSE_BITS)
        if left.any():
            return Judgement(_differs(output, left, actual, expected))
        return Judgement(turned=int(np.count_nonzero(wrong)))

    def _unexplained(self, output: int, wrong: Array, expected: Array, bits: int) -> Array:
        """Returns the wrong elements that no sample of this precision flips, and no other order of sums."""
        wide = self.reference.wide
        left = wrong
        if wide is not None and left.any():
            left = left & ~np.asarray(wide[output] != expected)
        for seed in range(1, _SAMPLES + 1):
            found = self.reference.regrouped(seed, in_f64=bits == FINE_BITS) if left.any() else None
            if found is None:
                break
            left = left & ~np.asarray(found[output] != expected)
        for seed in range(1, _SAMPLES + 1):
            if not left.any() or self.reference.is_wide:
                break
            sample = self.reference.sample(bits, seed)
            if sample is None:
                break
            left = left & ~np.asarray(sample[output] != expected)
        return left

    # -- floats

    def _judge_floats(self, output: int, actual: Array, in_f64: Array | None) -> Judgement:
        own, wide = self.reference.own[output], self.reference.wide
        if wide is None or in_f64 is None:
            return self._judge_coarsely(output, actual)
        truth = wide[output]
        bands = Bands.of(truth)
        errors = [distance(a, truth) for a in (in_f64, actual, own)]
        worst = [largest_error_of(output, e, truth) for e in errors]
        wrong = self._beyond(errors[0], self._in_f64(output, bands, truth))
        if wrong.any():
            return Judgement(_differs(output, wrong, in_f64, truth, " in f64", errors[0]), worst[0], worst[1], worst[2])
        wrong = self._beyond(errors[1], self._in_own_types(output, bands, truth, errors[2]))
        wrong &= distance(actual, own) > 0.0  # both may be infinite or NaN where f64 is finite
        difference = _differs(output, wrong, actual, own, "", errors[1]) if wrong.any() else None
        difference = difference or self._turned_zeros(output, in_f64, truth)
        noisy = int(np.count_nonzero(errors[0] > _NOISE * bands.per_element(bands.top)))
        is_noise = self.tolerance is None and 2 * noisy > truth.size
        return Judgement(difference, worst[0], worst[1], worst[2], is_noise=is_noise)

    def _turned_zeros(self, output: int, in_f64: Array, truth: Array) -> Mismatch | None:
        """Returns that zeros have the other sign, unless rounding decides about one of them: a number that is zero only
        where nothing rounds, or is as small as rounding errors, may bring either sign. A sum that is exactly zero has
        the same sign in every order. Complex numbers are left out, whose products have no such order.
        """
        turned = (in_f64 == 0) & (truth == 0) & (np.signbit(in_f64.real) != np.signbit(truth.real))
        if self.tolerance is not None or truth.dtype.kind == "c" or not turned.any():
            return None
        for seed in range(1, _SAMPLES + 1):
            sample = self.reference.sample(FINE_BITS, seed)
            if sample is None or (sample[output].astype(np.float64) != 0)[turned].any():
                return None
            if (np.signbit(sample[output]) != np.signbit(truth))[turned].any():
                return None
        index = tuple(int(i) for i in np.argwhere(turned)[0])
        count = int(np.count_nonzero(turned))
        return Mismatch(output, f"{count} of {turned.size} elements are zeros of the other sign in f64, first at "
                        f"{list(index)}: {in_f64[index]} instead of {truth[index]}")  # fmt: skip

    def _beyond(self, errors: Array, allowances: Iterator[Allowance]) -> Array:
        """Returns where errors exceed all allowances; allowances are computed only while needed."""
        wrong = np.ones(errors.shape, bool)
        for allowed in allowances:
            wrong &= ~(errors <= allowed)
            if not wrong.any():
                break
        return wrong

    def _in_f64(self, output: int, bands: Bands, truth: Array) -> Iterator[Allowance]:
        if self.tolerance is not None:
            yield _of_scale(truth, self.tolerance)
            return
        floor = F64_FLOOR * bands.top + F64_FLOOR_OF_ALL * bands.top.max(initial=0.0)
        yield bands.per_element(floor)
        for seed in (1, 2, 3):
            deviation = self._deviation(output, truth, FINE_BITS, seed)
            if deviation is None:
                return
            yield bands.per_element(floor + _F64_FACTOR * bands.largest(deviation))
            yield _F64_FACTOR * deviation  # for elements that change completely
        for error in self._regrouped(output, truth, in_f64=True):
            yield bands.per_element(floor) + self.factor * error
        # Numbers of own types have bits to spare in f64, so that many a sum is exact, and few other orders show more.
        finer = float(np.finfo(np.float64).eps) / self.reference.coarsest
        for error in self._regrouped(output, truth, in_f64=False):
            yield bands.per_element(floor) + self.factor * finer * error
        if self.reference.keeps_own_types:
            yield from self._in_own_types(output, bands, truth, distance(self.reference.own[output], truth))

    def _in_own_types(self, output: int, bands: Bands, truth: Array, base: Array) -> Iterator[Allowance]:
        if self.tolerance is not None:
            yield _of_scale(truth, self.tolerance)
            return
        limits = limits_of(self.reference.own[output].dtype)
        coarser = self._coarser(float(limits.eps))
        factor = self.factor * coarser
        floor = _FLOOR_ULPS * (coarser * float(limits.eps) * bands.top + float(limits.smallest_subnormal))
        level = floor + factor * bands.largest(base)
        yield bands.per_element(level)
        fine = self._deviation(output, truth, FINE_BITS, 1)
        if fine is not None:
            # A grid cannot be finer than f64 itself, so f64 programs are sampled at the size of their own rounding.
            level = np.maximum(level, floor + factor * 2.0**FINE_BITS * bands.largest(fine))
            yield bands.per_element(level)
        for error in self._regrouped(output, truth, in_f64=False):
            yield bands.per_element(level) + factor * error
        for seed in range(1, _SAMPLES + 1):
            coarse = self._deviation(output, truth, _COARSE_BITS, seed)
            if coarse is None:
                return
            yield bands.per_element(level) + factor * coarse

    def _coarser(self, eps: float) -> float:
        """Returns the rounding of the types that devices exchange, in units of that of a result; 1 at least."""
        return max([1.0, *(_spacing(t) / eps for t in self.exchanged)])

    def _deviation(self, output: int, truth: Array, bits: int, seed: int) -> Array | None:
        sample = self.reference.sample(bits, seed)
        return None if sample is None else distance(sample[output], truth)

    def _regrouped(self, output: int, truth: Array, in_f64: bool) -> Iterator[Array]:
        """Yields the largest finite error that each element has had so far where sums were added up in other parts."""
        largest = np.zeros(truth.shape)
        for seed in range(1, _SAMPLES + 1):
            found = self.reference.regrouped(seed, in_f64)
            if found is None:
                return
            error = distance(found[output], truth)
            largest = np.maximum(largest, np.where(np.isfinite(error), error, 0.0))
            yield largest

    def _judge_coarsely(self, output: int, actual: Array) -> Judgement:
        """Judges without f64: allows errors up to the square root of the program's coarsest epsilon, times the largest
        magnitude.
        """
        own = self.reference.own[output]
        tolerance = self.tolerance if self.tolerance is not None else self.reference.coarsest**0.5
        error = distance(actual, own)
        wrong = ~(error <= _of_scale(own, tolerance))
        difference = _differs(output, wrong, actual, own, "", error) if wrong.any() else None
        return Judgement(difference, own=largest_error_of(output, error, own))


def _spacing(element: ElementType) -> float:
    """Returns the distance of neighbours in a type, as a share of the number; that of integers, which are shares of a
    scale, as a share of the largest.
    """
    if element.numpy is None:
        return 0.0
    return 1 / float(np.iinfo(element.numpy).max) if element.is_integer else float(limits_of(element.numpy).eps)


def _of_scale(reference: Array, tolerance: float) -> Allowance:
    size = magnitudes(reference)
    return np.full(reference.shape, tolerance * float(size[np.isfinite(size)].max(initial=0.0)))


def _differs(
    output: int, wrong: Array, actual: Array, expected: Array, where: str = "", error: Array | None = None
) -> Mismatch:
    index = place_of_largest(np.where(wrong, 1.0 if error is None else np.nan_to_num(error) + 1e-300, -1.0))
    return Mismatch(
        output,
        f"{int(np.count_nonzero(wrong))} of {wrong.size} elements differ{where}, most at {list(index)}: "
        f"{actual[index]} instead of {expected[index]}",
    )


def _type(array: Array) -> str:
    return f"{from_numpy(array.dtype)}[{','.join(map(str, array.shape))}]"

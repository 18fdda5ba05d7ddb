"""Computes the goodput of a pod of cubes: the share of its chips that are in slices without a failed host.

The model is that of the TPU v4 paper's figure on availability. A cube of 4x4x4 chips is up if all of its hosts are, and
hosts fail independently. A slice takes whole cubes. With optical switches any cubes make a slice, so K cubes that are
up hold K // c slices of c cubes, and K is binomial. With static wiring a slice is one of the aligned blocks that the
pod is cut into, and all cubes of the block have to be up. Both are exact sums, not samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...ir.divisors import divisors

MACHINE_DAYS = 1 / 0.0008
"""Mean days between failures of a machine: 0.08 % of machines fail per day ("Resiliency at Scale: Managing Google's
TPUv4 Machine Learning Supercomputer", NSDI 2024)."""
DAY = 86400.0  # seconds
Mix = Sequence[tuple[int, int]]  # the cubes of a job, and the number of such jobs
_HALVINGS = 60  # of the interval in which an availability is searched


@dataclass(frozen=True, slots=True)
class Pod:
    """A torus of cubes. `side` is its extent in cubes, per dimension; a cube has this many hosts and chips. Those of
    TPU v4 are the defaults ("Resiliency at Scale: Managing Google's TPUv4 Machine Learning Supercomputer", NSDI 2024).
    """

    side: tuple[int, int, int] = (4, 4, 4)
    hosts: int = 16
    chips: int = 64

    @property
    def cubes(self) -> int:
        """The number of cubes."""
        return math.prod(self.side)

    def cube_availability(self, host: float) -> float:
        """Returns the share of time that a cube is up, given that of a host."""
        return host**self.hosts

    def switched(self, cubes: int, host: float) -> float:
        """Returns the goodput of slices of this many cubes, any of the pod."""
        up = binomial(self.cubes, self.cube_availability(host))
        return sum(chance * (k // cubes) * cubes for k, chance in enumerate(up)) / self.cubes

    def static(self, cubes: int, host: float) -> float | None:
        """Returns the goodput of slices that are aligned blocks; None if no blocks of this many cubes fill the pod."""
        return None if self.block(cubes) is None else self.cube_availability(host) ** cubes

    def switched_mix(self, mix: Mix, host: float) -> float:
        """Returns the goodput of a mix of jobs, the largest first, on any cubes of the pod."""
        up = binomial(self.cubes, self.cube_availability(host))
        return sum(chance * placed(mix, k) for k, chance in enumerate(up)) / self.cubes

    def block(self, cubes: int) -> tuple[int, int, int] | None:
        """Returns the extent of the aligned blocks of this many cubes that fill the pod, the most compact ones."""
        x, y, z = map(divisors, self.side)
        fitting = [(a, b, c) for a in x for b in y for c in z if a * b * c == cubes]
        return min(fitting, key=lambda block: (sum(block), block), default=None)


def placed(mix: Mix, cubes: int) -> int:
    """Returns the cubes that the jobs of a mix take of so many, where the largest come first."""
    left = cubes
    for size, count in sorted(mix, reverse=True):
        left -= min(count, left // size) * size
    return cubes - left


def binomial(count: int, chance: float) -> list[float]:
    """Returns the chances that 0, 1, .. of this many independent parts are up."""
    return [math.comb(count, k) * chance**k * (1 - chance) ** (count - k) for k in range(count + 1)]


def at_least(wanted: int, count: int, chance: float) -> float:
    """Returns the chance that at least `wanted` of `count` parts are up."""
    return sum(binomial(count, chance)[wanted:])


def needed_availability(wanted: int, count: int, confidence: float) -> float:
    """Returns the availability of a part at which at least `wanted` of `count` are up with this confidence."""
    return _root(lambda chance: at_least(wanted, count, chance) - confidence)


def _root(rising: Callable[[float], float]) -> float:
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return high


def efficiency(interval: float, write: float, restart: float, between_failures: float) -> float:
    """Returns the share of a job's time that is work it does not lose, for a checkpoint of `write` seconds after each
    `interval` seconds of work, `restart` seconds after a failure, and failures at random (Daly 2006, equation 13).
    """
    one = between_failures * math.exp(restart / between_failures)
    return interval / (one * math.expm1((interval + write) / between_failures))


def daly_interval(write: float, between_failures: float) -> float:
    """Returns the seconds of work between checkpoints that lose the least time, for a write of `write` seconds.

    With a mean time M between failures they are about sqrt(2 write M) (Young, 1974); Daly ("A higher order estimate of
    the optimum checkpoint interval for restart dumps", 2006) adds terms for a write near M.
    """
    if write >= 2 * between_failures:
        return between_failures
    ratio = write / (2 * between_failures)
    return math.sqrt(2 * write * between_failures) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - write

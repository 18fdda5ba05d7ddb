"""Quantities with units, as machine files write them: "25 us", "80 GB", "3350 GB/s", "494 T"."""

from __future__ import annotations

import re
from decimal import Decimal
from enum import Enum
from typing import Any

_NUMBER = re.compile(r"\s*(\d{1,40}(?:\.\d{1,40})?(?:e[+-]?\d{1,3})?)\s*([A-Za-zµ/]*)\s*$")
_POSITIVE = 1e-12, 1e24  # the limits of most quantities
_TIMES = {"s": 0, "ms": -3, "us": -6, "ns": -9}
_POWERS = {"": 0, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15}


class Quantity(Enum):
    """Kinds of quantities, with the words for them."""

    SECONDS = "a time"
    BYTES = "a number of bytes"
    BANDWIDTH = "a number of bytes per second above zero"
    RATE = "a number of multiply-adds per second above zero"
    SHARE = "a share between 0 and 1"
    COUNT = "a whole number above zero"

    @property
    def units(self) -> dict[str, int]:
        """The units by name, as powers of ten of the base unit: seconds, bytes, multiply-adds."""
        if self is Quantity.SECONDS:
            return _TIMES
        unit = {Quantity.BYTES: "B", Quantity.BANDWIDTH: "B/s"}.get(self, "")
        if self in (Quantity.SHARE, Quantity.COUNT):
            return {"": 0}
        return {name + unit: power for name, power in _POWERS.items()}

    @property
    def example(self) -> str:
        """A value as a file writes it."""
        return _EXAMPLES[self]

    def read(self, value: Any) -> float | None:
        """Returns the number in the base unit, which a plain number has; None if a value is no such quantity."""
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            return None
        match = _NUMBER.match(str(value))
        units = self.units | {"": 0} if not isinstance(value, str) else self.units
        if match is None or match[2].replace("µ", "u") not in units:
            return None
        found = float(Decimal(match[1]).scaleb(units[match[2].replace("µ", "u")]))
        least, most = _LIMITS.get(self, _POSITIVE)
        if not least <= found <= most or (self is Quantity.COUNT and found % 1):
            return None
        return int(found) if self is Quantity.COUNT else found

    def text(self, value: float) -> str:
        """Returns a number with the largest unit in which it is at least 1, six digits of it."""
        fitting = [(power, unit) for unit, power in self.units.items() if value >= 10**power]
        power, unit = max(fitting) if fitting else min((p, u) for u, p in self.units.items())
        return f"{value / 10**power:.6g} {unit}".strip()


_LIMITS: dict[Quantity, tuple[float, float]] = {
    Quantity.SECONDS: (0.0, 1e24), Quantity.SHARE: (0.0, 1.0), Quantity.COUNT: (1, 1e6),
}  # fmt: skip
_EXAMPLES = {
    Quantity.SECONDS: "25 us", Quantity.BYTES: "80 GB", Quantity.BANDWIDTH: "3350 GB/s", Quantity.RATE: "494 T",
    Quantity.SHARE: "0.9", Quantity.COUNT: "128",
}  # fmt: skip

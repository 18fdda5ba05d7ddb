"""Tables that run by halves: every other case by default, all in the slow run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def every_other(cases: Iterable[Any], first: int = 0) -> list[Any]:
    """The cases as parameters, of which each second one, from the first or the second on, is slow."""
    slow = [pytest.mark.slow]
    return [pytest.param(case, marks=slow if (number + first) % 2 else []) for number, case in enumerate(cases)]

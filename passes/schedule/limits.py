"""The limits of the search for schedules."""

from __future__ import annotations

from dataclasses import dataclass

from .listing import RULES, ListRule


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a schedule is searched, and what makes one better."""

    growth: float = 1.25  # of the peak, which is no reason to look for another order
    most: float = 2.0  # of the peak, where neither user nor machine gives a limit
    worth: float = 0.99  # share of the time that an order must stay below to take more memory than that unasked
    near: float = 5e-3  # share above its lower bound up to which the plan of a computation is good enough
    better: float = 1 - 1e-3  # a new order must take less than this share of the time of the old one
    attempts: int = 4  # at plans within memory
    full: float = 0.95  # share of the limit from which on no plan for more memory is tried
    aims: tuple[float, ...] = (1.0, 0.9, 0.0)  # shares of the limit to which values are rematerialized till one fits
    regathered: tuple[float, ...] = (0.5, 1.0)  # shares of the gathered bytes to gather again where memory is short
    lists: tuple[ListRule, ...] = RULES
    labelled: int = 100  # tensors of which layers suggest buckets; of more, limits of size do as well
    steps: int = 20_000  # segments simulated in all trials of a large computation
    large: int = 2_000  # instructions of an entry from which on plans that promise little are left out

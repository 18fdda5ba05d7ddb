"""Schedules the collectives of a program in its order.

    before:  g = all-gather(v)   x = dot(a, g)   h = all-gather(w)   y = dot(x, h)
    after:   g = all-gather(v)   h = all-gather(w)   x = dot(a, g)   y = dot(x, h)

The pass `schedule` takes each computation with movable collectives and solves its problem in numbers (`search`), for
the order of the text and for one that computes everything as soon as possible. It writes the better plan. Then the
timeline and the live memory of the whole program decide. The program keeps its old order if that is as fast. If the
plan exceeds the memory limit, the pass tries plans for less memory, with repeated gathers, and with rematerialized
values; it takes the fastest that fits. It is an error if none does. `overlap` does the same without combining anything.

The module's attributes `hloom.schedule` record the forecast, the peak and the lower bound (`bound`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

from ...cost.seconds import Clock
from ...cost.sizes import Bytes, sized, timed
from ...ir.brief import brief
from ...ir.diagnostics import fail
from ...ir.graph.module import Module, Stage, clone_module
from ..base import Pass, PassContext, refuse_starts
from .bound import program_bound
from .combining import CombinedForm, form_named
from .computed_again import ComputedAgain
from .does_not_fit import refuse, say_bound
from .extract import Extract
from .labels import labels_of
from .least_held import least_kept
from .limits import Limits
from .listing import list_orders
from .memory_order import memory_orders
from .order_forecasts import OrderForecasts
from .orders import set_orders
from .planning import Candidate, Planning, forecast
from .plans import Plans
from .recorded import is_recorded, record
from .search.arrange import arrange
from .search.best import best_schedule
from .search.heuristics import best_of, per_tensor
from .search.problem import Outcome
from .start_later import start_later
from .ways_tried import WaysTried

_NO_LIMIT = Bytes()
_NOTHING = 1.0  # bytes to aim at for the least memory
_SHARES = 16  # the budget over what each search has when the budget of all is used up
_LOCAL = frozenset({Stage.LOCAL, Stage.SCHEDULED})


@dataclass(frozen=True)
class ScheduleCollectives(Pass):
    """Combines collectives and orders the program. `memory` is the limit on a device; without one that of the machine,
    or else twice what the program takes before, and an order that takes more memory must be faster by a hundredth.
    `form` is variadic, flat, or what XLA runs (`xla`). `trials` limits the plans that are tried per computation,
    `budget` the labels of an exact search, and twice of it those of all; `limits` has the rest. From the moment `until`
    on (of `time.monotonic`) it looks no further, for less memory either.
    """

    name: ClassVar[str] = "schedule"
    consumes: ClassVar[frozenset[Stage]] = _LOCAL
    produces: ClassVar[Stage | None] = Stage.SCHEDULED
    memory: Bytes = _NO_LIMIT
    form: str = CombinedForm.VARIADIC.value
    trials: int = 200
    budget: int = 20_000
    limits: Limits = field(default_factory=Limits)
    until: float = math.inf

    def run(self, module: Module, context: PassContext) -> bool:
        refuse_starts(module, self.name)
        left = 2 * self.budget  # labels: memory limits and values that are computed again bring many searches

        def planner(problem: Extract) -> tuple[Extract, Outcome]:
            nonlocal left
            few = len(problem.gathers) + len(problem.reductions) <= self.limits.labelled
            labels = labels_of(problem.gathers, problem.reductions) if few else ((), ())
            trials = max(min(self.trials, self.limits.steps // len(problem.segments)), 20)
            budget = max(min(left, self.budget), self.budget // _SHARES)
            found = best_schedule(problem.problem, *labels, budget, trials, self.limits.near)
            left -= found.labels
            return problem, found.outcome

        planning = Planning(planner, context.machine, form_named(self.form))
        return _Choice(self.name, planning, self.memory, module, context, self.limits, True, self.until).run()


@dataclass(frozen=True)
class Overlap(Pass):
    """Orders the program, so that collectives start early and are awaited late: gathers up to `ahead` others early,
    within `memory` as in `schedule`.
    """

    name: ClassVar[str] = "overlap"
    consumes: ClassVar[frozenset[Stage]] = _LOCAL
    produces: ClassVar[Stage | None] = Stage.SCHEDULED
    memory: Bytes = _NO_LIMIT
    ahead: int = 2

    def run(self, module: Module, context: PassContext) -> bool:
        refuse_starts(module, self.name)
        if self.ahead < 1:
            fail(f"pass {self.name} cannot gather {self.ahead} ahead", help="ahead is 1 or more")

        def planner(problem: Extract) -> tuple[Extract, Outcome]:
            buckets = per_tensor(problem.problem)
            most = max(min(self.ahead, len(problem.gathers)), 1)
            return problem, best_of(arrange(problem.problem, buckets, ahead) for ahead in range(1, most + 1))

        planning = Planning(planner, context.machine, combines=False)
        return _Choice(self.name, planning, self.memory, module, context).run()


@brief
@dataclass(slots=True)
class _Choice:
    """One run of a pass: it chooses among the program and its plans."""

    name: str
    planning: Planning
    memory: int
    module: Module
    context: PassContext
    limits: Limits = field(default_factory=Limits)
    is_thorough: bool = False  # gathers again, and orders all instructions
    until: float = math.inf
    is_tight: bool = False  # the plan without a limit does not fit
    is_full: bool = False  # a faster order does not fit
    listed: list[Candidate | None] = field(default_factory=list["Candidate | None"])  # of the program itself, if known
    tried: WaysTried = field(default_factory=WaysTried)
    again: ComputedAgain = field(init=False)

    def __post_init__(self) -> None:
        self.again = ComputedAgain(self.module, self.planning, self.tried, self._is_large, self.until)

    def run(self) -> bool:
        machine = self.planning.machine
        old = forecast(self.module, machine)
        bound = program_bound(self.module, Clock.of(self.module, machine)).seconds
        limit = float(self.memory or machine.capacity)
        is_hard = math.isfinite(limit)
        if not is_hard:
            limit = old.peak * self.limits.most
        self.module.is_scheduled = True
        if old.peak <= limit and is_recorded(self.module, old.seconds, old.peak):
            self.context.diagnostics.remark(f"{self.name}: the program is scheduled for this machine already")
            return False
        plans = Plans(self.planning, old)
        self.tried.note("the order of the text", old)
        if is_hard and old.peak > limit and self._is_large and least_kept(self.module, machine) > limit:
            refuse(self.module, old.peak, limit, machine, self.tried)
        best = self._chosen(plans, bound, limit, is_hard)
        if best.peak > limit and is_hard and self.is_thorough and best.peak <= limit * self.limits.growth:
            least = self._chosen(plans, bound, _NOTHING, is_hard)  # what is left of all that can go may fit
            best = plans.best([best, least], limit, self.module)
        if best.peak > limit and is_hard:
            refuse(best.module, best.peak, limit, machine, self.tried)
        for unused in filter(None, self.listed):
            unused.module.release()
        plans.release_all(best)
        is_new = best.module is not self.module
        if is_new:
            self.module.take(best.module)
        if best.again or best.repeats:  # it has other ops, which may take more time, or less
            bound = program_bound(self.module, Clock.of(self.module, machine)).seconds
        if is_hard and (self.is_tight or self.is_full):
            say_bound(self.context.diagnostics, self.name, self.module, best.seconds, limit, machine, self.tried)
        self._record(old, best, bound)
        return is_new

    def _chosen(self, plans: Plans, bound: float, limit: float, is_hard: bool) -> Candidate:
        """Returns the best program within a limit, or the closest to it that is found."""
        best = old = plans.old
        if old.peak > limit or old.seconds * self.limits.better > bound:  # else no plan is so much faster
            usual = old.peak * self.limits.growth
            best = self._best(plans, limit) if self.memory or limit <= usual else self._unasked(plans, usual, limit)
        if self.is_thorough and best.seconds * self.limits.worth > bound and not self._is_late:
            best = self._listed(best, plans, limit)
        if self.is_tight and is_hard and self.is_thorough:
            self.again.is_exhausted = False  # what another limit left says nothing of this one
            first = best.module  # frees other values if asked for more than one of which some are computed again
            for share in self.limits.aims:
                if best.peak <= limit and share < 1.0:
                    break
                if self.again.is_exhausted and share > self.limits.aims[-1]:
                    continue  # an aim that was missed leaves what is not above it; the last one frees all that it can
                new = self.again.within((best.module, first), limit, share * limit)
                best = plans.best([best, *new], limit, first)
        return best

    def _unasked(self, plans: Plans, usual: float, limit: float) -> Candidate:
        """Returns the best program without a user's limit: one within the usual memory, unless a larger one is much
        faster.
        """
        if self._is_large and self._lists_suffice(plans, usual, limit):
            return plans.old
        if plans.fits(limit, usual) and (best := self._best(plans, limit)).peak <= usual:
            return best
        frugal = self._best(plans, usual)
        if frugal.peak <= usual and frugal.exposed <= 1 - self.limits.worth:
            return frugal  # with more memory, no more could be hidden
        best = self._best(plans, limit)
        share = self.limits.worth if best.peak > usual else 1.0
        if frugal.peak <= usual and frugal.seconds * share < best.seconds:
            best, frugal = frugal, best
        plans.release(frugal.module, best)
        return best

    @property
    def _is_late(self) -> bool:
        return time.monotonic() >= self.until

    @property
    def _is_large(self) -> bool:
        """Whether trials take long, so that those that promise little are left out."""
        return self.is_thorough and len(self.module.entry) >= self.limits.large

    def _lists_suffice(self, plans: Plans, usual: float, limit: float) -> bool:
        """Whether a list schedule of the program is much faster than its plans will be, by their own account, where
        they gain little. Plans overlap no collectives that keep their place.
        """
        for least in plans.expected(usual, limit):
            if least >= self.limits.worth * plans.old.seconds:
                if not self.listed:
                    self.listed.append(self._list_schedule(plans.old, plans.old, plans.old.peak, limit))
                if (listed := self.listed[0]) is None or listed.seconds < self.limits.worth * least:
                    return listed is not None
        return False

    def _best(self, plans: Plans, limit: float) -> Candidate:
        """Returns the best program within a limit, or the closest to it."""
        best = plans.old
        for new in self._candidates(plans, limit):
            faster = new.seconds < best.seconds * self.limits.better or best.peak > limit
            if faster and new.rank(limit) < best.rank(limit):
                best, new = new, best
            plans.release(new.module, best)
        return best

    def _listed(self, best: Candidate, plans: Plans, limit: float) -> Candidate:
        """Returns the best of a program, its list schedules, and those of the program with small buckets. Unasked, one
        that takes more memory must be much faster.
        """
        usual = limit if self.memory else best.peak
        is_least = self._is_large and best is plans.old  # a longer message saves more
        least = (1 - self.limits.better) * best.seconds if is_least else 0.0
        for is_saturated in (False, True):
            base = plans.saturated(limit, least) if is_saturated else best
            if base is None:
                continue
            if base is plans.old and self.listed:
                new = self.listed.pop()
            else:
                new = self._list_schedule(base, best, usual, limit)
            best, new = new or best, best
            plans.release(new.module, best)
            if is_saturated:
                plans.release(base.module, best)
        return best

    def _list_schedule(self, base: Candidate, best: Candidate, usual: float, limit: float) -> Candidate | None:
        """Gives a program, or a copy of the program itself, its fastest list schedule that is better than the best;
        None without one.
        """
        module, machine = base.module, self.planning.machine
        forecasts = OrderForecasts.of(module, machine)
        busy = [c for c in module if any(i.op.is_collective for i in c)]
        given = [list(c) for c in busy]
        done = ", ".join(filter(None, (base.done, "all ops in a new order")))
        found: Candidate | None = None
        for seconds, orders in list_orders(busy, forecasts, self.limits.lists, best.seconds * self.limits.better):
            set_orders(busy, orders)
            new = replace(base, seconds=seconds, peak=forecasts.peak(), done=done)
            self.tried.note("all ops in a new order", new)
            if not self._is_better(new, best, usual, limit) and self.memory and new.peak > limit:
                peak = start_later(forecasts, limit)
                new = replace(new, seconds=forecasts.seconds(), peak=peak)
                self.tried.note("all ops in a new order, some later", new)
            if self._is_better(new, best, usual, limit):
                found = new if module is not self.module else replace(new, module=clone_module(module))
                break
        if found is None or found.module is not module:
            set_orders(busy, given)
        return found

    def _is_better(self, listed: Candidate, best: Candidate, usual: float, limit: float) -> bool:
        share = self.limits.better if listed.peak <= usual else self.limits.worth
        is_faster = listed.seconds < best.seconds * share
        self.is_full |= is_faster and listed.peak > limit
        return is_faster and listed.rank(limit) < best.rank(limit)

    def _candidates(self, plans: Plans, limit: float) -> Iterator[Candidate]:
        """Yields candidates: the plan without a limit; unless that fits, plans with ever less memory for buckets, the
        same with repeated gathers, and memory orders.
        """
        old, self.is_tight = plans.old, False
        least = old.peak
        if limit < (free := old.peak * self.limits.growth):  # the plan without a limit may need less than it is allowed
            new = plans.within(free)
            if new is not None:
                self.tried.note("buckets", new)
                yield new
                if new.peak <= limit:
                    return
                yield from self._with_some_later(new, limit)
        for share in (0.0, *(self.limits.regathered if self.is_thorough else ())):
            if share and self._is_large and least - plans.gathered > limit:
                break  # all that gathers may free is too little
            aim, low, high, last = limit, 0.0, limit, math.inf
            self.is_tight = True
            for _ in range(self.limits.attempts):
                new = None if self._is_late else plans.within(aim, share)
                if new is None:
                    break
                self.tried.note("buckets with gathers repeated" if share else "buckets", new)
                yield new
                if new.peak <= limit:
                    low = aim
                    if not share and aim == limit:
                        self.is_tight = False
                        return
                    if new.peak >= self.limits.full * limit or aim == limit:
                        break
                else:
                    if new.peak >= last and not low:
                        break  # plans for even less memory take no less
                    high, last, least = aim, new.peak, min(least, new.peak)
                aim = (low + high) / 2 if low else aim - 1.05 * (new.peak - limit)
        if old.peak > limit and not self._is_late:
            for module, name in memory_orders(self.module):
                new = forecast(module, self.planning.machine, f"the order {name}")
                self.tried.note(new.done, new)
                yield new

    def _with_some_later(self, new: Candidate, limit: float) -> Iterator[Candidate]:
        """Yields a program that is too large with some of its ops later, if it fits so."""
        if not self.memory:
            return
        module = clone_module(new.module)
        orders = OrderForecasts.of(module, self.planning.machine)
        peak = start_later(orders, limit)
        new = replace(new, module=module, seconds=orders.seconds(), peak=peak, done="some ops later")
        self.tried.note("buckets with some ops later", new)
        if peak <= limit:
            yield new
        else:
            module.release()

    def _record(self, old: Candidate, new: Candidate, bound: float) -> None:
        record(self.module, new.seconds, new.peak, bound)
        done = new.done or "the order of the program stays"
        if new.buckets:
            combined = len(new.buckets) < sum(new.buckets)
            count = sum(new.buckets)
            done = f"{count} collectives became {len(new.buckets)}" if combined else f"collectives moved: {count}"
            done = ", ".join(filter(None, (new.done, done)))
        if new.again:
            done = f"values gathered again: {new.again}, {done}"
        gap = f", gap {max(0.0, new.seconds / bound - 1):.0%}" if bound else ""
        self.context.diagnostics.remark(
            f"{self.name}: {done}; {timed(old.seconds)} become {timed(new.seconds)}, at least {timed(bound)}{gap}; "
            f"peak {sized(old.peak)} becomes {sized(new.peak)}"
        )

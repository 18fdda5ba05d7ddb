"""The choice among rewrites: it may stop at a moment, and has a schedule of the program as it is then."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

import hloom
import pytest
from hloom.cost.presets import parse_machine
from hloom.cost.sizes import Bytes
from hloom.ir.diagnostics import InternalError
from hloom.ir.graph.computation import Computation
from hloom.ir.graph.module import Module, Stage, clone_module
from hloom.ir.graph.op import Role
from hloom.ir.tools.trip_count import counter, uncounted_loops
from hloom.passes.base import PassContext, run_pass
from hloom.passes.pipelines import partition
from hloom.passes.schedule.fastest import REWRITES, Fastest
from hloom.passes.schedule.in_pieces import InPieces
from hloom.passes.schedule.recorded import record, recorded_forecast
from hloom.passes.schedule.rewrites.base import Rewrite, RewriteProgram
from hloom.passes.schedule.rewrites.loops import body_of
from hloom.passes.schedule.rewrites.prefetch_gathers import PrefetchGathers
from hloom.passes.schedule.schedule import ScheduleCollectives
from hloom.passes.schedule.split_batch import SplitBatch
from hloom.passes.schedule.start_earlier import StartEarlier
from hloom.passes.scheduling import schedule
from hloom.runtime.inputs.inputs import inputs_for_module
from hloom.runtime.simulator import simulate
from support.compare import compare
from support.layered_programs import Model


def test_after_the_last_moment_only_the_program_as_it_is_gets_a_schedule() -> None:
    text = Model(kind="both", data=2, model=2, loop=True, layers=2).text()
    machine = parse_machine("h100", "")
    seconds: list[float] = []
    plain = Fastest(rewrites=(), pieces=None, past_barriers=None, rotation=None, levels=None)
    for fastest in (Fastest(), Fastest(until=0.0), plain):
        module, context = partition(hloom.parse(text)), PassContext(machine=machine)
        schedule(module, context, fastest=fastest)
        seconds.append(recorded_forecast(module)[0])
        if not fastest.until:
            inputs = inputs_for_module(hloom.parse(text))
            assert compare(simulate(module, inputs), simulate(partition(hloom.parse(text)), inputs)).equal
    assert seconds[0] < seconds[1] == seconds[2]


def test_parts_of_the_batch_are_tried_in_time_alone() -> None:
    text = Model(kind="tp", data=1, model=4, layers=2).text()
    module, context = partition(hloom.parse(text)), PassContext(machine=parse_machine("tpu-v4", ""))
    schedule(module, context, fastest=Fastest(until=0.0), split=2)
    whole = partition(hloom.parse(text))
    schedule(whole, context, fastest=Fastest(rewrites=(), pieces=None, past_barriers=None, rotation=None, levels=None))
    assert recorded_forecast(module)[0] <= recorded_forecast(whole)[0]


class _ForgetsTrips(Rewrite):
    """A rewrite with a fault: the counter is computed in a way that tells no trip count."""

    name: ClassVar[str] = "forgets-trips"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.LOCAL})

    def rewrite(self, program: RewriteProgram, computation: Computation) -> bool:
        found = [(body_of(i), c.index) for i in computation if i.op.role is Role.LOOP and (c := counter(i)) is not None]
        for body, index in found:
            following = body.root.operands[index]
            with body.at(before=body.root):
                body.set_operand(body.root, index, body.build("maximum", following, following))
        return bool(found)


def test_rewrites_after_which_trips_are_unknown_are_refused() -> None:
    """Their forecast would count too few trips. Verified, they are errors."""
    local = partition(hloom.parse(Model(kind="fsdp", data=4, layers=4).text()))
    assert uncounted_loops(local) == []
    faulty = Fastest(rewrites=((_ForgetsTrips(),),), pieces=None, past_barriers=None, rotation=None, levels=None)
    module, context = clone_module(local), PassContext(machine=parse_machine("h100"))
    schedule(module, context, fastest=faulty)
    assert uncounted_loops(module) == []
    assert any("forgets-trips: not tried" in d.message for d in context.diagnostics.found)
    with pytest.raises(InternalError, match="forgets-trips: left the trips"):
        run_pass(_ForgetsTrips(), clone_module(local), PassContext(verify="each"))


def test_earlier_starts_come_before_the_last_choice() -> None:
    """Products in pieces are slower than whole ones until their collectives start earlier: the search chooses after
    that, so it does not end above its own quick form.
    """
    context = PassContext(machine=parse_machine("work=f32:1G;memory=10GB", "1ns/100MB"))
    model = Model(kind="tp", data=1, model=4, batch=64, width=16, hidden=32, loop=False, layers=2)
    local = partition(hloom.parse(model.text()), context)
    run_pass(SplitBatch(), local, context)
    quick = Fastest(rewrites=REWRITES[-1:], pieces=None, past_barriers=None, rotation=None, levels=None)
    times = [recorded_forecast(schedule(clone_module(local), context, fastest=way))[0] for way in (Fastest(), quick)]
    assert times[0] < 0.99 * times[1]


@pytest.mark.parametrize("link", ["1us/300MB", pytest.param("1ns/100MB", marks=pytest.mark.slow)])
def test_the_search_does_not_end_above_its_own_quick_form(link: str) -> None:
    """Without a limit, less memory is worth a little time: of the alternatives that are not slower than that form."""
    context = PassContext(machine=parse_machine("work=f32:1G;memory=10GB", link))
    local = partition(hloom.parse(Model(kind="fsdp", data=4, layers=4, batch=64, width=16, hidden=32).text()), context)
    quick = Fastest(rewrites=REWRITES[-1:], pieces=None, past_barriers=None, rotation=None, levels=None)
    times = [recorded_forecast(schedule(clone_module(local), context, fastest=way))[0] for way in (Fastest(), quick)]
    assert times[0] <= times[1]


def test_next_to_no_memory_is_not_worth_one_per_cent_of_the_time() -> None:
    """Loops that are rotated take 28 bytes of 127 KB more here."""
    context = PassContext(machine=parse_machine("work=f32:1G;memory=10GB", "1ns/100MB"))
    model = Model(kind="both", data=2, model=2, layers=4, batch=64, width=32, hidden=64)
    local = partition(hloom.parse(model.text()), context)
    ways = Fastest(pieces=None), Fastest(pieces=None, rotation=None)
    times = [recorded_forecast(schedule(clone_module(local), context, fastest=way))[0] for way in ways]
    assert times[0] < 0.995 * times[1]


class _Negates(Rewrite):
    """Changes loops, as one that communicates for later trips does."""

    name: ClassVar[str] = "negates"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.LOCAL})

    def rewrite(self, program: RewriteProgram, computation: Computation) -> bool:
        return _before_loops(computation, "negate")


@dataclass(frozen=True)
class _Pieces(InPieces):
    """Changes loops, as one that cuts products does."""

    def may_change(self, module: Module, context: PassContext) -> bool:
        return True

    def rewrite(self, program: RewriteProgram, computation: Computation) -> bool:
        return _before_loops(computation, "abs")


def _before_loops(computation: Computation, opcode: str) -> bool:
    found = [i for i in computation if i.op.role is Role.LOOP]
    for instruction in found:
        computation.build(opcode, computation.parameters[0], before=instruction)
    return bool(found)


@dataclass(frozen=True)
class _Told(ScheduleCollectives):
    """Records that a program takes 1 s and 1000 bytes after `_Negates`, else what is told."""

    told: tuple[float, int] = (1.0, 1000)

    def run(self, module: Module, context: PassContext) -> bool:
        module.is_scheduled = True
        is_plain = all(i.opcode != "negate" for i in module.entry)
        record(module, *(self.told if is_plain else (1.0, 1000)), 0.5)
        return True


@pytest.mark.parametrize(("told", "expected"), [((1.005, 900), 1.0), ((1.005, 790), 1.005), ((1.02, 500), 1.0)])
def test_a_little_time_is_worth_much_memory_alone(told: tuple[float, int], expected: float) -> None:
    module = partition(hloom.parse(Model(kind="fsdp", data=4, layers=4).text()))
    way = Fastest(((_Negates(),),), None, None, None, None, earlier=None, final=_Told(told=told))
    run_pass(way, module, PassContext(machine=parse_machine("h100")))
    assert recorded_forecast(module)[0] == expected


def test_a_limit_that_costs_time_is_said_with_the_memory_at_the_peak() -> None:
    context = PassContext(machine=parse_machine("h100"))
    local = partition(hloom.parse(Model(kind="fsdp", data=4, layers=4, batch=64, width=16, hidden=32).text()), context)
    peak = recorded_forecast(schedule(clone_module(local), context))[1]
    for share, expected in ((2.0, False), (0.95, True)):
        said = PassContext(machine=context.machine)
        schedule(clone_module(local), said, int(share * peak))
        assert expected == any("faster programs need more than" in d.message for d in said.diagnostics.found)


def test_rewrites_that_do_not_fit_are_said_with_the_least_memory_that_they_reached() -> None:
    context = PassContext(machine=parse_machine("tpu-v4"))
    local = partition(hloom.parse(Model(kind="fsdp", data=4, layers=4, batch=64, width=16, hidden=32).text()), context)
    peak = recorded_forecast(schedule(clone_module(local), context))[1]
    limit = int(0.75 * peak)
    said = PassContext(machine=context.machine)
    schedule(clone_module(local), said, limit)
    found = [d.message for d in said.diagnostics.found if "tried, but do not fit" in d.message]
    assert len(found) == 1
    assert not any("do not fit" in d.message for d in context.diagnostics.found)
    least = re.findall(r"[a-z-]+ at least ([\d.]+ KB)", found[0])
    assert least
    assert all(Bytes(text) > limit for text in least)


@dataclass(frozen=True)
class _Gains(StartEarlier):
    """Takes a twentieth of the time of a program for each of its changes."""

    def run(self, module: Module, context: PassContext) -> bool:
        seconds, peak = recorded_forecast(module)
        negated = sum(i.opcode == "negate" for i in module.entry)
        record(module, seconds * 0.95**negated, peak)
        return True


@dataclass(frozen=True)
class _Counts(ScheduleCollectives):
    """Records that changed programs take longer."""

    def run(self, module: Module, context: PassContext) -> bool:
        module.is_scheduled = True
        record(module, 1.0 + 0.01 * sum(i.opcode == "negate" for i in module.entry), 1000, 0.1)
        return True


@dataclass(frozen=True)
class _Passes(PrefetchGathers):
    """Changes loops beside the rewrite that is best after earlier starts."""

    name: ClassVar[str] = "passes"

    def passes_barriers(self, module: Module) -> bool:
        return True

    def rewrite(self, program: RewriteProgram, computation: Computation) -> bool:
        return _Negates().rewrite(program, computation)


def test_what_is_best_after_earlier_starts_is_what_others_are_added_to() -> None:
    """Before them the program as it is would be."""
    module = partition(hloom.parse(Model(kind="fsdp", data=4, layers=4).text()))
    way = Fastest(((_Negates(),),), None, _Passes(), None, None, earlier=_Gains(), final=_Counts())
    run_pass(way, module, PassContext(machine=parse_machine("h100")))
    assert recorded_forecast(module)[0] == pytest.approx(1.04 * 0.95**4)  # both changes, of two loops


@dataclass(frozen=True)
class _ToldByOps(ScheduleCollectives):
    """Records the seconds that are told of programs with these ops, which no order takes less than `bound`."""

    told: tuple[tuple[frozenset[str], float], ...] = ()
    bound: float = 0.0

    def run(self, module: Module, context: PassContext) -> bool:
        module.is_scheduled = True
        changed = frozenset(i.opcode for i in module.entry) & {"negate", "abs"}
        record(module, dict(self.told)[changed], 1000, self.bound)
        return True


@pytest.mark.parametrize(
    ("pieces", "bound", "expected"),
    [(0.95, 0.5, 0.8), (1.08, 0.5, 0.8), (1.2, 0.5, 0.9), (1.08, 0.95, 0.9)],
    ids=["faster alone", "a little slower alone", "much slower", "no order is faster"],
)
def test_pieces_that_are_slower_alone_may_be_faster_with_others(pieces: float, bound: float, expected: float) -> None:
    module = partition(hloom.parse(Model(kind="fsdp", data=4, layers=4, loop=True).text()))
    told = {"": 1.0, "negate": 0.9, "abs": pieces, "abs negate": 0.8}
    final = _ToldByOps(told=tuple((frozenset(ops.split()), seconds) for ops, seconds in told.items()), bound=bound)
    run_pass(Fastest(((_Negates(),),), _Pieces(), None, None, None, earlier=None, final=final), module,
             PassContext(machine=parse_machine("h100")))  # fmt: skip
    assert recorded_forecast(module)[0] == expected

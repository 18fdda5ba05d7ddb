"""Pipeline schedules: bubbles and memory as their papers say, what cannot be done, and the slots of tables."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false

from __future__ import annotations

import random

import hloom
import pytest
from hloom.frontends.pipelines.schedule import PassTimes, PipelineSchedule, Work
from hloom.frontends.pipelines.ticks import IDLE, tick_table

UNITS = PassTimes(1, 1, 1)
SIZES = [(4, 8), (8, 16), (3, 7), (2, 2), (1, 3)]


@pytest.mark.parametrize(("stages", "microbatches"), SIZES)
@pytest.mark.parametrize(
    ("name", "idle", "held"),
    [
        ("gpipe", lambda s: 3 * (s - 1), lambda s, m: m),  # the fill and drain of forward and backward passes
        ("1f1b", lambda s: 3 * (s - 1), lambda s, m: min(s, m)),  # Narayanan et al. 2021, 2.2.1
        ("zb-h1", lambda s: s - 1, lambda s, m: min(s, m)),  # Qi et al. 2024, table 2: (p - 1)(TF + TB - TW)
    ],
)
def test_bubbles_and_memory_of_the_papers(name: str, idle, held, stages: int, microbatches: int) -> None:  # pyright: ignore
    times = hloom.pipeline_schedule(name, stages, microbatches).times(UNITS)
    assert times.total - times.ideal == pytest.approx(idle(stages))
    assert max(times.held) == held(stages, microbatches)


@pytest.mark.parametrize("name", ["circular", "interleaved"])
@pytest.mark.parametrize("parts", [2, 4])
def test_parts_divide_the_bubble(name: str, parts: int) -> None:
    """GSPMD, 3.3; Narayanan et al. 2021, 2.2.2."""
    times = hloom.pipeline_schedule(name, 4, 8, parts).times(UNITS)
    assert times.total - times.ideal == pytest.approx(3 * 3 / parts)


def test_times_count() -> None:
    """Backward passes of zb-h1 do not wait for the gradients of weights."""
    schedule = hloom.pipeline_schedule("zb-h1", 4, 8)
    times = schedule.times(PassTimes(forward=2, inputs=3, weights=1))
    assert times.total - times.ideal == pytest.approx(3 * (2 + 3 - 1))
    assert times.ideal == 8 * 6


def test_text() -> None:
    schedule = hloom.pipeline_schedule("1f1b", 2, 2)
    assert str(schedule) == "1f1b: 2 stages, 2 micro-batches; bubble 33.3%, 9 of 6; holds 2 micro-batches"
    assert schedule.table() == "F0 F1    B0    B1\n   F0 B0 F1 B1"


F, B = (lambda m, k=k: Work(k, m) for k in ("F", "B"))  # pyright: ignore


@pytest.mark.parametrize(
    ("orders", "message"),
    [
        ([], "a pipeline needs stages with work"),
        ([[F(0), B(0)], [F(0)]], "stage 1 does not do B0"),
        ([[F(0), B(0), F(0)]], "stage 0 does F0 twice"),
        ([[B(0), F(0)]], "B0 of stage 0 never begins: it waits for F0 of stage 0"),
        ([[F(0), B(0), F(1), B(1)], [F(1), F(0), B(0), B(1)]], "B0 of stage 0 never .*: it waits for B0 of stage 1"),
        ([[F(0), B(0), Work("F", 0, -1)]], "stage 0 does F0.-1, which is no pass of this pipeline"),
        ([[F(0), B(0), Work("X", 0)]], "stage 0 does X0, which is no pass of this pipeline"),  # pyright: ignore
        ([[F(0), B(0), F(10**12)]], "stage 0 does not do B1"),  # at once, however far the numbers reach
    ],
)
def test_orders_that_cannot_be(orders: list[list[Work]], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        PipelineSchedule(orders)


@pytest.mark.parametrize("orders", [3, "F0 B0", [["F0", "B0"]], [[("F", 0, 0)]], [[F("zero")]], [[()]]])
def test_what_is_no_pass(orders: object) -> None:
    with pytest.raises(TypeError, match=r"^(a pass must be Work\(kind, microbatch, part\)|PipelineSchedule: orders)"):
        PipelineSchedule(orders)  # pyright: ignore


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("zb-v", 4, 8), "unknown pipeline schedule 'zb-v': gpipe, circular, 1f1b, interleaved, zb-h1"),
        (("1f1b", 0, 8), "a pipeline needs stages, micro-batches and parts"),
        (("1f1b", 4, 8, 2), "1f1b has one part per stage; circular and interleaved have several"),
        (("interleaved", 4, 6, 2), "interleaved takes micro-batches by rounds of 4 stages, 6 are no multiple"),
    ],
)
def test_schedules_that_do_not_exist(arguments: tuple[str, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        hloom.pipeline_schedule(*arguments)


def _random_schedule(seed: int) -> PipelineSchedule:
    """Any order that can be: passes whose inputs exist, drawn one by one."""
    draw = random.Random(seed)
    stages, microbatches, parts = draw.randint(1, 4), draw.randint(1, 5), draw.randint(1, 3)
    last, kinds = stages * parts - 1, draw.choice(["FB", "FBW"])
    passes = [(g, k, m) for g in range(last + 1) for k in kinds for m in range(microbatches)]
    orders: list[list[Work]] = [[] for _ in range(stages)]
    done: set[tuple[int, str, int]] = set()

    def is_ready(group: int, kind: str, m: int) -> bool:
        before = {"F": [(group - 1, "F", m)], "B": [(group, "F", m), (group + 1, "B", m)], "W": [(group, "B", m)]}[kind]
        return all(b in done or not 0 <= b[0] <= last for b in before)

    while passes:
        group, kind, m = draw.choice([p for p in passes if is_ready(*p)])
        passes.remove((group, kind, m))
        done.add((group, kind, m))
        orders[group % stages].append(Work(kind, m, group // stages))  # pyright: ignore[reportArgumentType]
    return PipelineSchedule(orders)


@pytest.mark.parametrize("seed", range(30))
def test_what_arrives_stays_in_its_slot_until_it_is_needed(seed: int) -> None:
    """Plays the table on names of values, with nothing but what the program of a stage knows."""
    schedule = _random_schedule(seed)
    table, stages = tick_table(schedule), schedule.stages
    last = stages * schedule.parts - 1
    held = [[None] * (table.inputs + 1) for _ in range(stages)]
    waiting = [[None] * (table.gradients + 1) for _ in range(stages)]
    sent: list[tuple[object, object]] = [(None, None)] * stages
    passes = 0
    for tick in range(len(table.action)):
        now = sent
        sent = [(None, None)] * stages
        for stage in range(stages):
            row = {name: int(values[tick, stage]) for name, values in table.rows.items()}
            held[stage][row["input_arrives"]] = now[(stage - 1) % stages][0]  # pyright: ignore
            waiting[stage][row["gradient_arrives"]] = now[(stage + 1) % stages][1]  # pyright: ignore
            name, m = table.actions[row["action"]], row["microbatch"]
            group = row["part"] * stages + stage
            if name == IDLE:
                continue
            passes += 1
            assert row["is_first"] == (group == 0)
            assert group == 0 or held[stage][row["input"]] == (group, m)
            assert name.endswith("last") == (group == last)
            assert name[0] == "F" or group == last or waiting[stage][row["gradient"]] == (group, m)
            sent[stage] = ((group + 1, m) if name == "F" else None, (group - 1, m) if name[0] == "B" else None)
    kinds = 3 if schedule.has_weights_apart else 2
    assert passes == schedule.microbatches * (kinds * (last + 1) - 1)

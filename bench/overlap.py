"""Forecasts what schedules hide and what memory they need, beside what bounds them.

    python bench/overlap.py exposed [NAME ..]     # shares of steps and of all-to-alls that wait for collectives
    python bench/overlap.py orders [NAME ..] [--orders 10000]    # schedules beside the best of random orders
    python bench/overlap.py memory [NAME ..]      # the 16 models of examples/models under the least limit
    python bench/overlap.py exact                 # the backward pass of Llama in two to four layers, proved the best

Needs JAX, but for `exact`. Programs come from shapes alone; nothing runs.

`exposed`: Llama 3.1 405B on 512 GPUs with one and with four sequences for each of 64 ranks, and mixtures of 64 experts
on 64 devices, as a whole and in two parts of the batch. No order of a program takes less than `at least`. `waited` is
the share of all-to-alls for which computation waits or is slower, `alone` that in which it stands still. `orders`:
three layers, each with its weights divided by data and its products by model, written out, on 64 devices, in ten sizes.
Half of the random orders are near that of the text, half near that of the schedule, by 3 to all instructions. `memory`:
the least peak that `--memory` reaches, and the least within 15 % more time, as shares of the peak and the time without
a limit. `held` is the share that no program with these ops goes below: its arguments and constants, and the arrays that
one op reads and writes at once. Below it stand that op, and the largest arrays that live at the least peak, in the
loops that run then. Of models that take more than 60 % follows the message of that limit.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import hloom
from hloom.cost.attention import OutsideOfAttention
from hloom.cost.collectives import kind_of
from hloom.cost.memory import arranged_memory, peak_memory
from hloom.cost.seconds import Clock
from hloom.cost.simulation import Steps
from hloom.cost.timeline import timeline, timeline_seconds
from hloom.ir.analysis.liveness import Buffer, Lives
from hloom.ir.graph.computation import Computation
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.module import Module, clone_module
from hloom.passes.base import PassContext, run_pass
from hloom.passes.pipelines import partition
from hloom.passes.schedule.bound import program_bound
from hloom.passes.schedule.does_not_fit import DoesNotFit
from hloom.passes.schedule.least_held import least_held, least_kept
from hloom.passes.schedule.on_host import moves_to_host
from hloom.passes.schedule.orders import dependences
from hloom.passes.schedule.search.best import best_schedule
from hloom.passes.schedule.split_batch import SplitBatch
from hloom.passes.scheduling import schedule
from llama_problems import Llama, Setting, backward

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

MEMORY = int(500e9)  # as in forecasts.py
NEAR = (3, 10, 30, 100, 10_000)  # instructions by which a random order moves one
SIZES = ((1024, 4096, 4096), (1024, 4096, 8192), (2048, 8192, 4096), (2048, 8192, 8192), (4096, 14336, 2048),
         (4096, 14336, 4096), (4096, 14336, 8192), (8192, 28672, 2048), (8192, 28672, 4096), (8192, 28672, 8192))
"""Width, hidden width and tokens of a sequence of the ten models."""
LONGER = 1.15
GOAL = 0.6
SHARES = (GOAL, 0.65, 0.7, 0.8, 0.9)  # of the peak, to try beside the least until one takes little more time
LINKS = {64: (150e-6, 298e9), 256: (564e-6, 295e9)}  # of `schedule.py`


def exposing() -> dict[str, tuple[str, Callable[[], Any], int]]:
    """Returns machines, makers of programs, and parts of the batch by name."""
    from models import dense, experts

    axes, table = {"data": 64, "model": 8}, dense.FSDP_SEQUENCE
    attention = dense.Transformer(layers=28, width=2048, hidden=1408, heads=16, head=128, vocabulary=102400, batch=128,
                                  sequence=4096, positions="rotary", gated=False, remat=True)  # fmt: skip
    deepseek = experts.Experts(attention, 64, groups=64, capacity=256)  # sizes of DeepSeekMoE 16B, two experts a token
    of_sequences = replace(deepseek, groups=128, capacity=128)  # so that the two of a device are independent
    return {
        "405B, one sequence": ("h100", lambda: dense.dense(dense.LLAMA_405B, axes, table), 0),
        "405B, four sequences": ("h100", lambda: dense.dense(replace(dense.LLAMA_405B, batch=256), axes, table), 0),
        "64 experts, GShard": ("h100", lambda: experts.experts(experts.gshard(64, 12), {"data": 64}), 0),
        "64 experts, DeepSeek": ("h100", lambda: experts.experts(deepseek, {"data": 64}), 0),
        ".. by sequence": ("h100", lambda: experts.experts(of_sequences, {"data": 64}), 0),
        ".. in two parts": ("h100", lambda: experts.experts(of_sequences, {"data": 64}), 2),
        "64 experts, GShard, v5p": ("tpu-v5p", lambda: experts.experts(experts.gshard(64, 12), {"data": 64}), 0),
        "64 experts, DeepSeek, v5p": ("tpu-v5p", lambda: experts.experts(deepseek, {"data": 64}), 0),
        ".. by sequence, v5p": ("tpu-v5p", lambda: experts.experts(of_sequences, {"data": 64}), 0),
        ".. in two parts, v5p": ("tpu-v5p", lambda: experts.experts(of_sequences, {"data": 64}), 2),
    }


def exposed(names: list[str]) -> None:
    """Prints the share of each step that waits for collectives, in its order and scheduled, and of its all-to-alls."""
    print(f"{'':<26} {'before':>16} {'scheduled':>16} {'at least':>11} {'all-to-alls':>12} {'waited':>7} "
          f"{'alone':>6} {'took':>7}")  # fmt: skip
    for name, (text, program, parts) in exposing().items():
        if names and not any(n in name for n in names):
            continue
        machine, start = hloom.parse_machine(text), time.process_time()
        module = partition(program().module, context := PassContext(machine=machine))
        old = timeline(module, machine)
        if parts:
            run_pass(SplitBatch(parts), module, context)
        new = timeline(schedule(module, context, MEMORY), machine)
        least = program_bound(module, Clock.of(module, machine)).seconds
        exchanges = [e for e in new.collectives if kind_of(e.instruction) == "all-to-all"]
        total = sum(e.seconds * e.trips for e in exchanges)
        waited = sum(min(e.waited, e.seconds) * e.trips for e in exchanges)
        alone = (waited - (1 - machine.overlap) * total) / machine.overlap  # while nothing computes
        print(f"{name:<26} {1e3 * old.seconds:>7,.1f} ms {old.exposed / old.seconds:>5.1%} "
              f"{1e3 * new.seconds:>7,.1f} ms {new.exposed / new.seconds:>5.1%} {1e3 * least:>8,.1f} ms "
              f"{1e3 * total:>9,.1f} ms "
              f"{f'{waited / total:.1%}' if total else '-':>7} {f'{alone / total:.1%}' if total else '-':>6} "
              f"{time.process_time() - start:>5.0f} s", flush=True)  # fmt: skip


def orders(names: list[str], count: int) -> None:
    """Prints the time of schedules beside the best of random orders."""
    from models import dense

    machine = hloom.parse_machine("h100")
    print(f"{'':<18} {'text':>9} {'schedule':>9} {'near text':>9} {'near schedule':>13} {'best / schedule':>15}")
    for width, hidden, tokens in SIZES:
        name = f"{width} x {hidden}, {tokens}"
        if names and not any(n in name for n in names):
            continue
        model = dense.Transformer(layers=3, width=width, hidden=hidden, heads=width // 128, head=128, vocabulary=32000,
                                  batch=8, sequence=tokens, positions="rotary", tied=False, scan=False)  # fmt: skip
        program = dense.dense(model, {"data": 8, "model": 8}, dense.FSDP_SEQUENCE)
        module = partition(program.module, context := PassContext(machine=machine))
        scheduled = schedule(clone_module(module), context, MEMORY)
        ours = timeline_seconds(scheduled, Clock.of(scheduled, machine))
        text = timeline_seconds(module, Clock.of(module, machine))
        near = [_best(m, machine, count // 2) for m in (module, scheduled)]
        print(f"{name:<18} {1e3 * text:>6.3f} ms {1e3 * ours:>6.3f} ms {1e3 * near[0]:>6.3f} ms "
              f"{1e3 * near[1]:>10.3f} ms {min(near) / ours:>15.4f}", flush=True)  # fmt: skip


def _best(module: Module, machine: hloom.Machine, count: int) -> float:
    """Returns the least seconds of so many random orders of the entry."""
    order, clock, rng = list(module.entry), Clock.of(module, machine), random.Random(0)
    needs = dependences(order)
    number = {i: n for n, i in enumerate(order)}
    readers: list[list[int]] = [[] for _ in order]
    for instruction in order:
        for needed in set(needs[instruction]):
            readers[number[needed]].append(number[instruction])
    waits = [len(set(needs[i])) for i in order]
    best, steps = float("inf"), Steps()
    for trial in range(count):
        width = NEAR[trial % len(NEAR)]
        keys = [n + rng.uniform(-width, width) for n in range(len(order))]
        left = list(waits)
        ready = [(keys[n], n) for n, w in enumerate(waits) if not w]
        heapq.heapify(ready)
        found: list[int] = []
        while ready:
            _, n = heapq.heappop(ready)
            found.append(n)
            for reader in readers[n]:
                left[reader] -= 1
                if not left[reader]:
                    heapq.heappush(ready, (keys[reader], reader))
        module.entry.reorder([order[n] for n in found])
        best = min(best, timeline_seconds(module, clock, steps))
    module.entry.reorder(order)
    return best


def memory(names: list[str], machine: hloom.Machine) -> None:
    """Prints the peaks that models reach under limits, beside those without."""
    from models import MODELS

    print(f"{'':<18} {'peak GB':>8} {'least':>6} {'time':>6} {'<= 1.15':>8} {'time':>6} {'moves':>5} {'held':>6}")
    for name, model in MODELS.items():
        if names and name not in names:
            continue
        local = partition(model.paper().module, PassContext(machine=machine))
        free, _ = _within(local, machine, MEMORY * 100)
        assert free is not None
        rows, least = [_Row.of(free, machine)], None
        seconds, peak = rows[0].seconds, rows[0].peak
        for share in (0.0, *SHARES):
            if least is not None and (share * peak < least.peak or rows[-1].seconds <= LONGER * seconds):
                continue
            fitting, _ = _within(local, machine, max(int(share * peak), least_kept(local, machine)))
            if fitting is not None:
                rows.append(_Row.of(fitting, machine))
                least = least or rows[-1]
        least = min(rows, key=lambda r: (r.peak, r.seconds))
        quick = min((r for r in rows if r.seconds <= LONGER * seconds), key=lambda r: (r.peak, r.seconds))
        hosted, held = moves_to_host(quick.module), least_held(least.module, machine)
        print(f"{name:<18} {peak / 1e9:>8.2f} {least.peak / peak:>6.1%} {least.seconds / seconds:>6.2f} "
              f"{quick.peak / peak:>8.1%} {quick.seconds / seconds:>6.2f} {hosted:>5} {held.bytes / peak:>6.1%}\n"
              f"    {held.given / peak:.1%} arguments and constants, {(held.bytes - held.given) / peak:.1%} for "
              f"{_said(held.at)}\n    " + "; ".join(f"{b.size / peak:.1%} {_said(b.instruction)}"
                                                   for b in _largest(least.module, machine)), flush=True)  # fmt: skip
        if quick.peak > GOAL * peak:
            print(textwrap.indent(_within(local, machine, int(GOAL * peak), often=1)[1], "    "), flush=True)


@dataclass(frozen=True)
class _Row:
    """A scheduled program with its peak in bytes, and its seconds."""

    module: Module
    peak: int
    seconds: float

    @staticmethod
    def of(module: Module, machine: hloom.Machine) -> _Row:
        """Forecasts a program."""
        return _Row(module, peak_memory(module, OutsideOfAttention.on(machine)), timeline(module, machine).seconds)


def _largest(module: Module, machine: hloom.Machine) -> list[Buffer]:
    """Returns the largest three arrays at the peak, of the loops that run then and of what is around them."""
    known: dict[Computation, Lives] = {}
    arranged_memory(module, OutsideOfAttention.on(machine), lambda lives, _: known.update({lives.computation: lives}))
    return sorted(known[module.entry].at_peak(), key=lambda b: -b.size)[:3]


def _said(instruction: Instruction) -> str:
    """Says an instruction, and the op of the user that it is from."""
    name = instruction.metadata.op_name if instruction.metadata else ""
    shape = "" if instruction.shape.is_tuple else f" {instruction.shape.without_layout()}"
    return f"{instruction.op.opcode}{shape}" + (f" of {'/'.join(name.split('/')[-3:])}" if name else "")


def _within(local: Module, machine: hloom.Machine, limit: int, often: int = 2) -> tuple[Module | None, str]:
    """Returns a program scheduled within a limit, or within the least that is reached if that is more; None if that
    does not fit either. The text says what the limit bounds, if it does.
    """
    said = ""
    for _ in range(often):
        context = PassContext(machine=machine)
        try:
            module = schedule(clone_module(local), context, limit)
        except DoesNotFit as error:
            limit, said = error.peak, str(error)
        else:
            return module, said or "\n".join(d.render() for d in context.diagnostics.found if math.isinf(d.cost))
    return None, said


def exact() -> None:
    """Prints the plans of two to four layers of Llama 3.1 8B, whether they are proved the best, and labels and seconds.
    """
    for layers in (2, 3, 4):
        model = Llama("8B", layers, 4096, 14336, 1024)
        for devices, (latency, bandwidth) in LINKS.items():
            for tokens in (2048, 8192):
                problem, names = backward(model, Setting(devices, latency, bandwidth, tokens, 3.6e9))
                start = time.process_time()
                best = best_schedule(problem, names, names, 2_000_000)
                print(f"{layers} layers, {devices} devices, {tokens} tokens: {1e3 * best.outcome.seconds:.2f} ms, "
                      f"{'proved' if best.is_proven else f'gap {best.gap:.2%}'}, {best.labels:,} labels, "
                      f"{time.process_time() - start:.1f} s", flush=True)  # fmt: skip


def main() -> None:
    """Reads the arguments and prints one of the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=("exposed", "orders", "memory", "exact"))
    parser.add_argument("names", nargs="*", metavar="NAME", help="rows whose names contain one of these")
    parser.add_argument("--orders", type=int, default=10_000, help="random ones of each size")
    parser.add_argument("--machine", default="h100", help="of the table of memory")
    arguments = parser.parse_args()
    if arguments.table == "exposed":
        exposed(arguments.names)
    elif arguments.table == "orders":
        orders(arguments.names, arguments.orders)
    elif arguments.table == "memory":
        memory(arguments.names, hloom.parse_machine(arguments.machine))
    else:
        exact()


if __name__ == "__main__":
    main()

"""Measures this machine for a machine file (`cost.calibrated`): the programs, and how long they take.

Programs differ in length only, and the difference of their times is that of the stages that one has more: products of
matrices, and pairs of ops on large and on small arrays, which some backends fuse. Collectives are timed from start to
end, in groups of all sizes that divide the ranks. Large ones combine many arrays, as those of schedules do: each array
is packed and unpacked, and together they are larger than caches, which makes them several times slower. What overlaps
follows from a program that computes while a collective runs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .. import frontends
from ..cost.calibrated import Between, Figure, Measured, Sample
from ..cost.formulas import Kind
from ..cost.host import HOST, second_cache
from ..cost.native_fit import fit_native
from ..cost.native_speed import NativeSpeed
from ..ir.graph.module import Module
from ..passes.stages import During, unseen
from ..runtime.calibrate import Timer
from .backend import NATIVE, REFERENCE, Backend
from .native_clock import cold_collectives, program_work
from .native_cold import OTHER_ROWS, OTHERS, others
from .native_programs import native_programs

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

_SIDES = {16: ("bf16", 128), 32: ("f32", 768)}  # of the matrices that are multiplied, by bits
_LARGE, _SMALL = 1 << 22, 16  # numbers in the arrays of the other ops
_SIZES = (1 << 12, 1 << 16, 1 << 20, 1 << 23, 1 << 25)  # bytes of the larger of operand and result
_ARRAY = 1 << 18  # bytes of each of the arrays that more bytes consist of
_SEVERAL = HOST.direct_reduction // 2, 32  # bytes, less than have two stages, and arrays among which they are divided
_LEAST_SHARE = 0.5  # of a time, for the bytes: an array takes longer in few small ones than in many large ones
_BESIDE = 1 << 23  # bytes of the all-reduce that overlaps products
_LAYERS, _INNER = 8, 256  # after which ranks add, and numbers in the rows of others: all of these touch 24 megabytes
_SIDE = OTHERS * OTHER_ROWS  # of an array that ranks add
_TIMES = 3  # that programs of these layers are timed
_COMBINED = 16  # arrays that they add at once, beside one
_TURNS, _LONGEST, _LEAST_RUNS = 6, 0.01, 2  # of native programs, with seconds and runs for each
_DEFINED = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] add(a, b) }\n"

# Collectives: whether operand and result have the measured size, or that of one device's part.
KINDS: Mapping[Kind, tuple[bool, bool, str]] = {
    "all-gather": (False, True, "all-gather(x), dimensions={0}, use_global_device_ids=true"),
    "reduce-scatter": (True, False, "reduce-scatter(x), dimensions={0}, to_apply=add, use_global_device_ids=true"),
    "all-reduce": (True, True, "all-reduce(x), to_apply=add, use_global_device_ids=true"),
    "all-to-all": (True, True, "all-to-all(x), dimensions={0}"),
    "collective-permute": (True, True, "collective-permute(x)"),
}
_ONE_ARRAY: Kind = "all-to-all"  # others combine as many as one likes


def measured(comm: Comm | None, backend: Backend, during: During = unseen, timer: Timer | None = None) -> Measured:
    """Measures this machine as a backend uses it, with the collectives of all ranks if there are several. All ranks
    must call it. `during` surrounds each part of the work of the first.
    """
    during = during if comm is None or comm.rank == 0 else unseen
    timed = _Timer(timer or Timer(comm, backend.kernels), backend)
    ranks = 1 if comm is None else comm.size
    where = f"hloom machine calibrate on {ranks} rank{'s' * (ranks != 1)}, backend {backend.acting}"
    fused = backend.acting != REFERENCE
    ops, touched = (1, 8) if fused else (2, 20)  # of a stage, and the bytes per number
    with during("measuring ops"):
        small = timed.slope(_stages(_SMALL, 101), _stages(_SMALL, 1), 100)
        large = timed.slope(_stages(_LARGE, 5), _stages(_LARGE, 1), 4)
        rates = {bits: _products(timed, element, side) for bits, (element, side) in _SIDES.items()}
    found = Measured(
        Figure(small / ops, f"{where}: ops on {_SMALL} numbers"),
        Figure(touched * _LARGE / max(large - small, 1e-9), f"{where}: ops on {_LARGE} numbers"),
        {bits: Figure(rate, f"{where}: product of matrices with side {_SIDES[bits][1]}")
         for bits, rate in rates.items()},
        source=where, fused=fused,
    )  # fmt: skip
    texts = list(native_programs()) if backend.acting == NATIVE else []
    with during("measuring native code") if texts else nullcontext():
        native = NativePrograms(timed.timer, backend, texts)
        for _ in range(_TURNS if ranks < 2 else 1):
            native.measure(_LONGEST)
    samples = list[Sample]()
    for sample in _collectives(timed.timer, ranks, during):
        samples.append(sample)
        native.measure(_LONGEST)  # in turns: a processor that others share is slower for seconds or minutes
    if texts:
        speed, error = native.fit()
        source = f"{where}: fit to {len(texts)} programs, half of them within {error:.0%}"
        found = replace(found, native=speed, native_source=source)
    if ranks < 2:
        return found
    found = replace(found, devices=ranks, samples=tuple(samples))
    if timed.timer.processor:
        with during("measuring collectives between other ops"):
            between = _between(timed, ranks, found.native)
        return replace(found, between=between, overlap=Figure(0.0, "ranks of one host copy what they send and receive"))
    with during("measuring what overlaps"):
        share = _overlap(timed, ranks, rates[32])
    overlap = Figure(share, f"{where}: all-reduce of {_BESIDE} bytes beside products of f32 matrices")
    return replace(found, overlap=overlap)


class NativePrograms:
    """The programs that the speed of native code is fitted to, and the least time of each in each turn. `measure` may
    be called again, with other work between.
    """

    def __init__(self, timer: Timer, backend: Backend, texts: Iterable[str]) -> None:
        prepared = [backend.prepared(frontends.parse(text)) for text in texts]
        self._second_cache = second_cache()
        self.work = [program_work(module, self._second_cache) for module in prepared]
        self._runs, self._timer = [timer.runner(module) for module in prepared], timer
        self.seconds = [list[float]() for _ in prepared]

    def measure(self, longest: float) -> None:
        """Runs each program for this number of seconds, and at least twice."""
        for n, run in enumerate(self._runs):
            self._timer.meet()
            self.seconds[n].append(least_of(run, longest))

    def fit(self) -> tuple[NativeSpeed, float]:
        """Returns the speed, and the median of the relative errors; ranks take the median of all."""
        speed, error = fit_native(self.work, [self._timer.typical(turns) for turns in self.seconds])
        return replace(speed, second_cache=self._second_cache), error


def least_of(run: Callable[[], float], longest: float) -> float:
    """Returns the least time of a run, of at least two, within about this number of seconds, but for those of zero, as
    `Timer` takes it.
    """
    least, spent = math.inf, 0.0
    for count in itertools.count(1):
        found = run()
        least, spent = min(least, found or least), spent + found
        if spent >= longest and count >= _LEAST_RUNS:
            return least
    raise AssertionError


@dataclass(frozen=True, slots=True)
class _Timer:
    """Times programs as a backend runs them."""

    timer: Timer
    backend: Backend

    def slope(self, long: Module, short: Module, more: int) -> float:
        """Returns the seconds of one of the stages that the long program has more.

        A difference that other processes have spoilt is replaced by the share of a stage in the long program.
        """
        whole = self.run(long)
        one, share = (whole - self.run(short)) / more, whole / (more + 1)
        return one if one > 0.2 * share else share

    def run(self, module: Module) -> float:
        return self.timer.run(self.backend.prepared(module))

    def run_together(self, module: Module) -> float:
        return self.timer.run_together(self.backend.prepared(module))

    def more_together(self, module: Module, alone: Module) -> float:
        return self.timer.more_together(self.backend.prepared(module), self.backend.prepared(alone))


def _stages(count: int, length: int) -> Module:
    """Returns a program of stages of two ops, which are fused or not, on this many numbers."""
    shape = f"f32[{count}]"
    lines = [f"v0 = {shape} parameter(0)"]
    for n in range(length):
        lines += [f"n{n} = {shape} negate(v{n})", f"a{n} = {shape} add(n{n}, v{n})",
                  f"v{n + 1} = {shape} opt-barrier(a{n})"]  # fmt: skip
    return _program(lines, 1)


def _products(timer: _Timer, element: str, side: int) -> float:
    """Returns the multiply-adds per second of products of square matrices."""
    shape = f"{element}[{side},{side}]"
    long, short = (_program(_chain(shape, length), 1) for length in (6, 1))
    return side**3 / timer.slope(long, short, 5)


def _chain(shape: str, length: int) -> list[str]:
    """Returns the lines of one product after the other."""
    dot = "dot({}, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
    products = [f"v{n} = {shape} {dot.format(f'v{n - 1}' if n else 'x')}" for n in range(length)]
    return [f"x = {shape} parameter(0)", *products]


def _program(lines: list[str], devices: int) -> Module:
    *others, last = lines
    body = "\n".join([*others, f"ROOT {last}"])
    return frontends.parse(f"HloModule calibrate, num_partitions={devices}\n{_DEFINED}ENTRY e {{\n{body}\n}}")


def _collectives(timer: Timer, ranks: int, during: During) -> Iterator[Sample]:
    for devices in (k for k in range(2, ranks + 1) if ranks % k == 0):
        for kind in KINDS:
            if kind == "collective-permute" and devices < ranks:
                continue  # its time depends on the links between pairs, not on how many pairs there are
            with during(f"measuring {kind} in groups of {devices}"):
                times = {size: timer.collective(_one(kind, size, devices, ranks)) for size in _SIZES}
                array = 0.0
                if kind != _ONE_ARRAY:
                    one, many = (timer.collective(_one(kind, _SEVERAL[0], devices, ranks, n)) for n in (1, _SEVERAL[1]))
                    array = max(many - one, 0.0) / (_SEVERAL[1] - 1)
            combined = {size: max(seconds - array * (_count(kind, size) - 1), seconds * _LEAST_SHARE)
                        for size, seconds in times.items()}  # fmt: skip
            yield Sample(kind, devices, combined, array)


def _count(kind: Kind, size: int) -> int:
    """Returns the number of arrays in a measured collective of this size."""
    return 1 if kind == _ONE_ARRAY else max(size // _ARRAY, 1)


def _one(kind: Kind, size: int, devices: int, ranks: int, arrays: int | None = None) -> Module:
    """Returns a program of one collective, of several arrays if it is large or as many as are given."""
    whole_in, whole_out, text = KINDS[kind]
    count = arrays or _count(kind, size)
    part = math.ceil(size / 4 / devices / count)
    taken, made = (f"f32[{part * (devices if whole else 1)}]" for whole in (whole_in, whole_out))
    names = [f"x{n}" for n in range(count)]
    result = made if count == 1 else f"({', '.join([made] * count)})"
    grouped = _grouped(kind, text.replace("(x)", f"({', '.join(names)})"), devices, ranks)
    lines = [*(f"{name} = {taken} parameter({n})" for n, name in enumerate(names)), f"r = {result} {grouped}"]
    return _program(lines, ranks)


def _grouped(kind: Kind, text: str, devices: int, ranks: int) -> str:
    """Returns the text of a collective with its groups: neighbours together, permutes around each group."""
    groups = [range(first, first + devices) for first in range(0, ranks, devices)]
    if kind == "collective-permute":
        pairs = ",".join(f"{{{d},{g.start + (d - g.start + 1) % devices}}}" for g in groups for d in g)
        return f"{text}, channel_id=1, source_target_pairs={{{pairs}}}"
    return f"{text}, channel_id=1, replica_groups={{{','.join('{' + ','.join(map(str, g)) + '}' for g in groups)}}}"


def _between(timer: _Timer, ranks: int, speed: NativeSpeed) -> Between:
    """Returns the times by which a collective between other ops exceeds one alone, with the ops around it.

    Others have the core and the caches of a rank while it waits, and the code of collectives is no longer in them. The
    further tables of kernels count apart. So do kernels that leave nothing of its code in caches.
    """
    (one, _), (many, _) = (_more(timer, speed, _Layers(ranks, arrays)) for arrays in (1, _COMBINED))
    cold = 0.0
    if speed.is_known:
        more, share = _more(timer, speed, _Layers(ranks, others=True))
        cold = max(more - one, 0.0) / share
    return Between(max(one, 0.0), max((many - one) / (_COMBINED - 1), 0.0), cold)


def _more(timer: _Timer, speed: NativeSpeed, layers: _Layers) -> tuple[float, float]:
    """Returns the seconds that each collective of a program takes more than one alone, and the share of its code that
    caches do not hold, as far as the `speed` of native code is known.
    """
    with_sums, without = layers.module(True), layers.module(False)
    size = 4 * _SIDE * layers.arrays
    alone = timer.timer.collective(_one("all-reduce", size, layers.ranks, layers.ranks, layers.arrays))
    if layers.others:
        more = timer.more_together(with_sums, without)
    else:
        whole, only = (min(run(module) for _ in range(_TIMES))
                       for run, module in ((timer.run_together, with_sums), (timer.run, without)))  # fmt: skip
        more = whole - only
    share = 0.0
    if speed.is_known:
        prepared = [timer.backend.prepared(module) for module in (with_sums, without)]
        counted, base = (speed.of_run(program_work(module, speed.second_cache)) for module in prepared)
        more -= counted - base
        share = cold_collectives(prepared[0], speed.second_cache)
    return more / _LAYERS - alone, share


@dataclass(frozen=True, slots=True)
class _Layers:
    """Programs in which ranks add some arrays at a time, each time after a function of one of them, or after
    `others` of a program (`native_cold`), more than the last cache holds.
    """

    ranks: int
    arrays: int = 1
    others: bool = False

    def module(self, sums: bool) -> Module:
        """Returns the program; with ops on elements in place of the sums over ranks unless these are asked for."""
        row = f"f32[{_SIDE}]"
        lines = [f"v0 = {row} parameter(0)", "nothing = f32[] constant(0)"]
        lines += [f"p{k} = {row} parameter({k + 1})" for k in range(self.arrays)]
        for n in range(_LAYERS):
            lines += self._others(n) if self.others else [f"m{n} = {row} negate(v{n})"]
            added = [f"t{n}_{k}" for k in range(self.arrays)]
            lines += [f"{name} = {row} add(m{n}, p{k})" for k, name in enumerate(added)]
            lines += _summed(added, row, self.ranks) if sums else [f"{t}_r = {row} negate({t})" for t in added]
            lines += [f"{name}_a = {row} add({f'{before}_a' if before else f'{name}_r'}, {name}_r)"
                      for before, name in itertools.pairwise(("", *added))]  # fmt: skip
            lines.append(f"v{n + 1} = {row} opt-barrier({added[-1]}_a)")
        return _program(lines, self.ranks if sums else 1)

    def _others(self, number: int) -> list[str]:
        """Returns the lines from `v` to `m` of this number."""
        rows, wide = f"f32[{OTHER_ROWS},{_INNER}]", f"f32[{OTHER_ROWS},{_INNER // _SIDE},{_SIDE}]"
        lines, sums = others(f"_{number}", f"r{number}", _INNER, 1 + self.arrays + number * OTHERS)
        return [f"b{number} = {wide} broadcast(v{number}), dimensions={{2}}",
                f"r{number} = {rows} reshape(b{number})", *lines,
                f"m{number} = f32[{_SIDE}] concatenate({', '.join(sums)}), dimensions={{0}}"]  # fmt: skip


def _summed(names: list[str], shape: str, ranks: int) -> list[str]:
    """Returns the lines of the sums over all ranks of these arrays, which one collective combines."""
    text = _grouped("all-reduce", KINDS["all-reduce"][2].replace("(x)", f"({', '.join(names)})"), ranks, ranks)
    if len(names) == 1:
        return [f"{names[0]}_r = {shape} {text}"]
    all_of = f"{names[0]}_all"
    lines = [f"{all_of} = ({', '.join([shape] * len(names))}) {text}"]
    return [*lines, *(f"{name}_r = {shape} get-tuple-element({all_of}), index={k}" for k, name in enumerate(names))]


def _overlap(timer: _Timer, ranks: int, rate: float) -> float:
    """Returns the speed of computation while a collective runs."""
    (_, side), count = _SIDES[32], _BESIDE // 4
    text = KINDS["all-reduce"][2].replace("(x)", "(y)")
    start = f"r = f32[{count}] {_grouped('all-reduce', text, ranks, ranks)}"
    alone = timer.run_together(_program([f"y = f32[{count}] parameter(0)", start], ranks))
    length = max(round(1.5 * alone * rate / side**3), 1)
    shape = f"f32[{side},{side}]"
    computed = timer.run(_program(_chain(shape, length), 1))
    both = [f"y = f32[{count}] parameter(1)", start, *_chain(shape, length)]
    both.append(f"t = (f32[{count}], {shape}) tuple(r, v{length - 1})")
    together = timer.run_together(_program(both, ranks))
    return min(max(1 - (together - computed) / alone, 0.0), 1.0)

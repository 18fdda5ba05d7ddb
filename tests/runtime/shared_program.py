"""What the ranks of the tests of shared memory run: `shared_program.py CASE ..`, started by support/on_ranks.py."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mpi_program
import numpy as np
from hloom.frontends import parse
from hloom.ir.diagnostics import CompileError
from hloom.ir.graph.module import Module
from hloom.ir.tools.placement import placements
from hloom.ir.tools.process_grid import ProcessGrid
from hloom.runtime import mpi
from hloom.runtime.fabric import ranks, shared, sharing, window
from hloom.runtime.fabric.transport import Placing
from hloom.runtime.global_arrays import split_inputs
from hloom.runtime.inputs.inputs import make_inputs
from hloom.runtime.mpi import MpiProgram
from hloom.runtime.ranks.failed import RankFailed
from hloom.runtime.ranks.launch import finish_rank, world
from hloom.runtime.ranks.library import load_mpi
from hloom.runtime.simulator import run_devices

COUNT = 12  # collectives in flight
TRAINING = (Path(__file__).parents[2] / "examples" / "mlp_train.hlo").read_text()
FLIGHT = """HloModule m, num_partitions=4
add {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }}
ENTRY e {{
  x = f32[{n}] parameter(0)
  {lines}
  ROOT r = ({shapes}) tuple({dones})
}}"""

REPEATED = """HloModule m, num_partitions=4
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
cond { p = (s32[], f32[4,64]) parameter(0)  i = s32[] get-tuple-element(p), index=0  z = s32[] constant(0)
  ROOT r = pred[] compare(i, z), direction=GT }
body { p = (s32[], f32[4,64]) parameter(0)  i = s32[] get-tuple-element(p), index=0
  x = f32[4,64] get-tuple-element(p), index=1  one = s32[] constant(1)  j = s32[] subtract(i, one)
  s = f32[4,64] all-to-all(x), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0}
  q = f32[4,16] reduce-scatter(s), channel_id=2, replica_groups={{0,1,2,3}}, dimensions={1}, to_apply=add,
    use_global_device_ids=true
  c = f32[] constant(0.25)  b = f32[4,16] broadcast(c), dimensions={}  m = f32[4,16] multiply(q, b)
  g = f32[4,64] all-gather(m), channel_id=3, replica_groups={{0,1,2,3}}, dimensions={1}, use_global_device_ids=true
  n = f32[4,64] collective-permute(g), channel_id=4, source_target_pairs={{0,1},{1,2},{2,3},{3,0}}
  ROOT t = (s32[], f32[4,64]) tuple(j, n) }
ENTRY e {
  n = s32[] parameter(0)
  x = f32[4,64] parameter(1)
  t = (s32[], f32[4,64]) tuple(n, x)
  w = (s32[], f32[4,64]) while(t), condition=cond, body=body
  ROOT r = f32[4,64] get-tuple-element(w), index=1
}"""


@contextmanager
def patched(owner: Any, **values: Any) -> Generator[None]:
    """Sets attributes for a while: other cases follow in the same process."""
    normal = {name: getattr(owner, name) for name in values}
    try:
        for name, value in values.items():
            setattr(owner, name, value)
        yield
    finally:
        for name, value in normal.items():
            setattr(owner, name, value)


def same(module: Module, inputs: list[list[Any]], shares: bool = True) -> None:
    """The results of this rank's devices are those of the simulator, to the bit, whether through shared memory."""
    expected = run_devices(module, inputs)
    with MpiProgram(module, world()) as program:
        assert (program.fabric.shared_bytes > 0) == shares
        for _ in range(2):
            found = program.run([inputs[d] for d in program.devices])
            for device, arrays in zip(program.devices, found, strict=True):
                for number, (a, b) in enumerate(zip(arrays, expected[device], strict=True)):
                    assert a.dtype == b.dtype, (number, a.dtype)
                    assert a.tobytes() == b.tobytes(), (device, number, a, b)


def every_kind(shares: bool = True, sizes: tuple[int, ...] = (2, 2500)) -> None:
    """Runs each kind on numbers whose sums depend on the order."""
    for kind, op in (("f32", "add"), ("bf16", "add"), ("f64", "multiply"), ("s4", "add"), ("c64", "add")):
        for n in sizes:
            text = mpi_program.COLLECTIVES.format(t=kind, op=op, n=n, n2=2 * n, n4=4 * n, half=n // 2)
            module = parse(text)
            same(module, [[x] for x in make_inputs([module.entry.parameters[0].shape] * 4, seed=n)], shares)


def kinds() -> int:
    every_kind()
    return 0


def in_flight() -> int:
    """More collectives are in flight than entries and room: ranks complete some early, and ends come in reverse."""
    early: list[int] = []
    plain = ranks.RanksFabric._finish_open  # pyright: ignore

    def counted(fabric: ranks.RanksFabric) -> None:
        early.append(len(fabric._open))  # pyright: ignore
        plain(fabric)

    n, pairs = 3000, ("{0,1},{1,2},{2,3},{3,0}", "{0,2},{2,0}")
    lines: list[str] = []
    for i in range(COUNT):
        lines.append(
            f"begin{i} = f32[{n}] all-reduce-start(x), channel_id={i + 1}, use_global_device_ids=true, to_apply=add, "
            f"replica_groups={'{{0,1,2,3}}' if i % 3 else '{{0,2},{3,1}}'}"
            if i % 2
            else f"begin{i} = (f32[{n}], f32[{n}]) collective-permute-start(x), channel_id={i + 1}, "
            f"source_target_pairs={{{pairs[i % 4 // 2]}}}"
        )
    for i in reversed(range(COUNT)):
        lines.append(f"d{i} = f32[{n}] {'all-reduce' if i % 2 else 'collective-permute'}-done(begin{i})")
    done = ", ".join(f"d{i}" for i in range(COUNT))
    module = parse(FLIGHT.format(n=n, lines="\n  ".join(lines), shapes=", ".join([f"f32[{n}]"] * COUNT), dones=done))
    x = np.random.default_rng(0).normal(size=(4, n)).astype(np.float32)
    with patched(sharing, _AHEAD=0, _IN_FLIGHT=0), patched(ranks.RanksFabric, _finish_open=counted):
        same(module, [[row] for row in x])
    assert max(early) > 0
    return 0


def late() -> int:
    """Rank 0 comes late, after work of its own; that others wait for it meanwhile is no work of theirs."""
    with MpiProgram(parse(mpi_program.REDUCE), world()) as program:
        inputs = [make_inputs([p.shape for p in program.module.entry.parameters]) for _ in program.devices]
        program.run(inputs)
        waited, begin, whole = program.watch.waiting, program.watch.busy, time.thread_time()
        while world().rank == 0 and time.thread_time() < whole + 0.1:
            pass
        program.run(inputs)
        busy, waited = program.watch.busy - begin, program.watch.waiting - waited
        assert abs(busy + waited - (time.thread_time() - whole)) < 0.005
        assert busy > 0.1 if world().rank == 0 else waited > 0 and busy < 0.05, (busy, waited)
    return 0


def late_part() -> int:
    """Rank 0 combines its part of a large sum late, after work of its own: the others wait for that part."""
    plain = shared.SharedMemory._combine  # pyright: ignore

    def combine(memory: shared.SharedMemory, *given: Any) -> None:
        begin = time.thread_time()
        while world().rank == 0 and time.thread_time() < begin + 0.05:
            pass
        plain(memory, *given)

    line = "d = f32[3000] all-reduce(x), channel_id=1, use_global_device_ids=true, to_apply=add, " \
           "replica_groups={{0,1,2,3}}"  # fmt: skip
    module = parse(FLIGHT.format(n=3000, lines=line, shapes="f32[3000]", dones="d"))
    x = np.random.default_rng(2).normal(size=(4, 3000)).astype(np.float32)
    with patched(shared, _DIRECT_BYTES=100), patched(shared.SharedMemory, _combine=combine):
        same(module, [[row] for row in x])
    return 0


def shared_memory() -> int:
    """The bytes of shared memory that this process uses."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssShmem"))


def repeated() -> int:
    module, x = parse(REPEATED), np.random.default_rng(1).normal(size=(4, 4, 64)).astype(np.float32)
    trips = int(os.environ["TRIPS"])
    with MpiProgram(module, world()) as program:
        most: list[int] = []
        for count in (trips // 4, trips // 4, trips // 2):
            program.run([[np.asarray(np.int32(count)), x[d]] for d in program.devices])
            most.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    assert most[2] - most[1] < 1024, most  # in KiB
    same(module, [[np.asarray(np.int32(50)), row] for row in x])
    return 0


def training(module: Module) -> Iterator[tuple[MpiProgram, list[list[Any]]]]:
    """Yields the program on native kernels, and what each step of training made of this rank's devices."""
    from hloom.runtime.native.kernels import NativeKernels  # here: importing it costs every rank

    inputs = make_inputs([p.shape for p in parse(TRAINING).entry.parameters], seed=3)
    with MpiProgram(module, world(), kernels=NativeKernels()) as program:
        local = split_inputs(inputs, program.parameters, program.devices, program.grid)
        while True:
            made = program.run(local)
            local = [[*new[:-1], *old[len(new) - 1 :]] for new, old in zip(made, local, strict=True)]
            yield program, made


def native_program() -> Module:
    from hloom.passes.api import partition
    from hloom.passes.base import PassContext, run_pipeline
    from hloom.passes.cleanup.equal_computations import EqualComputations
    from hloom.passes.fusion.fuse import FusionPass
    from hloom.passes.schedule.combine_collectives import CombineCollectives

    module = partition(parse(TRAINING)).module
    run_pipeline([EqualComputations(), CombineCollectives(), FusionPass()], module, PassContext())
    return module


def native_steps() -> int:
    """Steps on native kernels: the bits of the simulator at first, then constant memory."""
    from hloom.runtime.native.kernels import NativeKernels

    module, steps = native_program(), int(os.environ["TRIPS"])
    inputs = make_inputs([p.shape for p in parse(TRAINING).entry.parameters], seed=3)
    grid = ProcessGrid.of(module)
    expected = run_devices(module, split_inputs(inputs, placements(module)[0], range(grid.size), grid), NativeKernels())
    used: list[int] = []
    losses: list[float] = []
    for number, (program, made) in enumerate(training(module)):
        if not number:
            for device, arrays in zip(program.devices, made, strict=True):
                assert [a.tobytes() for a in arrays] == [a.tobytes() for a in expected[device]]
        losses.append(float(made[0][-1]))
        if number in (steps // 2, steps):
            used.append(resident())
        if number == steps:
            break
    assert losses[-1] < losses[0], losses
    assert used[1] - used[0] < 1 << 20, used
    return 0


def resident() -> int:
    """The bytes of memory that this process uses."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def killed_in_training() -> int:
    for number, _ in enumerate(training(native_program())):
        if number == 20 and world().rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    return 0


def killed() -> int:
    world()
    if world().rank == 1:
        mpi_program.MpiProgram.run = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # pyright: ignore
    return mpi_program.reduce()


def failing() -> int:
    """A rank that fails again and again, and goes on, holds the memory of the last time at most."""
    module, used = parse(mpi_program.REDUCE.replace("f32[3]", "f32[1000000]")), list[int]()
    for _ in range(4):
        try:
            with MpiProgram(module, world()) as program:
                program.run([[np.ones(1000000 - world().rank, np.float32)]])  # the other rank waits
        except (RankFailed, CompileError):
            pass
        used.append(shared_memory())
    assert used[3] < used[0] + (1 << 20), used
    with MpiProgram(module, world()) as program:
        ((found,),) = program.run([[np.ones(1000000, np.float32)]])
        assert (found == 2).all()
    assert shared_memory() < used[0]
    return 0


def other_paths() -> int:
    """A rank that comes to another collective is named, and no data is taken for that of the awaited one."""
    lines = "".join(
        f"  b{i} = f32[3] all-reduce(x), channel_id={i + 1}, replica_groups={{{{0,1}}}}, use_global_device_ids=true, "
        f"to_apply=add\n" for i in range(2)
    )  # fmt: skip
    text = f"HloModule m, num_partitions=2\nadd {{ a = f32[] parameter(0)  b = f32[] parameter(1)\n" \
           f"  ROOT r = f32[] add(a, b) }}\nENTRY e {{\n  x = f32[3] parameter(0)\n{lines}" \
           f"  ROOT r = f32[3] add(b0, b1)\n}}"  # fmt: skip
    with MpiProgram(parse(text), world()) as program:
        first, second = program.executable.compilation.collectives
        rank, fabric = int(world().rank), program.fabric
        try:
            fabric.wait(fabric.start([first, second][rank], list(program.devices), [[np.ones(3, np.float32)]]))
        except CompileError as error:
            return 0 if f"rank {1 - rank} has come to b{1 - rank} instead" in str(error) else 2
    return 1


def little_room() -> int:
    """Small collectives go through shared memory, large ones through MPI."""
    module = parse(mpi_program.COLLECTIVES.format(t="s32", op="add", n=2500, n2=5000, n4=10000, half=1250))
    with patched(window, free_bytes=lambda: 2 * world().size * (100_000 + (1 << 16))):
        same(module, [[x] for x in make_inputs([module.entry.parameters[0].shape] * 4)])
    return 0


def small_folder() -> int:
    module = parse(mpi_program.COLLECTIVES.format(t="f64", op="add", n=2500, n2=5000, n4=10000, half=1250))
    # MPI adds in its own order.
    values = [np.round(x * 4) for x in make_inputs([module.entry.parameters[0].shape] * 4)]
    same(module, [[x] for x in values])
    return 0


def refusing() -> Any:
    """The MPI library, but that it shares no memory."""
    library = load_mpi()

    def refuse(*_: Any, **__: Any) -> None:
        raise library.Exception(library.ERR_NO_MEM)

    fake = SimpleNamespace(**{name: getattr(library, name) for name in dir(library)})
    fake.Win = SimpleNamespace(Allocate_shared=refuse)
    return fake


def none_shared() -> int:
    """Ranks have no shared memory, for one reason after the other."""
    fake, pages = refusing(), {"_populate": lambda _: False} if world().rank == 1 else {}  # pyright: ignore
    for lack in (
        patched(window, free_bytes=lambda: 1000), patched(window, **pages), patched(mpi, load_mpi=lambda: fake)
    ):  # fmt: skip
        with lack:
            every_kind(shares=False, sizes=(2,))
        sharing._reported.clear()  # pyright: ignore
    return 0


def demanded() -> int:
    with patched(window, free_bytes=lambda: 1000):
        try:
            MpiProgram(parse(mpi_program.REDUCE), world(), collectives="shared")
        except CompileError as error:
            return 0 if "collectives cannot go through shared memory: " in str(error) else 2
    return 3


def two_nodes() -> int:
    """Ranks 0 and 1 share memory, so do 2 and 3; the pairs communicate through MPI."""

    def placed(_: Any, watch: Any, rank_of: Any) -> tuple[Placing, Any]:
        rank, count = watch.comm.rank, watch.comm.size
        return Placing(rank, rank_of, [r // 2 for r in range(count)]), watch.comm.Split(rank // 2, rank)

    module = parse(mpi_program.COLLECTIVES.format(t="s32", op="add", n=2500, n2=5000, n4=10000, half=1250))
    with patched(ranks, place_ranks=placed), patched(shared, _DIRECT_BYTES=100):
        same(module, [[x] for x in make_inputs([module.entry.parameters[0].shape] * 4)])
        return mpi_program.loops() or mpi_program.slices() or mpi_program.asynchronous()


CASES: dict[str, Callable[[], int]] = {
    f.__name__: f
    for f in (
        late, late_part, kinds, in_flight, repeated, native_steps, killed, killed_in_training, failing, other_paths,
        none_shared, little_room, small_folder, demanded, two_nodes,
    )
}  # fmt: skip


def all_cases() -> int:
    """Runs the cases that the command line names, in turn; the first that fails ends it."""
    return next((code for case in sys.argv[1:] if (code := CASES[case]())), 0)


if __name__ == "__main__":
    sys.exit(finish_rank(all_cases))

"""What the ranks of the MPI tests run: `mpiexec -n RANKS python mpi_program.py CASE`, or support/on_ranks.py.

Every case checks on each rank that the outputs are those of the simulator, to the bit unless it says otherwise.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hloom
import numpy as np
from hloom.frontends import parse
from hloom.ir.diagnostics import CompileError
from hloom.ir.graph.module import Module
from hloom.runtime import run
from hloom.runtime.inputs.inputs import make_inputs
from hloom.runtime.mpi import MpiProgram
from hloom.runtime.ranks import failed as rank_failed
from hloom.runtime.ranks import monitor, watch
from hloom.runtime.ranks.blocks import devices_of
from hloom.runtime.ranks.failed import RankFailed, on_all_ranks
from hloom.runtime.ranks.launch import EXPECTED_RANKS, finish_rank, world
from hloom.runtime.ranks.library import MpiMissing
from hloom.runtime.simulator import run_devices, simulate
from support import field_kernels
from support.async_programs import ASYNC
from support.rank_programs import BUCKETS, COLLECTIVES, LOOP, ONE_DEVICE, SHARDED, SLICES


def check(module: Module, inputs: list[list[Any]]) -> None:
    """The results of this rank's devices are those of the simulator."""
    comm = world()
    expected = run_devices(module, inputs)
    devices = devices_of(comm.rank, comm.size, len(inputs))
    mine = [inputs[d] for d in devices]
    outputs: list[Any] = run(module, mine[0], comm) if comm.size == 4 else run(module, mine, comm)
    outputs = [outputs] if comm.size == 4 else outputs
    for device, found in zip(devices, outputs, strict=True):
        for number, (a, b) in enumerate(zip(found, expected[device], strict=True)):
            assert a.dtype == b.dtype, (number, a.dtype)
            assert a.shape == b.shape, (number, a.shape)
            assert a.tobytes() == b.tobytes(), (device, number, a, b)


def collectives() -> int:
    cases = [("f32", "add"), ("f32", "maximum"), ("bf16", "add"), ("s32", "minimum"), ("s4", "add"), ("pred", "and"),
             ("pred", "add"), ("c64", "add"), ("f16", "multiply"), ("u64", "xor"), ("f64", "minimum")]  # fmt: skip
    for kind, op in cases:
        # The larger size takes the way of large reductions.
        for n in (6, 2500) if kind == "bf16" else (6, 2) if kind == "f32" else (6,):
            module = parse(COLLECTIVES.format(t=kind, op=op, n=n, n2=2 * n, n4=4 * n, half=n // 2))
            shape = module.entry.parameters[0].shape
            values = make_inputs([shape] * 4, seed=n)
            if shape.element.is_float or shape.element.is_complex:
                # Small integers, so that no order of summation shows.
                values = [np.round(x.astype(np.complex128) * 4) for x in values]
                values = [(x if shape.element.is_complex else x.real).astype(shape.element.numpy) for x in values]
            check(module, [[x] for x in values])
    return 0


def loops() -> int:
    x = np.array([1, 2, 3], np.float32)
    check(parse(LOOP), [[np.asarray(np.int32(3 if d < 2 else 5)), x + d] for d in range(4)])
    return 0


def sharded() -> int:
    module, comm = parse(SHARDED), world()
    x, w = np.arange(24, dtype=np.float32).reshape(6, 4), np.arange(20, dtype=np.float32).reshape(4, 5)
    with MpiProgram(module, comm) as program:
        for _ in range(2):  # a program may run again
            found = program.run_global([x, w])
            if comm.rank == 0:
                assert found is not None
                np.testing.assert_array_equal(found[0], simulate(module, [x, w])[0])
            else:
                assert found is None
    return 0


def one_device() -> int:
    """What the others hold, poison here, does not matter."""
    comm, x = world(), np.array([1, 2, 3], np.float32)
    with MpiProgram(parse(ONE_DEVICE), comm) as program:
        found = program.run_global([x, 2 * x], poison=True)
        if comm.rank == 0:
            assert found is not None
            np.testing.assert_array_equal(found[0], -x)
    return 0


def asynchronous() -> int:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    check(parse(ASYNC), [[x + 100 * d] for d in range(4)])
    return 0


def slices() -> int:
    x, o = np.arange(12, dtype=np.float32).reshape(6, 2), np.zeros((9, 2), np.float32)
    lists = [np.array(v, np.int32) for v in ((3, 3), (1, 3))]
    check(parse(SLICES), [[x + 100 * d, o - d, *lists, np.asarray(np.int32(d))] for d in range(4)])
    return 0


def buckets() -> int:
    """Operands of several types and sizes travel together; results of a run stay when the next uses buffers again."""
    module, comm = parse(BUCKETS), world()
    rng = np.random.default_rng(3)
    runs = [[[rng.integers(-4, 5, p.shape.dims).astype(p.shape.element.numpy) for p in module.entry.parameters]
             for _ in range(4)] for _ in range(3)]  # fmt: skip
    with MpiProgram(module, comm) as program:
        found = [program.run([run[d] for d in program.devices]) for run in runs]
        for run, results in zip(runs, found, strict=True):
            expected = run_devices(module, run)
            for device, ours in zip(program.devices, results, strict=True):
                for number, (a, b) in enumerate(zip(ours, expected[device], strict=True)):
                    assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()), (device, number)
    return 0


def orders() -> int:
    """Random programs in random orders, the same on all ranks, give the bits of the simulator in the first order, their
    padding poisoned: `orders FIRST COUNT MOST` takes those of up to MOST devices.
    """
    from programs.random.generate import inputs_of, program  # here: importing hypothesis would cost every rank
    from support.orders import reordered

    first, count, most = map(int, sys.argv[2:5])
    comm, done = world(), 0
    for seed in range(first, first + count):
        chosen = random.Random(seed)
        try:
            module = program(chosen.randint)
            local = hloom.partition(module)
        except CompileError:
            continue
        if not comm.size <= local.num_partitions <= most:
            continue
        with np.errstate(all="ignore"):
            expected = simulate(local, inputs_of(module), poison=True)
            with MpiProgram(reordered(local, seed), comm) as running:
                found = running.run_global(inputs_of(module), poison=True)
        for number, (a, b) in enumerate(zip(found or [], expected, strict=found is not None)):
            assert a.tobytes() == b.tobytes(), f"seed {seed}, output {number}: {a} is not {b}\n{local.to_text()}"
        done += 1
    assert done >= count // 10, f"only {done} programs"
    return 0


def programs() -> int:
    started = threads() or mismatch() or other_number()
    return started or buckets() or collectives() or loops() or sharded() or one_device() or asynchronous() \
        or slices() or kernels()  # fmt: skip


def kernels() -> int:
    """A provider's values are summed as it says, not as MPI would."""
    field = field_kernels.FieldKernels()
    local, inputs = hloom.partition(parse(field_kernels.PROGRAM), 4), field_kernels.inputs()
    with MpiProgram(local, world(), kernels=field) as program:
        found = program.run_global(inputs)
    for a, b in zip(found or [], simulate(local, inputs, kernels=field), strict=found is not None):
        np.testing.assert_array_equal(a, b)
    return 0


def too_many() -> int:
    text = """HloModule m, frontend_attributes={hloom.stage="local"}
ENTRY e { x = f32[] parameter(0)  ROOT r = f32[] negate(x) }"""
    try:
        run(parse(text), [np.float32(1)], world())
    except CompileError as error:
        return 65 if "too few for" in str(error) else 2
    return 0


def killed() -> int:
    comm = world()
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    comm.Barrier()
    return 0


def one_fails() -> int:
    comm = world()
    if comm.rank == comm.size - 1:
        return 1
    comm.Barrier()
    return 0


def raises() -> int:
    comm = world()
    if comm.rank == 1:
        raise ValueError("no verdict")
    comm.Barrier()
    return 0


def mismatch() -> int:
    try:
        world(world().size + 1)
    except MpiMissing as error:
        return int(error.exit_code != 69 or "do not belong to the same MPI" not in str(error))
    return 1


def other_number() -> int:
    """Another launcher has started other ranks than `--ranks` says."""
    size, announced = world().size, os.environ.pop(EXPECTED_RANKS)
    try:
        world(size + 2)
    except (CompileError, MpiMissing) as error:
        wanted = f"{size + 2} ranks are asked for, and the launcher has started {size}"
        return int(size > 1 and wanted not in str(error))
    finally:
        os.environ[EXPECTED_RANKS] = announced
    return 1


REDUCE = """HloModule m, num_partitions=2
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
ENTRY e {
  x = f32[3] parameter(0)
  ROOT ar = f32[3] all-reduce(x), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add
}"""


def reduce(size: int = 3, timeout: float | None = None) -> int:
    """Sums over two ranks; 0 if that went well, else the exit code of what another rank did, which is printed."""
    from hloom.driver.ranks import Ranks  # here: importing it costs every rank

    try:
        with Ranks(world(), timeout), MpiProgram(parse(REDUCE, "reduce.hlo"), world(), timeout) as program:
            ((found,),) = program.run([[np.ones(size, np.float32)]])
    except RankFailed as failure:
        print(f"rank {failure.rank} on {failure.host}: {failure}", file=sys.stderr)
        return failure.exit_code
    except CompileError as error:
        print("wrong input" if "has dimensions" in str(error) else error, file=sys.stderr)
        return 65
    return int(found.tolist() != [2.0, 2.0, 2.0])


def wrong_input() -> int:
    return reduce(3 + world().rank)


def same_mistake() -> int:
    return reduce(5)


def told() -> int:
    """A mistake of a rank, one of all ranks, and a rank that works for long, in turn: each is told by itself."""
    return 0 if (wrong_input(), same_mistake(), slow()) == (65, 65, 0) else 1


def only_there() -> int:
    def read() -> str:
        return Path(f"/nowhere/{world().rank}").read_text() if world().rank else "read"

    try:
        on_all_ranks(world(), read, "the program")
    except FileNotFoundError:
        return 65 if world().rank == 1 else 2
    except RankFailed as failure:
        told = failure.rank == 1 and "No such file" in failure.message and failure.reported
        return 65 if world().rank != 1 and told else 2
    return 2


def stopped_early() -> int:
    """A rank stops after it has come to the start of the program, while the ranks tell each other their names."""
    if world().rank == 1:
        watch.gather_texts = lambda *_: os.kill(os.getpid(), signal.SIGSTOP)  # pyright: ignore
    return reduce(timeout=2.0)


def stopped() -> int:
    monitor.ANSWER_SECONDS = 0.5
    if world().rank == 1:
        MpiProgram.run = lambda *_: os.kill(os.getpid(), signal.SIGSTOP)  # pyright: ignore
    return reduce(timeout=2.0)


def timed(seconds: float) -> None:
    """Keeps every program of this rank from starting for so long, after all ranks have made it ready."""
    plain = MpiProgram.run

    def later(self: MpiProgram, inputs: Sequence[Sequence[Any]], tracer: Any = None) -> list[list[Any]]:
        time.sleep(seconds)
        return plain(self, inputs, tracer)

    MpiProgram.run = later


def slow() -> int:
    rank_failed.REPORT_SECONDS = 0.25
    if world().rank == 1:
        timed(1.5)
    return reduce()


def lost() -> int:
    if world().rank == 1:
        MpiProgram.run = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # pyright: ignore
    return reduce()


def threads() -> int:
    cores = len(os.sched_getaffinity(0))
    wanted = str(max(1, cores // world().size))
    return 0 if os.environ["OMP_NUM_THREADS"] == wanted and os.environ["OPENBLAS_NUM_THREADS"] == "7" else 1


def sleeps() -> int:
    world()
    os.write(1, f"{os.getpid()}\n".encode())  # in one piece
    time.sleep(60)
    return 0


CASES: dict[str, Callable[[], int]] = {
    f.__name__: f
    for f in (
        programs, orders, too_many, killed, one_fails, raises, sleeps, wrong_input,
        told, only_there, stopped, stopped_early, lost,
    )
}  # fmt: skip

if __name__ == "__main__":
    sys.exit(finish_rank(CASES[sys.argv[1]]))

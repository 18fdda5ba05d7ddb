"""Runs a LOCAL module on the ranks of an MPI job: one device per rank, or a block of devices on each.

The interpreter is the simulator's; only the fabric differs. Each collective starts without waiting and finishes where
its result is first needed. Ranks of one node exchange through shared memory, others through MPI; all ranks create the
windows and communicators before the run, in the same order. Members of a group get the same bits. Through shared memory
they are also those of the simulator: the reference code combines in group order. Between nodes MPI reduces what it can,
in its own order. A rank that fails reports to all others, which raise RankFailed wherever they wait (see
`ranks/watch`).

Needs mpi4py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir.checked_call import Duration, checked
from ..ir.deadlock.find import find_waits
from ..ir.diagnostics import fail, without_errors
from ..ir.graph.module import Module
from ..ir.tools.placement import placements
from ..ir.tools.process_grid import ProcessGrid
from ..ir.types.element_type import ElementType
from ..ir.types.literal import Array
from .fabric.ranks import RanksFabric
from .fabric.rehearsal import Fault, RehearsedFabric
from .global_arrays import join_outputs, packed_inputs, split_inputs, unpacked_outputs
from .plan.executable import Executable
from .plan.in_flight import in_flight
from .plan.interpreter import Observer
from .plan.kernels import NUMPY, KernelProvider
from .plan.repeated import repeated
from .ranks.blocks import devices_of, ranks_of
from .ranks.clock import clock_offset
from .ranks.failed import Communicator
from .ranks.library import load_mpi
from .ranks.mode import chosen_mode
from .ranks.watch import RankWatch
from .trace import ProcessTrace, Trace

Comm = Any  # mpi4py.MPI.Intracomm


class MpiProgram:
    """A LOCAL module compiled for a communicator. All its ranks must construct it, and close it or use `with`.

    `timeout` is how many seconds a rank waits for others at one collective; None takes HLOOM_TIMEOUT, or no limit.
    `within` is a watch that already covers these ranks, if there is one. `collectives` says how ranks of one node
    communicate: "shared" (through shared memory, an error without it), "mpi", or "auto" (through shared memory if there
    is enough); None takes HLOOM_COLLECTIVES, or else "auto". `executable` is the module compiled for other ranks, which
    are lost: it takes the place of compiling, by its own kernels.
    """

    def __init__(
        self,
        module: Module,
        comm: Comm,
        timeout: float | None = None,
        within: RankWatch | None = None,
        kernels: KernelProvider = NUMPY,
        collectives: str | None = None,
        executable: Executable | None = None,
    ) -> None:
        mode = chosen_mode(collectives)
        self.comm = comm
        self.module = module
        self.grid = ProcessGrid.of(module)
        self.parameters, self.results = placements(module)
        if comm.size > self.grid.size:
            fail(f"the program runs on {self.grid.size} devices, too few for {comm.size} ranks")
        if executable is None:
            without_errors(find_waits(module))
            executable = Executable(module, self.grid, kernels)
        self.executable = executable
        rank_of = ranks_of(comm.size, self.grid.size)
        self.devices = devices_of(comm.rank, comm.size, self.grid.size)
        self._busy = 0.0  # processor seconds of the last run, without waits
        self._rehearsed: RehearsedFabric | None = None
        self.watch = RankWatch(load_mpi(), comm, timeout, within)
        found, together = self.executable.compilation.collectives, in_flight(self.executable.plan)
        try:
            self.fabric = RanksFabric(load_mpi(), self.watch, rank_of, found, together, self._itemsize, mode)
        except Exception:  # on all ranks
            self.watch.stop()
            raise

    def run(self, inputs: Sequence[Sequence[Array]], tracer: Observer | None = None) -> list[list[Array]]:
        """Takes the local inputs of each of this rank's devices and returns their local results.

        Raises CompileError as the simulator does, and RankFailed if another rank fails or is missing.
        """
        try:
            return self.executable.run(self.devices, inputs, self._rehearsed or self.fabric, tracer=tracer)
        except Exception as error:
            self.watch.report(error)
            raise

    def rehearse(self, faults: Sequence[Fault]) -> None:
        """Makes later runs fail as the faults of this rank say."""
        own = [fault for fault in faults if fault.rank == self.comm.rank and not fault.is_write]
        self._rehearsed = RehearsedFabric(self.fabric, own) if own else None

    def local_inputs(self, inputs: Sequence[Array], poison: bool = False) -> list[list[Array]]:
        """Takes global arrays, one per leaf of the parameters; returns the arguments of `run` on this rank."""
        local = split_inputs(inputs, self.parameters, self.devices, self.grid, poison, self.executable.kernels)
        return packed_inputs(self.module, local)

    def run_global(self, inputs: Sequence[Array], poison: bool = False) -> list[Array] | None:
        """Takes global arrays on every rank; returns global results on rank 0, None on the others."""
        return self.repeat_global(inputs, 1, poison)[0]

    def repeat_global(
        self, inputs: Sequence[Array], times: int, poison: bool = False, tracer: Observer | None = None
    ) -> tuple[list[Array] | None, list[float]]:
        """Runs the program several times on the same inputs, as `run_global`. Also returns the seconds of each run from
        the moment when all ranks begin to the moment when all have finished. The tracer sees the last run.
        """
        local = self.local_inputs(inputs, poison)
        if times > 1:
            self.watch.barrier("the first run of the program")
        mine, seconds = repeated(lambda last: self._run_together(local, tracer if last else None), times)
        return self._gathered(mine), seconds

    def _run_together(self, local: list[list[Array]], tracer: Observer | None) -> list[list[Array]]:
        begin = self.watch.busy
        mine = self.run(local, tracer)
        self._busy = self.watch.busy - begin
        self.watch.barrier("the results of the program")
        return mine

    def traces(self, trace: Trace) -> list[ProcessTrace] | None:
        """Returns the traces of all ranks in the last run on rank 0, None on the others. All ranks must call it."""
        alone = self.comm.size == self.grid.size  # else other threads run further devices
        is_told = alone and len({host for host, _ in self.watch.peers}) == 1  # a network takes time of no processor
        busy = self._busy if is_told else None
        found = ProcessTrace(self.comm.rank, self._name(), trace, clock_offset(self.watch), busy)
        return self.comm.gather(found, root=0)

    def _name(self) -> str:
        first, last = self.devices[0], self.devices[-1]
        devices = f"device {first}" if first == last else f"devices {first} to {last}"
        return f"{self.watch.name(self.comm.rank)}: {devices}"

    def _gathered(self, mine: list[list[Array]]) -> list[Array] | None:
        gathered: list[list[list[Array]]] | None = self.comm.gather(mine, root=0)
        if gathered is None:
            return None
        per_device = unpacked_outputs(self.module, [device for rank in gathered for device in rank])
        return join_outputs(per_device, self.results, self.grid, self.executable.kernels)

    def _itemsize(self, element: ElementType) -> int:
        found = self.executable.kernels.numpy_type(element)
        return found.itemsize if found is not None else 0

    def close(self) -> None:
        """Frees communicators and shared memory; all ranks must call it."""
        self.watch.barrier("the end of the program")
        self.fabric.close()
        self.watch.close()

    def __enter__(self) -> MpiProgram:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        if error is None:
            self.close()
            return
        self.watch.report(error)  # the other ranks may never reach close()
        self.watch.stop()
        self.fabric.abandon()


@checked
def run(
    local_module: Module,
    inputs: Sequence[Any],
    comm: Communicator,
    timeout: Duration | None = None,
    kernels: KernelProvider = NUMPY,
    collectives: str | None = None,
) -> list[Any]:
    """Runs a LOCAL module on all ranks of `comm`: takes and returns local arrays.

    With one device per rank `inputs` and the result are lists of arrays, one per leaf of parameters and result. With
    fewer ranks than devices they are lists of such lists, one per device of this rank (see `ranks`). `timeout` is
    how many seconds a rank waits for others at one collective; None takes HLOOM_TIMEOUT, or no limit. `kernels`, the
    same on all ranks, computes the ops. `collectives` says how ranks of one node communicate (see `MpiProgram`).

    Raises CompileError if the program cannot be run or the inputs do not fit, RankFailed if another rank fails or does
    not respond, MpiMissing without mpi4py.
    """
    with MpiProgram(local_module, comm, timeout, kernels=kernels, collectives=collectives) as program:
        if comm.size == program.grid.size:
            return program.run([inputs])[0]
        return program.run(inputs)

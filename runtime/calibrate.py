"""Times small programs on this machine, from which a machine file is fitted.

A time is the least of several runs, since other processes only add to it. On ranks it is the median of theirs: all of
them must decide alike, and one that is slow for once should not decide for all. What ranks compute by themselves is
timed by processor time, times the ranks for each core where there are more ranks than cores: the least time of a short
program is that of a rank that happens to be alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from socket import gethostname
from typing import TYPE_CHECKING

import numpy as np

from ..ir.graph.module import Module
from ..ir.tools.process_grid import ProcessGrid
from ..ir.types.literal import Array
from .fabric.local import LocalFabric
from .mpi import MpiProgram
from .plan.executable import Executable
from .plan.kernels import NUMPY, KernelProvider
from .ranks.cores import core_count

if TYPE_CHECKING:
    from mpi4py.MPI import Comm


_LONGEST = 0.2  # seconds for one time, after the first run
_MOST = 1000  # runs for one time
_PAIRS = 40  # of executions whose difference is timed


class Timer:
    """Times programs on all ranks of `comm`, or in this process alone without one. `kernels` makes a provider for each
    program. By `processor`, where all ranks are on one host, programs that they run together count by processor time,
    too: computing and copying, without waits.
    """

    def __init__(self, comm: Comm | None = None, kernels: Callable[[], KernelProvider] = lambda: NUMPY) -> None:
        self.comm, self.kernels = comm, kernels
        here = 1 if comm is None else comm.allgather(gethostname()).count(gethostname())
        self.processor = comm is not None and here == comm.size > 1
        self.crowding = max(here / core_count(), 1.0)  # ranks of this host for each of its cores

    def run(self, module: Module) -> float:
        """Returns the seconds of one execution of a program of one device, which all ranks run by themselves."""
        executable = Executable(module, ProcessGrid.of(module), self.kernels())
        inputs = [_operands(module)]
        if self.comm is None:
            return self._timed(lambda: executable.run([0], inputs, LocalFabric()))
        return self._timed(lambda: executable.run([0], inputs, LocalFabric()), time.process_time) * self.crowding

    def runner(self, module: Module, inputs: Sequence[Array] | None = None) -> Callable[[], float]:
        """Returns a function that runs a program of one device once, on these inputs or on others, and returns
        its seconds of processor time, times the `crowding`. Other processes then only take their part of caches and
        memory.
        """
        executable = Executable(module, ProcessGrid.of(module), self.kernels())
        given, fabric = [_operands(module) if inputs is None else list(inputs)], LocalFabric()

        def run() -> float:
            start = time.process_time()
            executable.run([0], given, fabric)
            return (time.process_time() - start) * self.crowding

        run()
        return run

    def meet(self) -> None:
        """Waits for all ranks, so that they measure the same at the same time: they share caches and memory."""
        if self.comm is not None:
            self.comm.Barrier()

    def run_together(self, module: Module) -> float:
        """Returns the seconds of one execution of a program with a device per rank."""
        assert self.comm is not None
        with MpiProgram(module, self.comm, kernels=self.kernels()) as program:
            inputs = [_operands(module)]
            return self._together(program, lambda: program.run(inputs))

    def more_together(self, module: Module, alone: Module) -> float:
        """Times a program with a device per rank and one of one device in turns. Returns the median of the differences
        of their seconds of processor time, since the time of memory varies by more than that of collectives.
        """
        assert self.comm is not None
        run = self.runner(alone)
        with MpiProgram(module, self.comm, kernels=self.kernels()) as program:
            inputs = [_operands(module)]
            program.run(inputs)
            self.meet()
            found = list[float]()
            for _ in range(_PAIRS):
                begin = program.watch.busy
                program.run(inputs)
                found.append((program.watch.busy - begin) * self.crowding - run())
        return self.together(float(np.median(found)))

    def collective(self, module: Module) -> float:
        """Returns the seconds from the start to the end of the only collective of a program with a device per rank."""
        assert self.comm is not None
        with MpiProgram(module, self.comm, kernels=self.kernels()) as program:
            (collective,) = program.executable.compilation.collectives
            operands, devices, fabric = [_operands(module)], list(program.devices), program.fabric
            return self._together(program, lambda: fabric.wait(fabric.start(collective, devices, operands)))

    def _together(self, program: MpiProgram, step: Callable[[], object]) -> float:
        """Returns the least seconds of a step of all ranks. They begin it together where waits would count; else they
        take one after the other, as a program's.
        """
        if not self.processor:
            return self._timed(step, together=True)
        self.meet()
        return self._timed(step, lambda: program.watch.busy) * self.crowding

    def _timed(
        self, step: Callable[[], object], clock: Callable[[], float] = time.perf_counter, together: bool = False
    ) -> float:
        """Returns the least seconds of a step. Steps of several ranks begin together, and all ranks take as many. Times
        of zero do not count: the clock of a virtual machine stands still while another one has its core.
        """
        step()
        begun = self._once(step, clock, together)
        count = self.together(min(_MOST, max(3, _LONGEST / max(begun, 1e-6))))
        times = [begun, *(self._once(step, clock, together) for _ in range(int(count)))]
        return self.together(min(filter(None, times), default=0.0))

    def _once(self, step: Callable[[], object], clock: Callable[[], float], together: bool) -> float:
        if together:
            self.meet()
        start = clock()
        step()
        return clock() - start

    def typical(self, turns: Sequence[float]) -> float:
        """Returns the time that counts of several turns. Alone that is the least. Ranks of one host slow each other in
        all turns but those where one happens to have a core for itself, so it is the median of theirs.
        """
        is_alone = self.comm is None or self.comm.size == 1
        return min(turns) if is_alone else self.together(float(np.median(turns)))

    def together(self, value: float) -> float:
        """Returns the median of the values of all ranks."""
        return value if self.comm is None else float(np.median(self.comm.allgather(value)))


def _operands(module: Module) -> list[Array]:
    """Returns floats around a half, which differ as those of programs: numpy selects among equal ones twice as fast.
    Integers are zero.
    """
    shapes = [leaf for parameter in module.entry.parameters for leaf in parameter.shape.leaves()]
    numbers = np.random.default_rng(0)
    return [numbers.uniform(0.4, 0.6, shape.dims).astype(shape.element.numpy) for shape in shapes]

"""Plans programs and compares meshes for this machine or others: times are those that `hloom forecast` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..cost.machine import Machine
from ..ir.checked_call import Duration, NotNegative, Positive, checked
from ..ir.diagnostics import fail
from ..ir.graph.module import Module
from ..passes.planning.meshes import ALL
from ..passes.planning.plan import Plan, PlanSearch
from ..passes.planning.sweep import Sweep, Sweeping
from .native_clock import native_clock


@checked
def plan(
    module: Module, machine: Machine | str, *, mesh: Mapping[str, int] | str | None = None,
    devices: Positive | None = None, memory: NotNegative = 0, keep: Sequence[str] = (), seconds: Duration = 60.0,
    even: bool = False,
) -> Plan:
    """Returns the sharding of a GLOBAL module that takes the least time on a machine; the module is left as it is. On a
    machine that runs programs by native code, forecasts have the times of that.

    `mesh` gives the sizes of its axes, as a mapping or as text (`8x16`, `data=8,model=16`); `all` tries all meshes of
    two dimensions for this many `devices`. By default it is the mesh of the program, or one axis of all devices. The
    program takes at most `memory` bytes of a device (0: those of the machine). `keep` lists shardings of parameters
    that must stay: patterns (`w*`) of annotated ones, or settings (`batch=data,`). Planning takes about this many
    `seconds`, more if one forecast does. If `even`, parameters and results only have tiles of equal size, as `jax.jit`
    demands of arguments.

    Raises CompileError if there is no solver (`pip install 'hloom[plan]'`), for constraints that cannot be met, and if
    nothing fits into memory.
    """
    if isinstance(mesh, Mapping) and not mesh:
        fail("a mesh without axes has no devices to plan for", help='write mesh={"data": 8}')
    return PlanSearch(module, machine, memory, seconds, native_clock, even).run(mesh, devices, keep)


@checked
def sweep(
    module: Module, machines: Sequence[Machine | str], *, devices: Sequence[int] = (), meshes: str = "all",
    memory: NotNegative = 0, keep: Sequence[str] = (), best: NotNegative = 5, seconds: Duration = 60.0,
    even: bool = False,
) -> Sweep:
    """Compares meshes and machines for a GLOBAL module, which is left as it is. On machines that run programs by native
    code, forecasts have the times of that.

    `meshes` is `all`, every mesh of one or two axes of these `devices`, in both orders, or meshes as for `plan`, such
    as `8x16;x=4,y=32`. `keep` lists shardings of parameters that must stay, `memory` limits a device (0: as its machine
    does). The `best` ones get a forecast, at least the first, and others while there is time. It takes about this many
    `seconds`, more if a single forecast does. `even` is as for `plan`.

    Raises CompileError if there is no solver (`pip install 'hloom[plan]'`), for constraints that cannot be met, and if
    nothing fits into memory, and for `devices` beside meshes that are not `all`.
    """
    if devices and meshes != ALL:
        counts = ",".join(map(str, devices))
        fail(f"the meshes {meshes} have numbers of devices of their own, {counts} are asked for",
             help="leave one of both out")
    return Sweeping(module, machines, memory, keep, seconds, native_clock, even).run(meshes, devices, best)

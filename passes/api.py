"""The passes as functions on modules, for those who embed Hloom. The module given is left as it is."""

from __future__ import annotations

from collections.abc import Sequence

from ..cost.machine import DEFAULT, Machine
from ..cost.presets import as_machine
from ..ir.checked_call import Positive, checked
from ..ir.gc_pause import paused_collector
from ..ir.graph.module import Module, clone_module, lent
from ..ir.tools.verifier import check
from . import pipelines
from .base import Pass, PassContext, Rules, Verify, run_pipeline
from .op_sharding.forms import LocalForms
from .result import Partitioned
from .spmd.local_forms import local_forms


@checked
def verify(module: Module) -> None:
    """Checks all invariants of the module's stage. Raises CompileError with every violation."""
    check(module)


@checked
def propagate(module: Module, num_devices: Positive | None = None, rules: Rules | None = None) -> Module:
    """Returns a copy of a GLOBAL module in which every value has a sharding (stage SHARDED).

    `num_devices` is only needed for programs that name no mesh. `rules` gives built-in ops other sharding rules, by
    opcode, as text (`{"sort": "([b i]) -> [b i] permutation={i}"}`, used where it fits the shapes) or as functions from
    an `OpCall` to a `ShardingRule` or None. They steer propagation and restrict the partitioner. Raises
    CompileError, also if `num_devices` contradicts the meshes.
    """
    with paused_collector():
        return pipelines.propagate(lent(module), PassContext(num_devices=num_devices, rules=rules or {}), True)


@checked
def partition(
    module: Module, num_devices: Positive | None = None, *, rules: Rules | None = None,
    machine: Machine | str = DEFAULT, forms: LocalForms | None = None, passes: str | Sequence[Pass] | None = None,
    verify: Verify = "foreign",
) -> Partitioned:
    """Returns the program of each device (stage LOCAL) for a GLOBAL or SHARDED module; propagates first if necessary.

    The entry's parameters and root carry their shardings, `global_layout` their global shapes. The result has the
    remarks, the warnings and the certificate as well.

    `rules` are as for `propagate`. `machine` says how long things take, which decides how ops are divided and values
    resharded: a `Machine`, a preset (`tpu-v4`), or another text of `parse_machine`. `forms` are the local forms of ops,
    `local_forms()` with overrides. `passes` are run in place of `PIPELINE`, as text or one by one. `verify` says when
    the program is checked: after passes that are not Hloom's (`foreign`), after each pass, at the `end`, or never
    (`none`).

    Raises CompileError, also for passes that leave no LOCAL module, and InternalError for a pass that raises something
    else or leaves an invalid program: the message names the pass and its class.
    """
    context = PassContext(
        num_devices=num_devices, rules=rules or {}, machine=as_machine(machine), forms=forms or local_forms(),
        verify=verify,
    )
    with paused_collector():
        local = lent(module) if passes is None else clone_module(module)
        if passes is None:
            pipelines.partition(local, context, True)
        else:
            _run(passes, local, context)
            pipelines.require_local(local)
        return Partitioned.of(local, context)


@checked
def run_passes(module: Module, passes: str | Sequence[Pass], context: PassContext | None = None) -> Module:
    """Returns a copy of a module after passes: text (`synchronous,in-pieces{count=4}`), or passes one by one.

    `context` names the machine and the number of devices, and says when the program is checked. Remarks and warnings
    are then in `context.diagnostics.found`. Raises CompileError for unknown passes and options, for a broken order, for
    a module at a stage that a pass does not take, and for errors of the program; InternalError for a pass that raises
    something else or leaves an invalid program.
    """
    with paused_collector():
        changed = clone_module(module)
        _run(passes, changed, context or PassContext())
        return changed


def _run(passes: str | Sequence[Pass], module: Module, context: PassContext) -> None:
    from .named import steps_of  # all passes, which only named pipelines need

    run_pipeline(steps_of(passes), module, context)

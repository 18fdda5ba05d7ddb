"""Plans the sharding of a function of JAX, and gives it back as shardings that `jax.jit` takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..cost.machine import Machine
from ..frontends.extras import imported
from ..frontends.jax.lower import lower, read_lowered, trace
from ..ir.brief import brief
from ..ir.checked_call import checked
from ..ir.diagnostics import fail
from ..ir.graph.instruction import Instruction
from ..ir.sharding.sharding import Sharding
from ..ir.tools.spmd import parts
from ..passes.api import propagate
from ..passes.planning.plan import Plan, PlanSearch
from . import PURPOSE


@brief
@dataclass(frozen=True)
class JaxPlan:
    """The plan of a function of JAX. `plan` has the forecast, the alternatives and the annotated program. `in_specs`
    and `out_specs` are the `PartitionSpec`s of arguments and results, as trees of their structure.
    """

    plan: Plan
    in_specs: Any = field(repr=False)
    out_specs: Any = field(repr=False)

    def mesh(self, devices: Sequence[Any] | None = None) -> Any:
        """Returns the plan's mesh of these devices of JAX, by default of the first ones that there are."""
        jax, numpy = imported("jax", PURPOSE), imported("numpy", PURPOSE)
        axes = dict(self.plan.mesh.axes)
        count, known = self.plan.mesh.size, jax.devices() if devices is None else devices
        if len(known) < count:
            fail(f"the plan is for {count} devices, JAX has {len(known)}")
        return jax.sharding.Mesh(numpy.array(known[:count]).reshape(tuple(axes.values())), tuple(axes))

    def shardings(self, mesh: Any = None) -> tuple[Any, Any]:
        """Returns the `in_shardings` and `out_shardings` for `jax.jit` on a mesh, by default that of JAX's devices."""
        jax = imported("jax", PURPOSE)
        mesh = self.mesh() if mesh is None else mesh
        spec = jax.sharding.PartitionSpec

        def is_spec(value: Any) -> bool:
            return isinstance(value, spec)

        def named(one: Any) -> Any:
            return jax.sharding.NamedSharding(mesh, one)

        ends = (jax.tree.map(named, tree, is_leaf=is_spec) for tree in (self.in_specs, self.out_specs))
        return next(ends), next(ends)


@checked
def plan(
    function: Any, *args: Any, machine: Machine | str, mesh: Mapping[str, int] | str | None = None,
    devices: int | None = None, memory: int = 0, keep: Sequence[str] = (), seconds: float = 60.0, **jit_options: Any,
) -> JaxPlan:
    """Returns the plan of a function of JAX for these arguments, arrays or `jax.ShapeDtypeStruct`s.

    Arguments and results only have even tiles, since `jax.jit` takes no others; values inside may have others.
    `jit_options` are those of `jax.jit`, such as `donate_argnums`, for a function that is not jitted yet; all others
    are as for `hloom.plan`. Static arguments have no specs, as in `in_shardings`. Raises CompileError as `hloom.plan`
    does, and for a jitted function with unused arguments.
    """
    jax = imported("jax", PURPOSE)
    traced = trace(function, args, jit_options)
    module = read_lowered(lower(traced), function)
    found = PlanSearch(module, machine, memory, seconds, even=True).run(mesh, devices, keep)
    planned = found.module.entry
    if any(value.annotation is None for value in (*planned.parameters, planned.root)):  # by hand, or as the user has it
        planned = propagate(found.module, found.mesh.size).entry
    given, parameters = traced.args_info[0], planned.parameters  # static arguments are not among them
    count = len(jax.tree.leaves(given))
    if count != len(parameters):
        fail(f"the program has {len(parameters)} arguments, {count} are given",
             help="jit the function with keep_unused=True")
    return JaxPlan(found, _specs(jax, parameters, given), _specs(jax, [planned.root], traced.out_info))


def _specs(jax: Any, values: Sequence[Instruction], told: Any) -> Any:
    """Returns the specs of values as the tree in which JAX tells their shapes."""
    leaves, structure = jax.tree.flatten(told)
    shardings = [sharding for value in values for sharding in parts(value.annotation)]
    spec = jax.sharding.PartitionSpec
    return jax.tree.unflatten(structure, [_spec(spec, *pair) for pair in zip(shardings, leaves, strict=True)])


def _spec(spec: Any, sharding: Sharding, told: Any) -> Any:
    """Returns the spec of a value. A random key is an array of words in the program; to JAX these are no dimension."""
    dims = [tuple(ref.name for ref in dim.axes) for dim in sharding.dims[: len(told.shape)]]
    return spec(*(None if not names else names[0] if len(names) == 1 else names for names in dims))

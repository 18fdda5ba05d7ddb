"""Training steps that are pipelines: one stage function and a schedule give a program for all stages.

The program is a scan over ticks under `shard_map`. At each tick a stage gets what its neighbours sent, does the pass
that the schedule's table names, and sends its result on: two collective-permutes per tick. Backward passes compute
their stage again from its input, which is all that is kept (full rematerialisation).
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..frontends.extras import imported
from ..frontends.pipelines.schedule import PipelineSchedule
from ..frontends.pipelines.ticks import tick_table
from ..ir.checked_call import checked

PURPOSE = "to build pipelines"

Stage = Callable[[Any, Any], Any]
Loss = Callable[[Any, Any], Any]


@checked
def pipeline(
    stage: Stage, loss: Loss, schedule: PipelineSchedule, mesh: Any, axis: str = "stage"
) -> Callable[[Any, Any, Any], tuple[Any, Any]]:
    """Returns a function of weights, inputs and targets that gives the mean loss of micro-batches and its gradients.

    `stage(w, x)` computes one group of layers; its result has the shape and type of x. `loss(y, target)` is the scalar
    of one micro-batch. Weights are a tree of arrays [parts, stages, ..], groups of layers in their order; inputs and
    targets are [micro-batches, ..]. Stages lie along `axis` of `mesh`; other axes stay with the partitioner.

    Raises ValueError for a mesh with another number of stages, and for arrays with other first dimensions.
    """
    jax: Any = imported("jax", PURPOSE)
    if mesh.shape.get(axis) != schedule.stages:
        raise ValueError(f"the mesh has {mesh.shape.get(axis, 'no')} devices along {axis!r}, not {schedule.stages}")
    spec = jax.sharding.PartitionSpec
    on_stages = jax.shard_map(
        _Program(stage, loss, schedule, axis).step, mesh=mesh, in_specs=(spec(None, axis), spec(), spec()),
        out_specs=(spec(), spec(None, axis)), axis_names={axis}, check_vma=False,
    )  # fmt: skip

    def step(weights: Any, inputs: Any, targets: Any) -> tuple[Any, Any]:
        _require(jax.tree.leaves(weights), (schedule.parts, schedule.stages), "weights")
        _require(jax.tree.leaves((inputs, targets)), (schedule.microbatches,), "inputs and targets")
        return on_stages(weights, inputs, targets)

    return step


def _require(leaves: Sequence[Any], first: tuple[int, ...], what: str) -> None:
    for leaf in leaves:
        if leaf.shape[: len(first)] != first:
            sizes = ", ".join(map(str, first))
            raise ValueError(f"{what} of this pipeline are arrays [{sizes}, ..], not {list(leaf.shape)}")


class _Program:
    """The program of one stage."""

    def __init__(self, stage: Stage, loss: Loss, schedule: PipelineSchedule, axis: str) -> None:
        self.jax: Any = imported("jax", PURPOSE)
        self.stage, self.loss, self.axis = stage, loss, axis
        self.count, self.stages = schedule.microbatches, schedule.stages
        self.table = tick_table(schedule)

    def step(self, weights: Any, inputs: Any, targets: Any) -> tuple[Any, Any]:
        """Takes the weights [parts, 1, ..] of a stage, all inputs and all targets."""
        jax, jnp = self.jax, self.jax.numpy
        weights = jax.tree.map(lambda w: w[:, 0], weights)
        one = jnp.zeros_like(inputs[0])
        slots = tuple(jnp.zeros((n + 1, *one.shape), one.dtype) for n in (self.table.inputs, self.table.gradients))
        sums = jax.tree.map(jnp.zeros_like, weights)
        place = jax.lax.axis_index(self.axis)
        rows = {name: jnp.asarray(values)[:, place] for name, values in self.table.rows.items()}

        def tick(state: Any, row: Any) -> tuple[Any, None]:
            (held, waiting), (y, dy), sums, total = state
            held = held.at[row["input_arrives"]].set(self._sent(y, 1))
            waiting = waiting.at[row["gradient_arrives"]].set(self._sent(dy, -1))
            own = jax.tree.map(lambda w: w[row["part"]], weights)
            x = jnp.where(row["is_first"], inputs[row["microbatch"]], held[row["input"]])
            target = jax.tree.map(lambda t: t[row["microbatch"]], targets)
            actions = [self._action(name) for name in self.table.actions]
            taken = (own, x, waiting[row["gradient"]], target, jnp.zeros_like(total))
            y, dy, change, value = jax.lax.switch(row["action"], actions, taken)
            sums = jax.tree.map(lambda s, c: s.at[row["part"]].add(c), sums, change)
            return ((held, waiting), (y, dy), sums, total + value), None

        state = (slots, (one, one), sums, jnp.zeros((), self._loss_type(weights, inputs, targets)))
        (_, _, sums, total), _ = jax.lax.scan(tick, state, rows)
        gradients = jax.tree.map(lambda s: (s / self.count)[:, None], sums)
        return jax.lax.psum(total, self.axis) / self.count, gradients

    def _sent(self, value: Any, step: int) -> Any:
        pairs = [(s, (s + step) % self.stages) for s in range(self.stages)]
        return self.jax.lax.ppermute(value, self.axis, pairs)

    def _loss_type(self, weights: Any, inputs: Any, targets: Any) -> Any:
        def one(w: Any, x: Any, t: Any) -> Any:
            x, t = self.jax.tree.map(lambda leaf: leaf[0], (x, t))
            return self.loss(self.stage(self.jax.tree.map(lambda leaf: leaf[0], w), x), t)

        return self.jax.eval_shape(one, weights, inputs, targets).dtype

    def _action(self, name: str) -> Callable[[Any], Any]:
        """Returns a function for a pass: it gives a result forward and backward, gradients of weights, and a loss."""
        jax, jnp = self.jax, self.jax.numpy
        kind, is_last = name.split()[0], name.endswith("last")
        apart = any(other.startswith("W") for other in self.table.actions)

        def action(taken: Any) -> Any:
            own, x, gradient, target, value = taken
            y = dy = jnp.zeros_like(x)
            change = jax.tree.map(jnp.zeros_like, own)
            if kind == "F":
                y = self.stage(own, x)
            elif kind in "BW":
                wanted = ("own", "x") if not apart else ("x",) if kind == "B" else ("own",)
                given = {"own": own, "x": x}

                def forward(moved: dict[str, Any]) -> Any:
                    now = given | moved
                    result = self.stage(now["own"], now["x"])
                    return self.loss(result, target) if is_last else result

                result, pull = jax.vjp(forward, {n: given[n] for n in wanted})
                (found,) = pull(jnp.ones_like(result) if is_last else gradient)
                dy, change = found.get("x", dy), found.get("own", change)
                value = result if is_last and kind == "B" else value
            return y, dy, change, value

        return action

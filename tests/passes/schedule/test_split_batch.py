"""A step in parts of its batch: the numbers of the whole batch, in less time where parts hide each other's messages."""

from __future__ import annotations

from typing import Any

import hloom
import hloom.jax
import numpy as np
import pytest
from hloom.codegen import replica_module
from hloom.cost.presets import parse_machine
from hloom.cost.timeline import timeline
from hloom.ir.graph.module import Module, clone_module
from hloom.passes.base import PassContext, run_pass
from hloom.passes.pipelines import partition
from hloom.passes.schedule.fastest import Fastest
from hloom.passes.schedule.split_batch import SplitBatch
from hloom.passes.scheduling import schedule
from hloom.runtime.inputs.inputs import inputs_for_module
from hloom.runtime.proof.prove import prove
from hloom.runtime.simulator import simulate
from hypothesis import given, settings
from hypothesis import strategies as st
from programs.random.generate import programs
from support.compare import compare
from support.layered_programs import Model
from support.partition_check import partitioned
from support.rewrites import differences
from support.xla_runner import compile_text


def in_parts(local: Module, count: int = 2, least: float = 0.6) -> tuple[Module, str]:
    """Returns the program in parts and the remark."""
    module, context = clone_module(local), PassContext(verify="each")
    changed = run_pass(SplitBatch(count, least), module, context)
    (remark,) = context.diagnostics.found
    assert changed == ("in" in remark.message and "stays whole" not in remark.message)
    return module, remark.message


def check(text: str, count: int = 2) -> str:
    """Checks a program in parts, as it is printed, by numbers and by a proof. Returns its text."""
    whole = hloom.parse(text)
    local = partition(hloom.parse(text))
    module, remark = in_parts(local, count)
    assert "100% of the products" in remark
    inputs = inputs_for_module(whole)
    assert compare(simulate(hloom.parse(module.to_text()), inputs), simulate(local, inputs)).equal
    assert prove(whole, module).is_equal
    return module.to_text()


@pytest.mark.parametrize("loop", [False, True], ids=["unrolled", "loops"])
@pytest.mark.parametrize("kind", ["dp", "fsdp", "tp", "both"])
def test_training_steps(kind: str, loop: bool) -> None:
    """Products are made per part, sums of gradients once; in loops the state holds the parts."""
    data, model = (2, 2) if kind in ("tp", "both") else (4, 1)
    text = check(Model(kind=kind, data=data, model=model, loop=loop, layers=2).text())
    assert text.count(f"f32[{8 // data // 2},8]") > text.count(f"f32[{8 // data},8]")


@pytest.mark.parametrize(("batch", "count"), [(10, 2), (14, 3), (16, 8)])
def test_parts_may_be_uneven(batch: int, count: int) -> None:
    check(Model(kind="both", data=2, model=2, batch=batch, layers=2).text(), count)


@settings(max_examples=4, deadline=None, derandomize=True)
@given(st.data(), st.sampled_from(["dp", "fsdp", "tp", "both"]))
def test_random_models(data: st.DataObject, kind: str) -> None:
    model = Model.random(lambda low, high: data.draw(st.integers(low, high)), kind)
    whole = hloom.parse(model.text())
    local = partition(hloom.parse(model.text()))
    module, _ = in_parts(local)
    inputs = inputs_for_module(whole)
    assert compare(simulate(module, inputs), simulate(local, inputs)).equal


@settings(max_examples=20, deadline=None, derandomize=True)
@given(programs())
def test_random_programs(module: Module) -> None:
    """Any dimension of any input counts as the batch."""
    local = partitioned(module)
    parts, _ = in_parts(local, least=0.0)
    inputs = inputs_for_module(module)
    assert compare(simulate(hloom.parse(parts.to_text()), inputs), simulate(local, inputs)).equal


STEP = """HloModule m, num_partitions=2, frontend_attributes={hloom.stage="local"}
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
max { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] maximum(a, b) }
ENTRY e {
  x = f32[6,8] parameter(0)
  w = f32[8,4] parameter(1)
  zero = f32[] constant(0)
  h = f32[6,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  r = f32[6,4] all-reduce(h), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add
  BODY
  g = f32[8,4] dot(x, r), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  v = f32[8,4] subtract(w, g)
  ROOT n = (f32[8,4], RESULT) tuple(v, b)
}
"""
BODIES = {
    "loss": ("f32[]", "s = f32[] reduce(r, zero), dimensions={0,1}, to_apply=add\n k = f32[] constant(24)\n"
             "b = f32[] divide(s, k)", ""),
    "max": ("f32[4]", "low = f32[] constant(-inf)\n b = f32[4] reduce(r, low), dimensions={0}, to_apply=max", ""),
    "no identity": ("f32[4]", "one = f32[] constant(1)\n b = f32[4] reduce(r, one), dimensions={0}, to_apply=add",
                    "whole"),
    "mean": ("f32[6,4]", "s = f32[4] reduce(r, zero), dimensions={0}, to_apply=add\n"
             "m = f32[6,4] broadcast(s), dimensions={1}\n b = f32[6,4] subtract(r, m)", ""),
    "order": ("f32[6,4]", "b = f32[6,4] reverse(r), dimensions={0}", "whole"),
    "scatter": ("f32[9,4]", "z = f32[9,4] broadcast(zero), dimensions={}\n"
                "i = s32[6,1] constant({{3},{1},{3},{8},{0},{9}})\n"
                "b = f32[9,4] scatter(z, i, r), to_apply=add, update_window_dims={1}, inserted_window_dims={0}, "
                "scatter_dims_to_operand_dims={0}, index_vector_dim=1", ""),
    "update": ("f32[6,4]", "u = f32[2,4] slice(r), slice={[0:2], [0:4]}\n three = s32[] constant(3)\n"
               "nil = s32[] constant(0)\n b = f32[6,4] dynamic-update-slice(r, u, three, nil)", "whole"),
    "rows": ("f32[2,6,4]", "u = f32[1,6,4] reshape(r)\n nil = s32[] constant(0)\n"
             "z = f32[2,6,4] broadcast(zero), dimensions={}\n b = f32[2,6,4] dynamic-update-slice(z, u, nil, nil, nil)",
             ""),
    "flat": ("f32[24]", "f = f32[24] reshape(r)\n b = f32[24] tanh(f)", ""),
    "barrier": ("f32[6,4]", "t = (f32[6,4], f32[8,4]) tuple(r, w)\n o = (f32[6,4], f32[8,4]) opt-barrier(t)\n"
                "o0 = f32[6,4] get-tuple-element(o), index=0\n o1 = f32[8,4] get-tuple-element(o), index=1\n"
                "d = f32[6,8] dot(o0, o1), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n"
                "b = f32[6,4] dot(d, o1), lhs_contracting_dims={1}, rhs_contracting_dims={0}", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_what_combines_rows(name: str) -> None:
    """Sums are those of all parts; what needs all rows at once gets them joined."""
    shape, body, needs = BODIES[name]
    text = STEP.replace("BODY", body).replace("RESULT", shape)
    module, remark = in_parts(hloom.parse(text))
    assert ("as a whole" in remark) == bool(needs)
    assert differences(text, module) == ""


def test_why_a_batch_stays_whole() -> None:
    local = partition(hloom.parse(Model(kind="dp", data=4, batch=4).text()))
    assert "no product" in in_parts(local)[1]
    local = partition(hloom.parse(Model(kind="dp", data=4, batch=8).text()))
    assert "dimension 0 of x has too few rows on a device: 2" in in_parts(local, 3)[1]
    half = STEP.replace("BODY", "b = f32[6,4] reverse(r), dimensions={0}").replace("RESULT", "f32[6,4]")
    assert "of the products wait for no other part" in in_parts(hloom.parse(half), least=1.1)[1]
    idle = """HloModule m, num_partitions=2, frontend_attributes={hloom.stage="local"}
ENTRY e { x = f32[6,8] parameter(0)  ROOT y = f32[6,8] add(x, x) }"""
    assert "no product reads an input" in in_parts(hloom.parse(idle))[1]


@pytest.mark.parametrize("kind", ["max", "add"])
def test_windows_that_are_pooled(kind: str) -> None:
    """The gradients of a convolution, of pooled windows and of a product. A proof only tests a maximum."""
    jax = pytest.importorskip("jax")
    jnp, lax = jax.numpy, jax.lax

    def loss(weights: Any, x: Any) -> Any:
        kernel, last = weights
        x = lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = lax.reduce_window(x, -jnp.inf if kind == "max" else 0.0, getattr(lax, kind), (1, 3, 3, 1), (1, 2, 2, 1),
                              "SAME")  # fmt: skip
        return ((x.reshape(x.shape[0], -1) @ last) ** 2).sum()

    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")[:2]), ("data",))
    whole, by_data = (jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes)) for axes in ((), ("data",)))
    kernel, last, x = (jax.ShapeDtypeStruct(dims, jnp.float32, sharding=sharding) for dims, sharding in
                       (((3, 3, 2, 4), whole), ((64, 8), whole), ((8, 8, 8, 2), by_data)))  # fmt: skip
    program = hloom.jax.from_jax(jax.grad(loss), (kernel, last), x)
    local = partition(clone_module(program))
    module, remark = in_parts(local)
    assert "100% of the products" in remark
    windows = [sum(i.opcode in ("reduce-window", "select-and-scatter") for i in m.entry) for m in (local, module)]
    assert windows[1] == 2 * windows[0] > 0
    inputs = inputs_for_module(program)
    assert compare(simulate(hloom.parse(module.to_text()), inputs), simulate(local, inputs)).equal
    assert prove(program, module).outcome == ("equal" if kind == "add" else "agrees")


def test_schedules_say_both_times() -> None:
    """And keep the parts where these take less time."""
    context = PassContext(machine=parse_machine("tpu-v4"))
    model = Model(layers=2, batch=8192, width=8192, hidden=28672, data=1, model=8, kind="tp", loop=False)
    local = partition(hloom.parse(model.text()), context)
    whole, parts = clone_module(local), clone_module(local)
    schedule(whole, context)
    context.diagnostics.found.clear()
    schedule(parts, context, split=2)
    before, after = timeline(whole, context.machine), timeline(parts, context.machine)
    assert after.seconds < 0.97 * before.seconds
    assert after.exposed < 0.5 * before.exposed
    messages = [d.message for d in context.diagnostics.found]
    assert any("in parts" in m and "at once" in m for m in messages)


def independent(module: Module) -> tuple[int, int]:
    """The collectives of a program beside which some product can run, and all of them."""
    reached = {i: {i} for i in module.entry}
    for i in module.entry:
        for operand in i.operands:
            reached[i] |= reached[operand]
    dots = [i for i in module.entry if i.opcode == "dot"]
    sums = [i for i in module.entry if i.op.is_collective]
    return sum(any(d not in reached[s] and s not in reached[d] for d in dots) for s in sums), len(sums)


def test_xla_keeps_parts_apart() -> None:
    """XLA for CPUs compiles the sums of each part with products of the other beside them, but for its combiner: that
    joins the sums of both parts where neither waits for the other.
    """
    context = PassContext(machine=parse_machine("work=f32:1G;memory=10GB", "1ns/100MB"))
    model = Model(kind="tp", data=1, model=4, batch=64, width=16, hidden=32, loop=False, layers=2)
    local = partition(hloom.parse(model.text()), context)
    assert independent(local) == (1, 3)  # the sum beside which the gradients of the last layer's weights run
    run_pass(SplitBatch(), local, context)
    schedule(local, context, fastest=Fastest(pieces=None))
    assert independent(local) == (6, 6)
    text, found = replica_module(local).to_text(), list[tuple[int, int]]()
    for without in ("", "cpu-all-reduce-combiner"):
        compiled = compile_text(text, replicas=4, without=without).loaded.hlo_modules()[0].to_string()
        found.append(independent(hloom.parse(compiled)))
    assert found[1] == (6, 6)
    assert found[0][1] < 6


def test_xla_for_cpus_has_no_pairs() -> None:
    """It takes a start and its done for one collective, whose attribute alone still says that it could be two."""
    text = """HloModule m, replica_count=2
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY e { x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  s = f32[8] all-reduce-start(x), replica_groups={{0,1}}, to_apply=add
  z = f32[8] multiply(y, y)
  d = f32[8] all-reduce-done(s)
  ROOT r = f32[8] add(d, z) }"""
    module = hloom.parse(compile_text(text, replicas=2).loaded.hlo_modules()[0].to_string())
    (only,) = [i for i in module.entry if i.op.is_collective]
    assert only.opcode == "all-reduce"
    assert "async_collective_name" in only.frontend_attributes

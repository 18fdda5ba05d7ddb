"""Tables of native steps: the numbers of the reference, run after run, whatever stands between the tables."""

from __future__ import annotations

from typing import Any

import hloom
import numpy as np
import pytest
from hloom.codegen.native.products.blas import Blas
from hloom.driver.backend import Backend
from hloom.ir.tools.process_grid import ProcessGrid
from hloom.runtime.evaluator import UnpartitionedProgram
from hloom.runtime.fabric.local import LocalFabric
from hloom.runtime.inputs.inputs import make_inputs
from hloom.runtime.native import workers
from hloom.runtime.native.kernels import NativeKernels
from hloom.runtime.native.table import GuardedStep, TableStep, pieces
from hloom.runtime.plan.executable import Executable
from hloom.runtime.simulator import SimulatedProgram
from support.calls import calls
from support.command_line import EXAMPLES
from support.compare import compare
from support.loop_kernels import needs_llvm

Array = np.ndarray[Any, Any]
pytestmark = needs_llvm

HEAD = """HloModule m
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a,b) }
body {
  s = (s32[], f32[8,4], f32[4,4]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  x = f32[8,4] get-tuple-element(s), index=1
  w = f32[4,4] get-tuple-element(s), index=2
  one = s32[] constant(1)
  m = s32[] add(n, one)
  t = f32[4,8] transpose(x), dimensions={1,0}
  e = f32[4,8] tanh(t)
  y = f32[8,4] dot(e, w), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  z = f32[8,4] add(y, x)
  ROOT r = (s32[], f32[8,4], f32[4,4]) tuple(m, z, w)
}
more {
  s = (s32[], f32[8,4], f32[4,4]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  five = s32[] constant(5)
  ROOT c = pred[] compare(n, five), direction=LT
}
less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a,b), direction=LT }
left { a = f32[8,4] parameter(0) ROOT r = f32[8,4] negate(a) }
right { a = f32[8,4] parameter(0) ROOT r = f32[8,4] reverse(a), dimensions={0} }
"""
PROGRAMS = {
    "loop": """ENTRY e {
  x = f32[8,4] parameter(0)
  w = f32[4,4] parameter(1)
  d = f32[4,4] add(w, w)
  zero = s32[] constant(0)
  h = f32[8,4] multiply(x, x)
  s = (s32[], f32[8,4], f32[4,4]) tuple(zero, h, d)
  l = (s32[], f32[8,4], f32[4,4]) while(s), condition=more, body=body
  y = f32[8,4] get-tuple-element(l), index=1
  v = f32[4,4] get-tuple-element(l), index=2
  z = f32[8,4] add(y, h)
  ROOT r = (f32[8,4], f32[4,4], f32[8,4]) tuple(z, v, h)
}""",
    "branches": """ENTRY e {
  x = f32[8,4] parameter(0)
  w = f32[4,4] parameter(1)
  zero = f32[] constant(0)
  h = f32[8,4] multiply(x, x)
  t = f32[] reduce(w, zero), dimensions={0,1}, to_apply=add
  p = pred[] compare(t, zero), direction=GT
  c = f32[8,4] conditional(p, h, h), true_computation=left, false_computation=right
  ROOT z = f32[8,4] subtract(c, h)
}""",
    "turned products": """ENTRY e {
  x = f32[8,4] parameter(0)
  w = f32[4,4] parameter(1)
  p = f32[8,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[4,8] transpose(p), dimensions={1,0}
  q = f32[8,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  u = f32[4,8] transpose(q), dimensions={1,0}
  d = f32[4,8] add(t, u)
  k = f32[8,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  v = f32[4,8] transpose(k), dimensions={1,0}
  r = f32[8,4] triangular-solve(w, k), left_side=false, lower=true, transpose_a=NO_TRANSPOSE
  z = f32[8,4] dot(r, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  y = f32[4,8] transpose(z), dimensions={1,0}
  ROOT o = (f32[4,8], f32[4,8], f32[4,8], f32[8,4]) tuple(d, v, y, r)
}""",
    "views of what others read last": """ENTRY e {
  x = f32[8,4] parameter(0)
  w = f32[4,4] parameter(1)
  d = f32[8,4] add(x, x)
  v = f32[32] reshape(d)
  u = f32[32] reshape(x)
  a = f32[8,4] reverse(d), dimensions={0}
  s = f32[8,4] sort(d), dimensions={0}, to_apply=less
  t = f32[8,4] sort(x), dimensions={0}, to_apply=less
  zero = s32[] constant(0)
  k = f32[8,4] dynamic-update-slice(s, w, zero, zero)
  b = f32[32] add(u, v)
  c = f32[8,4] add(k, t)
  ROOT o = (f32[32], f32[8,4], f32[8,4]) tuple(b, c, a)
}""",
    "numpy's scalars": """ENTRY e {
  x = f32[8,4] parameter(0)
  w = f32[4,4] parameter(1)
  at = s32[2] constant({1, 3})
  g = f32[] gather(x, at), offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={1,0}, index_vector_dim=0,
    slice_sizes={1,1}
  n = f32[] negate(g)
  d = f32[4,4] dot(g, w), lhs_contracting_dims={}, rhs_contracting_dims={}
  r = f32[8,4] reverse(x), dimensions={0}
  ROOT o = (f32[], f32[4,4], f32[8,4]) tuple(n, d, r)
}""",
    "numpy between": """ENTRY e {
  x = f32[8,4] parameter(0)
  w = f32[4,4] parameter(1)
  h = f32[8,4] multiply(x, x)
  r = f32[8,4] reverse(h), dimensions={0}
  q = f32[4,4] triangular-solve(w, w), left_side=true, lower=true, transpose_a=NO_TRANSPOSE
  s = f32[4,4] slice(h), slice={[2:6],[0:4]}
  v = f32[16] reshape(s)
  u = f32[16] exponential(v)
  k = f32[4,4] reshape(u)
  a = f32[4,4] add(k, q)
  b = f32[8,4] add(r, h)
  ROOT o = (f32[4,4], f32[8,4], f32[16], f32[4,4]) tuple(a, b, v, s)
}""",
}


def inputs_of(seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    w = np.eye(4, dtype=np.float32) + 0.1 * rng.standard_normal((4, 4), np.float32)
    return [rng.standard_normal((8, 4), np.float32), w]


@pytest.mark.parametrize("name", PROGRAMS)
def test_later_runs_leave_earlier_results_alone(name: str) -> None:
    module = hloom.parse(HEAD + PROGRAMS[name])
    program = UnpartitionedProgram(Backend("native").prepared(module), NativeKernels())
    steps = program.executable.arranged.steps
    assert any(isinstance(step, TableStep) and step.entries for step in steps)
    assert any(isinstance(step, GuardedStep) for step in steps) or name == "loop"
    found = [program.run(inputs_of(seed)) for seed in range(3)]
    for seed, outputs in enumerate(found):
        same = compare(outputs, hloom.evaluate(module, inputs_of(seed)))
        assert same.equal, f"{same}"


@pytest.mark.parametrize(
    "name", ["mlp_train", pytest.param("transformer_train", marks=pytest.mark.slow), "transformer_scan_train"]
)
def test_stale_arenas_do_not_matter(name: str) -> None:
    module = hloom.parse((EXAMPLES / f"{name}.hlo").read_text())
    local = hloom.partition(module).module
    inputs = make_inputs([p.shape for p in module.entry.parameters])
    program = SimulatedProgram(Backend("native").prepared(local), NativeKernels())
    first = program.simulate(inputs).outputs
    copies = [x.copy() for x in first]
    for kept in program.executable.spare:
        for blocks in kept.values():
            for block in blocks.values():
                block.memory[:] = 0xFF
    again = program.simulate(inputs).outputs
    for one, other, copy in zip(first, again, copies, strict=True):
        assert one.tobytes() == copy.tobytes() == other.tobytes()


LARGE = """HloModule m, num_partitions=4
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[1024,256] parameter(0), sharding={devices=[4,1]<=[4]}
  w = f32[256,256] parameter(1), sharding={replicated}
  y = f32[1024,256] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[1024,256] tanh(y)
  zero = f32[] constant(0)
  s = f32[1024] reduce(t, zero), dimensions={1}, to_apply=add
  b = f32[1024,256] broadcast(s), dimensions={0}
  d = f32[1024,256] divide(t, b)
  g = f32[256,256] dot(x, d), lhs_contracting_dims={0}, rhs_contracting_dims={0}, sharding={replicated}
  ROOT r = (f32[1024,256], f32[256,256]) tuple(d, g)
}"""


@pytest.mark.skipif(workers.core_count() < 2, reason="needs two cores")
def test_devices_on_threads_give_the_same_bits() -> None:
    """The tables touch more memory than starting threads is worth; one device alone has no threads."""
    module = hloom.parse(LARGE)
    inputs = make_inputs([p.shape for p in module.entry.parameters])
    local = Backend("native").prepared(hloom.partition(module).module)
    program = SimulatedProgram(local, NativeKernels())
    by_numpy = SimulatedProgram(local).simulate(inputs).outputs
    with calls(Blas.single_threaded) as started:
        first, *others = ([x.tobytes() for x in program.simulate(inputs).outputs] for _ in range(3))
    assert started
    assert others == [first, first]
    for one, other in zip(by_numpy, program.simulate(inputs).outputs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-2)


def test_observers_see_every_step() -> None:
    module = hloom.parse(HEAD + PROGRAMS["branches"])
    program = UnpartitionedProgram(module, NativeKernels())
    seen: list[str] = []

    class Observer:
        def begin(self, plan: Any, frames: Any) -> None: ...

        def after(self, plan: Any, step: Any, frames: Any) -> None:
            seen.append(step.instruction.name)

    program.run(inputs_of(0), Observer())
    assert {"h", "t", "p", "z"} <= set(seen)


def test_pieces_have_enough_work() -> None:
    size = 1 << 19
    assert pieces([]) == []
    assert pieces([1, 1]) == [(0, 2)]
    assert pieces([size, size, 4 * size, 1, size]) == [(0, 2), (2, 3), (3, 5)]


class Waiting(LocalFabric):
    """A fabric with messages in flight."""

    needs_progress = True
    asked = 0

    def progress(self) -> None:
        self.asked += 1


def test_messages_in_flight_go_on_between_pieces() -> None:
    ops = "\n".join(f"  y{n + 1} = f32[512,512] dot(y{n}, y0), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
                    for n in range(6))  # fmt: skip
    text = f"HloModule m\nENTRY e {{\n  y0 = f32[512,512] parameter(0)\n{ops}\n  ROOT r = f32[512,512] copy(y6)\n}}"
    x = np.eye(512, dtype=np.float32)
    module, fabric = hloom.parse(text), Waiting()
    executable = Executable(module, ProcessGrid.of(module), NativeKernels())
    ((found,),) = executable.run(range(1), [[x]], fabric)
    np.testing.assert_array_equal(found, x)
    assert fabric.asked >= 6  # one table of products, each of more than a piece's work

"""Updates of slices in tables: arrays are changed in place where nobody can see it, and copied elsewhere."""

from __future__ import annotations

from typing import Any

import hloom
import numpy as np
import pytest
from hloom.codegen.native.put import put_code, start_indices
from hloom.codegen.native.work.times import NativeCounts
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.module import Module
from hloom.runtime.evaluator import UnpartitionedProgram
from hloom.runtime.native.kernels import NativeKernels
from hloom.runtime.native.table import TableStep
from hloom.runtime.plan.interpreter import StepPlan
from support.compare import compare
from support.loop_kernels import needs_llvm

Array = np.ndarray[Any, Any]
pytestmark = needs_llvm

HEAD = """HloModule m
less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction=LT }
ENTRY e {
  x = f32[6,4] parameter(0)
  y = f32[6,4] parameter(1)
  i = s32[] parameter(2)
  j = INDEX[] convert(i)
  v = INDEX[2] parameter(3)
  a0 = f32[6,4] sine(x)
  a = f32[6,4] opt-barrier(a0)
  b = f32[6,4] cosine(y)
  p = f32[3,2] slice(b), slice={[1:4],[0:2]}
"""
ONCE = "u = f32[6,4] dynamic-update-slice(a, p, j, j)\n "
# What a program does, and how many arrays tables copy for it.
BODIES = {
    "the last use": (ONCE + "ROOT r = f32[6,4] negate(u)", 0),
    "the result": (ONCE + "ROOT r = (f32[6,4], f32[6,4]) tuple(u, b)", 0),
    "one after the other": (ONCE + "q = f32[3,2] sine(p)\n t = f32[6,4] dynamic-update-slice(u, q, i, i)\n "
                            "ROOT r = f32[6,4] add(t, b)", 0),
    "a vector of indices": ("u = f32[6,4] dynamic-update-slice(a, p, v)\n ROOT r = f32[6,4] add(u, b)", 0),
    "read later": (ONCE + "ROOT r = f32[6,4] subtract(u, a)", 1),
    "also a result": (ONCE + "ROOT r = (f32[6,4], f32[6,4]) tuple(u, a)", 1),
    "a view read later": ("w = f32[4,6] transpose(a), dimensions={1,0}\n " + ONCE
                          + "n = f32[4,6] negate(w)\n ROOT r = (f32[6,4], f32[4,6]) tuple(u, n)", 1),
    "a view is the result": ("w = f32[24] reshape(a)\n " + ONCE + "ROOT r = (f32[6,4], f32[24]) tuple(u, w)", 1),
    "a view of the result": (ONCE + "w = f32[4,6] transpose(u), dimensions={1,0}\n "
                             "ROOT r = (f32[4,6], f32[6,4]) tuple(w, u)", 0),
    "a part of the array itself": ("q = f32[4,3] slice(a), slice={[0:4],[0:3]}\n "
                                   "u = f32[6,4] dynamic-update-slice(a, q, j, j)\n ROOT r = f32[6,4] negate(u)", 1),
    "rows turned": ("w = f32[6,4] reverse(a), dimensions={0}\n u = f32[6,4] dynamic-update-slice(w, p, j, j)\n "
                    "ROOT r = f32[6,4] negate(u)", 1),
    "equal numbers": ("c = f32[] constant(7)\n w = f32[6,4] broadcast(c), dimensions={}\n "
                      "u = f32[6,4] dynamic-update-slice(w, p, j, j)\n ROOT r = f32[6,4] negate(u)", 1),
    "part of another": ("w = f32[3,4] slice(a), slice={[2:5],[0:4]}\n "
                        "u = f32[3,4] dynamic-update-slice(w, p, j, j)\n ROOT r = f32[3,4] negate(u)", 0),
    "seen by numpy before": ("s = f32[6,4] sort(a), dimensions={0}, to_apply=less\n " + ONCE
                             + "ROOT r = (f32[6,4], f32[6,4]) tuple(u, s)", 1),
    "seen by numpy after": (ONCE + "ROOT r = f32[6,4] sort(u), dimensions={0}, to_apply=less", 0),
    "an input": ("u = f32[6,4] dynamic-update-slice(x, p, j, j)\n ROOT r = f32[6,4] negate(u)", 0),
    "an input twice": ("u = f32[6,4] dynamic-update-slice(y, p, j, j)\n "
                       "t = f32[6,4] dynamic-update-slice(y, p, i, j)\n "
                       "ROOT r = (f32[6,4], f32[6,4]) tuple(u, t)", 1),
    "numpy's result": ("s = f32[6,4] sort(a), dimensions={0}, to_apply=less\n "
                       "u = f32[6,4] dynamic-update-slice(s, p, j, j)\n ROOT r = f32[6,4] negate(u)", 0),
}  # fmt: skip


def inputs(seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((2, 6, 4), np.float32)
    return [x, y, np.array(seed - 1, np.int32), np.array([seed, 9], np.int32)]


def copies(plan: StepPlan) -> int:
    """Counts the arrays that tables copy in machine code."""
    tables = [step for step in plan.steps if isinstance(step, TableStep)]
    return sum(entry.step.owner is put_code(0) for table in tables for entry in table.entries)


def taken(plan: StepPlan) -> int:
    """Counts the arrays that tables take over from other steps, to update them."""
    return sum(o.taken is not None for step in plan.steps if isinstance(step, TableStep) for o in step.outside)


def updates(module: Module) -> list[Instruction]:
    return [i for i in module.entry if start_indices(i) is not None]


def counted(module: Module, name: str) -> float:
    """Sums numbers of the work of updates, as forecasts count them."""
    work = NativeCounts(module).of
    return sum(work[i][name] for i in updates(module))


@pytest.mark.parametrize("name", BODIES)
def test_arrays_are_copied_only_where_they_are_still_read(name: str) -> None:
    body, copied = BODIES[name]
    module = hloom.parse(f"{HEAD.replace('INDEX', 's32')} {body}\n}}")
    program = UnpartitionedProgram(module, NativeKernels())
    assert copies(program.executable.arranged) == copied
    assert taken(program.executable.arranged) == counted(module, "taken") // (6 * 4 * 4)
    assert copied == counted(module, "entry") - len(updates(module))
    found = [program.run(inputs(seed)) for seed in range(4)]
    for seed, outputs in enumerate(found):  # later runs leave earlier results alone
        same = compare(outputs, hloom.evaluate(module, inputs(seed)))
        assert same.equal, f"{same}"


@pytest.mark.parametrize("name", ["an input", "an input twice", "numpy's result"])
def test_inputs_stay_as_they_are(name: str) -> None:
    module = hloom.parse(f"{HEAD.replace('INDEX', 's32')} {BODIES[name][0]}\n}}")
    given = inputs(1)
    UnpartitionedProgram(module, NativeKernels()).run(given)
    assert all(np.array_equal(x, y) for x, y in zip(given, inputs(1), strict=True))


def test_indices_that_machine_code_does_not_read() -> None:
    module = hloom.parse(f"{HEAD.replace('INDEX', 'u64')} {BODIES['the last use'][0]}\n}}")
    program = UnpartitionedProgram(module, NativeKernels())
    given = [*inputs(2)[:3], np.array([1, 1], np.uint64)]
    assert compare(program.run(given), hloom.evaluate(module, given)).equal
    assert any(not isinstance(step, TableStep) for step in program.executable.arranged.steps)

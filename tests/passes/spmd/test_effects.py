"""Custom-calls with effects that a program puts on one device: they happen there, and as often as the program says."""

from __future__ import annotations

from collections.abc import Iterator

import hloom
import numpy as np
import pytest
from hloom.codegen import manual_module, replica_module
from hloom.ir.ops.calls.user_calls import USER_BEHAVIOURS
from hloom.runtime import evaluate, simulate

HEAD = "HloModule m, num_partitions=4\n"
Calls = list[tuple[int, np.ndarray]]

# As JAX writes `jax.debug.print` and a callback that gives a value, with Shardy and without.
PRINT = """HloModule jit_f, frontend_attributes={xla.sdy.meshes={maximal_mesh_0 = #sdy.mesh<[], device_ids=[0]>, mesh = #sdy.mesh<["d"=4]>}}
ENTRY main {
  x = f32[8] parameter(0), sharding={devices=[4]<=[4]}, frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\\"d\\"}]>"}
  y = f32[8] multiply(x, x)
  p = () custom-call(y), custom_call_target="test.effects.note", operand_layout_constraints={f32[8]}, custom_call_has_side_effect=true, backend_config="7", sharding={{maximal device=0}}, frontend_attributes={xla.sdy.sharding="#sdy.sharding_per_value<[<@maximal_mesh_0, []>]>"}
  ROOT s = f32[8] sine(y), sharding={devices=[4]<=[4]}
}
"""  # noqa: E501
LOOP = HEAD + """c {
  p = (s32[], f32[8]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  k = s32[] constant(3)
  ROOT r = pred[] compare(n, k), direction=LT
}
b {
  p = (s32[], f32[8]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  x = f32[8] get-tuple-element(p), index=1
  d = () custom-call(x), custom_call_target="test.effects.note", custom_call_has_side_effect=true, backend_config="1", sharding={maximal device=2}
  y = f32[8] add(x, x)
  o = s32[] constant(1)
  a = s32[] add(n, o)
  ROOT r = (s32[], f32[8]) tuple(a, y)
}
ENTRY e {
  x = f32[8] parameter(0), sharding={devices=[4]<=[4]}
  n = s32[] constant(0)
  i = (s32[], f32[8]) tuple(n, x)
  w = (s32[], f32[8]) while(i), condition=c, body=b
  ROOT y = f32[8] get-tuple-element(w), index=1
}
"""  # noqa: E501
DECIDES = LOOP.replace("""  n = s32[] get-tuple-element(p), index=0
  k = s32[] constant(3)
  ROOT r = pred[] compare(n, k), direction=LT
""", """  x = f32[8] get-tuple-element(p), index=1
  ROOT r = pred[] custom-call(x), custom_call_target="test.effects.more", custom_call_has_side_effect=true, sharding={maximal device=3}
""").replace("y = f32[8] add(x, x)", "y = f32[8] add(x, x), sharding={maximal device=1}")  # noqa: E501
CHAIN = HEAD + """ENTRY e {
  x = f32[6] parameter(0), sharding={devices=[4]<=[4]}
  t = token[] after-all()
  c = (f32[6], token[]) custom-call(x, t), custom_call_target="test.effects.double", custom_call_has_side_effect=true, sharding={{maximal device=2}, {maximal device=2}}
  u = token[] get-tuple-element(c), index=1
  s = f32[6] get-tuple-element(c), index=0
  d = token[] custom-call(s, u), custom_call_target="test.effects.log", custom_call_has_side_effect=true, sharding={maximal device=1}
  ROOT r = f32[6] add(s, x), sharding={devices=[4]<=[4]}
}
"""  # noqa: E501


@pytest.fixture
def calls() -> Iterator[Calls]:
    """What the calls of a test are given, in order."""
    found: Calls = []

    @hloom.custom_call("test.effects.note")
    def _(x: np.ndarray, config: str) -> tuple[()]:
        found.append((int(config), np.array(x)))
        return ()

    yield found
    del USER_BEHAVIOURS["test.effects.note"]


def test_a_callback_runs_on_its_device(calls: Calls) -> None:
    x = np.arange(8, dtype=np.float32)
    local = hloom.partition(hloom.parse(PRINT))
    hloom.verify(local)
    assert calls == []
    np.testing.assert_allclose(simulate(local, [x], poison=True)[0], np.sin(x * x), rtol=1e-5)
    ((config, given),) = calls
    assert config == 7
    np.testing.assert_array_equal(given, x * x)


def test_a_callback_in_a_loop_runs_once_per_trip(calls: Calls) -> None:
    x = np.arange(8, dtype=np.float32)
    module = hloom.parse(LOOP)
    for run, program in ((evaluate, module), (simulate, hloom.partition(module))):
        calls.clear()
        np.testing.assert_array_equal(run(program, [x])[0], 8 * x)
        assert len(calls) == 3
        for trip, (_, given) in enumerate(calls):
            np.testing.assert_array_equal(given, x * 2**trip)


def test_a_call_on_one_device_decides_for_all(calls: Calls) -> None:
    hloom.custom_call("test.effects.more", replace=True)(lambda x: np.asarray(x.sum() < 100))  # pyright: ignore
    x = np.arange(8, dtype=np.float32)
    local = hloom.partition(hloom.parse(DECIDES))
    hloom.verify(local)
    np.testing.assert_array_equal(simulate(local, [x], poison=True)[0], 4 * x)
    assert len(calls) == 2


def test_results_and_tokens_of_calls() -> None:
    """The one device's result goes where it is needed, and a token orders calls of different devices."""
    local = hloom.partition(hloom.parse(CHAIN))
    hloom.verify(local)
    kinds = sorted(c.kind for c in hloom.collectives(local))
    assert kinds == ["all-gather", "collective-permute", "reduce-scatter"]
    ends = [i for i in local.entry if i.opcode == "conditional"]
    assert [str(i.shape) for i in ends] == ["(f32[6], token[])", "token[]"]


@pytest.mark.parametrize("sharding", ["{{maximal device=2}, {maximal device=1}}", "{replicated}", ""])
def test_effects_of_no_single_device_are_refused(sharding: str) -> None:
    text = CHAIN.replace("{{maximal device=2}, {maximal device=2}}", sharding).replace(", sharding=\n", "\n")
    with pytest.raises(hloom.CompileError, match=r"5:3: error: custom-call c .* has an effect outside") as caught:
        hloom.partition(hloom.parse(text))
    assert "maximal" in str(caught.value.diagnostics[0].help)


def test_xla_reads_the_branches() -> None:
    pytest.importorskip("jax")
    from support.xla_runner import compile_text

    known = PRINT.replace('"test.effects.note"', '"xla_ffi_python_cpu_callback", api_version=API_VERSION_TYPED_FFI')
    known = known.replace('backend_config="7"', "backend_config={index = 0 : ui64}")
    local = hloom.partition(hloom.parse(known))
    compile_text(manual_module(local).to_text(), partitions=4)
    compile_text(replica_module(local).to_text(), replicas=4)


CALLBACKS = HEAD + """ENTRY e {
  x = f32[8,6] parameter(0), sharding={devices=[4,1]<=[4]}
  t = () custom-call(x), custom_call_target="xla_ffi_partitioned_python_cpu_callback", custom_call_has_side_effect=true, sharding={{maximal device=0}}, backend_config={index = 0 : ui64}
  p = f32[8,6] custom-call(x), custom_call_target="xla_ffi_python_cpu_callback", sharding={maximal device=1}, backend_config={index = 1 : ui64}
  ROOT r = f32[8,6] add(p, x), sharding={devices=[4,1]<=[4]}
}
"""  # noqa: E501


def test_python_functions_are_called_for_each_tile_or_on_one_device() -> None:
    """As JAX does: with `partitioned=True` by each device, else by one, also without effects."""
    local = hloom.partition(hloom.parse(CALLBACKS))
    calls = {str(i.backend_config): i for c in local for i in c if i.opcode == "custom-call"}
    assert sorted(calls) == ["{index = 0 : ui64}", "{index = 1 : ui64}"]
    of_tiles, of_one = calls["{index = 0 : ui64}"], calls["{index = 1 : ui64}"]
    assert (of_tiles.parent, of_tiles.operands) == (local.entry, [local.entry.parameters[0]])
    assert of_one.parent is not local.entry
    assert of_one.operands[0].shape.dims == (8, 6)
    assert not local.remarks


def test_functions_called_for_tiles_return_nothing() -> None:
    text = CALLBACKS.replace("t = ()", "t = f32[8,6]").replace("{{maximal device=0}}", "{maximal device=0}")
    with pytest.raises(hloom.CompileError, match="xla_ffi_partitioned_python_cpu_callback returns nothing"):
        hloom.parse(text)

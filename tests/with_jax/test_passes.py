"""`hloom.jax.passes`: Hloom's passes inside of JAX's compilation, on eight virtual devices."""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import importlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import hloom
import hloom.jax
import numpy as np
import pytest
from hloom.ir.graph.module import Module, Stage
from hloom.passes.base import Pass, PassContext
from programs.sharded_jax_functions import FUNCTIONS
from support.command_line import environment

jax: Any = pytest.importorskip("jax")
jnp, P = jax.numpy, jax.sharding.PartitionSpec


@pytest.fixture(scope="module")
def mesh() -> Any:
    if len(jax.devices()) < 8:
        pytest.skip("XLA has fewer than eight devices")
    return jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))


def arguments(mesh: Any) -> Any:
    rng, sharding = np.random.default_rng(0), jax.sharding.NamedSharding(mesh, P("d"))
    weights = [jax.device_put(rng.standard_normal((16, 16), np.float32), sharding) for _ in range(3)]
    return weights, jax.device_put(rng.standard_normal((32, 16), np.float32), sharding)


def network(weights: Any, x: Any) -> Any:
    for w in weights:
        x = jnp.tanh(x @ w)
    return x


def collectives_of(function: Any, *args: Any) -> dict[str, int]:
    text = function.lower(*args).compile().as_text()
    return {kind: text.count(f" {kind}(") for kind in ("all-gather", "all-reduce") if f" {kind}(" in text}


@dataclass(frozen=True)
class Fails(Pass):
    """Raises an exception of its own."""

    name: ClassVar[str] = "fails"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.LOCAL})

    def run(self, module: Module, context: PassContext) -> bool:
        raise ZeroDivisionError("on purpose")


@dataclass(frozen=True)
class Breaks(Pass):
    """Makes a program that does not fit together: an operand in another memory layout."""

    name: ClassVar[str] = "breaks"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.LOCAL})

    def run(self, module: Module, context: PassContext) -> bool:
        gather = next(i for i in module.entry if i.opcode == "all-gather")
        layout = ",".join(map(str, reversed(gather.shape.minor_to_major)))
        other = hloom.parse_shape(f"{gather.shape.without_layout()}{{{layout}}}")
        copy = module.entry.add("all-gather", tuple(gather.operands), gather.attributes)
        copy.shape = other
        module.entry.move_before(copy, gather)
        module.entry.replace_all_uses(gather, copy)
        module.entry.remove(gather)
        return True


def test_collectives_are_combined_in_the_block_alone(mesh: Any) -> None:
    function, args = jax.jit(network), arguments(mesh)
    wanted, before = function(*args), collectives_of(function, *args)
    assert before == {"all-gather": 3}
    with hloom.jax.passes("combine-collectives") as hook:
        found = function(*args)
        assert collectives_of(function, *args) == {"all-gather": 1}
    np.testing.assert_array_equal(found, wanted)
    assert collectives_of(function, *args) == before
    (program, *_) = hook.programs
    assert (program.name, program.changed, program.refused) == ("jit_network", ("combine-collectives",), "")


def test_what_nothing_fits_stays(mesh: Any) -> None:
    function, args = jax.jit(network), arguments(mesh)
    with hloom.jax.passes("cse,dce") as hook:
        function(*args)
        assert collectives_of(function, *args) == {"all-gather": 3}
        jax.jit(lambda x: x + 1)(3)  # nothing is sent
    assert {program.changed for program in hook.programs} == {()}
    assert {program.name for program in hook.programs} == {"jit_network"}


def test_remarks_and_machines(mesh: Any) -> None:
    with hloom.jax.passes("bucket{rule=size}", machine=hloom.parse_machine("h100")) as hook:
        jax.jit(network)(*arguments(mesh))
    (remark,) = hook.programs[0].remarks
    assert "3 gathers in 1 bucket" in remark.message


@pytest.mark.parametrize(("step", "reason"), [
    (Fails(), "ZeroDivisionError: on purpose"), (Breaks(), "would read operands in another memory layout"),
])  # fmt: skip
def test_failing_passes_leave_the_program(step: Pass, reason: str, mesh: Any) -> None:
    function, args = jax.jit(network), arguments(mesh)
    with (
        pytest.warns(RuntimeWarning, match="hloom.jax.passes left jit_network as it was"),
        hloom.jax.passes([step]) as hook,
    ):
        found = function(*args)
    assert reason in hook.programs[0].refused
    np.testing.assert_array_equal(found, function(*args))


@pytest.mark.parametrize(("text", "message"), [
    ("propagate", "pass propagate does not fit into JAX's compilation"),
    ("overlap", "pass overlap does not fit"),
    ("no-such-pass", "there is no pass 'no-such-pass'"),
])  # fmt: skip
def test_passes_that_do_not_fit(text: str, message: str) -> None:
    with pytest.raises(hloom.CompileError, match=message), hloom.jax.passes(text):
        raise AssertionError("the block must not run")


def test_backends_that_call_no_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = SimpleNamespace(
        PipelineStage=importlib.import_module("jax.extend.xla").PipelineStage,
        register_hlo_module_transformation=lambda *_, **__: None, clear_hlo_module_transformation=lambda *_, **__: True
    )
    monkeypatch.setitem(sys.modules, "jax.extend.xla", nothing)
    with pytest.raises(hloom.CompileError, match="backend cpu does not call hooks"), hloom.jax.passes("dce"):
        raise AssertionError("the block must not run")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:hloom.jax.passes left")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_same_numbers_with_passes(name: str) -> None:
    """Merging all that is equal would let values share memory that one of them is written to: it is refused there."""
    mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    case = FUNCTIONS[name](mesh)
    function = jax.jit(case.function, **{k: v for k, v in case.options.items() if "donate" not in k})
    wanted = function(*case.arguments)
    for pipeline in ("combine-collectives, bucket{rule=size}", "cse, bucket{rule=size}"):
        with hloom.jax.passes(pipeline) as hook:
            found = function(*case.arguments)
        assert pipeline.startswith("cse") or [program.refused for program in hook.programs if program.refused] == []
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            if not jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * float(jnp.abs(b).max()))


def test_equal_states_of_a_loop_stay_apart() -> None:
    """XLA updates them in place: two names for one array would be wrong."""
    mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    case = FUNCTIONS["adam_over_scanned_layers"](mesh)
    function = jax.jit(case.function)
    wanted = function(*case.arguments)
    with pytest.warns(RuntimeWarning, match="may keep values apart in memory"), hloom.jax.passes("cse"):
        found = function(*case.arguments)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(a, b)


SCRIPT = """import sys
import jax, numpy as np, hloom.jax
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
mesh = jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
x, y = (jax.device_put(np.ones((16, 16), np.float32), sharding) for _ in "ab")
f = jax.jit(lambda x, y: (x @ x) * (y @ y))
gathers = lambda: f.lower(x, y).compile().as_text().count(" all-gather(")
def inside():
    with hloom.jax.passes("combine-collectives"):
        return gathers()
print(*((inside(), gathers()) if sys.argv[2] == "inside" else (gathers(), inside())))
"""


@pytest.mark.slow
def test_caches_on_disk_are_apart(tmp_path: Path) -> None:
    """Whoever comes first, the other one's program is not taken, and the second process finds its own."""
    (tmp_path / "script.py").write_text(SCRIPT)
    flags = environment(XLA_FLAGS="--xla_force_host_platform_device_count=8", JAX_PLATFORMS="cpu")
    for order, wanted in (("inside", "1 2"), ("outside", "2 1"), ("inside", "1 2")):
        done = subprocess.run([sys.executable, "script.py", "cache", order], cwd=tmp_path, env=flags, check=True,
                              capture_output=True, text=True)  # fmt: skip
        assert done.stdout.split() == wanted.split()

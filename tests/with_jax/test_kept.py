"""A second process begins with the programs that the first one has partitioned, and so does XLA's own cache."""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hloom
import hloom.jax
import numpy as np
import pytest
from hloom.ir.graph import keeping
from hloom.ir.ops.calls.user_calls import USER_BEHAVIOURS
from hloom.passes import api
from support.calls import calls
from support.nursery import cold

jax: Any = pytest.importorskip("jax")

PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

def step(w, x):
    return jnp.tanh(x @ w).sum(0), x @ w

def arguments():
    mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    return [jax.device_put(np.cos(np.arange(64.0, dtype=np.float32)).reshape(8, 8), NamedSharding(mesh, P(*spec)))
            for spec in ((None, "y"), ("x", "y"))]
"""
RUN = """
import json, os, sys
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
sys.path.insert(0, os.getcwd())
import jax, hloom, hloom.jax, program
from hloom.passes import api
counts = {"partitioned": 0, "hits": 0}
make = api.partition
def counted(*args, **options):
    counts["partitioned"] += 1
    return make(*args, **options)
api.partition = counted
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
w, x = program.arguments()
def hit(name, **_):
    counts["hits"] += name == "/jax/compilation_cache/cache_hits"
jax.monitoring.register_event_listener(hit)
compiled = hloom.jax.jit(program.step).lower(w, x).compile()
found = {"numbers": [r.tolist() for r in compiled(w, x)], "text": compiled.program.to_text(),
         "certificate": str(compiled.program.certificate), "sources": [c.source for c in compiled.collectives],
         "remarks": list(map(str, compiled.remarks)), "shardings": list(map(str, compiled.out_shardings))}
print(json.dumps([counts, found]))
"""


def test_the_second_process_begins_with_what_the_first_has_made(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    places = {"HLOOM_CACHE": str(tmp_path / "hloom"), "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "jax")}

    def run(**variables: str) -> Any:
        ended = cold(RUN, tmp_path, **places, JAX_PLATFORMS="cpu", **variables)
        assert ended.code == 0, ended.err
        return json.loads(ended.out)

    (first, found), (second, again) = run(), run()
    assert first == {"partitioned": 1, "hits": 0}
    assert second == {"partitioned": 0, "hits": 1}
    assert again == found
    assert found["sources"] == ["program.py:6"] * 2


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Compiles a function anew, and tells how often Hloom has partitioned so far."""
    count = [0]
    for target in list(USER_BEHAVIOURS):  # of custom-calls that other tests have registered
        monkeypatch.delitem(USER_BEHAVIOURS, target)
    monkeypatch.setenv("HLOOM_CACHE", str(tmp_path / "cache"))

    def run(function: Callable[..., Any] = jax.numpy.sin, size: int = 4, **options: Any) -> int:
        x = np.arange(size, dtype=np.float32)
        compiled = hloom.jax.jit(lambda x: function(x), options=options)
        with calls(api.partition) as partitioned:
            np.testing.assert_allclose(compiled(x), function(x), rtol=1e-6)
        count[0] += len(partitioned)
        return count[0]

    return run


def test_all_that_decides_is_in_the_key(made: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    assert [made(), made()] == [1, 1]
    assert made(size=5) == 2
    assert made(jax.numpy.cos) == 3
    assert [made(machine="h100"), made(machine="h100")] == [4, 4]
    assert [made(machine=hloom.parse_machine("tpu-v4")), made(machine="tpu-v4")] == [5, 5]
    assert [made(passes="propagate,spmd-partition"), made(passes="propagate,spmd-partition")] == [6, 6]
    with monkeypatch.context() as other:
        other.setattr(keeping, "_sources", lambda: iter(["another version"]))
        assert made() == 7
    assert made() == 7
    monkeypatch.setenv("HLOOM_CACHE", "")
    assert made() == 8


def test_programs_that_python_functions_decide_are_made_anew(made: Callable[..., int]) -> None:
    rules: dict[str, Any] = {"sine": lambda call: None}
    assert [made(rules=rules), made(rules=rules)] == [1, 2]
    assert [made(passes=hloom.PIPELINE), made(passes=hloom.PIPELINE)] == [3, 4]


def test_messages_quote_the_file_as_it_is(tmp_path: Path, made: Callable[..., int]) -> None:
    file = tmp_path / "quoted.py"
    for comment, count in (("one", 1), ("two", 2), ("two", 2)):
        file.write_text(f"import jax.numpy\ndef f(x):\n    return jax.numpy.sin(x)  # {comment}\n")
        importlib.import_module("linecache").checkcache()
        scope: dict[str, Any] = {}
        exec(compile(file.read_text(), str(file), "exec"), scope)
        assert made(scope["f"]) == count

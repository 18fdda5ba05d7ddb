"""The Python API, name by name, as an embedder uses it: `import hloom` and nothing else of ours."""

from __future__ import annotations

import ast
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import hloom
import numpy as np
import pytest
from support.command_line import EXAMPLES, NAMED, environment
from support.processes import PATIENCE

PLAIN = """HloModule plain
ENTRY main {
  p = (f32[6], (s32[2], f32[])) parameter(0)
  q = f32[6] parameter(1)
  x = f32[6] get-tuple-element(p), index=0
  inner = (s32[2], f32[]) get-tuple-element(p), index=1
  n = s32[2] get-tuple-element(inner), index=0
  d = f32[6] subtract(x, q)
  ROOT out = (s32[2], (f32[6], f32[6])) tuple(n, pair)
}
""".replace("  ROOT", "  pair = (f32[6], f32[6]) tuple(d, x)\n  ROOT")
ROWS = """HloModule rows
ENTRY main {
  x = f32[5,4] parameter(0), sharding={mesh['a'=3,'b'=2], [{'a'}, {'b'}]}
  y = f32[4,2] parameter(1)
  ROOT z = f32[5,2] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
LOOP = """HloModule loop
condition {
  s = (s32[], f32[4,8], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  five = s32[] constant(5)
  ROOT more = pred[] compare(i, five), direction=LT
}
body {
  s = (s32[], f32[4,8], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4,8] get-tuple-element(s), index=1
  w = f32[8,8] get-tuple-element(s), index=2, sharding={mesh['a'=4], [{'a'}, {}]}
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[4,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (s32[], f32[4,8], f32[8,8]) tuple(next, y, w)
}
ENTRY main {
  x = f32[4,8] parameter(0), sharding={mesh['a'=4], [{}, {'a'}]}
  w = f32[8,8] parameter(1), sharding={mesh['a'=4], [{'a'}, {}]}
  zero = s32[] constant(0)
  start = (s32[], f32[4,8], f32[8,8]) tuple(zero, x, w)
  end = (s32[], f32[4,8], f32[8,8]) while(start), condition=condition, body=body
  ROOT out = f32[4,8] get-tuple-element(end), index=1, sharding={replicated}
}
"""


def random(*dims: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(dims).astype(np.float32)


def test_names() -> None:
    wanted = {
        "parse", "load", "load_snapshot", "Snapshot", "verify", "propagate", "partition", "evaluate", "simulate", "run",
        "run_passes", "assert_collectives", "collectives", "custom_call", "Module", "P", "match", "find_all",
        "to_networkx", "CompileError", "Diagnostic", "Severity", "Collective", "__version__", "apply_strategy",
        "explain", "load_strategy", "parse_shape", "parse_sharding", "reshard_plan", "RankFailed", "Instruction", "Op",
        "OpCall", "register", "Mesh", "Sharding", "Stage", "Machine", "Transfer", "LocalForm", "LocalForms", "LocalOp",
        "local_forms", "Pass", "PassContext", "PIPELINE", "Partitioned", "export", "run_on_xla",
        "prove", "Verdict", "relate", "Relations", "parse_machine", "Contraction", "contractions",
        "LiveBuffer", "LiveMemory", "live_memory", "Timeline", "timeline", "find_deadlocks",
        "builder", "InternalError", "Algebra", "jax", "Attributes", "ShapeError", "compile", "Program", "NativeMemory",
        "Movement", "Memory", "Along", "RowMajor", "forecast", "StepForecast",
        "pipeline_schedule", "PipelineSchedule", "checkpoint", "train", "Trained", "strip_annotations", "plan", "Plan",
        "sweep", "Sweep",
        "page", "Page", "xla_memory", "remesh", "Computation",
    }  # fmt: skip
    assert set(hloom.__all__) == wanted


@pytest.mark.parametrize(
    ("field", "value", "help"),
    [
        ("sharding", "{devices=[2]<=[2]}", "write hloom.parse_sharding('{devices=[2]<=[2]}')"),
        ("shardy", "{replicated}", "write hloom.parse_sharding('{replicated}')"),
        ("sharding", 4, "hloom.parse_sharding reads text"),
        ("shape", "f32[4]", "write hloom.parse_shape('f32[4]')"),
        ("shape", None, "hloom.parse_shape reads text"),
        ("metadata", "layer/add", "Metadata.named(op_name)"),
        ("frontend_attributes", "{a=b}", "a dict of texts"),
        ("backend_config", {"a": 1}, "write a string"),
        ("attributes", {"dimensions": (0,)}, "Computation.build makes them"),
    ],
)
def test_values_of_another_type_are_refused_where_they_are_assigned(field: str, value: Any, help: str) -> None:
    instruction = hloom.parse(ROWS).entry.root
    before = getattr(instruction, field)
    with pytest.raises(TypeError, match=f"^{field} must be ") as error:
        setattr(instruction, field, value)
    assert help in str(error.value)
    assert getattr(instruction, field) is before


def test_sharding_as_text_is_parsed_by_name() -> None:
    module = hloom.Module("m")
    c = module.new_computation("main", entry=True)
    x = c.parameter(0, hloom.parse_shape("f32[8]"), "x")
    x.sharding = hloom.parse_sharding("{devices=[4]<=[4]}")
    c.root = c.build("negate", x)
    assert "x: f32[2]" in hloom.partition(module).to_text()
    with pytest.raises(hloom.CompileError, match="sharding"):
        hloom.parse_sharding("{devices=[4]}")


def test_parse_and_to_text_round_trip() -> None:
    module = hloom.parse(ROWS)
    assert isinstance(module, hloom.Module)
    assert module.name == "rows"
    text = module.to_text()
    assert hloom.parse(text).to_text() == text
    assert "sharding={mesh['a'=3,'b'=2], [{'a'}, {'b'}]}" in text


def test_diagnostics() -> None:
    text = ROWS.replace("f32[4,2]", "f32[3,2]").replace("{'b'}", "{'c'}")
    with pytest.raises(hloom.CompileError) as error:
        hloom.parse(text, filename="rows.hlo")
    found = error.value.diagnostics
    assert [(d.severity, d.line) for d in found] == [(hloom.Severity.ERROR, 3)]
    first = found[0]
    assert first.column == text.splitlines()[2].index("'c'") + 1
    assert first.message == "the mesh has no axis 'c'"
    assert first.help == "its axes are 'a'=3, 'b'=2"
    assert str(error.value).startswith(f"rows.hlo:3:{first.column}: error: the mesh has no axis 'c'\n  3 | ")


def test_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.hlo"
    path.write_text(ROWS)
    expected = hloom.parse(ROWS).to_text()
    assert hloom.load(path).to_text() == hloom.load(str(path)).to_text() == expected
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(ROWS.encode())))
    assert hloom.load("-").to_text() == expected
    with pytest.raises(hloom.CompileError, match="cannot be read: No such file") as error:
        hloom.load(tmp_path / "other.hlo")
    assert error.value.diagnostics[0].line == 0


def test_verify() -> None:
    module = hloom.parse(ROWS)
    hloom.verify(module)
    module.entry.root.shape = module.entry.parameters[0].shape
    with pytest.raises(hloom.CompileError) as error:
        hloom.verify(module)
    assert error.value.diagnostics[0].message == "dot: declared shape f32[5,4] but operands give f32[5,2]"
    assert error.value.diagnostics[0].line == 5


@pytest.mark.parametrize("use", [hloom.verify, hloom.partition, hloom.collectives, hloom.compile, hloom.live_memory])
def test_a_module_without_a_program_is_an_error_of_its_author(use: Callable[[hloom.Module], object]) -> None:
    module = hloom.Module("layers")
    with pytest.raises(hloom.CompileError, match=r"module layers has no entry computation\n  help: .*entry=True"):
        use(module)
    module.new_computation("main", entry=True)
    with pytest.raises(hloom.CompileError, match=r"computation main (is empty|has no instructions)"):
        use(module)


def test_propagate_returns_a_copy() -> None:
    module = hloom.parse(ROWS)
    before = module.to_text()
    sharded = hloom.propagate(module)
    assert module.to_text() == before
    x, y, z = sharded.entry
    assert [str(i.sharding) for i in (x, y, z)] == [
        "{mesh['a'=3,'b'=2], [{'a'}, {'b'}]}",
        "{mesh['a'=3,'b'=2], [{'b'}, {}]}",
        "{mesh['a'=3,'b'=2], [{'a'}, {}]}",
    ]
    hloom.verify(sharded)
    with pytest.raises(hloom.CompileError, match="shardings are over 6 devices, 4 are asked for"):
        hloom.propagate(module, num_devices=4)


@pytest.mark.parametrize("propagated", [False, True])
def test_partition_takes_global_and_sharded_modules(propagated: bool) -> None:
    module = hloom.parse(ROWS)
    before = module.to_text()
    local = hloom.partition(hloom.propagate(module) if propagated else module)
    assert module.to_text() == before
    assert local.num_partitions == 6
    assert [p.shape.dims for p in local.entry.parameters] == [(2, 2), (2, 2)]
    assert local.global_layout is not None
    assert [s.dims for s in local.global_layout.parameters] == [(5, 4), (4, 2)]
    hloom.verify(local)
    assert hloom.parse(local.to_text()).to_text() == local.to_text()
    with pytest.raises(hloom.CompileError, match="needs a"):
        hloom.partition(local)


def test_run_passes_returns_a_copy_and_tells_the_context() -> None:
    module, context = hloom.parse(ROWS), hloom.PassContext(num_devices=6)
    text = module.to_text()
    sharded = hloom.run_passes(module, "propagate", context)
    assert (sharded.stage, module.stage) == (hloom.Stage.SHARDED, hloom.Stage.GLOBAL)
    assert module.to_text() == text
    assert [r.name for r in context.records] == ["propagate"]
    local = hloom.run_passes(module, hloom.PIPELINE)
    assert local.to_text() == hloom.partition(module).to_text()
    for passes, message in {"none": "no pass 'none'", "dce{x=1}": "no option 'x'", "dce!": "read"}.items():
        with pytest.raises(hloom.CompileError, match=message):
            hloom.run_passes(module, passes)


def test_partition_with_a_number_of_devices() -> None:
    module = hloom.parse(PLAIN)
    assert hloom.partition(module).num_partitions == 1
    assert hloom.partition(module, num_devices=5).num_partitions == 5
    with pytest.raises(hloom.CompileError, match="6 devices, 5 are asked for") as error:
        hloom.partition(hloom.parse(ROWS), num_devices=5)
    assert error.value.diagnostics[0].line == 3


def test_evaluate_takes_and_gives_leaves_in_order() -> None:
    module = hloom.parse(PLAIN)
    x, n, s, q = random(6), np.array([3, 4], np.int32), np.array(1, np.float32), random(6, seed=1)
    outputs = hloom.evaluate(module, [x, n, s, q])
    assert [(o.dtype, o.shape) for o in outputs] == [(np.int32, (2,)), (np.float32, (6,)), (np.float32, (6,))]
    for found, expected in zip(outputs, [n, x - q, x], strict=True):
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(hloom.CompileError, match="takes 4 arrays, 1 were given"):
        hloom.evaluate(module, [x])
    with pytest.raises(hloom.CompileError, match="input 0 has element type float64"):
        hloom.evaluate(module, [x.astype(np.float64), n, s, q])


@pytest.mark.parametrize("text", [ROWS, LOOP])
def test_simulate_gives_what_evaluate_gives(text: str) -> None:
    module = hloom.parse(text)
    inputs = [random(*p.shape.dims, seed=n) for n, p in enumerate(module.entry.parameters)]
    kept = [a.copy() for a in inputs]
    expected = hloom.evaluate(module, inputs)
    found = hloom.simulate(hloom.partition(module), inputs)
    assert len(found) == len(expected) == 1
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-4)
    for array, copy in zip(inputs, kept, strict=True):
        np.testing.assert_array_equal(array, copy)
    with pytest.raises(hloom.CompileError, match="the program takes"):
        hloom.simulate(hloom.partition(module), inputs[:1])


def test_collectives() -> None:
    first, second = hloom.collectives(hloom.partition(hloom.load(NAMED)))
    assert isinstance(first, hloom.Collective)
    # y is f32[4,4] on each device, summed over four: 64 bytes, 2 * 3/4 of them sent.
    assert (first.kind, first.buffer_bytes, first.wire_bytes, first.group_size, first.count) == (
        "all-reduce", 64, 96, 4, 1
    )  # fmt: skip
    assert first.cause == "result of dot y"
    assert (second.kind, second.buffer_bytes, second.wire_bytes, second.group_size) == ("all-reduce", 4, 4, 2)
    assert second.cause == "result of reduce total"


def test_collectives_in_a_loop_count_its_trips() -> None:
    reduction, gather = hloom.collectives(hloom.partition(hloom.parse(LOOP)))
    assert (reduction.kind, reduction.buffer_bytes, reduction.wire_bytes, reduction.group_size, reduction.count) == (
        "reduce-scatter", 128, 96, 4, 5
    )  # fmt: skip
    # An all-gather's buffer is its result, f32[4,8] from four quarters.
    assert (gather.kind, gather.buffer_bytes, gather.wire_bytes, gather.group_size, gather.count) == (
        "all-gather", 128, 96, 4, 1
    )  # fmt: skip
    assert hloom.collectives(hloom.partition(hloom.parse(PLAIN), num_devices=3)) == []


RANK = """
import sys
import numpy as np
from mpi4py import MPI
import hloom
comm = MPI.COMM_WORLD
local = hloom.partition(hloom.load(sys.argv[1]))
whole = [np.arange(20, dtype=np.float32).reshape(5, 4), np.arange(8, dtype=np.float32).reshape(4, 2)]
padded = np.zeros((6, 4), np.float32)
padded[:5] = whole[0]
def shards(device):
    row, column = divmod(device, 2)
    return [padded[2 * row : 2 * row + 2, 2 * column : 2 * column + 2], whole[1][2 * column : 2 * column + 2]]
each = 6 // comm.size
mine = [shards(device) for device in range(comm.rank * each, (comm.rank + 1) * each)]
outputs = hloom.run(local, mine[0] if each == 1 else mine, comm)
for place, (z,) in enumerate([outputs] if each == 1 else outputs):
    row = (comm.rank * each + place) // 2
    rows = slice(2 * row, min(2 * row + 2, 5))
    np.testing.assert_array_equal(z[: rows.stop - rows.start], (whole[0] @ whole[1])[rows])
try:
    hloom.run(local, [], comm)
except hloom.CompileError as error:
    wanted = "the program takes 2 arrays, 0 were given" if each == 1 else f"inputs for {each} devices are needed"
    assert wanted in str(error), error
else:
    raise AssertionError("no inputs were accepted")
print("rank is right", flush=True)
"""
START = """
import sys
from hloom.runtime.ranks.launch import launch
sys.exit(launch(sys.argv[3:], int(sys.argv[1]), sys.argv[2:3]))
"""


@pytest.mark.parametrize("ranks", [2, pytest.param(6, marks=pytest.mark.slow)])
def test_run_on_ranks(ranks: int, tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    (tmp_path / "rank.py").write_text(RANK)
    (tmp_path / "rows.hlo").write_text(ROWS)
    done = subprocess.run(
        [sys.executable, "-c", START, str(ranks), "rank.py", "rows.hlo"],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    if done.returncode == 69:
        pytest.skip("there is no mpiexec")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["rank is right"] * ranks


def test_importing_hloom_needs_neither_jax_nor_mpi() -> None:
    loaded = "print(sorted({'jax', 'jaxlib', 'mpi4py', 'lark'} & set(sys.modules)))"
    code = f"import sys, hloom; assert 'jit' in hloom.jax.__all__; {loaded}"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


@pytest.mark.parametrize("arguments", ["--version", "--help"])
def test_commands_that_need_nothing_load_nothing(arguments: str) -> None:
    code = f"""
import sys
from hloom.__main__ import main
try:
    main(["{arguments}"])
finally:
    assert not {{"numpy", "networkx", "hloom.ir.types", "hloom.frontends", "hloom.passes"}} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, timeout=PATIENCE,
                          check=False)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("package", [hloom, hloom.runtime])
def test_late_names_are_those_that_type_checkers_see(package: ModuleType) -> None:
    tree = ast.parse(Path(str(package.__file__)).read_text())
    (typed,) = (node for node in tree.body if isinstance(node, ast.If))
    imported = [
        (alias.asname, f"{node.module}:{alias.name}" if node.module else alias.name)
        for node in typed.body if isinstance(node, ast.ImportFrom) for alias in node.names
    ]  # fmt: skip
    prefix = package.__name__.removeprefix("hloom").removeprefix(".")
    assert {name: ".".join(filter(None, (prefix, place))) for name, place in imported} == vars(package)["_PLACES"]
    assert {name for name, _ in imported} == set(package.__all__) - {"__version__"}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = package.nothing


def test_examples_load() -> None:
    names = {path.name: hloom.load(path).name for path in EXAMPLES.glob("*.hlo")}
    assert names["mlp_named.hlo"] == "mlp"
    assert {"mlp_train.hlo", "transformer_train.hlo", "transformer_scan_train.hlo"} <= set(names)

"""Programs of the builder: arguments and results as trees with names, specs, the step-by-step form, any op."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import hloom
import numpy as np
import pytest
from hloom import builder as hb
from hloom.frontends.builder import annotations, control, elementwise, manual, program, reductions, shaping, tracing
from hloom.ir.tools.names import names_of, result_names
from support import command_line


class Pair(NamedTuple):
    left: Any
    right: Any


def test_arguments_have_their_paths_as_names() -> None:
    def step(params: Any, x: Any, *rest: Any, scale: Any) -> Any:
        return {"params": {"w": params["layer"][0]["w"] * scale, "b": params["b"]}, "loss": x.sum() + rest[0]}

    module = hb.trace(step, {"layer": [{"w": "f32[4]"}], "b": None}, "f32[2]", "f32[]", scale="f32[]")
    hloom.verify(module)
    names = [names_of(p) for p in module.entry.parameters]
    assert names == [("params.layer.0.w", "params['layer'][0]['w']"), ("x",), ("rest.0", "rest[0]"), ("scale",)]
    assert result_names(module) == ["loss", "params.w"]
    assert module.name == "step"
    assert module.stage is hloom.Stage.GLOBAL


def test_leaves_go_in_and_out_in_one_order() -> None:
    def function(tree: Any) -> Any:
        return {"z": tree["b"].left + 1, "y": [tree["a"], tree["b"]]}

    one, two, three = (np.full(2, n, np.float32) for n in (1, 2, 3))
    tree = {"b": Pair(one, two), "a": (three,)}
    module = hb.trace(function, tree)
    found = hloom.evaluate(module, hb.flatten(tree))
    result = hb.unflatten({"z": 0, "y": [(0,), Pair(0, 0)]}, found)
    assert isinstance(result["y"][1], Pair)
    np.testing.assert_array_equal([result["z"], result["y"][0][0], result["y"][1].left, result["y"][1].right],
                                  [one + 1, three, one, two])
    with pytest.raises(hloom.CompileError, match="the tree has 4 leaves"):
        hb.unflatten({"z": 0, "y": [(0,), Pair(0, 0)]}, found[:3])


@pytest.mark.parametrize("spec", [
    "bf16[2,3]", hb.Spec((2, 3), "bf16"), hb.Spec([2, 3], "bfloat16"),
    SimpleNamespace(shape=(2, 3), dtype=hb.trace(lambda x: x, "bf16[1]").entry.root.shape.element.numpy),
])  # fmt: skip
def test_specs(spec: Any) -> None:
    assert str(hb.trace(lambda x: x, spec).entry.parameters[0].shape) == "bf16[2,3]"


def test_step_by_step() -> None:
    with hb.Program("layer") as program:
        x = hb.parameter("x", (4, 8))
        w = hb.parameter("weights['w']", (8, 3), "f32")
        y = x @ w
        program.returns({"y": y, "norm": abs(y).max()})
        with pytest.raises(hloom.CompileError, match="the program has returned already"):
            program.returns(y)
    hloom.verify(program.module)
    assert [p.name for p in program.module.entry.parameters] == ["x", "weights.w"]
    a, b = np.ones((4, 8), np.float32), np.ones((8, 3), np.float32)
    norm, found = hloom.evaluate(program.module, [a, b])
    assert norm == 8
    np.testing.assert_array_equal(found, a @ b)


def test_all_functions_are_exported_and_described() -> None:
    modules = (annotations, control, elementwise, manual, program, reductions, shaping)
    made = {name for m in modules for name, value in vars(m).items()
            if inspect.isfunction(value) and value.__code__.co_filename == tracing.public.__code__.co_filename
            and hasattr(value, "__wrapped__") and value.__module__ == m.__name__}
    assert len(made) > 120
    assert [name for name in sorted(made) if not hasattr(hb, name)] == []
    assert [name for name in sorted(made) if not getattr(hb, name).__doc__] == []


def test_the_guide_names_what_exists() -> None:
    text = (command_line.ROOT / "docs" / "builder.md").read_text()
    table = text.partition("| operators |")[2].partition("| anything else |")[0]
    rows = [row.partition(" with ")[0] for row in table.splitlines()]
    named = {name for row in rows for cell in re.findall(r"`([a-z][\w ]+)(?:\.\.)?`", row) for name in cell.split()}
    assert len(named) > 60
    assert [name for name in sorted(named) if not hasattr(hb, name)] == []


def test_a_program_has_a_result() -> None:
    with pytest.raises(hloom.CompileError, match="the program layer has no result"), hb.Program("layer"):
        hb.parameter("x", (4, 8))
    with pytest.raises(ValueError, match="mine"), hb.Program("layer"):
        raise ValueError("mine")
    with pytest.raises(hloom.CompileError, match="no program is under construction"):
        hb.ones(3)


def test_results_may_be_constants_parameters_and_repeated() -> None:
    module = hb.trace(lambda x: (x, x, 3, 2.5, True, np.arange(2)), "f32[2]")
    hloom.verify(module)
    found = hloom.evaluate(module, [np.ones(2, np.float32)])
    types = [str(s) for s in module.entry.root.shape.leaves()]
    assert types == ["f32[2]", "f32[2]", "s32[]", "f32[]", "pred[]", "s64[2]"]
    assert [x.tolist() for x in found] == [[1, 1], [1, 1], 3, 2.5, True, [0, 1]]
    single = hb.trace(lambda x: [x], "f32[2]")
    assert str(single.entry.root.shape) == "(f32[2])"


def test_any_op() -> None:
    def function(x: Any, w: Any) -> Any:
        window = [{"size": 3, "low": 1, "high": 1}]
        y = hb.op("convolution", x, w, window=window, dim_labels="b0f_0io->b0f")
        values, places = hb.op("topk", y[0].T, k=2)
        return y, values, places, hb.op("bitcast-convert", y, shape="s32[2,8,5]")

    x, w = np.random.default_rng(0).standard_normal((2, 8, 4)), np.random.default_rng(1).standard_normal((3, 4, 5))
    x, w = x.astype(np.float32), w.astype(np.float32)
    module = hb.trace(function, x, w)
    hloom.verify(module)
    y, values, _, bits = hloom.evaluate(module, [x, w])
    padded = np.pad(x, ((0, 0), (1, 1), (0, 0)))
    expected = sum(np.einsum("bsm,mn->bsn", padded[:, n : n + 8], w[n]) for n in range(3))
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(values, -np.sort(-y[0].T, 1)[:, :2])
    np.testing.assert_array_equal(bits, y.view(np.int32))


def test_the_command_line_shows_lines_of_python(tmp_path: Path) -> None:
    def model(x: Any, w: Any) -> Any:
        return hb.tanh(hb.shard(x, ("x", "y")) @ w)

    with hb.use_mesh(hloom.Mesh.of(x=2, y=2)):
        module = hb.trace(model, "f32[8,16]", "f32[16,8]")
    line = f"test_program.py:{model.__code__.co_firstlineno + 1}"
    file = tmp_path / "model.hlo"
    file.write_text(module.to_text())
    for command in (["comm", str(file)], ["explain", str(file), "tanh"]):
        found = command_line.hloom(*command, cwd=tmp_path)
        assert (found.code, found.err) == (0, "")
        assert line in found.out

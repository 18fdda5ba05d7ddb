"""Wrong use of the builder is a CompileError at the user's line, which says what and where; sources are the user's."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import inspect
import re
import traceback
from typing import Any, cast

import hloom
import numpy as np
import pytest
from hloom import builder as hb
from hloom.ir.graph.stack_frames import source_line

F, N, B, P = "f32[4,8]", "s32[4,8]", "bf16[4,8]", "pred[4,8]"

WRONG: dict[str, tuple[Any, tuple[Any, ...], str]] = {
    "types": (lambda x, y: x + y, (F, B), r"add: f32\[4,8\] and bf16\[4,8\] have different .*x.astype\('f32'\)"),
    "types_of_numpy": (lambda x: x * np.ones(8), (F,), r"f32\[4,8\] and f64\[8\] have different element types"),
    "float_for_integers": (lambda n: n + 1.5, (N,), "the float 1.5 does not become s32"),
    "integer_too_large": (lambda n: n + 300, ("u8[2]",), "300 does not fit u8"),
    "number_for_pred": (lambda p: p & 1, (P,), "the int 1 does not become pred"),
    "fractions_of_integers": (lambda n: n / 2, (N,), r"s32\[4,8\] has no fractions.*x // y"),
    "mean_of_integers": (lambda n: n.mean(), (N,), "has no fractions"),
    "sum_of_pred": (lambda p: p.sum(), (P,), r"pred\[4,8\] has no numbers"),
    "exp_of_integers": (lambda n: hb.exp(n), (N,), "must have float or complex elements"),
    "shapes": (lambda x: x + x[:, :3], (F,), r"the shapes \(4, 8\) and \(4, 3\) do not broadcast"),
    "matmul": (lambda x: x @ x, (F,), "8 columns, 4 rows"),
    "dot": (lambda x: hb.dot(x, x), (F,), "sums over 8 and 4"),
    "axis": (lambda x: x.sum(2), (F,), "there is no axis 2 among 2.*axes are -2 to 1"),
    "axis_twice": (lambda x: hb.max(x, (0, -2)), (F,), "names one twice"),
    "reshape": (lambda x: x.reshape(5, -1), (F,), r"f32\[4,8\] does not have the elements of shape \(5, -1\)"),
    "transpose": (lambda x: hb.transpose(x, (0, 0)), (F,), "does not order the 2 dimensions"),
    "broadcast": (lambda x: hb.broadcast_to(x, (4, 1)), (F,), r"f32\[4,8\] does not become \(4, 1\)"),
    "concatenate": (lambda x: hb.concatenate([x, x[0]]), (F,), "concatenate"),
    "concatenate_nothing": (lambda x: hb.concatenate([]), (F,), "takes a list of one array or more"),
    "stack_nothing": (lambda x: hb.stack([]), (F,), "stack takes at least one array"),
    "opcode_of_no_text": (lambda x: hb.op(cast("Any", x), x), (F,), "there is no opcode"),
    "size": (lambda x: hb.zeros(cast("Any", 2.5)), (F,), r"2\.5 is no shape"),
    "axis_float": (lambda x: x.sum(cast("Any", 1.5)), (F,), r"there is no axis 1\.5 among 2"),
    "no_type": (lambda x: x.astype("f32,f32"), (F,), "'f32,f32' is no element type"),
    "no_function": (lambda x: hb.fori_loop(0, 3, cast("Any", 4), x), (F,), "fori_loop: 'int' object is not callable"),
    "no_axes": (lambda x: hb.psum(x, cast("Any", 3)), (F,), "psum: 'int' object is not iterable"),
    "index_range": (lambda x: x[4], (F,), r"index 4 is out of range for dimension 0 of f32\[4,8\]"),
    "index_array_range": (lambda x: x[[0, 7]], (F,), "an index is out of range for dimension 0"),
    "index_count": (lambda x: x[0, 0, 0], (F,), r"3 indices for f32\[4,8\], which has 2 dimensions"),
    "index_mask": (lambda x: x[x > 0], (F,), "an index must have integer elements.*where"),
    "index_slice": (lambda x, n: x[n[0, 0] :], (F, N), "a slice has fixed bounds.*dynamic_slice"),
    "index_float": (lambda x: x[1.5], (F,), "1.5 is no index"),
    "indices_apart": (lambda x: x[0][None][0, :, [1, 2]], ("f32[2,3,4]",), "stand apart in an index"),
    "two_arrays": (lambda x: x[[0], [1]], (F,), "an index may hold one array"),
    "truth": (lambda x: x if x.sum() > 0 else -x, (F,), r"no truth value while .*where\(c, x, y\)"),
    "float": (lambda x: float(x.sum()), (F,), "no float value"),
    "range": (lambda n: range(n[0, 0]), (N,), "no integer value"),
    "numpy": (lambda x: np.asarray(x), (F,), "no elements for numpy"),
    "text": (lambda x: hb.exp(cast("Any", "x")), (F,), "exp takes arrays and numbers, found str"),
    "list": (lambda x: x * [1, 2], (F,), r"found list.*asarray\(values\)"),
    "einsum_size": (lambda x: hb.einsum("ij,ij->i", x, x[:, :4]), (F,), "'j' has size 8 and size 4: ij is f32"),
    "einsum_rank": (lambda x: hb.einsum("ijk->i", x), (F,), r"'ijk' in 'ijk->i' does not fit f32\[4,8\]"),
    "einsum_count": (lambda x: hb.einsum("ij,jk->ik", x), (F,), "is for 2 operands, 1 are given"),
    "einsum_label": (lambda x: hb.einsum("ij->k", x), (F,), "'k' is in the result"),
    "einsum_twice": (lambda x: hb.einsum("ii->i", x[:, :4]), (F,), "a label occurs twice in 'ii'"),
    "where": (lambda x: hb.where(x, x, x), (F,), "the condition must be pred"),
    "carry_type": (lambda x: hb.scan(lambda c, _: (c.astype("bf16"), c), x, length=2), (F,),
                   r"the body of scan returns bf16\[4,8\].*the initial carry has f32\[4,8\]"),
    "carry_structure": (lambda x: hb.scan(lambda c, _: ({"b": x}, x), {"a": x}, length=2), (F,),
                        r"has the parts \['b'\], not \['a'\]"),
    "no_pair": (lambda x: hb.scan(lambda c, _: c, x, length=2), (F,), "the body must return a pair"),
    "length": (lambda x: hb.scan(lambda c, _: (c, c), x), (F,), "how many steps"),
    "lengths": (lambda x: hb.scan(lambda c, y: (c, c), x, (x, x.T)), (F,), r"xs\[0\] is f32\[4,8\], xs\[1\] is"),
    "condition": (lambda x: hb.while_loop(lambda s: s, lambda s: s, x), (F,), r"must be pred\[\], it is f32\[4,8\]"),
    "predicate": (lambda x: hb.cond(x[0, 0], lambda: x, lambda: x), (F,), r"must be pred\[\], it is f32\[\]"),
    "branches": (lambda x: hb.cond(x[0, 0] > 0, lambda: x, lambda: x[0]), (F,),
                 r"the otherwise of cond returns f32\[8\], the first branch has f32\[4,8\]"),
    "reducer": (lambda x: hb.reduce(lambda a, b: a + x[0, 0], x, 0.0), (F,), "uses a value from outside"),
    "dtype": (lambda x: x.astype("float31"), (F,), "'float31' is no element type of HLO"),
    "opcode": (lambda x: hb.op("tanhh", x), (F,), "there is no opcode 'tanhh'.*tanh"),
    "attribute": (lambda x: hb.op("transpose", x, dims=(1, 0)), (F,), "unknown attribute 'dims'"),
    "mesh": (lambda x: hb.shard(x, ("x", None)), (F,), "axes of which mesh.*use_mesh"),
    "axis_in_no_tuple": (lambda x: hb.shard(x, "x", hloom.Mesh.of(x=2)), (F,), r"shard: 'x' is a text.*\('x',\)"),
    "mesh_axis": (lambda x: hb.shard(x, ("z",), hloom.Mesh.of(x=2)), (F,), "the mesh has no axis 'z'.*axes: x"),
    "mesh_dims": (lambda x: hb.mesh_split(x, np.arange(4), [0]), (F,), "1 entries map the dimensions of f32"),
    "mesh_dim": (lambda x: hb.mesh_split(x, np.arange(4), [0, 1]), (F,), "there is no mesh dimension 1"),
    "mesh_twice": (lambda x: hb.mesh_split(x, np.arange(4), [0, 0]), (F,), "uses a mesh dimension twice"),
    "mesh_ids": (lambda x: hb.mesh_split(x, [[0, 2]], [0, 1]), (F,), "each of the device numbers 0, 1, 2"),
    "assignment": (lambda x: hb.shard(x, [0, 1]), (F,), "has 1 dimensions, f32"),
    "priority": (lambda x: hb.shard(x, [[0], [1]], priority=1), (F,), "a priority needs a placement by the axes"),
    "group": (lambda x: hb.shard_as(x, x[0]), (F,), "have different dimensions"),
    "result": (lambda x: {"a": "text"}, (F,), "the result takes arrays and numbers, found str"),
    "parameter": (lambda x: hb.cond(x[0, 0] > 0, lambda: hb.parameter("p", ()), lambda: 0.0), (F,),
                  "the then of cond has no parameters of its own"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use(name: str) -> None:
    function, specs, message = WRONG[name]
    with pytest.raises(hloom.CompileError) as caught:
        hb.trace(function, *specs)
    (found,) = caught.value.diagnostics
    assert re.search(message, str(found).replace("\n", " ")), str(found)
    assert found.location is not None
    assert found.location.source.name == __file__
    first = inspect.getsourcelines(WRONG[name][0])[1]
    assert first <= found.line <= first + 1 or name == "result"
    # Below the line of the wrong use there is one frame of the builder.
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [frame.filename == __file__ for frame in frames[-2:]] == [True, False]


def test_an_error_shows_the_call() -> None:
    def layer(x: Any, w: Any) -> Any:
        h = hb.tanh(x)
        return h + hb.einsum("ij,jk->ik", h, w)

    with pytest.raises(hloom.CompileError) as caught:
        hb.trace(layer, "f32[4,8]", "f32[9,8]")
    (found,) = caught.value.diagnostics
    shown = found.render().splitlines()
    assert shown[1].endswith('return h + hb.einsum("ij,jk->ik", h, w)')
    assert shown[2].strip("| ") == "^" * len('hb.einsum("ij,jk->ik", h, w)')


def test_without_a_program() -> None:
    with pytest.raises(hloom.CompileError, match=r"no program is under construction here"):
        hb.zeros((2,))
    kept: list[Any] = []
    hb.trace(lambda x: kept.append(x) or x, "f32[2]")
    with pytest.raises(hloom.CompileError, match="no program is under construction"):
        _ = kept[0] + 1

    def f(y: Any) -> Any:
        return y + kept[0]

    with pytest.raises(hloom.CompileError, match="a value of the program program is used in the program f"):
        hb.trace(f, "f32[2]")


def test_errors_of_functions_of_the_user_stay_as_they_are() -> None:
    def body(_: Any, x: Any) -> Any:
        return x + np.ones(3).reshape(2, 2)

    with pytest.raises(ValueError, match="cannot reshape array of size 3"):
        hb.trace(lambda x: hb.fori_loop(0, 3, body, x), F)
    call = cast("Any", hb.exp)
    with pytest.raises(TypeError, match="positional argument"):
        hb.trace(lambda x: call(x, x, x), F)


def test_values_do_not_leave_bodies() -> None:
    def function(x: Any) -> Any:
        kept: list[Any] = []
        hb.scan(lambda c, _: (kept.append(c * 2) or c, None), x, length=2)
        return kept[0] + 1

    with pytest.raises(hloom.CompileError, match="a value of the body of scan is used in the program function"):
        hb.trace(function, "f32[2]")


@pytest.mark.parametrize(("specs", "message"), [
    (("f32[2]", "f32[2]"), "the specs do not fit the function: too many positional arguments"),
    ((), "missing a required argument: 'x'"),
    (("(f32[2], f32[3])",), "is no array.*write a tuple of specs"),
    (("f33[2]",), "unknown element type 'f33'"),
    ((3,), "x: 3 is no spec"),
    (({"a": 1.5},), r"x\['a'\]: 1.5 is no spec"),
    ((hb.Spec((-1,)),), "has a negative size"),
    ((hb.Spec((4,), "f32", ("x", "y")),), "axes of which mesh"),
])  # fmt: skip
def test_wrong_specs(specs: Any, message: str) -> None:
    with pytest.raises(hloom.CompileError) as caught:
        hb.trace(lambda x: x, *specs)
    assert re.search(message, str(caught.value).replace("\n", " ")), str(caught.value)
    assert caught.value.diagnostics[0].location is not None


def block(x: Any, w: Any) -> Any:
    x = hb.shard(x, ("x", None))
    with hb.named_scope("attention"):
        x = hb.tanh(x @ w)
    return hb.scan(lambda c, _: (c @ w, None), x, length=3)[0]


def test_sources_are_the_users() -> None:
    with hb.use_mesh(hloom.Mesh.of(x=2)):
        module = hb.trace(block, "f32[4,8]", "f32[8,8]")
    first = inspect.getsourcelines(block)[1]
    lines = {i.opcode: source_line(i) for i in module.entry}
    assert lines["custom-call"] == f"test_errors.py:{first + 1}"
    assert lines["tanh"] == lines["dot"] == f"test_errors.py:{first + 3}"
    assert lines["while"] == f"test_errors.py:{first + 4}"
    names = {i.opcode: i.metadata.op_name for i in module.entry if i.metadata is not None}
    assert names["dot"] == "block/attention/matmul"
    assert names["tanh"] == "block/attention/tanh"
    assert names["while"] == "block/scan"
    (body,) = [c for c in module if c.name == "scan.body"]
    (product,) = [i for i in body if i.opcode == "dot"]
    assert source_line(product) == f"test_errors.py:{first + 4}"
    assert all(i.metadata is not None for c in module for i in c if i.opcode not in ("parameter", "add"))


def test_messages_of_the_compiler_point_to_python() -> None:
    """Collectives name the line, remarks show it: one op needs a divided dimension whole."""
    def program(x: Any, w: Any) -> Any:
        product = hb.shard(x, (None, "x")) @ w
        return hb.op("cholesky", hb.shard(product, ("x", None)))

    with hb.use_mesh(hloom.Mesh.of(x=4)):
        module = hb.trace(program, "f32[64,64]", "f32[64,64]")
    local, first = hloom.partition(module), inspect.getsourcelines(program)[1]
    assert {c.source for c in hloom.collectives(local)} == {f"test_errors.py:{first + n}" for n in (1, 2)}
    (remark,) = local.remarks
    assert remark.location is not None
    assert (remark.location.source.name, remark.line) == (__file__, first + 2)
    assert 'hb.op("cholesky"' in str(remark)

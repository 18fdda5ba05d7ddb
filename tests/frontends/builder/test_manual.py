"""Manual regions of the builder: what collectives mean for whole arrays, loops in regions, and what is refused."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

from typing import Any

import hloom
import numpy as np
import pytest
from hloom import builder as hb

X = np.arange(8 * 16, dtype=np.float32).reshape(8, 16)
T = X.reshape(2, 4, 4, 4)  # [x, row, y, column] of the mesh x=2, y=4
IDS = np.arange(8).reshape(2, 4)
XY = ("x", "y")
Y = np.arange(4)

# Functions of the local f32[4,4], the axes of the result, and the result of all devices.
COLLECTIVES: dict[str, tuple[Any, Any, Any]] = {
    "psum": (lambda x: hb.psum(x, "y"), ("x", None), T.sum(2).reshape(8, 4)),
    "psum_of_both": (lambda x: hb.psum(x, XY), (), T.sum((0, 2))),
    "pmean": (lambda x: hb.pmean(x, "x"), (None, "y"), T.mean(0).reshape(4, 16)),
    "pmax": (lambda x: hb.pmax(x, "x"), (None, "y"), T[1].reshape(4, 16)),
    "pmin": (lambda x: hb.pmin(x, XY), (), T[0, :, 0]),
    "all_gather": (lambda x: hb.all_gather(x, "y"), (None, "x"), T.transpose(2, 0, 1, 3).reshape(4, 8, 4)),
    "all_gather_behind": (lambda x: hb.all_gather(x, "y", axis=2), ("x",), T.transpose(0, 1, 3, 2).reshape(8, 4, 4)),
    "all_gather_tiled": (lambda x: hb.all_gather(x, "y", axis=1, tiled=True), ("x",), X),
    "psum_scatter": (lambda x: hb.psum_scatter(x, "y", scatter_dimension=1), (("x", "y"),),
                     T.sum(2).transpose(0, 2, 1).reshape(32)),
    "psum_scatter_tiled": (lambda x: hb.psum_scatter(x, "x", tiled=True), (("x",), "y"), X[:4] + X[4:]),
    "all_to_all": (lambda x: hb.all_to_all(x, "y", 0, 1), (("x", "y"),), T.transpose(0, 1, 3, 2).reshape(32, 4)),
    "all_to_all_tiled": (lambda x: hb.all_to_all(x, "y", 0, 1, tiled=True), (("x", "y"),), X),
    "all_to_all_back": (lambda x: hb.all_to_all(hb.all_to_all(x, "y", 0, 1, True), "y", 1, 0, True), XY, X),
    "ppermute": (lambda x: hb.ppermute(x, "y", [(n, (n + 1) % 4) for n in range(4)]), XY,
                 np.roll(T, 1, 2).reshape(8, 16)),
    "ppermute_to_some": (lambda x: hb.ppermute(x, "x", perm=[(0, 1)]), XY, np.concatenate([X[:4] * 0, X[:4]])),
    "axis_index": (lambda x: x * 0 + hb.axis_index(("y", "x")).astype("f32"), XY,
                   np.broadcast_to((Y * 2 + np.arange(2)[:, None])[:, None, :, None], T.shape).reshape(8, 16)),
    "axis_size": (lambda x: x * hb.axis_size("y"), XY, X * 4),
    "nothing": (lambda x: x, XY, X),
}  # fmt: skip


def check(function: Any, expected: Any, *arrays: Any, mesh: Any = IDS) -> hloom.Module:
    grid = mesh if isinstance(mesh, hloom.Mesh) else hloom.Mesh.of(x=2, y=4)
    with hb.use_mesh(grid):
        module = hb.trace(function, *arrays)
    hloom.verify(module)
    assert hloom.parse(module.to_text()).to_text() == module.to_text()
    local = hloom.partition(module)
    for found in (hloom.evaluate(module, arrays), hloom.simulate(local, arrays)):
        np.testing.assert_allclose(found[0], expected, rtol=1e-5)
    return local


@pytest.mark.parametrize("order", [None, (3, 1, 2, 0, 7, 5, 6, 4)], ids=["in_order", "other_order"])
@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives(name: str, order: Any) -> None:
    """Results do not depend on which device is at which place of the mesh."""
    function, axes, expected = COLLECTIVES[name]
    mesh = hloom.Mesh((("x", 2), ("y", 4)), order)
    check(lambda x: hb.shard_map(function, (XY,), axes)(x), expected, X, mesh=mesh)


def test_values_around_and_loops_inside() -> None:
    """A ring: each device sends its tile on, in a loop, and uses arrays from outside, which enter whole."""
    w = np.arange(-8, 8, dtype=np.float32).reshape(4, 4)  # sums are exact, in whatever order a device adds

    def function(x: Any, w: Any) -> Any:
        double = w * 2

        def ring(x: Any) -> Any:
            def step(_: Any, state: Any) -> Any:
                total, tile = state
                return total + tile @ double, hb.ppermute(tile, "y", [(n, (n + 1) % 4) for n in range(4)])

            return hb.fori_loop(0, 4, step, (x * 0, x))[0]

        return hb.tanh(hb.shard_map(ring, (XY,), ("x", None))(x) / 4096)

    local = check(function, np.tanh(T.sum(2).reshape(8, 4) @ w / 2048), X, w)
    (shift,) = hloom.collectives(local)
    assert (shift.kind, shift.count) == ("collective-permute", 4)


def test_trees_and_several_results() -> None:
    def region(p: dict[str, Any], scale: Any) -> Any:
        return {"a": p["x"] * scale, "b": [hb.psum(p["y"], "y")]}, p["x"]

    def function(x: Any) -> Any:
        mapped = hb.shard_map(region, ({"x": XY, "y": (None, "y")}, ()), ({"a": XY, "b": [()]}, XY))
        found, same = mapped({"x": x, "y": x}, 2.0)
        return found["a"] + same, found["b"][0]

    check(function, X * 3, X)


def test_some_axes_stay_with_the_partitioner() -> None:
    w = np.random.default_rng(1).standard_normal((16, 8)).astype(np.float32)

    def function(x: Any, w: Any) -> Any:
        mapped = hb.shard_map(lambda a, b: hb.psum(hb.sin(a) @ b, "y"), ((None, "y"), ("y",)), (), axis_names={"y"})
        return mapped(hb.shard(x, XY), w) + 1

    local = check(function, np.sin(X) @ w + 1, X, w)
    (total,) = hloom.collectives(local)
    assert (total.kind, total.group_size, total.buffer_bytes) == ("all-reduce", 4, 4 * 4 * 8)  # a half of the rows


@pytest.mark.parametrize(("function", "message"), [
    (lambda x: hb.psum(x, "y"), "psum: no manual region here has the axis 'y'"),
    (lambda x: hb.shard_map(lambda x: hb.psum(x, "z"), (XY,), ())(x), "no manual region here has the axis 'z'"),
    (lambda x: hb.shard_map(lambda x: x, (("x", "z"),), ())(x), "divided along 'z', which is not manual here"),
    (lambda x: hb.shard_map(lambda x: x, (("x", None, "y"),), ())(x), "places 3 dimensions, an argument is f32"),
    (lambda x: hb.shard_map(lambda x: x, (XY,), XY)(x[:3]), r"dimension 0 of f32\[3,16\] is not divided evenly"),
    (lambda x: hb.shard_map(lambda x: x, XY, ())(x), "in_specs must have a part for each of"),
    (lambda x: hb.shard_map(lambda x: (x, x), (XY,), ["x"])(x), r"out_specs must have a part for each of \[0\], \[1\]"),
    (lambda x: hb.shard_map(lambda x: x, (XY,), (), axis_names={"q"})(x), "the mesh has no axis 'q'"),
    (lambda x: hb.shard_map(lambda x: hb.ppermute(x, "x", [(0, 2)]), (XY,), XY)(x), r"the pair \(0, 2\) is not among"),
    (lambda x: hb.shard_map(lambda x: hb.all_to_all(x, "x", 0, 1), (XY,), XY)(x), "must be 2; tiled=True takes"),
    (lambda x: hb.shard_map(lambda x: hb.psum_scatter(x[:3], "x", 0, True), (XY,), XY)(x), "must be a multiple of 2"),
    (lambda x: hb.shard_map(lambda x: hb.shard_map(lambda y: y, (XY,), XY)(x), (XY,), XY)(x), "cannot lie in another"),
])  # fmt: skip
def test_what_is_refused(function: Any, message: str) -> None:
    with hb.use_mesh(hloom.Mesh.of(x=2, y=4)), pytest.raises(hloom.CompileError, match=message):
        hb.trace(function, X)


def test_devices_that_disagree_about_a_result_are_found() -> None:
    with hb.use_mesh(hloom.Mesh.of(x=2, y=4)):
        module = hb.trace(lambda x: hb.shard_map(lambda x: x, (XY,), ("x",))(x), X)
    with pytest.raises(hloom.CompileError, match=r"disagree|differ"):
        hloom.evaluate(module, [X])

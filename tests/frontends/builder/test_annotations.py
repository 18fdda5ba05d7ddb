"""The papers' annotation functions: what they write, what propagation makes of it, and the numbers of all devices."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

from typing import Any

import hloom
import numpy as np
import pytest
from hloom import builder as hb
from hloom.ir.ops.calls.custom_call import target_of

X = np.arange(8 * 16, dtype=np.float32).reshape(8, 16) / 10
MESH = hloom.Mesh.of(x=2, y=4)
IDS = np.arange(8).reshape(2, 4)


def written(function: Any) -> list[str]:
    """The sharding of each annotation of a program of one array."""
    with hb.use_mesh(MESH):
        module = hb.trace(function, X)
    hloom.verify(module)
    assert hloom.parse(module.to_text()).to_text() == module.to_text()
    (expected,) = hloom.evaluate(module, [X])
    (found,) = hloom.simulate(hloom.partition(module, 8), [X])
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    return [str(i.annotation) for i in module.entry if target_of(i) == "Sharding"]


@pytest.mark.parametrize(("annotate", "expected"), [
    (lambda x: hb.replicate(x), "{replicated}"),
    (lambda x: hb.split(x, 0, 8), "{devices=[8,1]<=[8]}"),
    (lambda x: hb.split(x, -1, 8), "{devices=[1,8]<=[8]}"),
    (lambda x: hb.shard(x, IDS), "{devices=[2,4]<=[8]}"),
    (lambda x: hb.shard(x, [[0, 1], [2, 3], [4, 5], [6, 7]]), "{devices=[4,2]<=[8]}"),
    (lambda x: hb.shard(x, IDS.T), "{devices=[4,2]0,4,1,5,2,6,3,7}"),
    (lambda x: hb.mesh_split(x, IDS, [0, 1]), "{devices=[2,4]<=[8]}"),
    (lambda x: hb.mesh_split(x, IDS, [1, 0]), "{devices=[4,2]<=[2,4]T(1,0)}"),
    (lambda x: hb.mesh_split(x, IDS, [-1, 0]), "{devices=[1,2,4]<=[8] last_tile_dim_replicate}"),
    (lambda x: hb.mesh_split(x, IDS[:, ::-1], [0, 1]), "{devices=[2,4]3,2,1,0,7,6,5,4}"),
    (lambda x: hb.mesh_split(x, MESH, [-1, 1]), "{mesh['x'=2,'y'=4], [{}, {'y'}]}"),
    (lambda x: hb.shard(x, ("x", "y")), "{mesh['x'=2,'y'=4], [{'x'}, {'y'}]}"),
    (lambda x: hb.shard(x, (("y", "x"),)), "{mesh['x'=2,'y'=4], [{'y','x'}, {}]}"),
    (lambda x: hb.shard(x, (None, ("x", "?"))), "{mesh['x'=2,'y'=4], [{}, {'x',?}]}"),
    (lambda x: hb.shard(x, ()), "{mesh['x'=2,'y'=4], [{}, {}]}"),
    (lambda x: hb.shard(x, ("a", None), mesh=hloom.Mesh.of(a=8)), "{mesh['a'=8], [{'a'}, {}]}"),
    (lambda x: hb.shard(x, hloom.Sharding.over(hloom.Mesh.of(a=8), None, "a")), "{mesh['a'=8], [{}, {'a'}]}"),
])  # fmt: skip
def test_what_is_written(annotate: Any, expected: str) -> None:
    assert written(lambda x: annotate(x) * 2) == [expected]


def sharding_of(module: hloom.Module, name: str) -> list[str]:
    """The axes of each dimension after propagation."""
    found = hloom.propagate(module).entry.find(name)
    assert found is not None
    assert isinstance(found.sharding, hloom.Sharding)
    return ["".join(axis.name for axis in dim.axes) for dim in found.sharding.dims]


def test_unspecified_dimensions_are_left_to_propagation() -> None:
    def program(unspecified: Any) -> hloom.Module:
        def function(x: Any) -> Any:
            y = hb.shard(x, (None, "y")) + 1
            return {"y": hb.mesh_split(y, MESH, [0, -1], unspecified_dims=unspecified)}

        with hb.use_mesh(MESH):
            return hb.trace(function, X)

    assert sharding_of(program(()), "y") == ["x", ""]
    assert sharding_of(program([1]), "y") == ["x", "y"]
    assert 'backend_config="unspecified_dims=[1]"' in program(-1).to_text()


def test_parameters_are_annotated_where_they_are_declared() -> None:
    spec = hb.Spec((8, 16), "bf16", ("x", "y"))
    with hb.use_mesh(MESH):
        module = hb.trace(lambda x: x + 1, spec)
    assert str(module.entry.parameters[0].sharding) == "{mesh['x'=2,'y'=4], [{'x'}, {'y'}]}"


def test_groups_are_sharded_alike() -> None:
    def program(group: Any) -> hloom.Module:
        def function(x: Any, z: Any) -> Any:
            a, b = group(hb.shard(x, ("x", "y")), z)
            return {"a": a + 1, "b": b * 2}

        with hb.use_mesh(MESH):
            module = hb.trace(function, X, X)
        results = hloom.simulate(hloom.partition(module), [X, X])
        np.testing.assert_allclose(results[1], X * 2)
        return module

    assert sharding_of(program(lambda x, z: (x, z)), "b") == ["", ""]
    for group in (hb.shard_as, hb.shard_like):
        module = program(group)
        assert sharding_of(module, "b") == ["x", "y"]
        assert f"sharding={{unknown {group.__name__} 1}}" in module.to_text()


def test_priorities_decide_which_annotation_wins() -> None:
    """Two annotations meet in one product; the one of the higher priority gives the axis."""
    def program(first: Any, second: Any) -> hloom.Module:
        def function(x: Any) -> Any:
            a = hb.shard(x, ("y", None), priority=first)
            b = hb.shard(x * 2, (None, "y"), priority=second)
            return {"r": a + b}

        with hb.use_mesh(MESH):
            module = hb.trace(function, X)
        hloom.verify(module)
        again = hloom.parse(module.to_text())
        assert again.to_text() == module.to_text()
        assert sharding_of(again, "r") == sharding_of(module, "r")
        (found,) = hloom.simulate(hloom.partition(again), [X])
        np.testing.assert_allclose(found, X * 3, rtol=1e-6)
        return module

    assert sharding_of(program(0, 1), "r") == ["y", ""]
    assert sharding_of(program(1, 0), "r") == ["", "y"]
    assert sharding_of(program({0: 2}, 1), "r") == ["", "y"]

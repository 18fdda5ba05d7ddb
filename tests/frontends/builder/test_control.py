"""Loops and branches of the builder against the same loops in Python, on one device and divided."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hloom
import numpy as np
import pytest
from hloom import builder as hb

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(5)
XS, W, C = (RNG.standard_normal(dims).astype(np.float32) / 2 for dims in ((5, 4, 6), (6, 6), (4, 6)))


class Eager:
    """numpy with the loops and branches of the builder, run at once."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def scan(body: Any, carry: Any, xs: Any, reverse: bool = False) -> Any:
        steps = range(len(xs))[:: -1 if reverse else 1]
        ys: dict[int, Any] = {}
        for n in steps:
            carry, ys[n] = body(carry, xs[n])
        return carry, np.stack([ys[n] for n in range(len(xs))])

    @staticmethod
    def while_loop(condition: Any, body: Any, state: Any) -> Any:
        while condition(state):
            state = body(state)
        return state

    @staticmethod
    def fori_loop(lower: Any, upper: Any, body: Any, state: Any) -> Any:
        for n in range(int(lower), int(upper)):
            state = body(n, state)
        return state

    @staticmethod
    def cond(predicate: Any, then: Any, otherwise: Any, *operands: Any) -> Any:
        return (then if predicate else otherwise)(*operands)

    @staticmethod
    def switch(index: Any, branches: Any, *operands: Any) -> Any:
        return branches[min(max(int(index), 0), len(branches) - 1)](*operands)


def nested(hb: Any, xs: Any, w: Any, c: Any) -> Any:
    """A scan whose body has a loop that has a branch, each with values from all around."""
    double = w * 2

    def step(carry: Any, x: Any) -> Any:
        def more(n: Any, y: Any) -> Any:
            return hb.cond(y[0, 0] > x[0, 0], lambda: y @ w - x, lambda: hb.tanh(y @ double) + carry)

        carry = hb.fori_loop(0, 3, more, carry) / 2
        return carry, carry.sum(0)

    return hb.scan(step, c, xs)


PROGRAMS: dict[str, Callable[..., Any]] = {
    "scan": lambda hb, xs, w, c: hb.scan(lambda h, x: ((y := hb.tanh(h @ w + x)), y[0]), c, xs),
    "scan_in_reverse": lambda hb, xs, w, c: hb.scan(lambda h, x: (h * 0.5 + x, h.sum()), c, xs, reverse=True),
    "scan_of_a_constant": lambda hb, xs, w, c: hb.scan(lambda h, x: (h + 1, x * 2), np.float32(0), xs[:, 0]),
    "while": lambda hb, xs, w, c: hb.while_loop(
        lambda s: s["norm"] > 0.1, lambda s: {"x": s["x"] @ w * 0.5, "norm": abs(s["x"]).max()},
        {"x": c, "norm": np.float32(9)}),
    "while_with_limits_from_outside": lambda hb, xs, w, c: hb.while_loop(
        lambda s: s < w.sum() + 40, lambda s: s + abs(c).max(), xs[0, 0, 0]),
    "for": lambda hb, xs, w, c: hb.fori_loop(1, 4, lambda n, s: s @ w + xs[n], c),
    "cond": lambda hb, xs, w, c: [
        hb.cond(xs[n, 0, 0] > 0, lambda a, b: (a @ w, b), lambda a, b: (b, a + xs[0]), c, xs[n]) for n in range(3)],
    "cond_without_operands": lambda hb, xs, w, c: hb.cond(c[0, 0] > 0, lambda: c.sum(), lambda: w.sum()),
    "switch": lambda hb, xs, w, c: [
        hb.switch(n, [lambda x: x + 1, lambda x: x @ w, lambda x: x * c.sum()], c) for n in (-3, 0, 1, 2, 7)],
    "nested": nested,
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_python_loops(name: str) -> None:
    function = PROGRAMS[name]
    with np.errstate(all="ignore"):
        expected = [np.asarray(x) for x in hb.flatten(function(Eager(), XS, W, C))]
    module = hb.trace(lambda *given: function(hb, *given), XS, W, C)
    hloom.verify(module)
    assert hloom.parse(module.to_text()).to_text() == module.to_text()
    results = [hloom.evaluate(module, [XS, W, C])]
    with hb.use_mesh(hloom.Mesh.of(x=2, y=2)):
        divided = hb.trace(lambda xs, w, c: function(
            hb, hb.shard(xs, (None, "x", "y")), hb.shard(w, ("y", "x")), hb.shard(c, ("x", None))), XS, W, C)
    results.append(hloom.simulate(hloom.partition(divided), [XS, W, C]))
    for found in results:
        assert [f.shape for f in found] == [x.shape for x in expected]
        for f, x in zip(found, expected, strict=True):
            np.testing.assert_allclose(f, x, rtol=1e-4, atol=1e-4)


def test_trees_keep_their_structure() -> None:
    seen: list[Any] = []

    def body(carry: Any, x: Any) -> Any:
        seen.append((carry, x))
        return {"b": [carry["b"][0] + 1, None], "a": carry["a"]}, (x["k"], {"s": carry["a"] * 2})

    def program(x: Any) -> Any:
        last, stacked = hb.scan(body, {"a": x[0], "b": [0, None]}, {"k": x})
        assert list(last) == ["a", "b"]
        assert last["b"][1] is None
        assert stacked[1]["s"].shape == (3,)
        return last, stacked

    x = np.arange(3, dtype=np.float32)
    found = hloom.evaluate(hb.trace(program, x), [x])
    assert len(seen) == 1
    last, (k, s) = hb.unflatten(({"a": 0, "b": [0, None]}, (0, {"s": 0})), found)
    assert (last["a"], last["b"][0]) == (0, 3)
    np.testing.assert_array_equal(k, x)
    np.testing.assert_array_equal(s["s"], np.zeros(3))


def test_loops_run_as_often_as_their_text_says() -> None:
    module = hb.trace(lambda x: hb.scan(lambda c, _: (c + x, None), x, length=7)[0], "f32[2]")
    (found,) = hloom.evaluate(module, [np.ones(2, np.float32)])
    np.testing.assert_array_equal(found, [8, 8])
    with hb.use_mesh(hloom.Mesh.of(x=2)):
        divided = hb.trace(lambda x, w: hb.scan(
            lambda c, _: (hb.shard(c, (None, "x")) @ hb.shard(w, ("x", None)), None), x, length=7)[0],
            "f32[4,4]", "f32[4,4]")  # fmt: skip
    found = hloom.collectives(hloom.partition(divided))
    assert [(c.kind, c.count, c.exact) for c in found] == [("reduce-scatter", 7, True)]


def test_no_step_and_no_output() -> None:
    module = hb.trace(lambda x: hb.scan(lambda c, x: (c + x, x), np.float32(1), x[:0]), "f32[3]")
    last, stacked = hloom.evaluate(module, [np.ones(3, np.float32)])
    assert last == 1
    assert stacked.shape == (0,)

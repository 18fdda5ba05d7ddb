"""Folds: programs of many equal layers get the same shardings whether a few layers are solved or all of them."""

from __future__ import annotations

import hloom
import pytest
from hloom.ir.analysis.layers import find_layers
from hloom.ir.gc_pause import paused_collector
from hloom.ir.graph.module import Module
from hloom.passes.base import PassContext
from hloom.passes.propagation.folds import find_folds
from hloom.passes.propagation.propagate import Propagate
from hloom.passes.propagation.refine import LIMITS, RADIUS, RefinementLimits
from hloom.passes.propagation.values import ValueGraph
from support.calls import calls
from support.repeated_layers import DIFFERENCES, Program

LAYERS = 56
FOLDED = (2, 8, 6, 27)  # seeds of programs in which all checks of folds hold
OTHERS = ((1007, 63), (1017, 80))  # seeds and layers of programs of which the checks of folds see that they differ


def folded(text: str, limits: RefinementLimits = LIMITS) -> Module | None:
    """The program with shardings found by folds alone; None if these refuse it."""
    module = hloom.parse(text)
    with paused_collector():
        return module if Propagate().folded(module, PassContext(), limits) else None


def solved(text: str, fold: bool, changes: int = LIMITS.changes) -> str:
    module = hloom.parse(text)
    with paused_collector():
        Propagate(fold=fold, changes=changes).run(module, PassContext())
    return module.to_text()


@pytest.mark.share(2)
@pytest.mark.parametrize("seed", FOLDED)
def test_layers_that_are_not_solved_get_the_shardings_that_solving_them_gives(seed: int) -> None:
    text = Program(seed, LAYERS).text()
    folds = next(find_folds(hloom.parse(text), RADIUS))
    assert len(folds.stands) > 0.3 * len(hloom.parse(text).entry)
    found = folded(text)
    assert found is not None
    assert found.to_text() == solved(text, fold=False)


@pytest.mark.share(6)
@pytest.mark.parametrize("difference", DIFFERENCES)
@pytest.mark.parametrize("seed", [2, 4, 22, 30, 43, 53])
def test_random_programs_get_the_same_shardings_where_one_layer_differs(seed: int, difference: str) -> None:
    text = Program(seed, LAYERS, difference).text()
    assert solved(text, fold=True) == solved(text, fold=False)


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("seed", "layers"), [(1083, 51), (1089, 51), *(pytest.param(*p, marks=pytest.mark.slow) for p in OTHERS)])
def test_layers_that_would_go_another_way_are_solved(seed: int, layers: int) -> None:
    """Without the checks of folds, these get other shardings."""
    text = Program(seed, layers).text()
    assert next(find_folds(hloom.parse(text), RADIUS)).stands
    assert folded(text) is None
    assert solved(text, fold=True) == solved(text, fold=False)


def test_a_search_that_its_limit_ends_is_folded() -> None:
    """Refinement counts what it would try in the layers that are left out, so that it ends where it would."""
    text = Program(1022, 80).text()
    found = {changes: folded(text, RefinementLimits(changes=changes)) for changes in (100, 1500)}
    for changes, module in found.items():
        assert module is not None
        assert module.to_text() == solved(text, fold=False, changes=changes)
    assert len({module.to_text() for module in found.values() if module}) == 2


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "layers"), [(1080, 63)])
def test_more_layers_are_solved_where_too_few_go_another_way(seed: int, layers: int) -> None:
    text = Program(seed, layers).text()
    with calls(ValueGraph.__init__) as graphs:
        found = folded(text)
    assert len(graphs) == 2
    assert found is not None
    assert found.to_text() == solved(text, fold=False)


@pytest.mark.parametrize("difference", DIFFERENCES[1:])
def test_a_layer_that_differs_is_in_no_run_of_equal_layers(difference: str) -> None:
    same, other = (hloom.parse(Program(31, LAYERS, d).text()) for d in ("none", difference))
    longest = find_layers(same.entry, {})
    assert LAYERS - 4 <= len(longest) <= LAYERS
    assert len(find_layers(other.entry, {})) < len(longest)
    for layer in longest:
        assert [i.opcode for i in layer] == [i.opcode for i in longest[0]]
        assert [i.shape for i in layer] == [i.shape for i in longest[0]]


def test_marks_tell_layers_apart() -> None:
    entry = hloom.parse(Program(31, LAYERS).text()).entry
    longest = find_layers(entry, {})
    marked = {longest[20][0]: "odd"}
    assert len(find_layers(entry, marked)) <= len(longest) - 20


def test_a_value_that_all_layers_end_in_is_no_part_of_them() -> None:
    """Operands of a concatenate are at other places in each layer, so no two layers are equal."""
    rows = "".join(
        f"  x{n} = f32[4,8] parameter({n})\n  y{n} = f32[4,8] tanh(x{n})\n  z{n} = f32[4,8] sine(y{n})\n"
        for n in range(9)
    )
    names = ", ".join(f"z{n}" for n in range(9))
    shapes = ", ".join(["f32[4,8]"] * 9)
    apart = f"HloModule m\nENTRY e {{\n{rows}  ROOT r = ({shapes}) tuple({names})\n}}\n"
    joined = f"HloModule m\nENTRY e {{\n{rows}  ROOT c = f32[36,8] concatenate({names}), dimensions={{0}}\n}}\n"
    inner = joined.replace("ROOT c", "c").replace("\n}\n", "\n  ROOT n = f32[36,8] negate(c)\n}\n")
    found = [find_layers(hloom.parse(text).entry, {}) for text in (apart, joined, inner)]
    assert [len(layers) for layers in found] == [9, 9, 0]

"""Programs without some of their equal layers: they compute what a program of so many layers does."""

from __future__ import annotations

import hloom
import numpy as np
import pytest
from hloom.ir.analysis.fewer_layers import ShortProgram, equal_layers, without_layers
from hloom.ir.graph.module import Module
from hloom.ir.tools.aliases import aliases
from hloom.ir.tools.verifier import check
from hloom.runtime.inputs.inputs import inputs_for_module
from support.deep_step import deep_step, renewed_before

MANY, GAP = 10, range(2, 6)  # of the equal layers, to which the first or the last one may not belong


def cut(module: Module, gap: range = GAP) -> ShortProgram | None:
    return without_layers(module, equal_layers(module, 5), gap)


def computes_alike(one: Module, other: Module) -> None:
    inputs = inputs_for_module(other)
    for found, wanted in zip(hloom.evaluate(one, inputs), hloom.evaluate(other, inputs), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_without_layers_a_program_computes_what_one_of_fewer_layers_does() -> None:
    few, many = hloom.parse(deep_step(MANY - len(GAP))), hloom.parse(deep_step(MANY))
    short = cut(many)
    assert short is not None
    check(short.module)
    computes_alike(short.module, few)
    assert short.module.input_output_alias == few.input_output_alias
    assert len(short.results) == MANY - len(GAP)
    names = [many.entry.root.operands[n].name for n in short.results]
    assert names == [o.name for o in short.module.entry.root.operands]
    assert all(copy.name == i.name and copy.parent is short.module.entry for i, copy in short.copies.items())


def test_the_header_keeps_what_it_says_of_those_that_stay() -> None:
    donors = ", buffer_donor={ (1, {}), (9, {}) }, allow_spmd_sharding_propagation_to_output={"
    flags = ",".join("true" if n in (0, MANY - 1) else "false" for n in range(MANY))
    short = cut(hloom.parse(deep_step(MANY, header=donors + flags + "}")))
    assert short is not None
    check(short.module)
    assert short.module.buffer_donor == "{ (1, {}), (5, {}) }"
    assert short.module.allow_propagation_to_output == (True, *[False] * (MANY - len(GAP) - 2), True)


@pytest.mark.parametrize(
    ("lines", "results"),
    [
        ("  s = f32[32,32] add(n4, n8)", ", s"),  # layer 4 would be cut
        ("  s = f32[32,32] add(w4, w4)", ", s"),
    ],
)
def test_a_layer_that_others_read_is_not_cut(lines: str, results: str) -> None:
    module = hloom.parse(deep_step(MANY, lines, results))
    layers = equal_layers(module, 4)
    assert all(module.entry.find("k4") not in layer for layer in layers)


def test_layers_may_renew_the_weight_of_the_next_one() -> None:
    """What such a layer reads of the one after the gap comes later; pairs that share memory across an end do not."""
    few, many = (hloom.parse(renewed_before(n)) for n in (MANY - len(GAP), MANY))
    short = cut(many)
    assert short is not None
    check(short.module)
    computes_alike(short.module, few)
    names = [[i.name for i in found] for found in (short.module.entry.parameters, short.module.entry.root.operands)]
    pairs = {(names[0][a.operand], names[1][int(a.result)]) for a in aliases(short.module.input_output_alias)}
    assert pairs < {(f"w{n + 1}", f"n{n}") for n in range(MANY - 1)}
    assert len(pairs) == len(aliases(few.input_output_alias)) - 1


def test_a_result_that_goes_takes_no_memory_of_a_parameter_that_stays() -> None:
    crossed = hloom.parse(deep_step(MANY))
    crossed.input_output_alias = "{ {4}: (0, {}, may-alias), {1}: (3, {}, may-alias) }"
    short = cut(crossed)
    assert short is not None
    assert short.module.input_output_alias == "{ {1}: (3, {}, may-alias) }"


def test_programs_whose_header_tells_more_are_not_cut() -> None:
    plain = hloom.parse(deep_step(MANY))
    assert cut(plain) is not None
    annotated = hloom.parse(deep_step(MANY).replace(f"n{MANY - 1})\n", f"n{MANY - 1}), sharding={{replicated}}\n"))
    assert annotated.entry.root.annotation is not None
    assert cut(annotated) is None

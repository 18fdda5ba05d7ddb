"""A plain data-parallel step becomes one with divided optimizer states: the same bytes, the same results."""

from __future__ import annotations

import hloom
import pytest
from hloom.ir.diagnostics import CompileError
from hloom.ir.graph.module import Module, clone_module
from hloom.ir.sharding.sharding import leaf_shardings
from hloom.passes.base import PassContext, run_pipeline
from hloom.passes.named import parse_pipeline
from hloom.passes.pipelines import partition
from hloom.runtime.inputs.inputs import make_inputs
from support.command_line import ROOT
from support.compare import compare
from support.training_steps import clipped_adam

EXAMPLES = ROOT / "examples"


def divided(module: Module, options: str = "") -> tuple[Module, Module, list[str]]:
    """The annotated program, the program of each device, and the remarks of the pass."""
    whole, context = clone_module(module), PassContext(verify="each")
    run_pipeline(parse_pipeline(f"synchronous,call-inliner,sharded-optimizer{options}"), whole, context)
    local = clone_module(whole)
    partition(local, PassContext(verify="each"))
    return whole, local, [d.message for d in context.diagnostics.found]


def local_bytes(module: Module) -> int:
    return sum(p.shape.byte_size for p in module.entry.parameters)


def sent(module: Module) -> int:
    return sum(c.sent_bytes for c in hloom.collectives(module))


def plain(module: Module) -> Module:
    local = clone_module(module)
    partition(local, PassContext())
    return local


@pytest.mark.parametrize(
    ("devices", "sizes"), [(4, (8, 16, 8)), (4, (6, 10, 9)), (3, (8, 8, 5)), (8, (9, 31, 8))], ids=str
)
def test_a_clipped_step(devices: int, sizes: tuple[int, int, int]) -> None:
    """Sizes that do not divide are padded. The norm needs scalars only."""
    module = hloom.parse(clipped_adam(devices, *sizes, batch=16 * devices))
    _, local, remarks = divided(module)
    assert "4 optimizer states are divided over data" in remarks[0]
    kinds = {c.kind: c.buffer_bytes for c in hloom.collectives(local) if c.kind == "all-reduce"}
    assert all(size <= 8 for size in kinds.values()), "only norms are reduced everywhere"
    inputs = make_inputs([p.shape for p in module.entry.parameters], seed=1)
    inputs = [abs(x) for x in inputs]  # second moments
    result = compare(hloom.simulate(local, inputs, poison=True), hloom.evaluate(module, inputs))
    assert result.equal, result
    assert hloom.prove(module, local).is_equal
    states = module.entry.parameters[2:6]
    held = [p.shape.byte_size for p in local.entry.parameters[2:6]]
    for state, size in zip(states, held, strict=True):
        assert size < 1.6 * state.shape.byte_size / devices
    uneven = sum(held) * devices / sum(s.shape.byte_size for s in states)
    assert sent(local) <= uneven * sent(plain(module)) + 64  # two scalars are reduced as well


@pytest.mark.slow
@pytest.mark.parametrize("name", ["transformer_train.hlo", "transformer_scan_train.hlo"])
def test_examples_send_the_same_bytes(name: str) -> None:
    """With tensor parallelism beside it, layers written out and in a loop."""
    module = hloom.load(EXAMPLES / name)
    _, local, remarks = divided(module)
    assert "25,216 of 50,432 bytes" in remarks[0]
    assert sent(local) == sent(plain(module))
    assert hloom.prove(module, local).is_equal


def _result_shardings(module: Module) -> list[str]:
    root = module.entry.root
    return [str(s) for s in leaf_shardings(root.annotation, root.shape.num_leaves)]


def test_the_annotated_program_is_a_program() -> None:
    """Its text is read again, and the new values of states lie where the states do."""
    whole, _, _ = divided(hloom.parse(clipped_adam(4, 8, 16, 8, 16)))
    again = hloom.parse(whole.to_text())
    shardings = _result_shardings(again)
    assert shardings[2:] == [str(p.annotation) for p in again.entry.parameters[2:6]]
    assert all("data" in s for s in shardings[2:])
    assert not any("'data'" in s.partition("[")[2].partition("[")[2] for s in shardings[:2])


def test_moments_are_told_from_weights_in_any_order() -> None:
    """The second moments come first, their new values last; nothing else can be the new value of a weight."""
    text = clipped_adam(4, 8, 16, 8, 16)
    text = text.replace("tuple(neww, newu, nw, nu, zw, zu)", "tuple(zw, zu, neww, newu, nw, nu)")
    whole, local, _ = divided(hloom.parse(text))
    assert [p.shape.dims for p in local.entry.parameters[:2]] == [(8, 16), (16, 8)]
    found = _result_shardings(whole)
    assert ["'data'}" in s for s in found] == [True, True, False, False, True, True]


def test_named_axes_and_small_states() -> None:
    module = hloom.parse(clipped_adam(4, 8, 16, 4, 16))
    _, local, remarks = divided(module, "{axes=data,least-bytes=300}")
    assert "2 optimizer states" in remarks[0], remarks
    with pytest.raises(CompileError, match="no mesh of the parameters has the axes z"):
        divided(module, "{axes=z}")
    assert local_bytes(local) < local_bytes(plain(module))


def test_without_data_parallelism_nothing_changes() -> None:
    text = clipped_adam(4, 8, 16, 8, 16).replace("[{'data'}, {}]", "[{}, {}]")
    _, local, remarks = divided(hloom.parse(text))
    assert "no axis divides the inputs" in remarks[0]
    assert local_bytes(local) == local_bytes(hloom.parse(text))


def test_divided_states_stay() -> None:
    text = clipped_adam(4, 8, 16, 8, 16, unit="mesh['data'=4], [{'data'}, {}]")
    _, _, remarks = divided(hloom.parse(text))
    assert all("divided over these axes already" in r for r in remarks)
    assert len(remarks) == 4




def in_bf16(devices: int, sizes: tuple[int, int, int]) -> Module:
    """A step whose products read weights in bf16."""
    text = clipped_adam(devices, *sizes, batch=16 * devices)
    for name, dims in (("w", f"{sizes[0]},{sizes[1]}"), ("u", f"{sizes[1]},{sizes[2]}")):
        short = f"  {name}s = bf16[{dims}] convert({name})  {name}x = f32[{dims}] convert({name}s)\n"
        text = text.replace(f"  {'h' if name == 'w' else 'y'} = ", f"{short}  {'h' if name == 'w' else 'y'} = ")
        text = text.replace(f", {name}), lhs", f", {name}x), lhs")
    return hloom.parse(text)


@pytest.mark.parametrize(("devices", "sizes"), [(4, (8, 16, 8)), (4, (6, 10, 9)), (8, (9, 31, 8))], ids=str)
def test_weights_that_are_used_in_a_shorter_type_are_gathered_in_it(
    devices: int, sizes: tuple[int, int, int]
) -> None:
    """Half of the bytes of new weights, and less memory; the same numbers, for a conversion is the same before and
    after the gather.
    """
    module = in_bf16(devices, sizes)
    _, states, _ = divided(module)
    _, local, remarks = divided(module, "{weights=true}")
    assert "4 optimizer states and 2 weights are divided over data" in remarks[0]
    gathers = [[i.shape for i in m.entry if i.opcode == "all-gather"] for m in (states, local)]
    assert [{s.element.name for s in shapes} for shapes in gathers] == [{"f32"}, {"bf16"}]
    assert local_bytes(local) < local_bytes(states)
    assert sent(local) < sent(states)
    inputs = [abs(x) for x in make_inputs([p.shape for p in module.entry.parameters], seed=1)]
    result = compare(hloom.simulate(local, inputs, poison=True), hloom.evaluate(module, inputs))
    assert result.equal, result
    assert hloom.prove(module, local).is_equal


def test_weights_that_are_read_in_their_own_type_stay_whole() -> None:
    """Here one product reads w itself."""
    text = in_bf16(4, (8, 16, 8)).to_text()
    assert text.count("dot(%x, %wx)") == 1
    _, local, remarks = divided(hloom.parse(text.replace("dot(%x, %wx)", "dot(%x, %w)")), "{weights=true}")
    assert "4 optimizer states and 1 weight are divided" in remarks[0]
    whole = [p.shape for p in local.entry.parameters[:2]]
    assert [str(s.without_layout()) for s in whole] == ["f32[8,16]", "f32[4,8]"]

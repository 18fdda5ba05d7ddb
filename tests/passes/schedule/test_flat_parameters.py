"""Parameters in one buffer: the bits of separate ones, the layout in the text, arrays given and shown one by one."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import hloom
import numpy as np
import pytest
from hloom.ir.diagnostics import CompileError
from hloom.ir.graph.module import Module, clone_module
from hloom.ir.tools.interface import unflattened
from hloom.ir.tools.names import result_names
from hloom.ir.tools.printer import flat_layout_text
from hloom.ir.tools.verifier import check, verify
from hloom.passes.base import PassContext
from hloom.passes.named import parse_pipeline
from hloom.passes.scheduling import schedule
from hloom.runtime.global_arrays import packed_inputs, unpacked_outputs
from hloom.runtime.inputs.inputs import inputs_for_module
from hloom.runtime.proof.prove import prove
from hloom.runtime.simulator import run_devices, simulate
from hloom.runtime.xla import run_on_xla
from support.command_line import have_mpi, process
from support.command_line import hloom as command
from support.fsdp_steps import fsdp_step
from support.rewrites import local_inputs, rewritten

CLUSTER = hloom.parse_machine("cpu-cluster")
MIXED = """HloModule mixed, num_partitions=2, input_output_alias={ {1}: (0, {}, may-alias), {2}: (2, {}, may-alias) },
  frontend_attributes={hloom.stage="local"}
ENTRY e {
  a = f32[3] parameter(0), sharding={devices=[2]<=[2]}
  b = bf16[2,2] parameter(1), sharding={devices=[2,1]<=[2]}
  c = f32[2,1,2] parameter(2), sharding={devices=[1,2,1]<=[2]}
  d = bf16[5] parameter(3), sharding={devices=[2]<=[2]}
  f = f32[2,2] parameter(4), sharding={devices=[1,2]<=[2]}
  alone = s32[4] parameter(5), sharding={devices=[2]<=[2]}
  twice = f32[2] parameter(6), sharding={devices=[2]<=[2]}
  g = f32[2,2] parameter(7), sharding={devices=[1,2]<=[2]}
  bw = f32[2,2] convert(b)
  a3 = f32[1,3,1] reshape(a)  b3 = bf16[1,2,2] reshape(b)  d3 = bf16[1,5,1] reshape(d)  f3 = f32[2,2,1] reshape(f)
  g3 = f32[2,2,1] reshape(g)  t3 = f32[1,2,1] reshape(twice)  w3 = f32[1,2,2] reshape(bw)
  all = (f32[1,6,1], bf16[1,4,2], f32[2,2,2], bf16[1,10,1], f32[2,4,1], f32[2,4,1], f32[1,4,1], f32[1,4,2])
    all-gather(a3, b3, c, d3, f3, g3, t3, w3), channel_id=1, replica_groups={{0,1}}, dimensions={1},
    use_global_device_ids=true
  more = (f32[4], f32[4]) all-gather(twice, twice), channel_id=2, replica_groups={{0,1}}, dimensions={0},
    use_global_device_ids=true
  own = s32[8] all-gather(alone), channel_id=3, replica_groups={{0,1}}, dimensions={0}, use_global_device_ids=true
  e0 = f32[1,6,1] get-tuple-element(all), index=0  e1 = bf16[1,4,2] get-tuple-element(all), index=1
  e2 = f32[2,2,2] get-tuple-element(all), index=2  e3 = bf16[1,10,1] get-tuple-element(all), index=3
  e4 = f32[2,4,1] get-tuple-element(all), index=4  e5 = f32[2,4,1] get-tuple-element(all), index=5
  e6 = f32[1,4,1] get-tuple-element(all), index=6  e7 = f32[1,4,2] get-tuple-element(all), index=7
  m0 = f32[4] get-tuple-element(more), index=0
  na = f32[3] add(a, a)
  nc = f32[2,1,2] multiply(c, c)
  ROOT r = (f32[1,6,1], f32[3], f32[2,1,2], bf16[1,4,2], f32[2,2,2], bf16[1,10,1], f32[2,4,1], f32[2,4,1], f32[1,4,1],
    f32[1,4,2], f32[4], s32[8]) tuple(e0, na, nc, e1, e2, e3, e4, e5, e6, e7, m0, own),
    sharding={{replicated}, {devices=[2]<=[2]}, {devices=[1,2,1]<=[2]}, {replicated}, {replicated}, {replicated},
    {replicated}, {replicated}, {replicated}, {replicated}, {replicated}, {replicated}}
}
"""


def step(devices: int, width: int, donated: bool = True, layers: int = 3) -> str:
    text = fsdp_step(devices, layers, width)
    shared = ", ".join(f"{{{n}}}: ({n}, {{}}, may-alias)" for n in range(3 * layers))
    header = f"num_partitions={devices}"
    return text.replace(header, f"{header}, input_output_alias={{ {shared} }}") if donated else text


def both(text: str, form: str = "variadic") -> tuple[Module, Module, Module]:
    """The whole program, the scheduled one, and that with flat parameters."""
    whole = hloom.parse(text)
    context = PassContext(machine=CLUSTER, verify="each")
    local = schedule(hloom.partition(whole).module, context, form=form)
    flat, messages = rewritten(clone_module(local), "flat-parameters")
    assert any("are gathered by" in message for message in messages), messages
    return whole, local, flat


def same_bits(found: list[Any], expected: list[Any]) -> bool:
    return len(found) == len(expected) and all(a.tobytes() == b.tobytes() for a, b in zip(found, expected, strict=True))


@pytest.mark.share(3)
@pytest.mark.parametrize(("devices", "width", "form", "donated"), [
    (2, 7, "variadic", True), (4, 6, "flat", True), (4, 10, "xla", False), (2, 16, "variadic", False),
])  # fmt: skip
def test_steps_keep_their_bits(devices: int, width: int, form: str, donated: bool) -> None:
    """Also those of tiles that do not fill their arrays, and as text."""
    whole, local, flat = both(step(devices, width, donated), form)
    assert len(flat.entry.parameters) < len(local.entry.parameters) / 2
    assert (len(flat.entry.root.operands) < 9) == donated
    gathers = [i for i in flat.entry if i.opcode == "all-gather"]
    assert gathers
    assert all(o.op.role is flat.entry.parameters[0].op.role for g in gathers for o in g.operands), "are not packed"
    again = hloom.parse(flat.to_text())
    assert again.flat_layout == flat.flat_layout
    inputs = inputs_for_module(whole)
    expected = simulate(local, inputs, poison=True)
    for module in (flat, again, unflattened(flat)):
        check(module)
        assert same_bits(simulate(module, inputs, poison=True), expected)
    assert unflattened(flat).input_output_alias == local.input_output_alias
    assert result_names(unflattened(flat)) == result_names(local)


def test_flat_programs_are_proved() -> None:
    whole, _, flat = both(step(2, 7))
    assert prove(whole, flat, trials=1).outcome == "equal"
    assert prove(whole, _with_swapped_members(flat), trials=1).outcome == "differs"


def _with_swapped_members(flat: Module) -> Module:
    """Two members of one shape that have changed places in the layout of the parameters."""
    text = flat.to_text()
    found = re.findall(r"\b(in0|in1)=(\d+\[\d+\])", text)
    assert len(found) == 2
    (_, first), (_, second) = found
    return hloom.parse(text.replace(f"in0={first}", f"in0={second}").replace(f"in1={second}", f"in1={first}"))


def test_types_donation_and_other_buckets_decide_what_is_joined() -> None:
    """One buffer per type and for those with results; what other gathers read too, or alone, stays."""
    before = hloom.parse(MIXED)
    flat, _ = rewritten(MIXED, "flat-parameters")
    names = [p.name for p in flat.entry.parameters]
    assert names == ["alone", "twice", "flat", "flat.1", "flat.2"]
    layout = flat.flat_layout
    assert layout is not None
    members = [[p.member.name for p in layout.parameters if p.member and p.number == n] for n in (2, 3, 4)]
    assert members == [["a", "c"], ["b", "d"], ["f", "g"]]
    assert [p.member.name for p in layout.results if p.member] == ["na", "nc"]
    assert flat.input_output_alias == "{ {10}: (2, {}, may-alias) }"
    inputs = local_inputs(before)
    expected = run_devices(before, inputs)
    for module in (flat, hloom.parse(flat.to_text())):
        found = unpacked_outputs(module, run_devices(module, packed_inputs(module, inputs)))
        assert all(same_bits(a, b) for a, b in zip(found, expected, strict=True))
    alone = run_devices(unflattened(flat), inputs)
    assert all(same_bits(a, b) for a, b in zip(alone, expected, strict=True))


@pytest.mark.parametrize(("text", "message"), [
    (fsdp_step(2, 2), "no all-gather has several parameters as operands"),
    ("HloModule m, num_partitions=2, frontend_attributes={hloom.stage=\"local\"}\n"
     "ENTRY e { ROOT p = (f32[2]) parameter(0) }", "is no array"),
])  # fmt: skip
def test_what_is_not_joined_is_said(text: str, message: str) -> None:
    module = hloom.parse(text)
    local = module if "hloom.stage" in text else hloom.partition(module).module
    before = local.to_text()
    found, messages = rewritten(local, "flat-parameters")
    assert any(message in said for said in messages)
    assert found.to_text() == before


def test_a_second_time_changes_nothing() -> None:
    _, _, flat = both(step(2, 8))
    text = flat.to_text()
    again, messages = rewritten(flat, "flat-parameters")
    assert again.to_text() == text
    assert any("has flat parameters already" in message for message in messages)


def test_the_order_of_passes_is_checked() -> None:
    with pytest.raises(CompileError, match="bucket must come before flat-parameters"):
        parse_pipeline("flat-parameters,bucket")


@pytest.mark.parametrize(("old", "new", "message"), [
    (r"scale0=1\[0\]", "scale0=1[1]", "is not f32 from 0 on"),
    (r"scale0=1\[0\]", "scale0=7[0]", "names other parameters"),
    (r"scale0=1\[0\] f32\[4\]", "scale0=1[0] f32[5]", "the tiles of f32[7] are not f32[5]"),
    (r"scale0=1\[0\] f32\[4\] f32\[7\]", "scale0=1[0] f32[4] f32[7,1]", "rank"),
    (r"scale0=1\[0\]", "scale0=1{0}", "a number or a member of an array expected"),
    (r"\)->\(", ") (", "'->' expected"),
    (r"scale0=1\[0\] f32\[4\]", "scale0=1[0] q32[4]", "q32"),
])  # fmt: skip
def test_wrong_layouts_are_errors(old: str, new: str, message: str) -> None:
    text = both(step(2, 7))[2].to_text()
    with pytest.raises(CompileError, match=re.escape(message)):
        hloom.parse(re.sub(old, new, text, count=1))


def test_the_verifier_sees_a_layout_that_no_longer_fits() -> None:
    _, local, flat = both(step(2, 7))
    assert flat.flat_layout is not None
    local.flat_layout = flat.flat_layout
    assert any("flat layout" in d.message for d in verify(local))


def test_commands_take_and_give_arrays_one_by_one(tmp_path: Path) -> None:
    """From the original, and from the text with flat parameters, with inputs from a file."""
    whole = hloom.parse(step(2, 7))
    (tmp_path / "step.hlo").write_text(step(2, 7))
    inputs = inputs_for_module(whole, seed=3)
    given: dict[str, Any] = {p.name: x for p, x in zip(whole.entry.parameters, inputs, strict=True)}
    np.savez(tmp_path / "in.npz", **given)
    more = ("--schedule", "--machine", "cpu-cluster")
    plain = command("run", "step.hlo", *more, "--inputs", "in.npz", "--out", "plain", cwd=tmp_path)
    assert plain.code == 0, plain.err
    done = command("run", "step.hlo", *more, "--flat-parameters", "--inputs", "in.npz", "--out", "flat", "--check",
                     cwd=tmp_path)  # fmt: skip
    assert done.code == 0, done.out + done.err
    made = command("partition", "step.hlo", *more, "--flat-parameters", cwd=tmp_path)
    (tmp_path / "flat.hlo").write_text(made.out)
    again = command("run", "flat.hlo", "--inputs", "in.npz", "--out", "again", cwd=tmp_path)
    assert again.code == 0, again.err
    names = sorted(f.name for f in (tmp_path / "plain").iterdir())
    assert len(names) == 10, "with the manifest"
    for folder in ("flat", "again"):
        assert sorted(f.name for f in (tmp_path / folder).iterdir()) == names
        same = [(tmp_path / folder / n).read_bytes() == (tmp_path / "plain" / n).read_bytes() for n in names]
        assert all(same), (folder, names, same)
    told = command("schedule", "flat.hlo", "--machine", "cpu-cluster", cwd=tmp_path)
    assert told.code == 0, told.err
    alone = command("partition", "step.hlo", "--flat-parameters", cwd=tmp_path)
    assert alone.code == 2
    assert "--flat-parameters joins what --schedule gathers together" in alone.err


@pytest.mark.slow
def test_ranks_give_the_bits_of_separate_parameters(tmp_path: Path) -> None:
    if not have_mpi():
        pytest.skip("there is no mpiexec")
    whole, local, _ = both(step(2, 7))
    (tmp_path / "step.hlo").write_text(step(2, 7))
    done = process("run", "step.hlo", "--ranks", "2", "--schedule", "--flat-parameters", "--machine", "cpu-cluster",
                   "--check", "--out", "out", "--backend", "reference", cwd=tmp_path)  # fmt: skip
    assert done.code == 0, done.out + done.err
    expected = simulate(local, inputs_for_module(whole))
    found = [np.load(tmp_path / "out" / f"output_{n}.npy") for n in range(9)]
    assert same_bits(found, expected)


def test_xla_takes_the_text_and_computes_the_same() -> None:
    pytest.importorskip("jax")
    xla: Any = importlib.import_module("jaxlib._hlo")
    whole, _, flat = both(step(2, 7, donated=False), "xla")
    for module in (flat, both(step(2, 7))[2]):
        assert module.flat_layout is not None
        assert flat_layout_text(module.flat_layout) in xla.hlo_module_from_text(module.to_text()).to_string()
    inputs = inputs_for_module(whole)
    for a, b in zip(run_on_xla(flat, inputs), hloom.evaluate(whole, inputs), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)

"""Serialized modules as files, snapshots, what is carried along, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzzing.messages import tree
from hloom import CompileError, load, load_snapshot, parse
from hloom.frontends.proto import is_proto, read_module, write_module
from hloom.frontends.proto.schema import TABLES, new
from hloom.frontends.proto.wire import ProtoError, Record, decode, encode, is_fully_known, to_varint
from hloom.ir.graph.module import Module, clone_module
from hloom.ir.strings import BracedText

TEXT = """HloModule m, num_partitions=2
w { p = f32[3] parameter(0) ROOT z = f32[3] negate(p) }
ENTRY e {
  x = f32[3] parameter(0), sharding={devices=[2]<=[2]}
  c = f32[3] constant({1, 2, 3})
  s = ((f32[3]), f32[3], s32[]) sine-start(x), metadata={op_name="a"}
  d = f32[3] sine-done(s)
  y = f32[3] call(d), to_apply=w
  ROOT r = (f32[3], f32[3]) tuple(c, y)
}"""


def data() -> bytes:
    return write_module(parse(TEXT))


def records(record: Record) -> list[Record]:
    """The instructions of all computations."""
    return [i for c in record.subs("computations") for i in c.subs("instructions")]


def field(number: int, payload: bytes) -> bytes:
    return to_varint(number << 3 | 2) + to_varint(len(payload)) + payload


# -- files


@pytest.mark.parametrize("name", ["m.pb", "m.hlo.pb", "m.bin", "m"])
def test_load_knows_serialized_modules_by_name_and_content(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(data())
    assert load(tmp_path / name).to_text() == read_module(data()).to_text()


def test_text_is_no_proto(tmp_path: Path) -> None:
    for text in (TEXT, "\n\n" + TEXT, "\n", "", "\n\x0btab", "\r\n" + TEXT, "// \u2014\n" + TEXT):
        assert not is_proto(text.encode())
    (tmp_path / "m.pb").write_text(TEXT)
    with pytest.raises(CompileError, match="not a serialized HLO module"):
        load(tmp_path / "m.pb")


def snapshot(module: Module, *values: np.ndarray[Any, Any]) -> bytes:
    literals: list[Any] = []
    for value in values:
        numbers = ", ".join(map(str, value))
        literal = write_module(parse(f"HloModule m\nENTRY e {{ ROOT c = f32[3] constant({{{numbers}}}) }}"))
        literals.append(records(decode(TABLES, "HloModuleProto", literal))[0].values["literal"])
    record = new("HloSnapshot")
    record.new("hlo").values["hlo_module"] = write_module(module)
    record.values["arguments"] = literals[:-1]
    record.values["result"] = literals[-1]
    record.set("execution_platform", "cpu")
    return encode(record)


def test_snapshots(tmp_path: Path) -> None:
    module = parse("HloModule m\nENTRY e { x = f32[3] parameter(0) ROOT r = f32[3] negate(x) }")
    x = np.array([1, 2, 4], np.float32)
    (tmp_path / "s.pb").write_bytes(snapshot(module, x, -x))
    found = load_snapshot(tmp_path / "s.pb")
    assert found.platform == "cpu"
    np.testing.assert_array_equal(found.arguments[0], x)
    np.testing.assert_array_equal(found.result, -x)
    assert load(tmp_path / "s.pb").to_text() == found.module.to_text() == read_module(write_module(module)).to_text()


def test_hlo_proto() -> None:
    wrapped = field(1, data())
    assert read_module(wrapped).to_text() == read_module(data()).to_text()


# -- what is carried


def test_unknown_fields_are_carried_untouched() -> None:
    record = decode(TABLES, "HloModuleProto", data())
    record.unknown += field(4000, b"module")
    computations = [decode(TABLES, "HloComputationProto", c) for c in record.all("computations")]
    for computation in computations:
        computation.values["instructions"] = [
            _marked(decode(TABLES, "HloInstructionProto", i)) for i in computation.all("instructions")
        ]
    record.values["computations"] = computations
    module = read_module(encode(record))
    written = encode(record).count(b"mark")
    for copy in (module, clone_module(module)):
        again = copy.to_proto()
        assert b"module" in again
        # The computation of a start that became part of the start keeps what it said only if nothing is lost: it stays.
        assert again.count(b"mark") == written
        assert read_module(again).to_proto() == again
    root = module.entry.root
    assert root.metadata is None
    assert not is_fully_known(TABLES, "HloModuleProto", module.to_proto())


def _marked(instruction: Record) -> Record:
    instruction.unknown += field(4001, b"mark")
    shape = instruction.sub("shape")
    shape.unknown += field(4002, b"mark")
    instruction.values["shape"] = encode(shape)
    return instruction


def test_what_was_carried_for_a_shape_goes_with_the_shape() -> None:
    record = decode(TABLES, "HloModuleProto", data())
    computations = [decode(TABLES, "HloComputationProto", c) for c in record.all("computations")]
    for computation in computations:
        computation.values["instructions"] = [
            _marked(decode(TABLES, "HloInstructionProto", i)) for i in computation.all("instructions")
        ]
    record.values["computations"] = computations
    module = read_module(encode(record))
    before = module.to_proto().count(b"mark")
    constant = next(i for i in module.entry if i.opcode == "constant")
    constant.shape = constant.shape.without_layout()  # the default layout: the field says the same
    assert module.to_proto().count(b"mark") == before
    constant.shape = parse_layout("f32[3]{0:S(1)}")
    assert module.to_proto().count(b"mark") == before - 1


def parse_layout(text: str) -> Any:
    from hloom.frontends import parse_shape

    return parse_shape(text)


def test_known_fields_without_a_text_are_carried() -> None:
    record = decode(TABLES, "HloModuleProto", data())
    computation = decode(TABLES, "HloComputationProto", record.all("computations")[-1])
    instructions = [decode(TABLES, "HloInstructionProto", i) for i in computation.all("instructions")]
    instructions[0].set("delta", 77)  # nothing that a parameter has
    computation.values["instructions"] = instructions
    record.values["computations"][-1] = computation
    written = decode(TABLES, "HloModuleProto", read_module(encode(record)).to_proto())
    assert [i.int("delta") for i in records(written)].count(77) == 1


# -- what is wrong


Change = Callable[[dict[str, Record]], None]


def changed(change: Change) -> bytes:
    """The data with `change` applied to the records of the instructions of the entry, by name."""
    record = decode(TABLES, "HloModuleProto", data())
    computation = decode(TABLES, "HloComputationProto", record.all("computations")[-1])
    instructions = [decode(TABLES, "HloInstructionProto", i) for i in computation.all("instructions")]
    change({i.str("name"): i for i in instructions})
    computation.values["instructions"] = instructions
    record.values["computations"][-1] = computation
    return encode(record)


def _set(name: str, key: str, value: Any) -> Change:
    def change(found: dict[str, Record]) -> None:
        found[name].values[key] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("y", "operand_ids", [12345]), "refers to instruction 12345, which is not defined before it"),
        (_set("y", "called_computation_ids", [99]), "calls computation 99, which is not there"),
        (_set("y", "opcode", "frobnicate"), "opcode 'frobnicate' is not supported"),
        (_set("y", "opcode", "negate"), "calls 1 computations"),
        (_set("r", "operand_ids", []), "declared shape"),
        (_set("c", "literal", b""), "3 values expected, found 0"),
        (_set("x", "sharding", b"\x08\x63"), "sharding of type 99"),
        (_set("x", "shape", b"\x10\x63"), "element type 99 is not known"),
        (_set("x", "shape", b"\x10\x0b\x1a\x0a" + b"\xff" * 9 + b"\x01"), "dimension of -1"),
        (_set("x", "parameter_number", 7), "parameter number 7"),
    ],
)
def test_mistakes_are_diagnostics(change: Change, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        read_module(changed(change), "m.pb")


def test_mistakes_are_shown_in_the_text() -> None:
    with pytest.raises(CompileError) as caught:
        read_module(changed(_set("y", "shape", bytes(encode_shape(4)))), "m.pb")
    diagnostic = caught.value.diagnostics[0]
    assert diagnostic.location is not None
    assert diagnostic.location.source.name == "m.pb"
    assert "%y = f32[4]" in str(diagnostic)


def encode_shape(size: int) -> bytes:
    shape = new("ShapeProto")
    shape.set("element_type", 11)
    shape.set("dimensions", [size])
    return encode(shape)


def test_absurd_sizes_allocate_nothing() -> None:
    def enlarge(found: dict[str, Record]) -> None:
        found["c"].values["shape"] = encode_shape(1 << 60)

    with pytest.raises(CompileError, match="1152921504606846976 values expected, found 3"):
        read_module(changed(enlarge))


def test_deep_nesting_is_an_error() -> None:
    shape = encode_shape(1)
    for _ in range(5000):
        shape = b"\x10\x0d" + field(4, shape)
    with pytest.raises(CompileError, match="nested deeper"):
        read_module(changed(_set("x", "shape", shape)))


@pytest.mark.parametrize(
    "junk", [b"\x0a", b"\xff" * 20, b"\x0a\xff\xff\xff\xff\x0f", b"\x0b", b"\x00", b"", b"\x08" + b"\xff" * 12]
)
def test_junk(junk: bytes) -> None:
    with pytest.raises(CompileError, match="not a serialized HLO module"):
        read_module(junk)


def test_every_truncation_is_an_error() -> None:
    whole = data()
    for size in range(len(whole)):
        # A file cut between fields of the module may still be one: without its last part.
        try:
            read_module(whole[:size])
        except CompileError:
            continue
        assert not any(i.int("id") < 0 for i in records(decode(TABLES, "HloModuleProto", whole[:size])))


def test_wire_format() -> None:
    record = new("HloInstructionProto")
    record.set("channel_id", -5)
    record.set("operand_ids", [1 << 40, 3])
    record.set("epsilon", -0.0)
    record.set("exponent_bits", -1)
    again = decode(TABLES, "HloInstructionProto", encode(record))
    assert again.values["channel_id"] == -5
    assert again.values["operand_ids"] == [1 << 40, 3]
    assert str(again.values["epsilon"]) == "-0.0"
    assert again.values["exponent_bits"] == -1
    # Repeated numbers may come one by one, and a message in pieces.
    single = decode(TABLES, "HloInstructionProto", b"\xa0\x02\x01\xa0\x02\x02")
    assert single.ints("operand_ids") == [1, 2]
    pieces = field(40, b"\x08\x03") + field(40, b"\x1a\x01\x02")
    sharding = decode(TABLES, "HloInstructionProto", pieces).sub("sharding")
    assert (sharding.int("type"), sharding.ints("tile_assignment_dimensions")) == (3, [2])
    with pytest.raises(ProtoError, match="wire type"):
        decode(TABLES, "HloInstructionProto", b"\x08\x01")


@pytest.mark.parametrize(
    "line",
    [
        "f32[3] exponential(x), result_accuracy={mode=some}",
        "f32[3] exponential(x), result_accuracy={tolerance={atol=x}}",
        'f32[3] custom-call(x), custom_call_target="t", output_to_operand_aliasing={{}: 0}',
        'f32[3] custom-call(x), custom_call_target="t", operand_layout_constraints={f32[3}',
        'f32[3] domain(x), domain={kind="sharding", entry={maximal device=-1}, exit={replicated}}',
        "f32[3] negate(x), metadata={what=1}",
        'f32[3] negate(x), sharding={replicated metadata={metadata_payload="p"}}',
        "f32[3] negate(x), origin={here}",
    ],
)
def test_verbatim_texts_without_a_serialized_form_are_refused(line: str) -> None:
    try:
        module = parse(f"HloModule m\nENTRY e {{ x = f32[3] parameter(0) ROOT r = {line} }}")
    except CompileError:
        return  # refused even earlier
    with pytest.raises(CompileError, match="m cannot be serialized"):
        module.to_proto()


def test_replica_groups_of_older_modules() -> None:
    module = parse(
        "HloModule m, num_partitions=4\nENTRY e { x = f32[3] parameter(0) "
        "ROOT r = f32[6] all-gather(x), channel_id=1, replica_groups=[2,2]<=[2,2]T(1,0), dimensions={0} }"
    )

    def rewritten(place: int) -> bytes:
        record = tree("HloModuleProto", module.to_proto())
        root = record.all("computations")[0].all("instructions")[1]
        iota = encode(root.values.pop("iota_collective_device_list"))
        root.values["collective_device_list"] = field(place, iota)
        return encode(record)

    assert read_module(rewritten(2)).to_text() == read_module(module.to_proto()).to_text()
    with pytest.raises(CompileError, match="replica groups in a form that is not known"):
        read_module(rewritten(9))


def test_layout_constraints_have_layouts() -> None:
    module = parse(
        "HloModule m\nENTRY e { x = f32[3] parameter(0) ROOT r = f32[3] custom-call(x), "
        'custom_call_target="t", operand_layout_constraints={f32[3]{0}} }'
    )
    record = tree("HloModuleProto", module.to_proto())
    root = record.all("computations")[0].all("instructions")[1]
    root.values["operand_shapes_with_layout"][0].values.pop("layout")
    with pytest.raises(CompileError, match=r"layout of f32\[3\] without a layout"):
        read_module(encode(record))


def test_the_main_thread_may_go_without_saying() -> None:
    record = tree("HloModuleProto", data())
    wrapped = next(c for c in record.all("computations") if c.str("name").startswith("async_sine"))
    del wrapped.values["execution_thread"]
    assert read_module(encode(record)).to_text() == read_module(data()).to_text()


def test_strings_of_one_text_in_braces_are_that_text() -> None:
    """XLA prints them without quotes, and a serialized module does not tell them apart."""
    module = parse("""HloModule m
ENTRY e { x = f32[4] parameter(0)
  ROOT y = f32[4] negate(x), frontend_attributes={a="{b}",c="{d} ",e="{\\"}"}, backend_config="{\\"f\\":1}" }""")
    again = read_module(module.to_proto())
    assert module.entry.root.backend_config == again.entry.root.backend_config == BracedText('{"f":1}')
    attributes = {"a": BracedText("{b}"), "c": "{d} ", "e": '{"}'}
    assert module.entry.root.frontend_attributes == again.entry.root.frontend_attributes == attributes

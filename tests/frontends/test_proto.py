"""Serialized modules against XLA's own codec: what we write XLA reads, and what XLA writes we read."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hloom.frontends import parse
from hloom.frontends.proto import read_module, write_module
from hloom.frontends.proto.attributes import codec
from hloom.frontends.proto.schema import TABLES
from hloom.frontends.proto.wire import Record, decode, encode
from hloom.ir.diagnostics import CompileError
from hloom.ir.graph.attributes import attribute_fields
from hloom.ir.graph.module import Module
from hloom.ir.graph.op import OPS
from hloom.ir.types.literal import Literal
from support.op_samples import all_samples, few

SAMPLES = all_samples()
FILES = sorted((Path(__file__).parents[2] / "examples").glob("*.hlo"))
EXAMPLES = [pytest.param(f, marks=[pytest.mark.slow] * f.stem.startswith("transformer"), id=f.stem) for f in FILES]
# XLA forgets `largest` when it reads a top-k.
FORGOTTEN = re.compile(r", largest=(?:true|false)")


def xla() -> Any:
    pytest.importorskip("jax")
    return importlib.import_module("jaxlib._hlo")


def printed(module: Any) -> str:
    options = xla().HloPrintOptions()
    options.print_large_constants = True
    return FORGOTTEN.sub("", module.to_string(options))


def xla_reads(data: bytes) -> str:
    return printed(xla().HloModule.from_serialized_hlo_module_proto(data))


def blocks(text: str) -> list[str]:
    """The parts of a module's text in a fixed order: XLA orders computations anew when it reads a module."""
    return sorted(FORGOTTEN.sub("", text).split("\n\n"))


def check_both_ways(text: str) -> None:
    data: bytes = xla().hlo_module_from_text(text).as_serialized_hlo_module_proto()
    theirs = xla_reads(data)
    assert xla_reads(write_module(parse(text))) == theirs
    read = read_module(data)
    assert blocks(read.to_text()) == blocks(parse(theirs).to_text())
    assert xla_reads(read.to_proto()) == theirs
    again = read_module(read.to_proto())
    assert again.to_text() == read.to_text()
    assert again.to_proto() == read.to_proto()


@pytest.mark.share(2)
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("opcode", sorted(SAMPLES))
def test_samples(opcode: str, every: bool) -> None:
    for text in SAMPLES[opcode] if every else few(opcode, SAMPLES[opcode], 2):
        check_both_ways(text)


@pytest.mark.parametrize("file", EXAMPLES)
def test_examples(file: Path) -> None:
    check_both_ways(file.read_text())


def test_every_attribute_has_a_field() -> None:
    for op in OPS.values():
        for name, kind in attribute_fields(op.attributes).items():
            if not kind.is_called and kind.type is not Literal:
                assert codec(op, name).fields or name == "mode", (op.opcode, name)


def one(line: str, header: str = "HloModule m", before: str = "") -> str:
    return f"{header}\n{before}ENTRY e {{ x = f32[8,8] parameter(0)\n ROOT r = {line} }}"


SHARDINGS = [
    "{devices=[2,1]<=[2]}", "{devices=[2,1,2]3,2,1,0 last_tile_dim_replicate}", "{maximal device=3}",
    "{devices=[2,1,2,2]<=[8] last_tile_dims={replicated, maximal}}",
    "{devices=[2,1,2,2]<=[2,4]T(1,0) last_tile_dims={manual, replicated}}", "{replicated}", "{manual}", "{unknown}",
    "{unreduced}", "{devices=[2,1]<=[2] shard_as 7}", "{unknown shard_like 3}", "{maximal_mesh[device_id=3]}",
    "{mesh['a'=2,'b'=4], [{'b':(1)2}, {'a', ?}], replicated={'b':(2)2}}", "{mesh['a'=2], replicated}",
    "{mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)), [{'b'}, {}], manual={'a'}}", "{mesh[], replicated}",
    "{mesh['a'=2], device_ids=(1,0), [{'a'}, {}], metadata={op_name=\"x\"}}", "{mesh['a'=2], manual}",
    "{replicated metadata={op_name=\"x\" source_line=3}}", "{replicated metadata={{op_name=\"x\"}, {op_name=\"y\"}}}",
    "{mesh['a'=2], [{'a'}, {}], metadata={{op_name=\"x\"}, {op_name=\"y\"}}}", "{mesh['a'=2], unreduced}",
    "{mesh['a'=2], manual, metadata={op_name=\"x\"}}", "{mesh['a'=1], [{'a'}, {}]}", "{mesh['a'=1], unreduced}",
    "{devices=[1,1]<=[1]}", "{devices=[1,1]<=[1] shard_like 3 metadata={op_name=\"x\"}}",
    "{devices=[1,1,1]<=[1] last_tile_dims={manual}}", "{devices=[1,1,1,1]<=[1] last_tile_dims={manual, replicated}}",
]  # fmt: skip


@pytest.mark.parametrize("sharding", SHARDINGS)
def test_shardings(sharding: str) -> None:
    check_both_ways(one(f"f32[8,8] negate(x), sharding={sharding}"))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"type": 3, "tile_assignment_dimensions": [1, 1], "tile_assignment_devices": [3]}, "{replicated}"),
        ({"type": 3, "tile_assignment_dimensions": [1, 1, 1], "tile_assignment_devices": [0], "last_tile_dims": [4]},
         "{replicated}"),
        ({"type": 3, "iota_reshape_dims": [1], "iota_transpose_perm": [0]}, "{replicated}"),
        ({"type": 3, "tile_assignment_dimensions": [1, 1, 1], "iota_reshape_dims": [1, 1],
          "iota_transpose_perm": [1, 0], "last_tile_dims": [6]}, "{replicated}"),
        ({"type": 3, "tile_assignment_dimensions": [1, 1, 2], "tile_assignment_devices": [1, 0],
          "last_tile_dims": [4]}, "{manual}"),
        ({"type": 1, "tile_assignment_dimensions": [1], "tile_assignment_devices": [3]}, "{maximal device=3}"),
        ({"type": 1, "tile_assignment_devices": [3, 4]}, None), ({"type": 1}, None),
    ],
)  # fmt: skip
def test_shardings_that_text_does_not_become(fields: dict[str, Any], text: str | None) -> None:
    """XLA reads them the same way, or refuses them as we do."""
    data = encode(_with_sharding(fields))
    if text is None:
        with pytest.raises(CompileError, match="a sharding on one device names"):
            read_module(data)
        with pytest.raises(Exception, match="Maximal sharding is expected to have single device"):
            xla_reads(data)
    else:
        assert f"sharding={text}" in xla_reads(data)
        assert f"sharding={text}" in read_module(data).to_text()


def _with_sharding(fields: dict[str, Any]) -> Record:
    record = decode(TABLES, "HloModuleProto", write_module(parse("ENTRY e { ROOT x = f32[8,8] parameter(0) }")))
    (computation,) = record.subs("computations")
    (instruction,) = computation.subs("instructions")
    record.values["computations"], computation.values["instructions"] = [computation], [instruction]
    instruction.new("sharding").values.update(fields)
    return record


SHAPES = [
    "f32[2,3]{0,1:T(8,4)L(4)E(4)S(5)}", "f32[2,3]{1,0:T(8,128)(2,1)}",
    "f32[2,3]{1,0:SC(0:1)(1:1,2)}", "f32[2,<=3]{1,0:M(8)}", "f32[?,3]", "b(f32[2])", "token[]", "opaque[]",
    "(f32[], ())", "f32[]{:S(5)}", "((f32[2], (s4[3]{0:E(4)})), pred[])",
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(shape: str) -> None:
    check_both_ways(f"HloModule m\nENTRY e {{ ROOT x = {shape} parameter(0) }}")


@pytest.mark.parametrize("layout", ["{1,0:T(8,*)}", "{1,0:#(u32)*(u16)}"])
def test_layouts_that_xla_writes_but_does_not_read(layout: str) -> None:
    text = f"HloModule m\nENTRY e {{ ROOT x = f32[2,3]{layout} parameter(0) }}"
    theirs = xla().hlo_module_from_text(text)
    read = read_module(theirs.as_serialized_hlo_module_proto())
    assert read.to_text() == parse(theirs.to_string()).to_text()
    assert read_module(read.to_proto()).to_text() == read.to_text()


@pytest.mark.parametrize(
    "text",
    [
        one('f32[8,8] negate(x), frontend_attributes={a="b",c={"x":1},d="q\\"\\n\\303\\251"}, backend_config="u{"'),
        one('f32[8,8] negate(x), backend_config={"a":[1]}, statistics={visualizing_index=1,s=1.5,t.u-v= 2}'),
        one('f32[8,8] negate(x), origin={{"a" {1,2}}}, control-predecessors={x}'),
        one('f32[8,8] negate(x), metadata={op_type="t" op_name="n" source_file="f" source_line=3 source_end_line=4 '
            'source_column=5 source_end_column=6 deduplicated_name="d" scheduling_name="s"}'),
        'HloModule m\nENTRY e { x = f32[8] parameter(0), metadata={metadata_payload="q\\""} y = f32[8] tanh(x), '
        'metadata={op_name="n" metadata_payload=""} ROOT z = f32[8] sine(y), metadata={metadata_payload="q\\""} }',
        "HloModule m\nENTRY e { ROOT x = (f32[8], (f32[2], f32[])) parameter(0), parameter_replication={true,false,"
        'true}, origin={({"a" {0}}, ({"b"}, {"c" {1,2}}))} }',
        one("f32[8,8] negate(x)", "HloModule m, is_scheduled=true, input_output_alias={ {}: (0, {}, must-alias) }, "
            'entry_computation_layout={(f32[8,8]{0,1})->f32[8,8]{1,0}}, frontend_attributes={k="v",r={1}}'),
        one("f32[8,8] negate(x)", "HloModule m, buffer_donor={ (0, {}) }"),
        one("f32[8,8] exponential(x), result_accuracy={tolerance={atol=1e-3,rtol=0,ulps=4}}"),
        one('f32[8,8] custom-call(x), custom_call_target="t", api_version=API_VERSION_TYPED_FFI, schedule='
            "SCHEDULE_LATEST, padding_type=PADDING_SAME, operand_layout_constraints={f32[8,8]{0,1}}, "
            "custom_call_has_side_effect=true, output_to_operand_aliasing={{}: (0, {})}, operand_precision={high}, "
            "window={size=2x2 pad=1_1x0_-1 lhs_dilate=2x1 rhs_reversal=1x0}, dim_labels=b01f_01io->b01f, "
            "feature_group_count=2"),
        *[one(f'f32[8,8] custom-call(x), custom_call_target="t", {attribute}') for attribute in (
            "schedule=SCHEDULE_EARLIEST", "padding_type=PADDING_VALID",
            "api_version=API_VERSION_STATUS_RETURNING", "api_version=API_VERSION_STATUS_RETURNING_UNIFIED",
            "batch_group_count=2", "operand_precision={highest}", "dim_labels=bf_io->bf",
            "dim_labels=?b01f_0?1io->b01?f", "literal=( s32[2]{0} {1, 2}, ( pred[] true, ( ) ) )")],
        one("f32[8,8] custom-call(), custom_call_target=\"t\", literal=(s32[2] {1, 2})").replace("(s32[2] {1, 2})",
                                                                                              "s32[2]{0} {1, 2}"),
    ],
)  # fmt: skip
def test_what_instructions_and_modules_carry(text: str) -> None:
    check_both_ways(text)


@pytest.mark.parametrize(
    "said",
    ['frontend_attributes={a="b"}', "statistics={visualizing_index=0,s=1.5}",
     'origin={{"n"}}', 'metadata={op_name="n"}', 'backend_config={"a":1}'],
)  # fmt: skip
def test_what_is_said_of_a_start_is_said_of_the_op_that_it_begins(said: str) -> None:
    text = f"""HloModule m
ENTRY e {{
  x = f32[8] parameter(0)
  s = ((f32[8]), f32[8]) negate-start(x), {said}
  ROOT d = f32[8] negate-done(s)
}}"""
    theirs: bytes = xla().hlo_module_from_text(text).as_serialized_hlo_module_proto()
    ours = write_module(parse(text))
    assert xla_reads(ours) == xla_reads(theirs)
    fields = ("frontend_attributes", "statistics_viz", "original_value", "metadata", "backend_config")
    found: list[list[bytes]] = []
    for data in (ours, theirs):
        computations = decode(TABLES, "HloModuleProto", data).subs("computations")
        instructions = [i for c in computations for i in c.subs("instructions")]
        found.append([i.values.get(field, b"") for opcode in ("negate", "async-start") for field in fields
                      for i in instructions if i.str("opcode") == opcode])
    assert found[0] == found[1] != []
    assert f"negate-start(%x), {said}" in read_module(theirs).to_text()
    assert f"negate-start(%x), {said}" in read_module(ours).to_text()


def test_what_a_proto_has_no_field_for_comes_back() -> None:
    header = (
        "HloModule m, alias_passthrough_params=true, allow_spmd_sharding_propagation_to_parameters={true,false}, "
        "allow_spmd_sharding_propagation_to_output={true}, replica_count=2, num_partitions=4"
    )
    text = one("f32[8,8] negate(x)", header)
    read = read_module(write_module(parse(text)))
    assert (read.replica_count, read.num_partitions, read.alias_passthrough_params) == (2, 4, True)
    assert read.allow_propagation_to_parameters == (True, False)
    assert read.allow_propagation_to_output == (True,)
    check_both_ways(text)


def literal_of(module: Module) -> np.ndarray[Any, Any]:
    root: Any = module.entry.root
    return root.attributes.literal.array


@pytest.mark.parametrize("order", ["2,1,0", "0,1,2", "1,2,0"])
@pytest.mark.parametrize(
    "kind",
    ["pred", "s4", "u2", "s8", "u16", "s32", "u32", "s64", "u64", "f16", "bf16", "f32", "f64", "f8e4m3fn", "f4e2m1fn",
     "c64", "c128"],
)  # fmt: skip
def test_literals_in_every_type_and_order(kind: str, order: str) -> None:
    negative = not kind.startswith(("u", "p", "c"))
    numbers = [0, 1, 1, 0, 1, 1, 0, 1, 0, 1, 0, 1] if kind == "pred" else [0, 1, 2, 3, -1, -2, 0, 1, 2, 3, 1, 2]
    words = [f"({n}, 1)" if kind[0] == "c" else str(n if negative else abs(n)) for n in numbers]
    rows = ["{" + ", ".join(words[i : i + 2]) + "}" for i in range(0, 12, 2)]
    value = "{ { " + ", ".join(rows[:3]) + " }, { " + ", ".join(rows[3:]) + " } }"
    text = f"HloModule m\nENTRY e {{ ROOT c = {kind}[2,3,2]{{{order}}} constant({value}) }}"
    check_both_ways(text)
    module = parse(text)
    again = literal_of(read_module(write_module(module)))
    assert again.dtype == literal_of(module).dtype
    assert again.tobytes() == literal_of(module).tobytes()


def test_literals_of_packed_shapes() -> None:
    matrix = "s4[2,3]{0,1:E(4)} constant({ {1, 2, 3}, {-4, 5, 6} })"
    for constant in (matrix, "s4[2]{0:E(4)} constant({0, -6})", "(u2[3]{0:E(2)}, s4[]) constant(({1, 2, 3}, -8))"):
        data = parse(f"HloModule m\nENTRY e {{ ROOT c = {constant} }}").to_proto()
        assert constant in read_module(data).to_text()
        assert constant.partition(" ")[0] in xla_reads(data)


def test_large_numbers_and_bits_of_literals() -> None:
    for kind, values in (
        ("s64", "-9223372036854775808, 9223372036854775807, -1"),
        ("u64", "18446744073709551615, 0, 127"),
        ("s32", "-2147483648, 2147483647, 300"),
        ("f32", "-0, nan(0x123), -inf"),
    ):
        module = parse(f"HloModule m\nENTRY e {{ ROOT c = {kind}[3] constant({{{values}}}) }}")
        assert literal_of(read_module(module.to_proto())).tobytes() == literal_of(module).tobytes()


# -- what few modules have

RECOVERED = """HloModule m, origin_recovery_table={table}

ENTRY e {{
  x = f32[8] parameter(0), origin={{{{"a"}}}}
  ROOT r = f32[8] negate(x), origin={{{{"b"}}}}
}}"""
INNER = "ENTRY i { p = f32[8] parameter(0), sharding={replicated} ROOT q = f32[8] negate(p), metadata={op_name='z'} }"
RECOVERY_TABLES = [
    '{{"a"} : {"b"}}',
    '{{"a" {0,1}} : {"b" {2}}}',
    f'{{ {{"a"}} : {{"b"}}, "{INNER}" }}',
    f'{{\n  {{"a"}} : {{"b"}}, "\n{INNER}\n"\n  {{"c"}} : {{"a" {{3}}}}\n}}',
    '{{"a"} : {}}',
]


@pytest.mark.parametrize("table", RECOVERY_TABLES)
def test_recovery_tables(table: str) -> None:
    text = RECOVERED.format(table=table)
    data: bytes = xla().hlo_module_from_text(text).as_serialized_hlo_module_proto()
    theirs = xla_reads(data)
    ours = parse(text)
    assert parse(ours.to_text()).to_text() == ours.to_text()
    assert xla_reads(write_module(ours)) == theirs
    read = read_module(data)
    assert xla_reads(read.to_proto()) == theirs
    assert xla_reads(write_module(parse(read.to_text()))) == theirs
    assert xla_reads(xla().hlo_module_from_text(read.to_text()).as_serialized_hlo_module_proto()) == theirs


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('{"a" : "b"}', "no entry can be read at '\"a\" : \"b\"'"),
        ('{{"a"} : {"b"}, "ENTRY i { ROOT p = f32[8] nothing() }"}', "recovery module:1:27"),
    ],
)
def test_wrong_recovery_tables(table: str, message: str) -> None:
    module = parse(RECOVERED.format(table=table))
    with pytest.raises(CompileError) as error:
        write_module(module)
    assert message in str(error.value)


def test_recovery_tables_within_each_other() -> None:
    inner = write_module(parse("ENTRY i { ROOT p = f32[8] parameter(0) }"))
    for _ in range(300):
        record = decode(TABLES, "HloModuleProto", write_module(parse("ENTRY i { ROOT p = f32[8] parameter(0) }")))
        record.new("original_value_recovery_table").new("entries").values["recovery_module"] = inner
        inner = encode(record)
    with pytest.raises(CompileError, match="nest deeper"):
        read_module(inner)


CONVOLUTION = """HloModule m
ENTRY e {{
  x = f32[8,8,3,4] parameter(0)
  w = f32[3,3,4,5] parameter(1)
  ROOT r = f32[8,8,3,5] convolution(x, w), window={{size=3x3 pad=1_1x1_1}}, dim_labels=01bf_01io->01bf,
    sparsity_config={config}
}}"""


@pytest.mark.parametrize(
    "config",
    [
        "{lhs={sparsity=2x4 dimension=2 stride=1}}",
        "{rhs={sparsity=1x2 dimension=0 stride=3}}",
        "{lhs={sparsity=2x4 dimension=2 stride=1} rhs={sparsity=1x2 dimension=3 stride=5}}",
    ],
)
def test_sparse_convolutions(config: str) -> None:
    check_both_ways(CONVOLUTION.format(config=config))


FRAMES = """HloModule m

FileNames
1 "a/train.py"
2 "odd \\"name\\".py"

FunctionNames
1 "main"
2 "step.<locals>.f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=7 end_line=8 column=0 end_column=12}
2 {file_name_id=2 function_name_id=2 line=40 end_line=40 column=4 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}

ENTRY e {
  x = f32[8] parameter(0)
  ROOT r = f32[8] negate(x), metadata={op_name="f" stack_frame_id=2}
}"""


def test_stack_frames_pass_between_text_and_proto() -> None:
    check_both_ways(FRAMES)
    tables = re.findall(r"(?m)^(?:\d+ .*|[A-Z][A-Za-z]+)$", FRAMES)
    assert len(tables) == 12
    for module in (parse(FRAMES), read_module(write_module(parse(FRAMES)))):
        printed = module.to_text()
        assert re.findall(r"(?m)^(?:\d+ .*|[A-Z][A-Za-z]+)$", printed) == tables
        assert "stack_frame_id=2" in printed


def test_payloads_of_metadata_are_numbered() -> None:
    module = parse('HloModule m\nENTRY e { ROOT x = f32[] parameter(0), metadata={metadata_payload="p"} }')
    record = decode(TABLES, "HloModuleProto", module.to_proto())
    assert record.values.pop("metadata_payloads") == ["p"]
    with pytest.raises(CompileError, match="metadata with payload 0 of 0"):
        read_module(encode(record))

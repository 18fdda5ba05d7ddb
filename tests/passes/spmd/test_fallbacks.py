"""What partitioning loses is told: each kind of fallback with its op, place, bytes, category, help."""

from __future__ import annotations

import random

import hloom
import pytest
from comm_programs.cases import programs
from hloom.ir.diagnostics import CATEGORIES, Diagnostic, Severity
from hloom.passes.base import PassContext, run_pipeline
from hloom.passes.named import parse_pipeline
from hloom.passes.pipelines import partition, remarks


def told(text: str, passes: str = "propagate,spmd-partition") -> list[Diagnostic]:
    context = PassContext()
    run_pipeline(parse_pipeline(passes), hloom.parse(text), context)
    return remarks(context)


def cholesky(sizes: str, mesh: str, spec: str) -> str:
    sharding = f"sharding={{mesh[{mesh}], {spec}}}"
    return (
        f"HloModule m\nENTRY e {{\n  x = f32[{sizes}] parameter(0), {sharding}\n"
        f"  ROOT y = f32[{sizes}] cholesky(x), lower=true, {sharding}\n}}\n"
    )


def test_gather_within_groups() -> None:
    """The batch stays divided, the matrices are gathered; the batch has room for more tiles, or not."""
    (found,) = told(cholesky("12,8,8", "'x'=2,'y'=4", "[{'x'}, {'y'}, {}]"))
    assert (found.category, found.severity, found.line) == ("gather", Severity.REMARK, 4)
    assert found.message == (
        "cholesky y needs dimension 1 of operand 0 (f32[12,8,8]) whole on every device: each receives 1152 bytes, "
        "its own tile has 384"
    )
    assert found.help == "shard dimension 0 of the operand instead"
    (full,) = told(cholesky("2,8,8", "'x'=2,'y'=4", "[{'x'}, {'y'}, {}]"))
    assert full.help == "annotate the operand as replicated if this is meant"


def test_everything_everywhere() -> None:
    (found,) = told(cholesky("8,8", "'x'=4", "[{'x'}, {}]"))
    assert found.category == "replication"
    assert "each receives 192 bytes, its own tile has 64" in found.message


def test_random_numbers_have_no_dimension_to_divide() -> None:
    (found,) = told("HloModule m\nENTRY e {\n  one = f32[] constant(1)\n"
                    "  ROOT r = f32[8,6] rng(one, one), distribution=rng_normal, sharding={devices=[4,1]<=[4]}\n}\n")
    assert found.message == "rng r computes its whole result on every device (192 bytes), of which each keeps a tile"
    assert found.help == "no dimension of it can be divided: annotate it as replicated if this is meant"


def test_digits_that_move_elsewhere_are_no_fallback() -> None:
    """The batch has as many matrices as devices: an all-to-all, and every device holds as much as before."""
    text = cholesky("8,64,64", "'x'=8", "[{}, {'x'}, {}]")
    assert told(text) == []
    hloom.assert_collectives(hloom.partition(hloom.parse(text)), all_to_all=2, total=2)


def test_nothing_goes_through_a_replicated_copy() -> None:
    """Tiles of other shape, in an irregular order of many devices: their pieces are sent, nothing is gathered."""
    devices = list(range(512))
    random.Random(0).shuffle(devices)
    text = (
        "HloModule m\nENTRY e {\n  x = f32[1024,8] parameter(0), sharding={devices=[512,1]<=[512]}\n"
        f"  ROOT y = f32[1024,8] copy(x), sharding={{devices=[64,8]{','.join(map(str, devices))}}}\n}}\n"
    )
    assert told(text) == []
    assert sum(c.wire_bytes for c in hloom.collectives(hloom.partition(hloom.parse(text)))) < 1024 * 8


PADDED = """HloModule m
ENTRY e {
  x = f32[9,10] parameter(0), sharding={mesh['a'=8], [{'a'}, {}]}
  y = f32[9,10] negate(x)
  ROOT z = f32[16,10] parameter(1), sharding={mesh['a'=8], [{'a'}, {}]}
}
"""


@pytest.mark.parametrize(
    ("options", "count"),
    [("", 0), ("{padding-bytes=0}", 1), ("{padding-bytes=34}", 1), ("{padding-bytes=35}", 0),
     ("{padding-bytes=0,padding-fraction=0.43}", 1), ("{padding-bytes=0,padding-fraction=0.44}", 0)],
)  # fmt: skip
def test_padding(options: str, count: int) -> None:
    """Tiles of two rows, 80 bytes, for 9/8 of a row: 35 bytes or 7/16 of a tile are padding."""
    found = told(PADDED, f"propagate,spmd-partition{options}")
    assert len(found) == count
    for diagnostic in found:
        assert (diagnostic.category, diagnostic.line) == ("padding", 3)
        assert diagnostic.message == (
            "parameter x: 35 of the 80 bytes of a tile of f32[9,10] are padding (and 1 more like it): "
            "9 in 8 tiles of 2"
        )


def test_remarks_of_the_compared_programs_have_categories_and_help() -> None:
    """Programs whose ops all divide give no remark; what is told can be selected and says what to do."""
    silent = 0
    for name, text in programs().items():
        context = PassContext()
        partition(hloom.parse(text, name), context)
        found = remarks(context)
        silent += not found
        assert all(d.category in CATEGORIES and d.help and d.line for d in found), name
    assert silent >= 90


def merged(spec: str, result: str = "f32[1024]", op: str = "reshape") -> str:
    return (
        f"HloModule m\nENTRY e {{\n  x = f32[16,64] parameter(0), sharding={{mesh['x'=8], {spec}}}\n"
        f"  y = {result} {op}(x)\n  ROOT z = {result} cosine(y)\n}}\n"
    )


@pytest.mark.parametrize("op", ["reshape", "bitcast"])
def test_reshape_that_loses_the_division(op: str) -> None:
    """The inner one of two merged dimensions cannot stay divided: each of 8 devices receives 7/8 of 4 KiB at least."""
    (found,) = told(merged("[{}, {'x'}]", op=op))
    assert (found.category, found.severity, found.line) == ("replication", Severity.REMARK, 4)
    received = sum(c.wire_bytes for c in hloom.collectives(hloom.partition(hloom.parse(merged("[{}, {'x'}]", op=op)))))
    assert received >= 7 * 512
    assert found.message == (
        f"{op} y cannot keep dimension 1 of operand 0 (f32[16,64]) divided: each device receives {received} bytes, "
        "its own tile has 512"
    )
    assert found.help == "shard dimension 0 of the operand instead"


def test_the_dimension_that_is_lost_is_named() -> None:
    """The batch stays divided; the vocabulary becomes the inner part of a dimension. Beams have room for two tiles."""
    text = """HloModule m
ENTRY e {
  x = f32[4,BEAMS,16] parameter(0), sharding={mesh['x'=2,'y'=4], [{'x'}, {}, {'y'}]}
  ROOT y = f32[4,MERGED] reshape(x)
}
"""
    (found,) = told(text.replace("BEAMS", "3").replace("MERGED", "48"))
    assert "cannot keep dimension 2 of operand 0" in found.message
    assert found.help == "annotate the operand as replicated if this is meant"
    (found,) = told(text.replace("BEAMS", "8").replace("MERGED", "128"))
    assert found.help == "shard dimension 1 of the operand instead"


def test_reshape_that_keeps_the_division() -> None:
    assert told(merged("[{'x'}, {}]")) == []
    assert told(merged("[{}, {'x'}]", "f32[16,8,8]")) == []
    assert told(merged("[{}, {'x'}]", "f32[4,4,64]")) == []
    wanted = merged("[{}, {'x'}]").replace("cosine(y)", "cosine(y), sharding={mesh['x'=8], [{'x'}]}")
    assert told(wanted) == []  # an all-to-all: every device holds as much as before

"""Per-device programs of other partitioners are proved: where their arrays lie is read from them, or the original."""

from __future__ import annotations

import hloom
import pytest

ORIGINAL = """HloModule m
ENTRY e { x = f32[10] parameter(0), sharding={devices=[4]<=[4]}  w = f32[10] parameter(1)
  y = f32[10] multiply(x, w)  z = f32[10] add(x, w)
  ROOT r = (f32[10], f32[10]) tuple(y, z), sharding={{devices=[4]<=[4]}, {replicated}} }"""

# As XLA writes it: uneven tiles, no sharding on the result.
LOCAL = """HloModule m, num_partitions=4
ENTRY e { x = f32[3] parameter(0), sharding={devices=[4]<=[4]}  w = f32[10] parameter(1), sharding={replicated}
  zero = f32[] constant(0)  padded = f32[12] pad(w, zero), padding=0_2
  starts = s32[4] constant({0, 3, 6, 9})  id = u32[] partition-id()
  start = s32[1] dynamic-slice(starts, id), dynamic_slice_sizes={1}  at = s32[] reshape(start)
  part = f32[3] dynamic-slice(padded, at), dynamic_slice_sizes={3}
  y = f32[3] multiply(x, part)  sum = f32[3] add(x, part)
  all = f32[12] all-gather(sum), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0}, use_global_device_ids=true
  z = f32[10] slice(all), slice={[0:10]}  ROOT r = (f32[3], f32[10]) tuple(y, z) }"""


def _outcome(original: str, local: str) -> str:
    return hloom.prove(hloom.parse(original), hloom.parse(local)).outcome


def test_uneven_tiles_and_results_without_shardings() -> None:
    assert _outcome(ORIGINAL, LOCAL) == "equal"


def test_shardings_of_parameters_that_only_the_original_has() -> None:
    assert _outcome(ORIGINAL, LOCAL.replace(", sharding={devices=[4]<=[4]}", "")) == "equal"


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("{0, 3, 6, 9}", "{0, 3, 6, 7}"), ("<=[4]", "1,0,2,3"), ("{{0,1,2,3}}", "{{0,1,3,2}}"),
        ("add(x, part)", "add(x, x)"),
    ],
)  # fmt: skip
def test_mistakes_are_found(right: str, wrong: str) -> None:
    assert right in LOCAL
    assert _outcome(ORIGINAL, LOCAL.replace(right, wrong)) == "differs"


def test_results_that_lie_elsewhere_than_the_original_says() -> None:
    halves = "{{devices=[2,2]<=[4] last_tile_dim_replicate}, {rep"
    with pytest.raises(hloom.CompileError, match="has tiles of \\[5\\], the local shape is"):
        _outcome(ORIGINAL.replace("{{devices=[4]<=[4]}, {rep", halves), LOCAL)


@pytest.mark.parametrize("said", ["", ", sharding={unknown}"])
def test_a_divided_result_of_which_neither_program_says_how(said: str) -> None:
    original = f"""HloModule m, num_partitions=2
    ENTRY e {{ x = f32[8] parameter(0), sharding={{devices=[2]<=[2]}}
      ROOT y = f32[8] negate(x){said} }}"""
    local = "HloModule m, num_partitions=2\nENTRY e { x = f32[4] parameter(0)\n ROOT z = f32[4] negate(x) }"
    with pytest.raises(hloom.CompileError, match=r"z: .* neither program says how") as error:
        _outcome(original, local)
    assert "give y of <string> a sharding; in JAX: out_shardings" in str(error.value)


WITHOUT = """HloModule m
ENTRY e { x = f32[8] parameter(0), sharding={devices=[2]<=[2]}
  ROOT y = f32[8] negate(x), sharding={devices=[2]<=[2]} }"""


def test_a_program_without_communication_is_taken_as_one_per_device() -> None:
    local = "HloModule m, num_partitions=2\nENTRY e { x = f32[4] parameter(0)  ROOT y = f32[4] negate(x) }"
    assert _outcome(WITHOUT, local) == "equal"
    assert _outcome(WITHOUT.replace("negate", "abs"), local) == "differs"


def _pieces(*lines: str) -> str:
    return "HloModule m, num_partitions=2\nENTRY e { x = f32[4] parameter(0)\n" + "\n".join(lines) + "}"


@pytest.mark.parametrize(
    ("local", "message"),
    [
        (_pieces("w = f32[4] parameter(1)  ROOT y = f32[4] negate(x)"), "has 2 parameters, the original 1"),
        (_pieces("y = f32[4] negate(x)  ROOT r = (f32[4], f32[4]) tuple(y, y)"), "r of the per-device program is"),
        (_pieces("y = f32[4] negate(x)  ROOT r = bf16[4] convert(y)"), "is bf16.4., in the original y is f32.8."),
    ],
)
def test_programs_of_other_types_are_refused(local: str, message: str) -> None:
    with pytest.raises(hloom.CompileError, match=message):
        _outcome(WITHOUT, local)


def test_what_a_call_says_of_memory_and_order_is_no_part_of_its_function() -> None:
    said = ", output_to_operand_aliasing={{}: (0, {})}, schedule=SCHEDULE_EARLIEST"
    original = f"""ENTRY e {{ x = f32[8] parameter(0)
      ROOT y = f32[8] custom-call(x), custom_call_target="f"{said} }}"""
    said_no_more = original.replace(said, "")
    assert _outcome(original, said_no_more) == "equal"
    assert _outcome(original, said_no_more.replace('"f"', '"g"')) == "differs"

"""Relations of values per device to those of the original, in programs partitioned in known ways."""

from __future__ import annotations

import hloom
import pytest
from hloom.runtime.evaluator import UnpartitionedProgram
from hloom.runtime.inputs.inputs import inputs_for_module
from hloom.runtime.proof.flow import DataFlow
from hloom.runtime.proof.relations.record import Recorder
from hloom.runtime.proof.relations.relate import RelationRow, relate
from support.command_line import EXAMPLES


def rows(text: str) -> dict[str, RelationRow]:
    """The relations of a program by the names of values per device."""
    module = hloom.parse(text)
    return {row.name: row for row in relate(module, hloom.partition(module)).rows()}


def relations(text: str) -> dict[str, str]:
    return {name: row.relation for name, row in rows(text).items()}


def test_tiles_and_partial_sums_of_an_example() -> None:
    found = relations((EXAMPLES / "mlp_named.hlo").read_text())
    assert found["x"] == "tile of x [x, -]"
    assert found["xw"] == "tile of xw [x, y]"
    assert found["y"] == "partial sum over y of y [x, -]"
    assert found["all-reduce"] == "tile of y [x, -]"
    assert found["total"] == "partial sum over x of total"
    assert found["loss"] == "all of loss"


def test_rearranged_elements_of_a_value_of_the_same_rank() -> None:
    whole = hloom.parse("""HloModule m
ENTRY e { x = f32[4,6] parameter(0), sharding={devices=[2,1]<=[2]}
  ROOT y = f32[4,6] tanh(x), sharding={devices=[2,1]<=[2]} }""")
    local = hloom.parse("""HloModule m, num_partitions=2, is_scheduled=true
ENTRY e { x = f32[2,6] parameter(0), sharding={devices=[2,1]<=[2]}
  t = f32[6,2] transpose(x), dimensions={1,0}
  z = f32[6,2] tanh(t)
  ROOT y = f32[2,6] transpose(z), dimensions={1,0}, sharding={devices=[2,1]<=[2]} }""")
    found = {row.name: row.relation for row in relate(whole, local).rows()}
    assert found["t"].startswith("elements of x by ")


def test_offsets_of_uneven_tiles() -> None:
    """The last device has padding alone."""
    found = rows("""HloModule m
ENTRY e { x = f32[9] parameter(0), sharding={mesh['a'=5], [{'a'}]}
  ROOT y = f32[9] tanh(x), sharding={mesh['a'=5], [{'a'}]} }""")
    assert found["y"].relation == "tile of y [a]"
    assert found["y"].offsets == {d: [2 * d] for d in range(5)}


def test_halos_are_windows() -> None:
    found = relations("""HloModule m
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY e { x = f32[16,8] parameter(0), sharding={mesh['r'=4], [{'r'}, {}]}  z = f32[] constant(0)
  ROOT y = f32[16,8] reduce-window(x, z), window={size=3x1 pad=1_1x0_0}, to_apply=add,
    sharding={mesh['r'=4], [{'r'}, {}]} }""")
    assert "tile of x [r -1..+1, -]" in found.values()
    assert found["y"] == "tile of y [r, -]"


def test_halos_of_integers_are_windows() -> None:
    found = relations("""HloModule m
add { a = s32[] parameter(0)  b = s32[] parameter(1)  ROOT c = s32[] add(a, b) }
ENTRY e { x = s32[16,32] parameter(0), sharding={mesh['r'=4], [{'r'}, {}]}  z = s32[] constant(0)
  ROOT y = s32[16,32] reduce-window(x, z), window={size=3x1 pad=1_1x0_0}, to_apply=add,
    sharding={mesh['r'=4], [{'r'}, {}]} }""")
    assert "tile of x [r -1..+1, -]" in found.values()


def test_partial_maximum() -> None:
    found = relations("""HloModule m
max { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] maximum(a, b) }
ENTRY e { x = f32[16,8] parameter(0), sharding={mesh['r'=4], [{'r'}, {}]}  z = f32[] constant(-inf)
  ROOT y = f32[8] reduce(x, z), dimensions={0}, to_apply=max, sharding={mesh['r'=4], [{}]} }""")
    assert found["y"] == "partial maximum over r of y"


def test_look_ups_are_masked() -> None:
    found = relations("""HloModule m
ENTRY e { x = f32[32,8] parameter(0), sharding={mesh['r'=4], [{'r'}, {}]}  i = s32[6,1] parameter(1)
  ROOT y = f32[6,8] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1,
    slice_sizes={1,8}, sharding={mesh['r'=4], [{}, {}]} }""")
    assert "masked over r of y" in found.values()
    assert found["partition-id"] == "from the device number"


def test_values_in_loops() -> None:
    """Tiles of each iteration are those of the same iteration of the original."""
    found = rows("""HloModule m
more { s = (s32[], f32[8,8]) parameter(0)  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(9)  ROOT m = pred[] compare(i, n), direction=LT }
step { s = (s32[], f32[8,8]) parameter(0)  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)  j = s32[] add(i, one)  x = f32[8,8] get-tuple-element(s), index=1
  y = f32[8,8] tanh(x)  ROOT t = (s32[], f32[8,8]) tuple(j, y) }
ENTRY e { x = f32[8,8] parameter(0), sharding={mesh['a'=2,'b'=2], [{'a'}, {'b'}]}  z = s32[] constant(0)
  s = (s32[], f32[8,8]) tuple(z, x)  w = (s32[], f32[8,8]) while(s), condition=more, body=step
  ROOT y = f32[8,8] get-tuple-element(w), index=1, sharding={mesh['a'=2,'b'=2], [{'a'}, {'b'}]} }""")
    inside = [row for name, row in found.items() if name.endswith("/y")]
    assert [row.relation for row in inside] == ["tile of y [a, b]"]


@pytest.mark.parametrize(
    "name", ["mlp_train", *(pytest.param(f"transformer_{n}", marks=pytest.mark.slow) for n in ("train", "scan_train"))]
)
def test_hardly_any_value_of_the_examples_is_unrelated(name: str) -> None:
    module = hloom.load(EXAMPLES / f"{name}.hlo")
    found = relate(module, hloom.partition(module))
    assert found.is_complete
    assert found.counts().get("none found", 0) <= 0.03 * len(found.values)


def test_large_values_are_left_out() -> None:
    program = UnpartitionedProgram(hloom.load(EXAMPLES / "mlp_named.hlo"))
    recorders = [Recorder(DataFlow(program.executable.plan), most_bytes) for most_bytes in (4000, 1 << 20)]
    for recorder in recorders:
        program.run(inputs_for_module(program.module), recorder)
    assert [recorder.is_complete for recorder in recorders] == [False, True]
    few, every = (sum(a.nbytes for runs in r.values.values() for run in runs for a in run.values()) for r in recorders)
    assert 0 < few <= 4000 < every

"""Inputs as users say: settings of single inputs, and files by the names of parameters."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import hloom
import numpy as np
import pytest
from hloom.ir.diagnostics import CompileError
from hloom.runtime.inputs.array_files import save_npz
from hloom.runtime.inputs.inputs import inputs_for_module, make_inputs
from hloom.runtime.outputs import save_outputs

PROGRAM = """HloModule m
ENTRY e {
  w = f32[400] parameter(0), metadata={op_name="params['l3.wq']"}
  b = f32[400] parameter(1), metadata={op_name="params['l3;=b']"}
  pos = s8[400] parameter(2)
  state = (f32[2], (bf16[3], token[], u32[4])) parameter(3), metadata={op_name="state"}
  z = c64[400] parameter(4)
  mask = pred[400] parameter(5)
  ROOT t = (f32[400], f32[400]) tuple(w, b)
}
"""
W, B, POS, STATE0, STATE10, STATE12, Z, MASK = range(8)


def inputs(text: str) -> list[Any]:
    return inputs_for_module(hloom.parse(PROGRAM), text)


def bounds(array: Any) -> tuple[float, float]:
    return float(array.min()), float(array.max())


def test_settings_change_what_they_name_and_nothing_else() -> None:
    before = inputs("random")
    after = inputs("pos=int[0,100); params['l3.wq']=uniform[2,3); params['l3;=b'] = ones ;")
    assert 90 < bounds(after[POS])[1] < 100
    assert 2 <= bounds(after[W])[0] < bounds(after[W])[1] < 3
    assert bounds(after[B]) == (1, 1)
    for number in (STATE0, STATE10, STATE12, Z, MASK):
        assert after[number].tobytes() == before[number].tobytes()


@pytest.mark.parametrize(
    ("setting", "number", "least", "greatest"),
    [
        ("pos=int[-3,5]", POS, -3, 5),
        ("pos=int(-3,5)", POS, -2, 4),
        ("pos=int[-128,-125]", POS, -128, -125),
        ("pos=int(124,127]", POS, 125, 127),
        ("mask=int[1,1]", MASK, 1, 1),
        ("%mask=constant(false)", MASK, 0, 0),
        ("pos=constant(-7)", POS, -7, -7),
        ("w=constant(2.5)", W, 2.5, 2.5),
        ("w=zeros", W, 0, 0),
        ("w=normal(3, 0)", W, 3, 3),
        ("state[1][2]=int[4294967295,4294967295]", STATE12, 4294967295, 4294967295),
        ("state[1]=ones", STATE10, 1, 1),
        ("state=ones", STATE0, 1, 1),
        ("*=ones; w=zeros", W, 0, 0),
        ("params['*']=constant(4)", B, 4, 4),
        ("w=uniform[1,1]", W, 1, 1),
    ],
)
def test_kinds_and_names(setting: str, number: int, least: float, greatest: float) -> None:
    assert bounds(inputs(setting)[number]) == (least, greatest)


def test_normal_has_mean_and_deviation() -> None:
    (values,) = inputs_for_module(hloom.parse("ENTRY e { ROOT x = f32[90000] parameter(0) }"), "x=normal(5,2)")
    assert (values.mean(), values.std()) == pytest.approx((5, 2), abs=0.03)


@pytest.mark.parametrize("element", ["bf16", "f16", "f8e5m2"])
def test_rounding_does_not_reach_an_excluded_end(element: str) -> None:
    (values,) = inputs_for_module(hloom.parse(f"ENTRY e {{ ROOT x = {element}[9000] parameter(0) }}"), "x=uniform(0,1)")
    assert 0 < values.astype(float).min() < 0.01
    assert 0.8 < values.astype(float).max() < 1


@pytest.mark.parametrize(
    ("setting", "message", "column"),
    [
        ("w=zeros; wz=ones", "no input is called 'wz'", 10),
        ("w=four", "'four' is not a kind of input", 1),
        ("w=int[0,3", "'int[0,3' is not a kind of input", 1),
        ("w=normal[0,3)", "'normal[0,3)' is not a kind of input", 1),
        ("w=constant(x)", "'x' is not a number", 1),
        ("=ones", "'=ones' is not of the form NAME=KIND", 1),
        ("w=ones;b", "'b' is not of the form NAME=KIND", 8),
        ("w=int[0,3)", "int cannot make inputs of f32", 1),
        ("pos=uniform[0,3)", "uniform cannot make inputs of s8", 1),
        ("mask=normal(0,1)", "normal cannot make inputs of pred", 1),
        ("pos=int[3,3)", "there is no whole number in this range", 1),
        ("pos=int[0,0.5)", "the bounds of int must be whole numbers", 1),
        ("pos=int[0,128]", "int[0,128] has numbers that s8 has not, which are from -128 to 127", 1),
        ("mask=int[0,3)", "int[0,3) has numbers that pred has not, which are from 0 to 1", 1),
        ("pos=constant(1.5)", "1.5 is not a number of s8", 1),
        ("pos=constant(nan)", "nan is not a number of s8", 1),
        ("w=constant(1e50)", "1e+50 is not a number of f32", 1),
        ("w=uniform[2,1)", "there is no number of f32 in this range", 1),
        ("w=uniform[1,1)", "there is no number of f32 in this range", 1),
        ("w=uniform[0,inf)", "inf is not a finite number of f32", 1),
        ("w=normal(0,-1)", "the deviation -1 is negative", 1),
    ],
)
def test_settings_that_mean_nothing(setting: str, message: str, column: int) -> None:
    with pytest.raises(CompileError) as caught:
        inputs(setting)
    (found,) = caught.value.diagnostics
    assert found.message == message
    assert found.column == column
    assert str(found.location).startswith("--inputs:1:")


def test_a_setting_may_name_a_file(tmp_path: Path) -> None:
    values = np.arange(400, dtype=np.float32)
    np.save(tmp_path / "w.npy", values)
    assert (inputs(f"w={tmp_path / 'w.npy'}; b=ones")[W] == values).all()
    with pytest.raises(CompileError, match=r"w.npy is float32\[400\], input pos is s8\[400\]"):
        inputs(f"pos={tmp_path / 'w.npy'}")
    with pytest.raises(CompileError, match=re.escape("cannot be read from nowhere.npy")):
        inputs("w=nowhere.npy")
    np.savez(tmp_path / "several.npy", a=values)
    (tmp_path / "several.npy.npz").rename(tmp_path / "several.npy")
    with pytest.raises(CompileError, match="it holds several arrays"):
        inputs(f"w={tmp_path / 'several.npy'}")


SMALL = """HloModule m
ENTRY e {
  weights = bf16[2] parameter(0), metadata={op_name="params['w']"}
  bias = (f32[2], f32[2]) parameter(1), metadata={op_name="params['b']"}
  ROOT r = bf16[2] copy(weights)
}
"""
ARRAYS = make_inputs([p.shape for p in hloom.parse(SMALL).entry.parameters])


def read(path: Path) -> list[Any]:
    return inputs_for_module(hloom.parse(SMALL), str(path))


@pytest.mark.parametrize(
    "names",
    [
        ("weights", "bias[0]", "bias[1]"),
        ("%weights", "params['b'][0]", "bias[1]"),
        ("params['w']", "params['b'][0]", "params['b'][1]"),
        ("arr_0", "arr_1", "arr_2"),
        ("output_0", "output_1", "output_2"),
    ],
)
@pytest.mark.parametrize("backwards", [False, True])
def test_archives_by_names(names: tuple[str, ...], backwards: bool, tmp_path: Path) -> None:
    order = [2, 1, 0] if backwards else [0, 1, 2]
    save_npz(tmp_path / "in.npz", {names[n]: ARRAYS[n] for n in order})
    # numpy forgets that bf16 is bf16
    np.savez(tmp_path / "lost.npz", allow_pickle=False, **{names[n]: ARRAYS[n] for n in order})
    for file in ("in.npz", "lost.npz"):
        for a, b in zip(read(tmp_path / file), ARRAYS, strict=True):
            assert (a.dtype, a.tobytes()) == (b.dtype, b.tobytes())


def test_folders_by_names_and_by_position(tmp_path: Path) -> None:
    for name, array in zip(("weights", "params['b'][0]", "bias[1]"), ARRAYS, strict=True):
        np.save(tmp_path / f"{name}.npy", array)
    save_outputs(tmp_path / "out", ARRAYS)
    for folder in (tmp_path, tmp_path / "out"):
        assert [a.tobytes() for a in read(folder)] == [a.tobytes() for a in ARRAYS]


NAMES = "weights = params['w'], bias[0] = params['b'][0], bias[1] = params['b'][1]"


@pytest.mark.parametrize(
    ("names", "message", "help"),
    [
        ({"weights": 0, "bias[0]": 1, "bios": 2}, "no input is called 'bios'", NAMES),
        ({"weights": 0, "bias": 1, "bias[1]": 2}, "no input is called 'bias'", NAMES),
        ({"arr_0": 0, "bias[0]": 1, "bias[1]": 2}, "no input is called 'arr_0'", NAMES),
        ({"arr_0": 0, "arr_1": 1, "arr_3": 2}, "no input is called 'arr_0'", NAMES),
        ({"weights": 0, "bias[0]": 1}, "has no array for input bias[1] = params['b'][1]", "arrays: bias[0], weights"),
        ({"weights": 0, "params['w']": 0, "bias[0]": 1}, "'params['w']' and 'weights' are the same input", None),
        ({"arr_0": 0, "arr_1": 1}, "has 2 arrays, the program takes 3: none is left for input bias[1] = ", None),
        ({f"arr_{n}": n % 3 for n in range(4)}, "has 4 arrays, the program takes 3: no input is left for 'arr_3'",
         None),
        ({"weights": 1, "bias[0]": 1, "bias[1]": 2}, "'weights' is float32[2], input weights = params['w'] is bf16[2]",
         None),
        ({"arr_0": 0, "arr_1": 0, "arr_2": 2}, "'arr_1' is bfloat16[2], input bias[0] = params['b'][0] is f32[2]",
         None),
    ],
)  # fmt: skip
def test_archives_that_do_not_fit(names: dict[str, int], message: str, help: str | None, tmp_path: Path) -> None:
    path = tmp_path / "in.npz"
    save_npz(path, {name: ARRAYS[n] for name, n in names.items()})
    with pytest.raises(CompileError, match=re.escape(message)) as caught:
        read(path)
    (found,) = caught.value.diagnostics
    assert str(path) in found.message
    assert help is None or help in (found.help or "")


def test_a_name_of_two_inputs(tmp_path: Path) -> None:
    text = SMALL.replace("params['b']", "params['w']").replace("(f32[2], f32[2])", "f32[2]")
    np.savez(tmp_path / "in.npz", allow_pickle=False, **{"params['w']": ARRAYS[1], "bias": ARRAYS[1]})
    with pytest.raises(CompileError, match=re.escape("'params['w']' is the name of inputs weights and bias")):
        inputs_for_module(hloom.parse(text), str(tmp_path / "in.npz"))


RING = """HloModule ring, num_partitions=4
ENTRY e {
  x = f32[2] parameter(0)
  y = f32[2] parameter(1), sharding={devices=[4]<=[4]}
  p = f32[2] collective-permute(x), channel_id=1, source_target_pairs={{0,1}}
  ROOT s = f32[2] add(p, y)
}
"""


def test_programs_per_device_take_whole_arrays(tmp_path: Path) -> None:
    """Of a parameter that nothing places one for all devices, or one for each."""
    module = hloom.parse(RING)
    assert [a.shape for a in inputs_for_module(module)] == [(2,), (8,)]
    y = np.arange(8, dtype=np.float32)
    for x in (np.ones(2, np.float32), np.ones((4, 2), np.float32)):
        np.savez(tmp_path / "in.npz", x=x, y=y)
        assert [a.shape for a in inputs_for_module(module, str(tmp_path / "in.npz"))] == [x.shape, (8,)]
    np.savez(tmp_path / "in.npz", x=np.ones((3, 2), np.float32), y=y)
    with pytest.raises(CompileError, match=r"'x' is float32\[3,2\], input x is f32\[2\]"):
        inputs_for_module(module, str(tmp_path / "in.npz"))

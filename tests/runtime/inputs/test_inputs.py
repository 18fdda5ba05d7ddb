"""Made-up inputs, numpy files and the comparison of outputs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hloom.frontends import parse_shape
from hloom.ir.diagnostics import CompileError
from hloom.ir.types.element_type import ELEMENT_TYPES
from hloom.runtime.inputs.array_files import load_array, natural, read_arrays, save_npz
from hloom.runtime.inputs.inputs import make_inputs
from hloom.runtime.outputs import save_outputs
from support.compare import compare

TYPES = [name for name, t in ELEMENT_TYPES.items() if t.numpy is not None]


@pytest.mark.parametrize("name", TYPES)
def test_inputs_are_deterministic_and_of_their_type(name: str) -> None:
    shape = parse_shape(f"({name}[3,50], token[], {name}[])")
    first, again, other = (make_inputs([shape], seed=s) for s in (1, 1, 2))
    assert [a.shape for a in first] == [(3, 50), ()]
    for a, b in zip(first, again, strict=True):
        assert a.dtype == ELEMENT_TYPES[name].numpy
        assert a.tobytes() == b.tobytes()
    assert first[0].tobytes() != other[0].tobytes()
    if ELEMENT_TYPES[name].is_integer:
        assert first[0].astype(int).min() >= 0
        assert first[0].astype(int).max() <= 7
    (zero, _) = make_inputs([shape], "zeros")
    assert zero.tobytes() == bytes(zero.nbytes)


@pytest.mark.parametrize("shape", ["f32[?,3]", "s1[3]"])
def test_no_inputs(shape: str) -> None:
    with pytest.raises(CompileError, match=f"no input can be made for {re.escape(shape)}"):
        make_inputs([parse_shape(shape)])


def test_unknown_kind_of_inputs() -> None:
    with pytest.raises(CompileError, match="random or zeros, not ones"):
        make_inputs([parse_shape("f32[2]")], "ones")


@pytest.mark.parametrize("name", TYPES)
def test_files_keep_the_types(name: str, tmp_path: Path) -> None:
    arrays = make_inputs([parse_shape(f"{name}[4,3]"), parse_shape(f"{name}[]")])
    save_outputs(tmp_path / "out", arrays)
    save_npz(tmp_path / "in.npz", {"arg_10": arrays[1], "arg_9": arrays[0]})
    for found in (read_arrays(tmp_path / "out"), read_arrays(tmp_path / "in.npz")):
        for a, b in zip(found.arrays.values(), arrays, strict=True):
            assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


def test_directories_without_manifest_and_unreadable_files(tmp_path: Path) -> None:
    for number in (10, 9):
        np.save(tmp_path / f"x{number}.npy", np.full(2, number))
    found = read_arrays(tmp_path)
    assert [(name, int(a[0])) for name, a in found.arrays.items()] == [("x9", 9), ("x10", 10)]
    assert not found.by_position
    with pytest.raises(CompileError, match="cannot be read"):
        read_arrays(tmp_path / "none.npz")
    (tmp_path / "bad.npz").write_text("no archive")
    with pytest.raises(CompileError, match="cannot be read"):
        read_arrays(tmp_path / "bad.npz")
    assert natural("a10b2") > natural("a9b3")


def test_compare_within_and_beyond_tolerance() -> None:
    a = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    near, far = a * (1 + 1e-6), a.copy()
    far[2, 1] += 0.5
    assert compare([a, a], [near.astype(np.float32), a]).equal
    report = compare([a, far], [a, a])
    assert not report.equal
    (difference,) = report.differences
    assert (difference.output, difference.count, difference.index) == (1, 1, (2, 1))
    assert difference.absolute == pytest.approx(0.5)
    assert str(report).startswith("1/2 outputs differ")


def test_compare_special_values_and_types() -> None:
    special = np.array([np.nan, np.inf, -np.inf], np.float32)
    assert compare([special], [special.copy()]).equal
    assert not compare([special], [special[::-1].copy()]).equal
    big = np.array([2**63 - 1, -(2**63)], np.int64)
    assert compare([big], [big.copy()]).equal
    assert not compare([big], [big - np.array([1, 0])]).equal
    assert "s32[2] instead of s64[2]" in str(compare([big.astype(np.int32)], [big]))
    assert "there are 0 outputs, 1 were expected" in str(compare([], [big]))


@pytest.mark.parametrize(("name", "within"), [("bf16", True), ("f32", False), ("s32", False)])
def test_tolerance_depends_on_the_type(name: str, within: bool) -> None:
    dtype = ELEMENT_TYPES[name].numpy
    a, b = np.array([100.0]).astype(dtype), np.array([101.0]).astype(dtype)
    assert compare([a], [b]).equal is within


def test_inputs_that_cannot_be_held() -> None:
    for dims, message in (("1099511627776,4", "takes 17,592,186,044,416 bytes"), ("1," * 64 + "1", "65 dimensions")):
        with pytest.raises(CompileError, match=message):
            make_inputs([parse_shape(f"f32[{dims}]")])


@pytest.mark.parametrize("array", [np.zeros((0, 3), np.float32), np.float32(3), np.arange(6.0).reshape(2, 3).T])
def test_npy_files_are_mapped_not_read(array: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", array)
    found = load_array(tmp_path / "a.npy")
    assert isinstance(found, np.memmap)
    assert not found.flags.writeable
    np.testing.assert_array_equal(found, array, strict=True)

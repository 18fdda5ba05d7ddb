"""The cache of object code: hits, keys, damage, disks that refuse, and several processes at once."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from hloom.codegen.native import compile_llvm, native
from hloom.codegen.native.loops import Function, Lane
from hloom.ir import disk_cache as cache
from support.cache_filling import CODE, fill, fill_a_full_disk
from support.calls import calls
from support.loop_kernels import called, needs_llvm


def never() -> bytes:
    raise AssertionError("compiled although it is in the cache")


def test_code_is_compiled_once(tmp_path: Path) -> None:
    place = tmp_path / "new" / "folder"
    assert cache.cached(("text", "cpu"), lambda: CODE, place) == CODE
    assert cache.cached(("text", "cpu"), never, place) == CODE
    assert [p.suffix for p in place.iterdir()] == [".o"]


def test_all_parts_of_the_key_count(tmp_path: Path) -> None:
    keys = [("text", "22", "zen"), ("text", "22", "haswell"), ("text", "23", "zen"), ("tex", "t22", "zen")]
    for number, key in enumerate(keys):
        assert cache.cached(key, lambda number=number: b"%d" % number, tmp_path) == b"%d" % number
    assert [cache.cached(key, never, tmp_path) for key in keys] == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("damage", [b"", b"short", bytes(32) + CODE])
def test_damaged_files_are_replaced(tmp_path: Path, damage: bytes) -> None:
    cache.cached(("text",), lambda: CODE, tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage)
    assert cache.cached(("text",), lambda: CODE, tmp_path) == CODE
    assert cache.cached(("text",), never, tmp_path) == CODE


def test_a_refusing_disk_means_no_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    assert cache.cached(("text",), lambda: CODE, tmp_path / "file" / "cache") == CODE

    assert cache.cached(("text",), lambda: CODE, tmp_path / "cache") == CODE
    (kept,) = (tmp_path / "cache").iterdir()
    kept.unlink()
    kept.mkdir()  # no file can take its place
    assert cache.cached(("text",), lambda: CODE, tmp_path / "cache") == CODE
    assert list((tmp_path / "cache").iterdir()) == [kept]


def test_the_environment_names_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOOM_CACHE", "")
    assert cache.folder() is None
    monkeypatch.setenv("HLOOM_CACHE", "some/where")
    assert cache.folder() == Path("some/where")
    monkeypatch.delenv("HLOOM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "caches")
    assert cache.folder() == Path("caches", "hloom")


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_that_others_can_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    place = tmp_path / "cache"
    place.mkdir()
    monkeypatch.setenv("HLOOM_CACHE", str(place))
    assert (cache.folder(), cache.refusal()) == (place, None)
    place.chmod(mode)
    assert cache.folder() is None
    assert cache.refusal() == f"nothing is kept in {place}: others can write to it (mode {mode:o})"


def test_a_folder_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOOM_CACHE", str(tmp_path))
    cache.write_kept(("text",), CODE, tmp_path, ".o")
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert cache.folder() is None
    assert cache.refusal() == f"nothing is kept in {tmp_path}: it belongs to user {owner}, not to {owner + 1}"
    assert cache.read_kept(("text",), tmp_path, ".o") is None


def test_a_file_that_others_could_write_is_not_read(tmp_path: Path) -> None:
    cache.write_kept(("text",), CODE, tmp_path / "cache", ".o")
    (path,) = (tmp_path / "cache").iterdir()
    assert [p.stat().st_mode & 0o777 for p in (path.parent, path)] == [0o700, 0o600]
    path.chmod(0o666)
    assert cache.read_kept(("text",), path.parent, ".o") is None
    path.chmod(0o600)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert cache.read_kept(("text",), path.parent, ".o") is None
    path.unlink()
    os.mkfifo(path)
    assert cache.read_kept(("text",), path.parent, ".o") is None


def processes(count: int) -> ProcessPoolExecutor:
    """Returns an executor that fails, and does not wait, if one of its processes cannot begin."""
    return ProcessPoolExecutor(count, multiprocessing.get_context("spawn"))


def test_processes_fill_it_at_once(tmp_path: Path) -> None:
    with processes(2) as pool:
        assert list(pool.map(fill, [tmp_path] * 4)) == [True] * 4
    assert len(list(tmp_path.iterdir())) == 50


@needs_llvm
def test_kernels_come_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOOM_CACHE", str(tmp_path))
    kernel = called(Function.LOG, Lane.F32, 1, 77)
    assert native.native(kernel).address
    assert len(list(tmp_path.iterdir())) == 1
    with calls(compile_llvm.object_code) as compiled:
        assert native.native(called(Function.LOG, Lane.F32, 1, 77)).address
    assert compiled == []


@needs_llvm
def test_versions_and_processors_live_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOOM_CACHE", str(tmp_path))

    def made() -> int:
        native.forget()
        assert native.native(called(Function.EXP, Lane.F32, 1, 77)).address
        return len(list(tmp_path.iterdir()))

    assert made() == 1
    with monkeypatch.context() as other:
        other.setattr(compile_llvm, "version", lambda: "99.0.0")
        assert made() == 2
    monkeypatch.setenv("HLOOM_CPU", "-avx512f")
    assert made() == 3
    monkeypatch.delenv("HLOOM_CPU")
    with calls(compile_llvm.object_code) as compiled:
        assert made() == 3
    assert compiled == []


def test_a_full_disk_means_no_cache(tmp_path: Path) -> None:
    with processes(1) as pool:
        assert list(pool.map(fill_a_full_disk, [tmp_path])) == [True]
    assert list(tmp_path.iterdir()) == []

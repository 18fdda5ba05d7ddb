"""Files that users name: reading them ends, and says why not; they are written wholly or not at all."""

from __future__ import annotations

import os
import resource
import threading
import time
from pathlib import Path

import pytest
from hloom.frontends import load
from hloom.ir.diagnostics import CompileError, SourceFile
from hloom.ir.user_files import OutputError, read_bytes, read_toml, write_text
from support.command_line import hloom as command_line


def test_devices_folders_and_large_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(101))
    assert len(read_bytes(tmp_path / "large", 101)) == 101
    for path, reason in ((tmp_path, "directory"), ("/dev/zero", "device"), (tmp_path / "large", "more than 100 bytes")):
        with pytest.raises(OSError, match=reason):
            read_bytes(path, 100)


def test_a_pipe_is_read_if_someone_writes(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="nobody has opened"):
        read_bytes(pipe, wait=0.05)
    writer = threading.Thread(target=pipe.write_bytes, args=(bytes(200_000),))
    writer.start()
    assert len(read_bytes(pipe)) == 200_000
    writer.join()


def test_a_writer_may_take_longer_than_the_opening(tmp_path: Path) -> None:
    """A program that makes the file may have to start JAX first."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # so that the writer need not wait
    writer = os.open(pipe, os.O_WRONLY)
    os.close(reader)

    def write_late() -> None:
        time.sleep(0.2)
        os.write(writer, b"late")
        os.close(writer)

    thread = threading.Thread(target=write_late)
    thread.start()
    assert read_bytes(pipe, wait=0.05) == b"late"
    thread.join()


@pytest.mark.parametrize("command", ["run", "verify", "show", "diff"])
def test_commands_say_so(tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    more = ["/dev/zero"] if command == "diff" else []
    done = command_line(command, "/dev/zero", *more, cwd=tmp_path, HLOOM_CACHE=str(tmp_path))
    assert (done.code, done.err) == (65, "hloom: error: /dev/zero cannot be read: it is a device\n")


def test_a_similar_name_is_suggested(tmp_path: Path) -> None:
    (tmp_path / "model.hlo").write_text("f32[] constant(1)")
    for name, help in [("mdel.hlo", f"did you mean {tmp_path / 'model.hlo'}?"), ("other", None), ("no/mdel.hlo", None)]:
        with pytest.raises(CompileError) as caught:
            load(tmp_path / name)
        (found,) = caught.value.diagnostics
        assert (found.message, found.help) == (f"{tmp_path / name} cannot be read: No such file or directory", help)


def test_python_files_are_named_with_a_function(tmp_path: Path) -> None:
    path = tmp_path / "step.py"
    path.write_text("def program(): ...")
    with pytest.raises(CompileError) as caught:
        load(path)
    assert [(d.message, d.help) for d in caught.value.diagnostics] == [
        (f"{path} is Python", f"{path}:FUNCTION names a function in it that returns (f, args)")
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = " + "[" * 5000, "f:1:105: error: this is not TOML: nested deeper than 100 levels"),
        ("a = 1" + "0" * 5000, "this is not TOML: a number has too many digits"),
        ("a = 1\nb = [1,\n", "f:3:1: error: this is not TOML: "),
        ("a = 1\nb ? 2\n", "f:2:3: error: this is not TOML: "),
    ],
)
def test_toml_that_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(CompileError) as error:
        read_toml(SourceFile("f", text))
    assert message in str(error.value)


@pytest.mark.parametrize("option", ["--machine", "--strategy"])
def test_deep_settings_are_an_error(tmp_path: Path, option: str) -> None:
    (tmp_path / "deep.toml").write_text("a = " + "[" * 100_000)
    program = "HloModule m\nENTRY e { ROOT x = f32[2] parameter(0) }"
    done = command_line("partition", "-", option, "deep.toml", cwd=tmp_path, text=program)
    assert done.code == 65
    assert "deep.toml:1:105: error: this is not TOML: nested deeper than 100 levels" in done.err
    assert "\n  help: " in done.err


def test_a_file_that_does_not_fit_leaves_the_one_before(tmp_path: Path) -> None:
    path, (before, most) = tmp_path / "plan.hlo", resource.getrlimit(resource.RLIMIT_FSIZE)
    path.write_text("the plan of yesterday")
    path.chmod(0o640)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, most))
    try:
        with pytest.raises(OutputError, match=r"plan\.hlo cannot be written: File too large"):
            write_text(path, "x" * 1001)
        assert path.read_text() == "the plan of yesterday"
        write_text(path, "x" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))
    assert (len(path.read_text()), path.stat().st_mode & 0o777) == (1000, 0o640)
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_one_and_a_device_is_written_to(tmp_path: Path) -> None:
    path, link = tmp_path / "plan.hlo", tmp_path / "latest.hlo"
    link.symlink_to(path)
    write_text(link, "new")
    write_text("/dev/null", "gone")
    assert (link.is_symlink(), path.read_text(), Path("/dev/null").is_file()) == (True, "new", False)

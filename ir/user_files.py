"""Reads files that users name: at most so much of them, and only those whose reading ends. Writes them, too: wholly or
not at all.
"""

from __future__ import annotations

import difflib
import errno
import os
import re
import select
import stat
import tomllib
from pathlib import Path
from typing import IO, Any, NoReturn

from .diagnostics import CompileError, Diagnostic, Location, Severity, SourceFile, fail

MOST_BYTES = 2 << 30  # as of a serialized module
MOST_SETTINGS = 16 << 20  # of a machine or a strategy
_AT_ONCE = 16 << 20  # bytes
_STEPS = 50  # looks whether somebody opens a pipe
_DEEPEST = 100  # brackets of TOML

_AT = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")


class OutputError(CompileError):
    """Outputs cannot be written: the disk is full, or the folder is not writable."""

    exit_code = 74  # EX_IOERR


def read_bytes(path: str | Path, most: int = MOST_BYTES, wait: float = 5.0) -> bytes:
    """Returns the contents of a file. Raises OSError if it cannot be read, has more than `most` bytes, is a device, or
    is a pipe that nobody opens for writing within `wait` seconds: their reading might never end.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe without a writer would block
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(mode):
        os.close(descriptor)
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    with os.fdopen(descriptor, "rb") as file:
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise OSError(0, "it is a device")
        first = _first(descriptor, wait) if stat.S_ISFIFO(mode) else b""
        os.set_blocking(descriptor, True)
        return first + read_stream(file, most - len(first))


def _first(descriptor: int, wait: float) -> bytes:
    """Waits until somebody has a pipe open for writing, however long that writer then takes for its first byte.

    Returns the data read to find out: at most a byte. Raises OSError if nobody opens the pipe in time.
    """
    for _ in range(_STEPS):
        if select.select([descriptor], [], [], wait / _STEPS)[0]:  # there are bytes, or the writer has gone
            return b""
        try:
            if first := os.read(descriptor, 1):
                return first
        except BlockingIOError:  # without a writer the pipe would end here
            return b""
    raise OSError(0, f"it is a pipe that nobody has opened for writing for {wait:.0f} s")


def read_stream(stream: IO[bytes], most: int = MOST_BYTES) -> bytes:
    """Returns the rest of a stream. Raises OSError if it has more than `most` bytes."""
    parts: list[bytes] = []
    while part := stream.read(_AT_ONCE):  # for more, Python would take the memory before it reads
        parts.append(part)
        if sum(map(len, parts)) > most:
            raise OSError(0, f"it has more than {most:,} bytes")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def read_text(path: str | Path, most: int = MOST_SETTINGS) -> str:
    """Returns the text of a small file. Raises OSError, and ValueError if it is not UTF-8."""
    return read_bytes(path, most).decode("utf-8").replace("\r\n", "\n")


def cannot_read(path: str | Path, error: Exception) -> NoReturn:
    """Raises CompileError for a file that cannot be read, with a similar name if there is no such file."""
    name = str(path) or "''"
    help = f"{path} is a folder: name a file in it" if isinstance(error, IsADirectoryError) else None
    if isinstance(error, FileNotFoundError):
        help = _similar(Path(path))
    fail(f"{name} cannot be read: {getattr(error, 'strerror', None) or error}", help=help)


def _similar(path: Path) -> str | None:
    try:
        names = os.listdir(path.parent)
    except OSError:
        return None
    near = difflib.get_close_matches(path.name, names, 1, 0.7)
    return f"did you mean {path.parent / near[0]}?" if near else None


def writable(path: str) -> str:
    """Returns the name of a file that can be written, which stays as it is. Raises OSError for others, so that long
    work does not begin in vain.
    """
    folder, is_there = os.path.dirname(path) or ".", os.path.exists(path)
    if os.path.isdir(path) or not os.path.isdir(folder) or not os.access(path if is_there else folder, os.W_OK):
        number = errno.EISDIR if os.path.isdir(path) else errno.EACCES if os.path.isdir(folder) else errno.ENOENT
        raise OSError(number, os.strerror(number), path)
    return path


def write_text(path: str | Path, text: str, what: str = "") -> None:
    """Writes a file that a user has named; a message may call it `what`. Raises OutputError, and then leaves a file
    that was there before as it was.
    """
    try:
        _write_wholly(Path(path), text)
    except OSError as error:
        place = f"{what} cannot be written to {path}" if what else f"{path} cannot be written"
        raise OutputError([Diagnostic(Severity.ERROR, f"{place}: {error.strerror or error}")]) from error


def _write_wholly(path: Path, text: str) -> None:
    """Writes a file, which on a full disk stays as it was: another one takes its place. Pipes, devices and files that
    may not be written are opened themselves, also those that stand for a file; so are those in folders where no other
    one can be made.
    """
    target = path.resolve()
    is_there, stands_for_it = target.exists(), str(path).startswith(("/dev/", "/proc/"))
    may_replace = os.access(target.parent, os.W_OK) and not stands_for_it
    if not may_replace or (is_there and not (target.is_file() and os.access(target, os.W_OK))):
        path.write_text(text, encoding="utf-8")
        return
    part = target.with_name(f".{os.urandom(8).hex()}.part")  # others may write the same file
    try:
        part.write_text(text, encoding="utf-8")
        if is_there:
            part.chmod(stat.S_IMODE(target.stat().st_mode))
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def read_toml(source: SourceFile, help: str | None = None) -> dict[str, Any]:
    """Returns the tables of TOML text. Raises CompileError with the place of an error."""
    try:
        return tomllib.loads(source.text)
    except tomllib.TOMLDecodeError as error:
        _refuse(str(error), source, help)
    except (RecursionError, ValueError) as error:
        if isinstance(error, ValueError):  # of Python, for a number of thousands of digits
            _refuse("a number has too many digits", source, help)
        _refuse(f"nested deeper than {_DEEPEST} levels", source, help, _too_deep(source.text))


def _refuse(message: str, source: SourceFile, help: str | None, offset: int | None = None) -> NoReturn:
    place = _AT.search(message)
    clause = message[: place.start()] if place else message
    if offset is None:
        offset = len(source.text)
        if place is not None and place[1]:
            offset = source.offset(int(place[1]), int(place[2]))
    fail(f"this is not TOML: {clause[:1].lower()}{clause[1:]}", Location(source, offset, offset + 1), help)


def _too_deep(text: str) -> int:
    """Returns the place of the first bracket that is nested too deep, as if no string held brackets."""
    depth = 0
    for match in re.finditer(r"[\[{]|[\]}]", text):
        depth += 1 if match[0] in "[{" else -1
        if depth > _DEEPEST:
            return match.start()
    return 0

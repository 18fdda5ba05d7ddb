"""Caches expensive results on disk for later processes: object code, parser tables.

A file's name is the hash of all inputs of its content, such as the text of a kernel, the version of LLVM and the
processor with its features. Its content begins with the hash of the rest. Files are written under another name and
renamed, so that several processes may fill the cache at once. Anything that goes wrong (a damaged file, a full or
read-only disk) is a cache miss.

Object code runs as it is read, so only the user may have written it: a folder of another owner, or one that others can
write to, is not used (`refusal` tells why), and neither is such a file. A hash in the file could not tell: whoever can
write a file can hash it, too.

`HLOOM_CACHE` names the folder; empty for no cache.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_DIGEST = 32  # bytes of a hash
_VERSION = "4"  # of the format of files, and of how contents are made


def folder() -> Path | None:
    """Returns the folder of the cache: `HLOOM_CACHE`, or hloom in the user's cache folder. None for no cache, or if
    others could write to the folder.
    """
    place = _named_folder()
    return None if place is None or _unsafe(place) else place


def refusal() -> str | None:
    """Tells why the folder that is named is not used; None if it is, or if there is none yet."""
    place = _named_folder()
    reason = _unsafe(place) if place is not None else None
    return reason and f"nothing is kept in {place}: {reason}"


def _named_folder() -> Path | None:
    chosen = os.environ.get("HLOOM_CACHE")
    if chosen is not None:
        return Path(chosen) if chosen else None
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base, "hloom")


def _unsafe(place: Path) -> str | None:
    """Tells why another user could put files into a folder; None if no one else can, or if there is no folder."""
    try:
        status = place.stat()
    except OSError:
        return None
    return _not_ours(status)


def _not_ours(status: os.stat_result) -> str | None:
    """Tells why another user may have written to a file or folder; None if only this user may have."""
    if status.st_uid != os.geteuid():
        return f"it belongs to user {status.st_uid}, not to {os.geteuid()}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others can write to it (mode {stat.S_IMODE(status.st_mode):o})"
    return None


def cached(parts: tuple[str, ...], make: Callable[[], bytes], place: Path | None, suffix: str = ".o") -> bytes:
    """Returns the content for a key, made if the cache at this place does not have it."""
    if place is None:
        return make()
    found = read_kept(parts, place, suffix)
    if found is None:
        found = make()
        write_kept(parts, found, place, suffix)
    return found


def read_kept(parts: tuple[str, ...], place: Path, suffix: str) -> bytes | None:
    """Returns the content for a key; None if the cache at this place does not have it."""
    return _read(_path(parts, place, suffix))


def write_kept(parts: tuple[str, ...], content: bytes, place: Path, suffix: str) -> None:
    """Keeps the content for a key, if the disk lets it."""
    _write(_path(parts, place, suffix), content)


def prune(place: Path, suffix: str, most: int) -> None:
    """Removes the files that were written first until those with this suffix have at most `most` bytes together."""
    with suppress(OSError):
        found = sorted((s.st_mtime_ns, s.st_size, p) for p in place.glob(f"*{suffix}") if (s := p.stat()))
        excess = sum(size for _, size, _ in found) - most
        for _, size, path in found:
            if excess <= 0:
                break
            path.unlink(missing_ok=True)
            excess -= size


def _path(parts: tuple[str, ...], place: Path, suffix: str) -> Path:
    return place / (hashlib.sha256("\0".join((_VERSION, *parts)).encode()).hexdigest() + suffix)


def _read(path: Path) -> bytes | None:
    """Returns the content of a file; None if there is none, it is damaged, or another user may have written it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or _not_ours(status):
        os.close(descriptor)
        return None
    with os.fdopen(descriptor, "rb") as file:
        data = file.read()
    content = data[_DIGEST:]
    return content if hashlib.sha256(content).digest() == data[:_DIGEST] else None


def _write(path: Path, content: bytes) -> None:
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        with os.fdopen(descriptor, "wb") as file:
            file.write(hashlib.sha256(content).digest() + content)
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            if temporary:
                Path(temporary).unlink()

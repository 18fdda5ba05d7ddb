"""Set-up of all tests: XLA, where a test uses it, has eight virtual CPU devices (set before it starts).

The programs that tests start compile the package once, also where Python is told not to leave bytecode behind: it lies
in a folder of its own, which goes when the tests end.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from support.virtual_devices import eight_devices

eight_devices()

_bytecode = tempfile.TemporaryDirectory(prefix="hloom-bytecode-")
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    os.environ["PYTHONPYCACHEPREFIX"] = _bytecode.name


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="rewrite the expected text of golden cases")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--bless") and config.getoption("numprocesses", None):
        raise pytest.UsageError("--bless writes files that several cases share: pytest --bless -n 0")


@pytest.fixture(autouse=True, scope="session")
def _nothing_is_replicated_on_the_way() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """In all tests: what neither end of a resharding holds whole is never whole on a device in between."""
    from hloom.passes.spmd.emit.moves import MoveEmitter

    emit, move = MoveEmitter.emit, MoveEmitter._move
    between: list[Any] = []

    def noted(self: MoveEmitter, array: Any, step: Any) -> Any:
        between.append(move(self, array, step))
        return between[-1]

    def checked(self: MoveEmitter, array: Any, moves: Sequence[Any]) -> Any:
        between.clear()
        result = emit(self, array, moves)
        whole = self.shape.dims

        def is_whole(found: Any) -> bool:
            return all(n >= w for n, w in zip(found.shape.dims, whole, strict=True))

        if self.shape.byte_size > 256 and not is_whole(array) and not is_whole(result):
            assert not any(map(is_whole, between)), f"{self.shape} is replicated on the way: {moves}"
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MoveEmitter, "emit", checked)
        patch.setattr(MoveEmitter, "_move", noted)
        yield

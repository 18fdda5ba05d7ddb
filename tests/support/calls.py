"""Observes the calls of Python functions, without replacing them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any


@contextmanager
def calls(*functions: Callable[..., Any], keep: bool = True) -> Generator[list[dict[str, Any]], None, None]:
    """Lists the calls of these functions in this thread: arguments by name, and the result as `return`, or nothing
    where to `keep` them would change what is observed.

    A cached function is called where it computes.
    """
    codes: set[CodeType] = {inspect.unwrap(function).__code__ for function in functions}
    made: list[dict[str, Any]] = []
    running: dict[FrameType, dict[str, Any]] = {}

    def note(frame: FrameType, event: str, value: Any) -> None:
        if frame.f_code not in codes:
            return
        if event == "call":
            made.append(dict(frame.f_locals) if keep else {})
            running[frame] = made[-1]
        elif event == "return":
            call = running.pop(frame)
            call.update({"return": value} if keep else {})

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield made
    finally:
        sys.setprofile(before)

"""Set-up of all tests: XLA, where a test uses it, has eight virtual CPU devices (set before it starts), and native
kernels are not cached on disk.

The programs that tests start compile the package once, also where Python is told not to leave bytecode behind: it lies
in a folder of its own, which goes when the tests end.
"""

from __future__ import annotations

import os
import tempfile

import hypothesis
import pytest
from support.virtual_devices import eight_devices

eight_devices()
os.environ["HLOOM_CACHE"] = ""

# No example fails for being slow: tests share their machine.
hypothesis.settings.register_profile("hloom", deadline=None)
hypothesis.settings.load_profile("hloom")

_bytecode = tempfile.TemporaryDirectory(prefix="hloom-bytecode-")
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    os.environ["PYTHONPYCACHEPREFIX"] = _bytecode.name


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="rewrite the expected text of golden cases")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--bless") and config.getoption("numprocesses", None):
        raise pytest.UsageError("--bless writes files that several cases share: pytest --bless -n 0")

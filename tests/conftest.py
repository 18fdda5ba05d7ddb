"""Set-up of all tests: XLA, where a test uses it, has eight virtual CPU devices and optimizes nothing (set before it
starts).

The processes of the tests share a folder, which goes when the tests end: parser tables and machine code are made once,
and the package is compiled once, also where Python is told not to leave bytecode behind.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator
from importlib.abc import Loader
from importlib.util import module_from_spec
from pathlib import Path
from typing import cast

import hypothesis
import pytest
from support.virtual_devices import eight_devices, quick_compilation

eight_devices()
quick_compilation()
# Workers have the processors: threads of numpy's products would wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# No example fails for being slow: tests share their machine.
hypothesis.settings.register_profile("hloom", deadline=None)
hypothesis.settings.load_profile("hloom")

if "PYTEST_XDIST_WORKER" not in os.environ:  # the workers have the folder of the process that starts them
    _shared = tempfile.TemporaryDirectory(prefix="hloom-tests-")
    os.environ["HLOOM_CACHE"] = os.path.join(_shared.name, "cache")
    _compiled = any(Path(__file__).parent.glob("ops/__pycache__/test_*"))
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        os.environ["PYTHONPYCACHEPREFIX"] = os.path.join(_shared.name, "bytecode")
        _compiled = False
    os.environ["HLOOM_TESTS_COLLECTED"] = "" if _compiled else os.path.join(_shared.name, "collected")
_ROOT = Path(__file__).parents[1]
_PATIENCE = 120.0  # seconds that a worker waits for the first one


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="rewrite the expected text of golden cases")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--bless") and config.getoption("numprocesses", None):
        raise pytest.UsageError("--bless writes files that several cases share: pytest --bless -n 0")


def _import(path: Path) -> None:
    """Imports a file of tests as pytest does, by its finders, which compile assertions, and under its name."""
    name = ".".join(path.relative_to(_ROOT).with_suffix("").parts)
    specs = (finder.find_spec(name, [str(path.parent)]) for finder in sys.meta_path)
    spec = next(filter(None, specs))
    sys.modules[name] = module_from_spec(spec)
    try:
        cast("Loader", spec.loader).exec_module(sys.modules[name])
    except BaseException:
        del sys.modules[name]  # its collection is to see the error
        raise


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Lets the first worker collect before the others where nothing is compiled yet, so that it is compiled once. The
    second one imports the files of tests from the last one on meanwhile, until the two meet.
    """
    worker, collected = os.environ.get("PYTEST_XDIST_WORKER"), os.environ["HLOOM_TESTS_COLLECTED"]
    end, files = time.monotonic() + _PATIENCE, sorted(Path(__file__).parent.rglob("test_*.py"))
    while worker not in (None, "gw0") and collected and not os.path.exists(collected) and time.monotonic() < end:
        if worker == "gw1" and files:
            with contextlib.suppress(Exception, pytest.skip.Exception):  # which its collection tells
                _import(files.pop())
        else:
            time.sleep(0.1)
    result = yield
    if worker == "gw0" and collected:
        Path(collected).touch()
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the cases of tables as slow that are not in the share which runs by default.

    Cases that are slow by themselves do not count.
    """
    numbers: Counter[str] = Counter()
    for item in items:
        share = item.get_closest_marker("share")
        if share and not item.get_closest_marker("slow"):
            test = item.nodeid.split("[")[0]
            if numbers[test] % share.args[0]:
                item.add_marker(pytest.mark.slow)
            numbers[test] += 1


def pytest_xdist_auto_num_workers() -> int:
    """A worker more than cores: tests of ranks and of deadlines wait, and others run meanwhile."""
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1) + 1


def pytest_collection_finish() -> None:
    """Lets the collector search the tests themselves no more, and the rest of a large process seldom: what it has kept
    once it keeps. Each search calls Python functions of JAX and hypothesis, so the youngest objects are many.
    """
    gc.callbacks.append(lambda phase, info: gc.freeze() if (phase, info["generation"]) == ("stop", 2) else None)
    gc.collect()
    gc.set_threshold(50_000, 10, 10)

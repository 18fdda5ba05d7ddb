"""Parses the values of arguments. Raises argparse.ArgumentTypeError for texts that are none."""

from __future__ import annotations

import argparse
import math


def mesh_sizes(text: str) -> dict[str, int]:
    """Parses `x=2,y=4` into a dict. Raises argparse.ArgumentTypeError."""
    sizes: dict[str, int] = {}
    for part in text.split(","):
        name, _, size = part.partition("=")
        if not name or not size.isdecimal() or int(size) < 1 or name in sizes:
            raise argparse.ArgumentTypeError(f"'{text}' is not of the form x=2,y=4")
        sizes[name] = int(size)
    from ..ir.sharding.mesh import LARGEST_MESH

    if math.prod(sizes.values()) > LARGEST_MESH:
        raise argparse.ArgumentTypeError(f"a mesh has at most {LARGEST_MESH} devices, their numbers have 32 bits")
    return sizes


def backend_name(text: str) -> str:
    """Returns the name of a backend, also from the environment. Raises argparse.ArgumentTypeError for other words."""
    from ..driver.backend import BACKENDS

    if text not in BACKENDS:
        raise argparse.ArgumentTypeError(f"'{text}' is none of {', '.join(BACKENDS)}")
    return text


def device_count(text: str) -> int:
    """Parses a number of devices. Raises argparse.ArgumentTypeError."""
    from ..ir.sharding.mesh import LARGEST_MESH

    if positive(text) > LARGEST_MESH:
        raise argparse.ArgumentTypeError(f"there are at most {LARGEST_MESH} devices, their numbers have 32 bits")
    return int(text)


def positive(text: str) -> int:
    """Parses a whole number of at least 1. Raises argparse.ArgumentTypeError."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of at least 1")
    return int(text)


def seconds(text: str) -> float:
    """Parses a positive number of seconds, `inf` for no limit. Raises argparse.ArgumentTypeError."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not found > 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive number of seconds")
    return found


def not_negative(text: str) -> int:
    """Parses a whole number of at least 0. Raises argparse.ArgumentTypeError."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of at least 0")
    return int(text)


def tolerance(text: str) -> float:
    """Parses a number of at least 0. Raises argparse.ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of at least 0")
    return value


def names(text: str) -> frozenset[str]:
    """Parses `a,b` into a set. The names are checked after the files of `--import` have run."""
    return frozenset(text.split(","))


def python_place(text: str) -> str:
    """Checks that a text is `FILE.py:FUNCTION`. Raises argparse.ArgumentTypeError."""
    path, _, name = text.rpartition(":")
    if not path or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"'{text}' is not of the form FILE.py:FUNCTION")
    return text


def byte_count(text: str) -> int:
    """Parses a number of bytes, such as `12GB`. Raises argparse.ArgumentTypeError."""
    from ..passes.schedule.sizes import Bytes

    try:
        return positive(str(int(Bytes(text))))
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of bytes such as 12GB") from None

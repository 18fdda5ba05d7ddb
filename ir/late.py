"""Imports names when they are first needed, so that a command that needs little starts quickly.

A late name is written `package.module:name`, relative to the package `hloom`. The public names of a package, the
commands and the writers of modules are late names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

_ROOT = __name__.removesuffix(".ir.late")


def late(place: str) -> Any:
    """Imports the module of a late name and returns the object; without a name, the module."""
    path, _, name = place.partition(":")
    module = import_module(f"{_ROOT}.{path}")
    return getattr(module, name) if name else module


def late_names(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns the `__getattr__` of a package that re-exports these names, each given with its late name."""

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        found = late(places[name])
        setattr(import_module(package), name, found)  # Python finds it there from now on
        return found

    return find

"""Rows of the table of JAX's features: small functions, each run with `jax.jit` and with `hloom.jax.jit`, and compared.

A row takes `jit` and returns a tree. Arrays in it must agree in shape, type, weak type, sharding type (`jax.typeof`)
and numbers; all other leaves, such as a `PartitionSpec` or an exception's type, must be equal. Rows lie in
tests/with_jax/table/, in a file for each subject:

    @row("static arguments by number")
    def static_numbers(jit):
        return jit(lambda n, x: x[:n], static_argnums=0)(3, jnp.arange(8.0))

`bench/jax_table.py` prints the table.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hloom.ir.diagnostics import CompileError

TABLE = Path(__file__).parents[1] / "with_jax" / "table"
SAME, NEITHER, REFUSED, DIFFERENT = "same", "JAX cannot either", "refused", "different"

Function = Callable[[Any], Any]


@dataclass(frozen=True)
class Row:
    """One feature: how to use it, whether JAX itself `fails`, and the message with which Hloom refuses it, if it does.
    """

    title: str
    subject: str
    function: Function
    devices: int = 8
    refused: str | None = None
    fails: bool = False
    slow: bool = False

    @property
    def name(self) -> str:
        return f"{self.subject}-{self.function.__name__}"

    @property
    def expected(self) -> str:
        """The outcome that is right."""
        return NEITHER if self.fails else SAME if self.refused is None else REFUSED


@dataclass(frozen=True)
class Outcome:
    """How a row went: one of the four words above, with the reason unless it is the same."""

    kind: str
    reason: str = ""


_rows: list[Row] = []


def row(
    title: str, *, devices: int = 8, refused: str | None = None, fails: bool = False, slow: bool = False
) -> Callable[[Function], Function]:
    """Adds a row to the table. `refused` is a part of the message if Hloom refuses what JAX takes; JAX itself `fails`
    where that is what the row shows.
    """

    def add(function: Function) -> Function:
        subject = Path(function.__code__.co_filename).stem
        _rows.append(Row(title, subject, function, devices, refused, fails, slow))
        return function

    return add


def auto_mesh() -> Any:
    """Returns a mesh of 2 x 4 devices with automatic axes."""
    jax = importlib.import_module("jax")
    return jax.make_mesh((2, 4), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)


def explicit_mesh() -> Any:
    """Returns a mesh of 2 x 4 devices with explicit axes."""
    return importlib.import_module("jax").make_mesh((2, 4), ("x", "y"))


def put(mesh: Any, value: Any, *spec: Any) -> Any:
    """Divides an array over the axes of a mesh."""
    jax = importlib.import_module("jax")
    return jax.device_put(value, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec)))


def rows() -> list[Row]:
    """Returns the rows of all files of the table, once JAX has its devices."""
    if not _rows:
        for path in sorted(TABLE.glob("[!_]*.py")):
            spec = importlib.util.spec_from_file_location(f"jax_table_{path.stem}", path)
            assert spec is not None
            assert spec.loader is not None
            module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # data classes look for it
            spec.loader.exec_module(module)
    return _rows


def run(row: Row) -> Outcome:
    """Runs a row both ways and compares. Raises what Hloom raises if that is no diagnostic and JAX raises nothing."""
    jax, hloom_jax = importlib.import_module("jax"), importlib.import_module("hloom.jax")
    wanted, error = _result(row.function, jax.jit)
    if error is None:
        try:
            found = row.function(hloom_jax.jit)
        except CompileError as refusal:
            return Outcome(REFUSED, refusal.diagnostics[0].message)
        difference = _difference(jax, found, wanted)
        return Outcome(SAME) if difference is None else Outcome(DIFFERENT, difference)
    found, own = _result(row.function, hloom_jax.jit)
    if own is None:
        return Outcome(DIFFERENT, f"JAX raises {type(error).__name__}, Hloom nothing: {error}")
    if isinstance(own, (type(error), CompileError)):
        return Outcome(NEITHER, f"{type(own).__name__}: {[*str(own).splitlines(), ''][0]}")
    return Outcome(DIFFERENT, f"JAX raises {type(error).__name__}, Hloom {type(own).__name__}: {own}")


def _result(function: Function, jit: Any) -> tuple[Any, Exception | None]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function(jit), None
    except Exception as error:
        return None, error


def _difference(jax: Any, found: Any, wanted: Any) -> str | None:
    """Returns the first difference of two results; None if they are the same."""
    leaves, tree = jax.tree_util.tree_flatten_with_path(found)
    others, wanted_tree = jax.tree.flatten(wanted)
    if tree != wanted_tree:
        return f"the result is {tree}, not {wanted_tree}"
    for (path, a), b in zip(leaves, others, strict=True):
        reason = _of_leaf(jax, a, b)
        if reason is not None:
            return f"result{jax.tree_util.keystr(path)}: {reason}"
    return None


def _of_leaf(jax: Any, found: Any, wanted: Any) -> str | None:
    if type(found) is not type(wanted) and not isinstance(found, jax.sharding.Sharding):
        return f"{found!r} is of {type(found)}, not {type(wanted)}"
    if not isinstance(wanted, (jax.Array, np.ndarray, float)):
        return None if found == wanted else f"{found!r} instead of {wanted!r}"
    if str(jax.typeof(found)) != str(jax.typeof(wanted)):  # the text has the explicit axes, and not the mesh
        return f"{jax.typeof(found)} instead of {jax.typeof(wanted)}"
    if jax.typeof(found).weak_type != jax.typeof(wanted).weak_type:
        return f"weak type {jax.typeof(found).weak_type} instead of {jax.typeof(wanted).weak_type}"
    if jax.numpy.issubdtype(jax.typeof(wanted).dtype, jax.dtypes.prng_key):
        found, wanted = jax.random.key_data(found), jax.random.key_data(wanted)
    a, b = np.asarray(found), np.asarray(wanted)
    if a.dtype.kind in "biuSU":
        return None if (a == b).all() else f"{a} instead of {b}"
    a, b = a.astype(np.complex128), b.astype(np.complex128)
    largest = np.abs(b[np.isfinite(b)]).max(initial=0)
    close = np.allclose(a, b, rtol=1e-5, atol=2e-5 * largest, equal_nan=True)
    return None if close else f"{a} instead of {b}"

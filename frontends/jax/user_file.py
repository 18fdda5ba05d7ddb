"""Runs a Python file of the user, and asks JAX for the program of a function in it."""

from __future__ import annotations

import contextlib
import inspect
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np

from ...ir.diagnostics import CompileError, fail
from ...ir.graph.module import Module
from ...ir.graph.stack_frames import SourceSpan
from ...ir.types.literal import Array
from ...ir.user_files import cannot_read
from ..extras import imported
from ..user_lines import UserLines
from .lower import PURPOSE, from_jax

_DEVICES = "--xla_force_host_platform_device_count"
_UNEVEN = "IndivisibleError"  # a class of JAX that only its internals name


def from_file(path: str, name: str, devices: int | None = None) -> Module:
    """Returns the program that a function of a Python file gives: a function and its arguments, or what JAX has traced
    or lowered. JAX gets so many virtual `devices` of the CPU, if it has not begun. Raises CompileError with the user's
    own line for errors in the file.
    """
    if devices is not None:
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_DEVICES}={devices}".strip()
        os.environ["JAX_PLATFORMS"] = "cpu"
    imported("jax", PURPOSE)
    place = [SourceSpan(path, 1)]
    with _users_code(path, place):
        names = runpy.run_path(path)
        function = names.get(name)
        if not callable(function):
            own = (n for n, value in names.items() if getattr(value, "__module__", "") == "<run_path>")
            known = [n for n in own if callable(names[n])]
            fail(f"{path} has no function '{name}'", help=f"functions in it: {', '.join(sorted(known)) or 'none'}")
        place += _definition(function, path)
        needed = _needed(function)
        if needed:
            fail(f"{path}:{name} has parameters ({', '.join(needed)}), which nothing gives",
                 help="name one without any that returns (f, args): the function and its arguments or their shapes")
        made: Any = cast("Callable[[], object]", function)()
        if hasattr(made, "in_avals"):  # traced or lowered
            return from_jax(made)
        f, arguments = cast("tuple[Any, Any]", made) if _is_pair(made) else (None, None)
        if not callable(f) or not isinstance(arguments, (tuple, list)):
            fail(f"{path}:{name} returns {_described(made)}",
                 help="return (f, args), where args is a tuple, or what jax.jit(f).lower(*args) returns")
        place += _definition(f, path)
        given = cast("tuple[Any, ...]", arguments)
        module = from_jax(f, *given)
        module.example = _example(module, given)
        return module


def _example(module: Module, arguments: tuple[Any, ...]) -> tuple[Array, ...]:
    """Returns the arrays of a function's arguments as the program takes them; none if some are only shapes, or if the
    program leaves out some.
    """
    jax = imported("jax", PURPOSE)
    leaves: list[Any] = jax.tree.leaves(arguments)
    shapes = [leaf for p in module.entry.parameters for leaf in p.shape.leaves() if leaf.is_array]
    if len(leaves) != len(shapes) or any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves):
        return ()
    is_key = [jax.dtypes.issubdtype(getattr(leaf, "dtype", None), jax.dtypes.prng_key) for leaf in leaves]
    found = [np.asarray(jax.random.key_data(leaf) if key else leaf) for leaf, key in zip(leaves, is_key, strict=True)]
    fits = all(array.shape == shape.dims for array, shape in zip(found, shapes, strict=True))
    return tuple(a.astype(s.element.numpy, copy=False) for a, s in zip(found, shapes, strict=True)) if fits else ()


def _needed(function: Callable[..., object]) -> list[str]:
    """Returns the names of the parameters that a call has to give."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of objects that tell no signature
        return []
    return [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def _definition(function: Callable[..., object], path: str) -> list[SourceSpan]:
    """Returns the place of a function's definition if that is in the file."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return [SourceSpan(path, code.co_firstlineno)] if code is not None and code.co_filename == path else []


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple) and len(cast("tuple[object, ...]", value)) == 2


def _described(value: object) -> str:
    name = type(value).__name__
    parts = [type(part).__name__ for part in cast("tuple[object, ...]", value)] if isinstance(value, tuple) else []
    return f"an object of type {name}" + (f": {', '.join(parts)}" if parts else "")


@contextlib.contextmanager
def _users_code(path: str, place: list[SourceSpan]) -> Generator[None]:
    """Lets the file import its neighbours, and turns its exceptions into CompileErrors: at the last `place` where no
    line of the file was running.
    """
    sys.path.insert(0, str(Path(path).resolve().parent))
    try:
        yield
    except CompileError:
        raise
    except (Exception, SystemExit) as error:
        _fail(path, error, place[-1])
    finally:
        del sys.path[0]


def _fail(path: str, error: BaseException, place: SourceSpan) -> NoReturn:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == path]
    if isinstance(error, OSError) and not frames:
        cannot_read(path, error)
    if isinstance(error, SyntaxError) and error.filename == path and error.lineno:
        span = SourceSpan(path, error.lineno, max((error.offset or 1) - 1, 0))
    elif frames:
        last = frames[-1]
        end = last.end_colno if last.end_lineno == last.lineno else None
        span = SourceSpan(path, last.lineno or 1, last.colno or 0, end or 0)
    else:
        span = place
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    fail(f"{type(error).__name__}: {message}", UserLines().location(span), help=_advice(error, message))


def _advice(error: BaseException, message: str) -> str | None:
    """Returns a way around an error of JAX, if Hloom has one."""
    if type(error).__name__ == _UNEVEN:
        return ("JAX divides arguments and results evenly: give these without a sharding, and divide them inside, "
                "where jax.lax.with_sharding_constraint takes any size")  # fmt: skip
    if "devices" in message and isinstance(error, ValueError):
        return "an AbstractMesh needs no devices; hloom from-jax --devices N gives JAX N virtual ones"
    return None

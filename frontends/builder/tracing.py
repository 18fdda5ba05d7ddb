"""Traces: where instructions go while Python code runs, and the user's line that each of them comes from.

A `BuilderScope` is under construction: a program, the body of a loop or branch, or a manual region. Functions of the
builder append to the current scope. A value of an outer scope that a body uses is captured: the body gets a parameter
for it, a region a local copy.

Functions that users call are `public`. The outermost of them notes its caller's line for the instructions that it
emits and for its errors, which leave it as one `CompileError` at that line without the builder's own frames.
"""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import lru_cache, wraps
from itertools import islice
from types import CodeType, FrameType, TracebackType
from typing import Any, ParamSpec, TypeVar

import numpy as np

from ...ir.brief import brief
from ...ir.diagnostics import CompileError, Diagnostic, Location, Severity, SourceFile, fail
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction, Metadata
from ...ir.graph.module import Module
from ...ir.sharding.mesh import Mesh
from ...ir.sharding.sharding import AnySharding
from ...ir.strings import quote
from ...ir.types.element_type import ElementType
from ...ir.types.literal import Literal
from ...ir.types.shape import Shape, array

P = ParamSpec("P")
R = TypeVar("R")

_PACKAGE = __name__.rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class CallSite:
    """A call in the user's program: the called function, and the line. `location` is None without source text."""

    name: str
    file: str
    line: int
    location: Location | None


@brief
@dataclass
class ProgramTrace:
    """The program under construction, and the state that its computations share."""

    module: Module
    reducers: dict[tuple[str, ElementType], Computation] = field(
        default_factory=dict[tuple[str, ElementType], Computation])
    channels: int = 0
    groups: int = 0

    def reducer(self, opcode: str, element: ElementType) -> Computation:
        """Returns the computation that applies a binary op to two scalars."""
        found = self.reducers.get((opcode, element))
        if found is None:
            found = self.reducers[opcode, element] = self.module.new_computation(f"{opcode}.{element}")
            scalar = array(element)
            found.build(opcode, found.parameter(0, scalar, "x"), found.parameter(1, scalar, "y"))
        return found


@brief
@dataclass(eq=False)
class BuilderScope:
    """One place to which instructions are appended. `title` names it in messages."""

    trace: ProgramTrace
    computation: Computation
    parent: BuilderScope | None
    title: str
    captured: dict[Instruction, Instruction] = field(default_factory=dict[Instruction, Instruction])
    constants: dict[tuple[str, ElementType], Instruction] = field(
        default_factory=dict[tuple[str, ElementType], Instruction])
    parameters: int = 0

    def capture(self, outer: Instruction) -> Instruction:
        """Returns the local value that represents a value of the parent. Raises CompileError: there is none here."""
        fail(f"{self.title} can only use its own values, not {outer.name}")

    def parameter(self, shape: Shape, name: str) -> Instruction:
        """Appends the next parameter of the computation."""
        self.parameters += 1
        return self.computation.parameter(self.parameters - 1, shape, self.computation.unique_name(name))

    def own(self, instruction: Instruction, scope: BuilderScope) -> Instruction:
        """Returns a value of `scope` as one of this scope, capturing it if needed. Raises CompileError."""
        if scope is self:
            return instruction
        if self.parent is None or scope not in ancestors(self):
            line = instruction.location
            fail(f"a value of {scope.title} is used in {self.title}, where it does not exist",
                 help=f"it is made in line {line.line} of {line.source.name}; return it from there" if line else None)
        outer = self.parent.own(instruction, scope)
        if outer not in self.captured:
            with entered(self):
                self.captured[outer] = self.capture(outer)
        return self.captured[outer]


def ancestors(scope: BuilderScope) -> Iterator[BuilderScope]:
    """Yields the scope itself and those around it, innermost first."""
    found: BuilderScope | None = scope
    while found is not None:
        yield found
        found = found.parent


_SCOPE: ContextVar[BuilderScope | None] = ContextVar("scope", default=None)
_PLACE: ContextVar[CallSite | None] = ContextVar("place", default=None)
_PREFIX: ContextVar[tuple[str, ...]] = ContextVar("prefix", default=())
_MESH: ContextVar[Mesh | None] = ContextVar("mesh", default=None)


def current() -> BuilderScope:
    """Returns the scope under construction. Raises CompileError if there is none."""
    scope = _SCOPE.get()
    if scope is None:
        fail("no program is under construction here",
             help="call it in a function given to trace(), or within `with Program(..)`")
    return scope


@contextmanager
def entered(scope: BuilderScope) -> Generator[BuilderScope]:
    """Makes a scope the current one."""
    token = _SCOPE.set(scope)
    try:
        yield scope
    finally:
        _SCOPE.reset(token)


@contextmanager
def named_scope(name: str) -> Generator[None]:
    """Puts a name in front of the `op_name`s of all instructions made within: `with named_scope("layer3"):`."""
    token = _PREFIX.set((*_PREFIX.get(), name))
    try:
        yield
    finally:
        _PREFIX.reset(token)


@contextmanager
def use_mesh(mesh: Mesh) -> Generator[Mesh]:
    """Makes a mesh the one whose axes placements name within the block: `with use_mesh(Mesh.of(x=2, y=4)):`."""
    token = _MESH.set(mesh)
    try:
        yield mesh
    finally:
        _MESH.reset(token)


def mesh_or_current(mesh: Mesh | None) -> Mesh:
    """Returns the mesh, or the one of `use_mesh`. Raises CompileError if there is none."""
    found = mesh or _MESH.get()
    if found is None:
        fail("axes of which mesh?", help="pass mesh=Mesh.of(x=2, y=4), or write it within `with use_mesh(mesh):`")
    return found


# -- emission


def emit(
    opcode: str, *operands: Instruction, shape: Shape | None = None, name: str | None = None,
    sharding: AnySharding | None = None, **attributes: Any,
) -> Instruction:
    """Appends an instruction to the current scope, with the user's line. Raises CompileError."""
    scope = current()
    made = scope.computation.build(opcode, *operands, shape=shape, name=name, sharding=sharding, **attributes)
    stamp(made)
    return made


def stamp(instruction: Instruction, op_name: str | None = None) -> None:
    """Gives an instruction the user's line as location and metadata. `op_name` replaces the path of the function."""
    place = _PLACE.get()
    if place is not None:
        path = op_name or "/".join((*_PREFIX.get(), place.name))
        instruction.location = place.location
        instruction.metadata = _metadata(path, place.file, place.line)


@lru_cache(maxsize=65536)
def _metadata(path: str, file: str, line: int) -> Metadata:
    return Metadata(f"op_name={quote(path)} source_file={quote(file)} source_line={line}")


def scalar(value: Any, element: ElementType) -> Instruction:
    """Returns a scalar constant of the current scope; equal ones are one instruction."""
    scope, key = current(), (repr(value), element)
    if key not in scope.constants:
        scope.constants[key] = emit("constant", literal=literal(value, element))
    return scope.constants[key]


def literal(value: Any, element: ElementType) -> Literal:
    """Returns a number, or an array of numbers, as a literal of this type. Raises CompileError."""
    if element.numpy is None:
        fail(f"{element} has no values in Python")
    return Literal(np.array(value).astype(element.numpy))


# -- the user's line


_OPERATORS = {
    "__radd__": "add", "__rmul__": "mul", "__rsub__": "sub", "__truediv__": "divide", "__rtruediv__": "divide",
    "__rfloordiv__": "floordiv", "__rmod__": "mod", "__rpow__": "pow", "__rmatmul__": "matmul", "__rand__": "and",
    "__ror__": "or", "__rxor__": "xor", "__getitem__": "index",
}  # fmt: skip
"""The names of operators in paths, where they are not those of Python's methods."""


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Decorates a function that users call. Calls among functions of the builder are not touched."""
    name = _OPERATORS.get(function.__name__, function.__name__.strip("_"))

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        frame = _caller()
        if frame.f_globals.get("__name__", "").startswith(_PACKAGE):
            return function(*args, **kwargs)
        place = _place(frame, name)
        token = _PLACE.set(place)
        try:
            return function(*args, **kwargs)
        except CompileError as error:
            if all(d.location is not None for d in error.diagnostics):
                raise  # an error of a nested function of the user, which has its line
            found = CompileError([d if d.location else replace(d, location=place.location) for d in error.diagnostics])
        except (AttributeError, TypeError, ValueError) as error:
            if error.__traceback__ is None or not _is_inside(error.__traceback__.tb_next):
                raise
            found = CompileError([Diagnostic(Severity.ERROR, f"{name}: {error}", place.location)])
        finally:
            _PLACE.reset(token)
        raise found

    return call


def _is_inside(traceback: TracebackType | None) -> bool:
    """Whether an error arose in a function of the builder, from arguments that it did not expect: not where Python
    called it, and not in a function of the user that it called.
    """
    packages: set[str] = set()
    while traceback is not None:
        packages.add(str(traceback.tb_frame.f_globals.get("__name__")).partition(".")[0])
        traceback = traceback.tb_next
    return bool(packages) and packages <= _LIBRARIES


_LIBRARIES = {__name__.partition(".")[0], "numpy", "re"}


def _caller() -> FrameType:
    """Returns the frame that called the function that calls this one."""
    frame = inspect.currentframe()
    for _ in range(2):
        assert frame is not None
        frame = frame.f_back
    assert frame is not None
    return frame


def _place(frame: FrameType, name: str) -> CallSite:
    return _place_of(frame.f_code.co_filename, frame.f_code, frame.f_lasti, frame.f_lineno, name)


@lru_cache(maxsize=65536)
def _place_of(file: str, code: CodeType, instruction: int, line: int, name: str) -> CallSite:
    text = "".join(linecache.getlines(file))
    span = next(islice(code.co_positions(), instruction // 2, None), (None, None, None, None))
    if not text:
        return CallSite(name, file, line, None)
    source = _source(file, text)
    return CallSite(name, file, line, _location(source, line, *span))


@lru_cache(maxsize=64)
def _source(file: str, text: str) -> SourceFile:
    return SourceFile(file, text)


def _location(
    source: SourceFile, line: int, first: int | None, last: int | None, begin: int | None, end: int | None
) -> Location | None:
    """Returns the span of a call; of its first line only, where it has several. Columns count bytes."""
    lines = source.text.splitlines(keepends=True)
    first = first or line
    if not 0 < first <= len(lines):
        return None
    start, text = sum(map(len, lines[: first - 1])), lines[first - 1].rstrip()
    if begin is None or end is None:
        begin, end = len(text) - len(text.lstrip()), len(text)
    else:
        begin = len(text.encode()[:begin].decode(errors="ignore"))
        end = len(text.encode()[:end].decode(errors="ignore")) if last == first else len(text)
    return Location(source, start + begin, start + max(end, begin + 1))

"""Reads modules: header, stack-frame tables, computations, and texts without a header; recovers after errors.

After an instruction that cannot be read, reading resumes at the next line that looks like the start of one.
Instructions that depend on the lost one are not reported again.
"""

from __future__ import annotations

import itertools
import re

from ...ir.diagnostics import CompileError, Diagnostic, SourceFile
from ...ir.graph.clone import clone_computation
from ...ir.graph.computation import Computation
from ...ir.graph.dynamic_sizes import may_repeat
from ...ir.graph.module import EntryLayout, Module
from ...ir.graph.op import Role
from ...ir.ops.calls.custom_call import is_annotation
from ...ir.reached import reached
from ...ir.strings import unescape
from ...ir.tools.control_flow import computations_run
from ...ir.types.shape import Shape
from .cursor import Poisoned, Syntax
from .errors import TextError
from .header import read_header
from .instruction_reader import NESTING_LIMIT, Body, InstructionReader
from .scan import COMMENT, IDENT, STRING, skip_space
from .shapes import PLAIN_SHAPE, in_default_order, is_shape, plain_shapes

ERROR_LIMIT = 50

_FORM = "a computation is written NAME { .. } or NAME (x: f32[8]) -> f32[8] { .. }, the main one after ENTRY"

_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
_STRING_ROW = re.compile(rf"\s*(\d+)\s+(?:{STRING})", re.DOTALL)
_LOCATION_ROW = re.compile(
    r"\s*(\d+)\s*\{\s*file_name_id=\d+\s+function_name_id=\d+\s+line=-?\d+\s+end_line=-?\d+\s+column=-?\d+"
    r"\s+end_column=-?\d+\s*\}"
)
_FRAME_ROW = re.compile(r"\s*(\d+)\s*\{\s*file_location_id=\d+(?:\s+parent_frame_id=\d+)?\s*\}")
_ROWS = dict(zip(_TABLES, (_STRING_ROW, _STRING_ROW, _LOCATION_ROW, _FRAME_ROW), strict=True))
_NEXT_START = re.compile(
    rf"\n[ \t]*(?=\}}|(?:ROOT\s+)?%?{IDENT}\s*=\s*[^=\s]|(?:ENTRY\s+)?%?{IDENT}\s*(?:\(.*)?\{{[ \t]*$)", re.MULTILINE
)
_BRACE = re.compile(rf"[{{}}]|{STRING}|{COMMENT}", re.DOTALL)
_HEADER_LIKE = re.compile(r"(?:hlo_?module|entry)\s", re.IGNORECASE)
_COMPUTATION_START = re.compile(rf"(?:ENTRY\s+)?%?{IDENT}\s*(?:\(.*)?\{{[ \t]*$", re.MULTILINE)
_COMPUTATION_AHEAD = re.compile(rf"(?:ENTRY\b|%?{IDENT}\s*\{{|%{IDENT}\s*\()")
_AFTER_COMPUTATION = re.compile(rf"\Z|,|(?:ENTRY\s+)?%?{IDENT}\s*[({{]")
# A parameter of a signature, with its shape where that is a plain array.
_PARAMETER = re.compile(rf"(%?{IDENT}\s*:)(?:\s*({PLAIN_SHAPE})(?=[,)]))?+")
# Parameters whose shapes are all plain arrays.
_PARAMETERS = re.compile(
    rf"\((?:%?+{IDENT}\s*+:\s*+{PLAIN_SHAPE})(?:,\s*+(?:/\*index=[0-9]++\*/)?+%?+{IDENT}\s*+:\s*+{PLAIN_SHAPE})*+\)")


class ModuleReader(InstructionReader):
    """Reads one text into one module, collecting errors in `found`."""

    def __init__(self, source: SourceFile) -> None:
        super().__init__(source)
        self.found: list[Diagnostic] = []
        self.module = Module("", source)
        self._entry_place: int | None = None
        self._depth = 0
        self._inline: list[Computation] = []
        self._is_single = False
        self._plain: dict[Computation, Computation] = {}

    def read(self) -> Module:
        """Reads the module. Raises CompileError with all errors."""
        try:
            self._module()
            self._name_inline()
            self._drop_tuples()
            self._drop_annotations()
            self._plain_entry_layout()
        except Syntax as error:
            self.found.append(error.diagnostic)
        if self.found:
            raise CompileError(self.found)
        self.module.warnings = tuple(self.warnings)
        return self.module

    def _name_inline(self) -> None:
        """Gives unused names to inline computations, which cannot be called by name."""
        taken = {c.name for c in self.module.computations}
        names = itertools.chain(("_",), (f"_.{n}" for n in itertools.count(1)))
        for computation, name in zip(self._inline, (n for n in names if n not in taken), strict=False):
            computation.name = name

    def _plain_entry_layout(self) -> None:
        """Resets the layouts of the entry's arrays to the default order where XLA does: if the header gives devices or
        shardings but no layouts, and in a text of a single instruction.
        """
        module = self.module
        propagates = module.allow_propagation_to_parameters or module.allow_propagation_to_output
        is_set_up = module.replica_count != 1 or module.num_partitions != 1 or module.alias_passthrough_params
        if self.found or module.entry_layout or not (is_set_up or propagates or self._is_single):
            return
        shapes = [*(p.shape for p in module.entry.parameters), module.entry.root.shape]
        plain = [in_default_order(shape) for shape in shapes]
        if plain != shapes:
            module.entry_layout = EntryLayout(tuple(plain[:-1]), plain[-1])

    def _module(self) -> None:
        module = self.module
        if self.accept_word("HloModule"):
            read_header(self, module)
            self.meshes = module.meshes
            self._tables()
        elif not _COMPUTATION_AHEAD.match(self.text, self.skip()):
            if _HEADER_LIKE.match(self.text, self.place):
                self.unexpected("HloModule or ENTRY", "capitals and small letters differ")
            self._single_instruction()
            return
        self.skip()
        while self.place < len(self.text):
            self._computation()
            self.skip()
        if not module.computations and not self.found:
            self.unexpected("computation")
        if module.computations and self._entry_place is None:
            module.entry = module.computations[-1]
        if not module.name and module.computations:
            module.name = "module_" + module.entry.name

    def _single_instruction(self) -> None:
        """Reads a module of one instruction; undefined operands become parameters."""
        self._is_single = True
        self.module.name = "_"
        self.module.is_scheduled = True
        body = Body(Computation("_"), implicit_parameters=True)
        if self.skip() == len(self.text):
            self.unexpected("HloModule", "the text is empty")
        self.instruction(body)
        if self.skip() < len(self.text):
            self.unexpected("end of the text", "a text without HloModule or ENTRY is read as a single instruction")
        self.module.add_computation(body.computation, entry=True)

    # -- stack-frame tables

    def _tables(self) -> None:
        start = self.skip()
        if not self.at(_TABLES[0]):
            return
        for title in _TABLES:
            if not self.accept_word(title):
                self.unexpected(f"'{title}'", "the four tables " + ", ".join(_TABLES) + " come together, in this order")
            self._rows(_ROWS[title])
        self.module.stack_frames = self.text[start : self.place].strip()

    def _rows(self, row: re.Pattern[str]) -> None:
        expected = 1
        while True:
            start = self.skip()
            match = row.match(self.text, self.place)
            if match is None:
                if self.text[start : start + 1].isdigit():
                    self.unexpected("table row", "this row has not the fields of its table")
                return
            if len(match[1]) > 9 or int(match[1]) != expected:
                self.error(f"table row {match[1]}: {expected} expected", match.start(1), match.end(1))
            expected += 1
            self.place = match.end()

    # -- computations

    def _computation(self) -> None:
        start = self.skip()
        is_entry = self.accept_word("ENTRY")
        name, name_place = self.name("computation", _FORM)
        span = (name_place, self.place)
        if is_entry and self._entry_place is not None:
            self.error("a second ENTRY computation", start, span[1])
        if name in self.computations:
            self.error(f"computation '{name}' is defined twice", *span,
                       notes=self.note("first defined here", self.computations[name].location))
        result = self._signature() if self.at("(") else None
        computation = Computation(name, self.location(*span))
        errors = len(self.found)
        body = self._body(computation, result)
        if self.accept(","):
            self._execution_thread(computation)
        if errors < len(self.found) or body.poisoned:
            self.poisoned_computations.add(name)
        else:
            self.computations[name] = computation
        self.module.add_computation(computation, entry=is_entry)
        if is_entry:
            self._entry_place = start

    def _signature(self) -> tuple[Shape, int, int]:
        plain = _PARAMETERS.match(self.text, self.place)
        if plain is not None and all(map(is_shape, set(plain_shapes(plain[0])))):
            self.place = plain.end()
        else:
            self._parameters()
        self.expect("->", "after the parameters")
        start = self.skip()
        return self.shape(), start, self.place

    def _parameters(self) -> None:
        """Passes over the parameters of a signature."""
        self.expect("(", "before the parameters")
        if not self.accept(")"):
            while True:
                match = _PARAMETER.match(self.text, self.skip())
                if match is None:
                    self.unexpected("parameter 'name: shape'")
                self.place = match.end()
                if match[2] is None or not is_shape(match[2]):
                    self.place = match.end(1)
                    self.shape()
                if self.accept(")"):
                    break
                self.expect(",", "or ')' after a parameter")

    def _execution_thread(self, computation: Computation) -> None:
        name, start = self.name("execution_thread=")
        if name != "execution_thread" or not self.text.startswith('="', self.place):
            self.error("execution_thread=\"..\" expected", start, self.place)
        match = re.compile(STRING, re.DOTALL).match(self.text, self.place + 1)
        if match is None:
            self.error("string is not closed", self.place + 1)
        computation.execution_thread = unescape(match[0][1:-1])
        self.place = match.end()

    def _body(self, computation: Computation, result: tuple[Shape, int, int] | None) -> Body:
        """Reads the instructions in braces. Errors inside are collected, and reading continues."""
        help = "write ENTRY in capitals" if computation.name.lower() == "entry" else _FORM
        opening = self.expect("{", f"to begin computation '{computation.name}'", help)
        body = Body(computation)
        errors = len(self.found)
        while True:
            self.repeated_lines(body)
            begin = self.skip()
            try:
                if self.text.startswith("}", begin):
                    self.place += 1
                    break
                if self.place < len(self.text):
                    self.instruction(body)
                    continue
            except Poisoned:
                self._recover(begin)
            except Syntax as error:
                if _COMPUTATION_START.match(self.text, begin) and not self._depth:
                    self.found.append(self._not_closed(computation, opening, begin))
                    self.place = begin
                    break
                self.found.append(error.diagnostic)
                if len(self.found) >= ERROR_LIMIT or self._depth:
                    raise CompileError(self.found) from None
                self._recover(begin)
            if self.place >= len(self.text):
                raise Syntax(self._not_closed(computation, opening, self.place))
        if len(computation) == 0:
            if errors == len(self.found) and not body.poisoned:
                self.error(f"computation '{computation.name}' has no instructions", opening, self.place)
        elif errors < len(self.found) or body.poisoned or result is None:
            return body
        elif not may_repeat(result[0], computation.root.shape):
            declared, actual = result[0].without_layout(), computation.root.shape.without_layout()
            self.found.append(self.finding(
                f"computation '{computation.name}' returns {declared} by its signature, but its root is {actual}",
                result[1], result[2], notes=self.note("the root is here", computation.root.location)))
        return body

    def _not_closed(self, computation: Computation, opening: int, end: int) -> Diagnostic:
        where = self.note("a '}' is missing before this", self.location(end, end + 1)) if end < len(self.text) else ()
        return self.finding(f"computation '{computation.name}' is not closed", opening, opening + 1, notes=where)

    def inline_computation(self, start: int) -> Computation:
        """Reads `{ x = .. ROOT .. }` as an attribute value, which becomes a computation of the module."""
        if self._depth >= NESTING_LIMIT:
            self.error(f"computations nested deeper than {NESTING_LIMIT} levels", start)
        place, self.place = self.place, start
        computation = Computation("", self.location(start, start + 1))
        self._depth += 1
        self._body(computation, None)
        self._depth -= 1
        self.place = place
        self._inline.append(computation)
        return self.module.add_computation(computation)

    def with_plain_result(self, computation: Computation) -> Computation:
        """Copies a computation that returns a tuple of one element, with that element as the result, as XLA requires
        where the computation is applied to elements.
        """
        root = computation.root
        if root.op.role is not Role.TUPLE or len(root.operands) != 1 or root.users:
            return computation
        if computation not in self._plain:
            copy = self._plain[computation] = clone_computation(computation, lambda callee: callee)
            last = copy.root
            copy.root = last.operands[0]
            copy.remove(last)
            self.module.add_computation(copy)
        return self._plain[computation]

    def _drop_tuples(self) -> None:
        """Replaces computations that nobody else calls by their copies with a plain result, under unused names."""
        if self.found or not self._plain:
            return
        called = {c for computation in self.module for instruction in computation for c in instruction.called()}
        for original, copy in self._plain.items():
            if original in called or original is self.module.entry:
                copy.name = self.module.unique_computation_name(original.name)
            else:
                self.module.computations.remove(original)

    def _drop_annotations(self) -> None:
        """Removes the annotations of scalars in computations that are applied to elements. They mean nothing there, but
        JAX annotates each value of a partly manual region, inside of reducers and comparators, too.
        """
        if self.found:
            return
        applying = (i for c in self.module for i in c.calling() if not (i.op.is_control or i.op.role is Role.FUSION))
        applied = reached((c for i in applying for c in i.called()), Computation.called)
        run = set(computations_run(self.module)) if applied else set[Computation]()
        for computation in (c for c in applied if c not in run):
            for i in [i for i in computation if i.shape.is_scalar and is_annotation(i)]:
                if [o.shape for o in i.operands] == [i.shape]:
                    computation.replace_all_uses(i, i.operands[0])
                    computation.remove(i)

    def _recover(self, begin: int) -> None:
        """Moves to the next line that looks like an instruction, or the end or start of a computation; or to the end of
        the computation if that comes first.

        The lost instruction began at `begin`; reading may have stopped at the very start of the next one.
        """
        line = self.text.rfind("\n", 0, self.place)
        place = line if self.text[max(line, 0) : self.place].isspace() else self.place
        match = _NEXT_START.search(self.text, max(place, begin + 1))
        self.place = self._computation_end(begin, match.end() if match else len(self.text))

    def _computation_end(self, start: int, end: int) -> int:
        """Returns the first brace between `start` and `end` that closes one opened before, if a computation can end
        there: the next one or nothing follows. Otherwise returns `end`, since reading recovers from extra braces.
        """
        depth = 0
        for match in _BRACE.finditer(self.text, start, end):
            depth += {"{": 1, "}": -1}.get(match[0], 0)
            if depth < 0:
                try:
                    after = skip_space(self.text, match.end())
                except TextError:  # an unclosed comment, reported when reading reaches it
                    return match.start()
                return match.start() if _AFTER_COMPUTATION.match(self.text, after) else end
        return end

"""Edits that keep most programs valid: they change the same thing wherever it stands, or what nothing else depends on.

All are functions of a random generator and a printed program (one instruction a line, without signatures); where there
is nothing to edit they return the program as it is.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fuzzing.mutators import Mutator
from hloom.ir.graph.attributes import Attributes
from hloom.ir.graph.op import OPS
from hloom.ir.types.element_type import ELEMENT_TYPES

_INSTRUCTION = re.compile(r"( +)(ROOT )?(%[\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\(([^()]*)\)(.*)")
_NUMBER = re.compile(r"-?(?:nan|inf|\d+(?:\.\d+)?(?:e[+-]?\d+)?)")
_TYPE = re.compile(r"\b[a-z]+\d*\w*(?=\[)")
_SIZES = re.compile(r"(?<=\w\[)[\d,]+(?=\])|(?<=slice_sizes=\{)[\d,]+(?=\})|(?<=slice=\{)[^{}\n]+(?=\})")
_ARRAY = re.compile(r"\b\w+\[([\d,]*)\](\{[^{}]*\})?")
_HEADER = re.compile(r"num_partitions=\d+|replica_count=\d+")
_SIGNATURE = re.compile(r"^(ENTRY )?(%[\w.\-]+) \(.*\) -> .* \{$", re.MULTILINE)
_ENTRY_LAYOUT = re.compile(r", entry_computation_layout=\{.*?\}(?=, [a-z_]+=|$)", re.MULTILINE)
_TILES = (
    "T(8,128)", "T(8,128)(2,1)", "T(2)", "S(1)", "E(4)", "T(2,2)L(4)", "D(D,C)", "#(u32)", "P((f32[2], u32[]))",
    "SC(0:4,8)", "M(1024)",
)  # fmt: skip
SIZES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17)
COPIES = ("copy", "opt-barrier", "negate", "add-dependency", "after-all", "copy-start", "optimization-barrier")


@dataclass(frozen=True)
class Line:
    """An instruction of a program; `rest` is what follows its operands."""

    indent: str
    is_root: bool
    name: str
    shape: str
    opcode: str
    operands: tuple[str, ...]
    rest: str

    def __str__(self) -> str:
        root = "ROOT " if self.is_root else ""
        return f"{self.indent}{root}{self.name} = {self.shape} {self.opcode}({', '.join(self.operands)}){self.rest}"


def read(line: str) -> Line | None:
    """The instruction of a line, if it is one with plain operands."""
    match = _INSTRUCTION.fullmatch(line)
    if match is None:
        return None
    indent, root, name, shape, opcode, operands, rest = match.groups()
    return Line(indent, bool(root), name, shape, opcode, tuple(o for o in operands.split(", ") if o), rest)


def plain(text: str) -> str:
    """A printed program without what repeats the shapes of parameters and results."""
    return _SIGNATURE.sub(lambda m: f"{m[1] or ''}{m[2]} {{", _ENTRY_LAYOUT.sub("", text))


class Body:
    """The lines of a program; those that are instructions can be chosen and replaced."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.found = {n: line for n, text in enumerate(self.lines) if (line := read(text)) is not None}
        self.shapes = {line.name: line.shape for line in self.found.values()}

    def choose(self, rng: random.Random, fits: Callable[[Line], object] = bool) -> tuple[int, Line] | None:
        places = [n for n, line in self.found.items() if fits(line)]
        return (place := rng.choice(places), self.found[place]) if places else None

    def before(self, place: int) -> list[Line]:
        """The instructions before that line in its computation."""
        result: list[Line] = []
        while (place := place - 1) in self.found:
            result.append(self.found[place])
        return result

    def replaced(self, place: int, lines: Sequence[Line], after: Callable[[str], str] = str) -> str:
        """The program with other lines at a place, and with the lines of that computation behind it changed."""
        end = next((n for n in range(place, len(self.lines)) if self.lines[n].startswith("}")), len(self.lines))
        behind = [after(line) for line in self.lines[place + 1 : end]]
        return "\n".join([*self.lines[:place], *map(str, lines), *behind, *self.lines[end:]])


def _computes(line: Line) -> bool:
    return line.opcode not in ("parameter", "constant")


def _takes(line: Line) -> bool:
    return _computes(line) and bool(line.operands)


def _use(name: str, other: str) -> Callable[[str], str]:
    """Replaces the uses of a value in a line."""
    pattern = re.compile(rf"{re.escape(name)}(?=[,)])")
    return lambda line: pattern.sub(lambda _: other, line)


def element_type(rng: random.Random, text: str) -> str:
    """Another element type for all arrays of one type."""
    found = [name for name in _TYPE.findall(text) if name in ELEMENT_TYPES]
    if not found:
        return text
    old = rng.choice(found)
    alike = [name for name in ELEMENT_TYPES if name[0] == old[0]]
    new = rng.choice(alike if rng.random() < 0.7 else tuple(ELEMENT_TYPES))
    return re.sub(rf"\b{old}(?=\[)", new, text)


def dimension(rng: random.Random, text: str) -> str:
    """Another size for all dimensions of one size."""
    found = [size for match in _SIZES.finditer(text) for size in re.findall(r"\d+", match[0])]
    if not found:
        return text
    old = rng.choice(found)
    new = str(rng.choice((*SIZES, int(old) * 2, int(old) + 1)))
    return _SIZES.sub(lambda m: re.sub(rf"\b{old}\b", new, m[0]), text)


def opcode(rng: random.Random, text: str) -> str:
    """Another op with as many operands and without attributes of its own."""
    body = Body(text)
    if (chosen := body.choose(rng, _takes)) is None:
        return text
    place, line = chosen
    count = len(line.operands)
    fitting = [
        name for name, op in OPS.items()
        if op.arity[0] <= count <= (op.arity[1] or count) and (op.attributes is Attributes or rng.random() < 0.05)
    ]  # fmt: skip
    return body.replaced(place, [replace(line, opcode=rng.choice(fitting or [line.opcode]))])


def layout(rng: random.Random, text: str) -> str:
    """A layout for an array, most often one that it can have."""
    matches = list(_ARRAY.finditer(text))
    if not matches:
        return text
    match = rng.choice(matches)
    order = list(range(len([d for d in match[1].split(",") if d])))
    rng.shuffle(order)
    if order and rng.random() < 0.2:
        order[rng.randrange(len(order))] = rng.randint(-1, len(order))
    more = ":" + rng.choice(_TILES) if rng.random() < 0.3 else ""
    end = match.end() if match[2] is None else match.start(2)
    return f"{text[:end]}{{{','.join(map(str, order))}{more}}}{text[match.end():]}"


def operand(rng: random.Random, text: str) -> str:
    """Operands in another order, or another value, most often of the same shape, in place of one."""
    body = Body(text)
    if (chosen := body.choose(rng, _takes)) is None:
        return text
    place, line = chosen
    operands = list(line.operands)
    if rng.random() < 0.3:
        rng.shuffle(operands)
    else:
        at = rng.randrange(len(operands))
        shape = body.shapes.get(operands[at])
        others = body.before(place)
        alike = [o for o in others if o.shape == shape]
        operands[at] = rng.choice((alike if rng.random() < 0.8 else None) or others or [line]).name
    return body.replaced(place, [replace(line, operands=tuple(operands))])


def duplicate(rng: random.Random, text: str) -> str:
    """An instruction twice; some take the second."""
    body = Body(text)
    if (chosen := body.choose(rng, _computes)) is None:
        return text
    place, line = chosen
    copy = replace(line, name=line.name + ".again", is_root=False)
    use = _use(line.name, copy.name)
    return body.replaced(place, [copy, line], lambda other: use(other) if rng.random() < 0.5 else other)


def without(rng: random.Random, text: str) -> str:
    """An instruction less; what took it takes another one of its shape, or its operand."""
    body = Body(text)
    if (chosen := body.choose(rng, lambda line: _takes(line) and not line.is_root)) is None:
        return text
    place, line = chosen
    alike = [o.name for o in body.before(place) if o.shape == line.shape]
    return body.replaced(place, [], _use(line.name, rng.choice(alike or line.operands)))


def root(rng: random.Random, text: str) -> str:
    """Another result of a computation: an earlier value, or a tuple of some."""
    body = Body(text)
    if (chosen := body.choose(rng, lambda line: line.is_root)) is None:
        return text
    place, line = chosen
    others = [*body.before(place), line]
    old = replace(line, is_root=False)
    if rng.random() < 0.5:
        taken = rng.choice(others)
        return body.replaced(place, [old, Line(line.indent, True, line.name + ".c", taken.shape, "copy", (taken.name,),
                                               "")])  # fmt: skip
    parts = [rng.choice(others) for _ in range(rng.randint(0, 3))]
    shape = f"({', '.join(p.shape for p in parts)})"
    return body.replaced(
        place, [old, Line(line.indent, True, line.name + ".t", shape, "tuple", tuple(p.name for p in parts), "")]
    )


def tuples(rng: random.Random, text: str) -> str:
    """Tuples of an op's operand and of its result in place of these; what took the result takes an element."""
    body = Body(text)
    if (chosen := body.choose(rng, lambda line: _takes(line) and line.opcode != "tuple")) is None:
        return text
    place, line = chosen
    at = rng.randrange(len(line.operands))
    name = line.operands[at]
    shape = body.shapes.get(name)
    if shape is None:
        return text
    count = rng.choice((0, 1, 2, 2, 3))
    packed = Line(line.indent, False, name + ".pack", f"({', '.join([shape] * count)})", "tuple", (name,) * count, "")
    operands = (*line.operands[:at], packed.name, *line.operands[at + 1 :])
    changed = replace(line, operands=operands, shape=f"({', '.join([line.shape] * count)})", is_root=line.is_root)
    if rng.random() < 0.5:
        changed = replace(changed, opcode=rng.choice(COPIES), operands=operands[: at + 1][-1:], rest="")
    if line.is_root and rng.random() < 0.5:
        return body.replaced(place, [packed, changed])
    changed = replace(changed, name=line.name + ".all", is_root=False)
    taken = Line(line.indent, line.is_root, line.name, line.shape, "get-tuple-element", (changed.name,), ", index=0")
    return body.replaced(place, [packed, changed, taken])


def start(rng: random.Random, text: str) -> str:
    """A start, updates and a done, or several, in place of an op."""
    body = Body(text)
    if (chosen := body.choose(rng, _takes)) is None:
        return text
    place, line = chosen
    shapes = [body.shapes.get(o, line.shape) for o in line.operands]
    given = f"({', '.join(shapes)})"
    wrapped = f"({given}, {line.shape}{rng.choice(('', ', u32[]', ', s32[]'))})"
    if line.opcode == "copy" and rng.random() < 0.5:
        wrapped = f"({line.shape}, {shapes[0]}, u32[])"
    chain = [replace(line, name=line.name + ".start", opcode=line.opcode + "-start", shape=wrapped, is_root=False)]
    for number in range(rng.choice((0, 0, 0, 1, 2))):
        update = Line(line.indent, False, f"{line.name}.u{number}", wrapped, line.opcode + "-update",
                      (chain[-1].name,), "")  # fmt: skip
        chain.append(update)
    done = Line(line.indent, line.is_root, line.name, line.shape, line.opcode + "-done", (chain[-1].name,), "")
    if rng.random() < 0.2:
        chain.append(replace(done, name=line.name + ".done", is_root=False))
    return body.replaced(place, [*chain, done] if rng.random() < 0.9 else chain)


def call(rng: random.Random, text: str) -> str:
    """A computation of its own for an instruction: called, fused, started, or the branch of a conditional."""
    body = Body(text)
    if (chosen := body.choose(rng, _takes)) is None:
        return text
    place, line = chosen
    names = list(dict.fromkeys(line.operands))
    shapes = [body.shapes.get(name, "f32[]") for name in names]
    part = f"%part.{rng.randrange(1000)}"
    parameters = [f"  {n} = {s} parameter({k})" for k, (n, s) in enumerate(zip(names, shapes, strict=True))]
    inner = "\n".join([f"{part} {{", *parameters, str(replace(line, is_root=True)), "}\n\n"])
    taken = replace(line, operands=tuple(names))
    kind = rng.choice(("call", "call", "fusion", "async", "conditional"))
    if kind == "call":
        lines = [replace(taken, opcode="call", rest=f", to_apply={part}")]
    elif kind == "fusion":
        lines = [replace(taken, opcode="fusion", rest=f", kind=kLoop, calls={part}")]
    elif kind == "async":
        wrapped = f"(({', '.join(shapes)}), {line.shape}, s32[])"
        first = replace(taken, name=line.name + ".s", is_root=False, shape=wrapped, opcode="async-start",
                        rest=f", calls={part}")  # fmt: skip
        lines = [first, replace(line, opcode="async-done", operands=(first.name,), rest=f", calls={part}")]
    else:
        number = _selector(rng, line)
        lines = [*number, replace(taken, opcode="conditional", operands=(number[-1].name, *names[:1], *names[:1]),
                                  rest=f", branch_computations={{{part}, {part}}}")]  # fmt: skip
    made = body.replaced(place, lines)
    head, newline, rest = made.partition("\n")
    return f"{head}{newline}\n{inner}{rest.lstrip(chr(10))}"


def _selector(rng: random.Random, line: Line) -> list[Line]:
    """The number of a branch: a constant, or that of the device."""
    name = line.name + ".n"
    if rng.random() < 0.5:
        return [Line(line.indent, False, name, "s32[]", "constant", (str(rng.randrange(3)),), "")]
    device = Line(line.indent, False, name + ".u", "u32[]", "partition-id", (), "")
    return [device, Line(line.indent, False, name, "s32[]", "convert", (device.name,), "")]


def special(rng: random.Random, text: str) -> str:
    """A constant of another value: NaN, an infinity, a zero of either sign."""
    body = Body(text)
    fits = body.choose(rng, lambda line: line.opcode == "constant" and line.shape.startswith(("f", "bf")))
    if fits is None:
        return text
    place, line = fits
    value = rng.choice(("nan", "-nan", "inf", "-inf", "-0", "0"))
    return body.replaced(place, [replace(line, operands=tuple(_NUMBER.sub(value, o) for o in line.operands))])


def branches(rng: random.Random, text: str) -> str:
    """A conditional in place of an op of one operand: all branches are one computation, of operands of one shape."""
    body = Body(text)
    if (chosen := body.choose(rng, lambda line: _takes(line) and len(line.operands) == 1)) is None:
        return text
    place, line = chosen
    (name,) = line.operands
    shape = body.shapes.get(name, "f32[]")
    alike = [o.name for o in body.before(place) if o.shape == shape] or [name]
    count, part = rng.choice((2, 2, 3)), f"%part.{rng.randrange(1000)}"
    number = _selector(rng, line)
    taken = replace(line, opcode="conditional", operands=(number[-1].name, *rng.choices(alike, k=count)),
                    rest=f", branch_computations={{{', '.join([part] * count)}}}")  # fmt: skip
    inner = [f"{part} {{", f"  {name} = {shape} parameter(0)", str(replace(line, is_root=True)), "}", "", ""]
    head, newline, rest = body.replaced(place, [*number, taken]).partition("\n")
    return f"{head}{newline}\n" + "\n".join(inner) + rest.lstrip("\n")


def transfer(rng: random.Random, text: str) -> str:
    """A value that is sent and received before it is used."""
    body = Body(text)
    if (chosen := body.choose(rng, _computes)) is None:
        return text
    place, line = chosen
    channel = f", channel_id={rng.randrange(1, 200)}"
    if rng.random() < 0.5:
        pairs = rng.choice(("{{0,1}}", "{{0,1},{1,0}}", "{{1,0}}"))
        channel += f', frontend_attributes={{_xla_send_recv_source_target_pairs={pairs}}}'
    channel += rng.choice(("", ", sharding={maximal device=0}", ", sharding={maximal device=1}"))
    kept, wrapped = replace(line, name=line.name + ".own", is_root=False), f"({line.shape}, u32[], token[])"

    def made(suffix: str, shape: str, opcode: str, operands: tuple[str, ...], rest: str = channel) -> Line:
        return Line(line.indent, False, line.name + suffix, shape, opcode, operands, rest)

    token = made(".t", "token[]", "after-all", (), "")
    receive = made(".r", wrapped, "recv", (token.name,))
    send = made(".s", wrapped, "send", (kept.name, token.name))
    sent = made(".sd", "token[]", "send-done", (send.name,))
    received = made(".rd", f"({line.shape}, token[])", "recv-done", (receive.name,))
    value = replace(made("", line.shape, "get-tuple-element", (received.name,), ", index=0"), is_root=line.is_root)
    return body.replaced(place, [kept, token, *rng.choice(((receive, send), (send, receive))), sent, received, value])


def header(rng: random.Random, text: str) -> str:
    """Another number of partitions or replicas."""
    found = f"{rng.choice(('num_partitions', 'num_partitions', 'replica_count'))}={rng.choice((1, 2, 2, 4, 8, 3))}"
    if _HEADER.search(text):
        return _HEADER.sub(found, text, count=1)
    head, newline, rest = text.partition("\n")
    return f"{head}, {found}{newline}{rest}"


EDITS: tuple[Mutator, ...] = (
    element_type, dimension, dimension, opcode, opcode, layout, operand, operand, duplicate, without, root, tuples,
    tuples, start, call, header, special, branches, transfer,
)  # fmt: skip

"""Reading and printing sharding rules as text.

    ([i k], [k j]) -> [i j] {i=8, j=16, k=32} reduction={k}

Operands stand before the arrow, results after it (several results in parentheses). Each value names the factors of its
dimensions: `1` is a dimension without a factor, `(i j)` a compound one, major factor first. Sizes may be omitted where
the shapes of a use determine them. Factors are pass-through unless they are listed after `reduction=`,
`need_replication=` (or `replicate=`) or `permutation=`. `monoid=` names the op that combines partial results, add by
default; text cannot express a combination specific to one op. The keywords are Shardy's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..diagnostics import CompileError, Diagnostic, Location, Severity, SourceFile
from ..errors import ShapeError
from ..types.shape import Shape
from .sharding_rule import DimFactors, Factor, FactorKind, Monoid, ShardingRule

_WORDS = {
    FactorKind.REDUCTION: "reduction",
    FactorKind.REPLICATE: "need_replication",
    FactorKind.PERMUTATION: "permutation",
}
_KINDS = {word: kind for kind, word in _WORDS.items()} | {"replicate": FactorKind.REPLICATE}

Names = tuple[tuple[str, ...], ...]  # the names of the factors of each dimension of one value


def rule_text(rule: ShardingRule) -> str:
    """Prints a rule with the sizes of its factors, which are named i, j, k, .. in order."""
    names = [_name(i) for i in range(len(rule.factors))]

    def dim(factors: DimFactors) -> str:
        text = " ".join(names[f] for f in factors) or "1"
        return f"({text})" if len(factors) > 1 else text

    operands, results = ([f"[{' '.join(map(dim, v))}]" for v in values] for values in (rule.operands, rule.results))
    text = f"({', '.join(operands)}) -> "
    text += results[0] if len(results) == 1 else f"({', '.join(results)})"
    text += f" {{{', '.join(f'{n}={f.size}' for n, f in zip(names, rule.factors, strict=True))}}}"
    for kind, word in _WORDS.items():
        chosen = [n for n, f in zip(names, rule.factors, strict=True) if f.kind is kind]
        text += f" {word}={{{', '.join(chosen)}}}" if chosen else ""
    combines = rule.monoid not in (None, Monoid.ADD) and any(f.kind is FactorKind.REDUCTION for f in rule.factors)
    return text + (f" monoid={rule.monoid.value}" if combines and rule.monoid else "")


def _name(index: int) -> str:
    letters = "ijklmnopqrstuvwxyzabcdefgh"
    return letters[index % 26] + (f"_{index // 26}" if index >= 26 else "")


@dataclass(frozen=True)
class RuleText:
    """A parsed rule, independent of shapes. `factors` are the names in order, `sizes` those given in the `source`."""

    source: SourceFile
    operands: tuple[Names, ...]
    results: tuple[Names, ...]
    factors: tuple[str, ...]
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    kinds: Mapping[str, FactorKind] = field(default_factory=dict[str, FactorKind])
    monoid: Monoid | None = None

    def kind(self, name: str) -> FactorKind:
        return self.kinds.get(name, FactorKind.PASS)

    def error(self, name: str, message: str) -> CompileError:
        """Returns an error about a factor, at its first place in the text."""
        match = re.search(rf"\b{name}\b", self.source.text)
        start, end = match.span() if match else (0, 0)
        return _error(self.source, start, end, message)

    def rule(self, operands: Sequence[Shape], results: Sequence[Shape]) -> ShardingRule:
        """Returns the rule for these shapes, without factors of size 1. Raises ShapeError if it does not fit."""
        try:
            dims = [*_dims("operand", self.operands, operands), *_dims("result", self.results, results)]
            sizes = self._sizes(dims)
        except ShapeError as error:
            raise ShapeError(error.message, error.help or f"the rule is {self.source.text.strip()}") from error
        kept = [n for n in self.factors if sizes[n] != 1]
        numbers = {name: number for number, name in enumerate(kept)}

        def value(names: Names) -> tuple[DimFactors, ...]:
            return tuple(tuple(numbers[n] for n in dim if n in numbers) for dim in names)

        return ShardingRule(
            tuple(Factor(sizes[n], self.kind(n)) for n in kept),
            tuple(map(value, self.operands)), tuple(map(value, self.results)), self.monoid,
        )  # fmt: skip

    def _sizes(self, dims: Sequence[tuple[str, tuple[str, ...], int]]) -> dict[str, int]:
        """Infers the size of every factor by repeatedly solving dimensions with one unknown factor."""
        sizes = dict(self.sizes)
        waiting = list(dims)
        while waiting:
            ready = [d for d in waiting if sum(n not in sizes for n in d[1]) <= 1]
            if not ready:
                raise ShapeError(f"sharding rule: the sizes of {' '.join(waiting[0][1])} are not known",
                                 help=f"write them, as in {{{waiting[0][1][0]}=2}}")
            where, names, size = ready[0]
            waiting.remove(ready[0])
            known = math.prod(sizes[n] for n in names if n in sizes)
            for name in names:
                if name not in sizes:
                    sizes[name] = size // known if known else 0
            if math.prod(sizes[n] for n in names) != size and not self._may_differ(names):
                found = ", ".join(f"{n}={sizes[n]}" for n in names) or "no factor"
                raise ShapeError(f"sharding rule: {where} has {size} elements, the rule has {found} there")
        return sizes

    def _may_differ(self, names: tuple[str, ...]) -> bool:
        """Whether the dimension is one permutation factor, which may relate dimensions of different sizes."""
        return len(names) == 1 and self.kind(names[0]) is FactorKind.PERMUTATION


def _dims(
    what: str, values: Sequence[Names], shapes: Sequence[Shape]
) -> Iterator[tuple[str, tuple[str, ...], int]]:
    """Returns, for each dimension, its description, the names of its factors and its size."""
    if len(values) != len(shapes):
        raise ShapeError(f"sharding rule: it has {len(values)} {what}s, but the op has {len(shapes)}")
    for number, (names, shape) in enumerate(zip(values, shapes, strict=True)):
        if len(names) != shape.rank:
            text = shape.without_layout()
            raise ShapeError(f"sharding rule: {what} {number} is {text}, the rule gives it {len(names)} dimensions")
        for dim, (factors, size) in enumerate(zip(names, shape.dims, strict=True)):
            yield f"{what} {number} dimension {dim}", factors, size


_TOKEN = re.compile(r"\s*(->|[A-Za-z_]\w*|\d+|[()\[\]{}=,]|$)")


def _error(source: SourceFile, start: int, end: int, message: str) -> CompileError:
    return CompileError([Diagnostic(Severity.ERROR, message, Location(source, start, end), _SYNTAX)])


_SYNTAX = "a rule looks like ([i k], [k j]) -> [i j] reduction={k}"


class _Reader:
    """A recursive-descent parser over the tokens of one text. Every method raises CompileError on a syntax error."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.text = source.text
        self.place = 0
        self.token = ""
        self.step()

    def step(self) -> str:
        """Consumes and returns the current token."""
        before = self.token
        match = _TOKEN.match(self.text, self.place)
        if match is None:
            rest = self.text[self.place :]
            self.token, self.place = "", self.place + len(rest) - len(rest.lstrip())
            raise self.error("unexpected character")
        self.token, self.place = match[1], match.end()
        return before

    def error(self, message: str) -> CompileError:
        return _error(self.source, self.place - len(self.token), self.place, message)

    def expect(self, token: str) -> None:
        if self.token != token:
            raise self.error(f"expected {token}")
        self.step()

    def accept(self, token: str) -> bool:
        if self.token != token:
            return False
        self.step()
        return True

    def name(self) -> str:
        if not self.token.isidentifier():
            raise self.error("expected the name of a factor")
        return self.step()

    def names(self, end: str) -> tuple[str, ...]:
        """Reads names up to `end`, with or without commas."""
        found: list[str] = []
        while not self.accept(end):
            found.append(self.name())
            self.accept(",")
        return tuple(found)

    def value(self) -> Names:
        self.expect("[")
        dims: list[tuple[str, ...]] = []
        while not self.accept("]"):
            dims.append(self.names(")") if self.accept("(") else () if self.accept("1") else (self.name(),))
            self.accept(",")
        flat = [n for dim in dims for n in dim]
        if len(set(flat)) < len(flat):
            raise self.error("a factor occurs twice in one value")
        return tuple(dims)

    def values(self) -> tuple[Names, ...]:
        """Reads `(value, ..)`."""
        self.expect("(")
        found: list[Names] = []
        while not self.accept(")"):
            found.append(self.value())
            self.accept(",")
        return tuple(found)

    def sizes(self) -> dict[str, int]:
        """Reads sizes up to `}`; the `{` has been consumed."""
        found: dict[str, int] = {}
        while not self.accept("}"):
            name = self.name()
            self.expect("=")
            if not self.token.isdecimal():
                raise self.error("expected a size")
            found[name] = int(self.step())
            self.accept(",")
        return found

    def known(self, names: Sequence[str], factors: Sequence[str]) -> None:
        for name in names:
            if name not in factors:
                raise self.error(f"no dimension has the factor {name}")


def parse_rule(text: str, name: str = "sharding rule") -> RuleText:
    """Parses the text of a rule. Raises CompileError at the offending token; messages show `name` as its file."""
    reader = _Reader(SourceFile(name, text))
    operands = reader.values()
    reader.expect("->")
    results = reader.values() if reader.token == "(" else (reader.value(),)
    used = dict.fromkeys(n for value in (*operands, *results) for dim in value for n in dim)
    sizes = reader.sizes() if reader.accept("{") else {}
    reader.known(list(sizes), list(used))
    factors = tuple(dict.fromkeys((*sizes, *used)))
    kinds: dict[str, FactorKind] = {}
    monoid: Monoid | None = None
    while reader.token:
        word = reader.name()
        reader.expect("=")
        if word == "monoid":
            monoid = _monoid(reader)
        elif word in _KINDS:
            reader.expect("{")
            chosen = reader.names("}")
            reader.known([*chosen], factors)
            if kinds.keys() & set(chosen):
                raise reader.error("a factor has two kinds")
            kinds |= dict.fromkeys(chosen, _KINDS[word])
        else:
            raise reader.error(f"{word} is not one of {', '.join((*_KINDS, 'monoid'))}")
    if monoid is None and FactorKind.REDUCTION in kinds.values():
        monoid = Monoid.ADD
    return RuleText(reader.source, operands, results, factors, sizes, kinds, monoid)


def _monoid(reader: _Reader) -> Monoid:
    found = {m.value: m for m in Monoid}.get(reader.token)
    if found is None:
        raise reader.error(f"expected one of {', '.join(m.value for m in Monoid)}")
    reader.step()
    return found

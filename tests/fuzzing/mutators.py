"""Damage to any text: characters, numbers, words, attributes and lines, lost, doubled, moved or replaced.

All are functions of a random generator and a text that is not empty. The gentle ones keep the kind of what they replace
(a number by a small number, a type by a type, a name by a name of the same program): such programs often still verify,
and reach the passes. The others put in what no program has.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

from hloom.ir.graph.op import OPS
from hloom.ir.types.element_type import ELEMENT_TYPES

Mutator = Callable[[random.Random, str], str]
ABSURD = (
    "0", "-1", "2147483648", "9223372036854775807", "99999999999999999999", "1000000000000", "4294967296", "1e999",
    "nan", "inf", "-0.0", "{}", "()", "[]", "?", "<=4", "f32[1000000000000]", "(", ")", "{", "}", '"', "'", "/*", "%",
    "\0", "é", "\udcff", "{...}", "((", "{{", "replicated", "manual", "unreduced", "maximal device=3", "s4", "pred",
    "token[]", "opaque[]", "f8e4m3fn", "c128", "<=8", "{1,0:T(8,128)}",
)  # fmt: skip
SMALL = ("0", "1", "2", "3", "4", "5", "7", "8", "16", "-1", "100")
_TOKEN = re.compile(r"%?[A-Za-z_][\w.\-]*|-?\d+(?:\.\d+)?|[^\w\s]|\s+")
_NUMBER = re.compile(r"(?<![\w.])-?\d+")
_WORD = re.compile(r"%?[A-Za-z_][\w.\-]*")
_ATTRIBUTE = re.compile(r", ([a-z_]+)=(\{[^{}\n]*\}|[^,{}\n]+)")


def cut(rng: random.Random, text: str) -> str:
    return text[: rng.randrange(len(text))]


def characters(rng: random.Random, text: str) -> str:
    place = rng.randrange(len(text))
    new = rng.choice(("", chr(rng.randrange(32, 127)), chr(rng.randrange(1, 0x2000)), text[place] * 2))
    return text[:place] + new + text[place + rng.randint(0, 2) :]


def lines(rng: random.Random, text: str) -> str:
    lines = text.splitlines(keepends=True)
    for _ in range(rng.randint(1, 3)):
        line = lines.pop(rng.randrange(len(lines)))
        copies = rng.choice((0, 1, 1, 1, 2))
        for _ in range(copies):
            lines.insert(rng.randrange(len(lines) + 1), line)
        if not lines:
            break
    return "".join(lines)


def _replaced(text: str, matches: Sequence[re.Match[str]], new: Callable[[re.Match[str]], str]) -> str:
    for match in sorted(matches, key=lambda m: -m.start()):
        text = text[: match.start()] + new(match) + text[match.end() :]
    return text


def _some(rng: random.Random, pattern: re.Pattern[str], text: str, most: int = 3) -> list[re.Match[str]]:
    found = list(pattern.finditer(text))
    return rng.sample(found, min(len(found), rng.randint(1, most)))


def numbers(rng: random.Random, text: str) -> str:
    return _replaced(text, _some(rng, _NUMBER, text), lambda m: rng.choice((*ABSURD[:8], *SMALL)))


def small_numbers(rng: random.Random, text: str) -> str:
    def near(match: re.Match[str]) -> str:
        number = int(match[0])
        return str(rng.choice((number - 1, number + 1, number * 2, number // 2, rng.randint(0, 9))))

    return _replaced(text, _some(rng, _NUMBER, text), near)


def one_number_everywhere(rng: random.Random, text: str) -> str:
    """Another size for a dimension, wherever it stands."""
    old = rng.choice(_NUMBER.findall(text) or ["0"])
    return re.sub(rf"(?<![\w.-]){re.escape(old)}(?!\w)", rng.choice((*SMALL, *ABSURD[:7])), text)


def same_kind(rng: random.Random, text: str) -> str:
    """Words by words of their kind: a type, an opcode, or another word of the program."""
    words = _WORD.findall(text)

    def other(match: re.Match[str]) -> str:
        kinds = ((ELEMENT_TYPES, tuple(ELEMENT_TYPES)), (OPS, tuple(OPS)))
        return rng.choice(next((names for known, names in kinds if match[0] in known), words))

    return _replaced(text, _some(rng, _WORD, text), other)


def attributes(rng: random.Random, text: str) -> str:
    """Attributes lost, doubled, or with the value of another one of their name."""
    found = list(_ATTRIBUTE.finditer(text))

    def other(match: re.Match[str]) -> str:
        same = [m[0] for m in found if m[1] == match[1]]
        return rng.choice(("", match[0] * 2, rng.choice(same), rng.choice(found)[0]))

    return _replaced(text, _some(rng, _ATTRIBUTE, text, 2), other)


def tokens(rng: random.Random, text: str) -> str:
    tokens = _TOKEN.findall(text)
    for _ in range(rng.randint(1, 4)):
        if tokens:
            _damage(rng, tokens)
    return "".join(tokens)


def _damage(rng: random.Random, tokens: list[str]) -> None:
    place, other = rng.randrange(len(tokens)), rng.randrange(len(tokens))
    match rng.randrange(5):
        case 0:
            del tokens[place]
        case 1:
            tokens.insert(place, tokens[other])
        case 2:
            tokens[place], tokens[other] = tokens[other], tokens[place]
        case 3:
            tokens[place] = tokens[other]
        case _:
            tokens[place] = rng.choice(ABSURD)


GENTLE: tuple[Mutator, ...] = (
    small_numbers, small_numbers, one_number_everywhere, one_number_everywhere, same_kind, attributes, lines,
)  # fmt: skip
ALL: tuple[Mutator, ...] = (*GENTLE, cut, characters, numbers, tokens, tokens)

"""Holds the lark parser of the irregular values, made when first needed, and turns its errors into `TextError`.

Making its tables takes a quarter of a second, so they are kept on disk.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

from ...ir.disk_cache import cached, folder
from ...ir.inert import plain_values
from .errors import TextError, check_depth, did_you_mean

_LAST_WORD = re.compile(r"[a-z_]+$", re.IGNORECASE | re.ASCII)
_LONGEST_WORD = 100
_EXAMPLE = "for example {devices=[2,1]<=[2]}, {mesh['x'=2,'y'=4], [{'x'}, {}]} or {replicated}"
_WORD = re.compile(r"[a-z_]\w*", re.IGNORECASE | re.ASCII)


LONGEST = 4_000_000
"""Characters of a value, whose tree takes 300 times as many bytes; a list of 131,072 devices has 0.9 million."""

STARTS = ["array_shape", "meshes", "replica_groups", "sharding", "shardy", "window"]


@cache
def _parser() -> Any:
    import lark

    parsers: Any = lark.Lark  # its annotations leave the types of files open
    text = (Path(__file__).parent / "hlo.lark").read_text()
    made: list[Any] = []

    def make() -> bytes:
        made.append(parsers(text, parser="lalr", start=STARTS, maybe_placeholders=True, propagate_positions=True))
        content = BytesIO()
        made[0].save(content)
        return content.getvalue()

    content = cached((text, lark.__version__, sys.version), make, folder(), ".lark")
    return made[0] if made else parsers.load(plain_values(content))  # lark itself would read any pickle


def read(start: str, what: str, text: str) -> Any:
    """Parses `text` by the start rule `start` into a syntax tree. Raises TextError; `what` names the kind of value in
    messages.
    """
    from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

    if len(text) > LONGEST:
        raise TextError(f"{what} has {len(text):,} characters, more than {LONGEST:,}", 0, len(text))
    check_depth(text)
    try:
        return _parser().parse(text, start)
    except UnexpectedToken as error:
        token: Any = error.token
        if token.type == "$END":
            help = _expected(error.accepts or error.expected, "")
            raise TextError(f"{what} ends too early", len(text), len(text) + 1, help) from None
        place, word = _whole(text, int(token.start_pos), str(token))
        help = _expected(error.accepts or error.expected, word)
        raise TextError(f"{what}: unexpected '{word}'", place, place + len(word), help) from None
    except UnexpectedCharacters as error:
        place = error.pos_in_stream if isinstance(error.pos_in_stream, int) else 0
        found = _WORD.match(text, place)
        place, word = _whole(text, place, found[0] if found else text[place])
        help = _expected(error.allowed, word)
        raise TextError(f"{what}: unexpected '{word}'", place, place + len(word), help) from None
    except UnexpectedInput as error:
        raise TextError(f"{what}: cannot be read", error.pos_in_stream or 0) from None


def _whole(text: str, place: int, word: str) -> tuple[int, str]:
    """Returns the word around an unexpected one with its place, where letters before it read as an expected word."""
    before = _LAST_WORD.search(text[max(place - _LONGEST_WORD, 0) : place]) if _WORD.match(word) else None
    return (place - len(before[0]), before[0] + word) if before else (place, word)


_NAMES = {
    "INT": "a number", "INTS": "numbers", "QUOTED": "a quoted axis name", "METADATA": "metadata={..}",
    "KIND": "replicated, manual, unreduced or unknown", "GROUP": "shard_as or shard_like",
    "KIND_OR_MAXIMAL": "replicated, manual, unreduced or maximal",
    "SYMBOL": "@name of a mesh", "MESH_NAME": "name of a mesh", "PRIORITY": "a priority (p1)", "$END": "the end",
    "TYPE": "an element type", "WINDOW_WORD": "size, stride, pad, ..", "WINDOW_VALUE": "sizes (3x3)",
    "DEVICE_IDS": "', device_ids='", "DIM_TYPES": "D(..)", "TAIL_ALIGNMENT": "L(..)", "INDEX_TYPE": "#(..)",
    "POINTER_TYPE": "*(..)", "ELEMENT_BITS": "E(..)", "SPACE": "S(..)", "SPLITS": "SC(..)", "PHYSICAL": "P(..)",
    "METADATA_BYTES": "M(..)",
}  # fmt: skip


def _expected(names: set[str] | None, found: str) -> str | None:
    """Returns the help for a syntax error: the expected tokens, or only the nearest word if a word is misspelt."""
    if not names:
        return None
    texts = sorted(_name(n) for n in names)
    words = re.findall(r"[a-z_#.]{3,}", " ".join(texts))
    near = did_you_mean(found, words) if len(found) > 2 else None
    return near or (_EXAMPLE if "'mesh'" in texts else "expected " + " or ".join(texts))


def _name(terminal: str) -> str:
    if terminal in _NAMES:
        return _NAMES[terminal]
    definition = next((t for t in _parser().terminals if t.name == terminal), None)
    return f"'{definition.pattern.value}'" if definition is not None else terminal

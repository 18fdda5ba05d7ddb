"""Quoted strings of HLO text: reading and writing C escapes, and text in braces that is kept verbatim."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAMED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_NAMED_OUT = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "'": "\\'", "\\": "\\\\"}
_HEX = "[0-9a-fA-F]"
ESCAPE = re.compile(
    rf"\\([xX]{_HEX}{{1,2}}|u{_HEX}{{4}}|U00(?:0{_HEX}|10){_HEX}{{4}}|[0-7]{{1,3}}|.)", re.DOTALL
)
"""Matches an escape sequence; group 1 is the part after the backslash."""
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")
_PLAIN = re.compile(r"[^\x00-\x1f\x7f-\U0010ffff\"'\\]*\Z")


@dataclass(frozen=True, slots=True)
class BracedText:
    """Text in braces that HLO keeps verbatim (backend configs, frontend attributes). `text` includes the braces."""

    text: str

    def __str__(self) -> str:
        return self.text


def unescape(text: str) -> str:
    """Resolves the C escapes of the text between quotes; bytes are decoded as UTF-8."""
    if "\\" not in text:
        return text
    # Plain text and codes alternate. Several escaped bytes may form one UTF-8 character, so bytes are joined first.
    parts = [_escaped(p) if n % 2 else _bytes(p) for n, p in enumerate(ESCAPE.split(text))]
    return b"".join(parts).decode("utf-8", "surrogateescape")


def _escaped(code: str) -> bytes:
    if code[0] in "xX" and len(code) > 1:
        return bytes([int(code[1:], 16)])
    if code[0] in "uU" and len(code) > 1:
        return chr(int(code[1:], 16)).encode("utf-8", "surrogatepass")
    if code[0] in "01234567":
        return bytes([int(code, 8) & 0xFF])
    return _bytes(_NAMED.get(code, code))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def key_text(key: str) -> str:
    """Returns the text of a frontend attribute's key, quoted unless it is an identifier."""
    return key if _WORD.fullmatch(key) else quote(key)


def quote(text: str) -> str:
    """Quotes a string as XLA prints it, with non-ASCII bytes in octal."""
    if _PLAIN.match(text):
        return f'"{text}"'
    parts: list[str] = []
    for char in text:
        if char in _NAMED_OUT:
            parts.append(_NAMED_OUT[char])
        elif 32 <= ord(char) < 127:
            parts.append(char)
        else:
            parts += [f"\\{byte:03o}" for byte in _bytes(char)]
    return '"' + "".join(parts) + '"'

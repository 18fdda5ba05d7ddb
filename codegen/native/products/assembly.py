"""Writes functions of LLVM IR: uniquely named values, and counted loops."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from itertools import count


class Assembly:
    """The lines of one function. Integers are of 64 bits, addresses count bytes."""

    def __init__(self, header: str) -> None:
        self._lines = [f"{header} {{", "entry:"]
        self._numbers = count()
        self._block = "entry"

    def line(self, text: str) -> None:
        self._lines.append(f"  {text}")

    def value(self, text: str) -> str:
        """Adds an instruction and returns the name of its result."""
        name = f"%v{next(self._numbers)}"
        self.line(f"{name} = {text}")
        return name

    def integer(self, verb: str, x: str, y: int | str) -> str:
        """Emits a binary i64 instruction and returns its value."""
        return self.value(f"{verb} i64 {x}, {y}")

    def both(self, x: str, y: str) -> str:
        return self.value(f"and i1 {x}, {y}")

    def nor(self, x: str, y: str = "false") -> str:
        """Whether neither condition holds."""
        return self.value(f"xor i1 {self.value(f'or i1 {x}, {y}')}, true")

    def choice(self, condition: str, x: str, y: str, kind: str = "i64", lanes: str = "i1") -> str:
        """Returns x if the condition holds, else y; by lanes for a condition of such a type."""
        return self.value(f"select {lanes} {condition}, {kind} {x}, {kind} {y}")

    def label(self, name: str) -> None:
        self._lines.append(f"{name}:")
        self._block = name

    def word(self, words: str, index: int) -> str:
        """Returns one word of an array of them."""
        return self.value(f"load i64, ptr {self.at(words, 8 * index)}")

    def at(self, base: str, offset: int | str) -> str:
        """Returns an address plus a number of bytes."""
        return self.value(f"getelementptr i8, ptr {base}, i64 {offset}")

    def step(self, base: str, index: str, stride: str) -> str:
        """Returns the address of an element of a strided array."""
        return self.at(base, self.value(f"mul i64 {index}, {stride}"))

    def cell(self, base: str, row: tuple[str, str], column: tuple[str, str]) -> str:
        """Returns the address of an element of a matrix, given its indices with their strides."""
        return self.step(self.step(base, *row), *column)

    @contextmanager
    def loop(self, size: str, start: str = "0", by: int | str = 1) -> Generator[str]:
        """Writes a loop; the body gets the index."""
        n = next(self._numbers)
        before = self._block
        self.line(f"br label %head{n}")
        self.label(f"head{n}")
        self.line(f"%i{n} = phi i64 [{start}, %{before}], [%next{n}, %tail{n}]")
        self.line(f"%more{n} = icmp slt i64 %i{n}, {size}")
        self.line(f"br i1 %more{n}, label %body{n}, label %done{n}")
        self.label(f"body{n}")
        yield f"%i{n}"
        self.line(f"br label %tail{n}")
        self.label(f"tail{n}")
        self.line(f"%next{n} = add i64 %i{n}, {by}")
        self.line(f"br label %head{n}")
        self.label(f"done{n}")

    @contextmanager
    def while_true(self, flag: str) -> Generator[None]:
        """Writes a loop that runs as long as the truth value at an address holds."""
        n = next(self._numbers)
        self.line(f"br label %head{n}")
        self.label(f"head{n}")
        self.line(f"br i1 {self.value(f'load i1, ptr {flag}')}, label %body{n}, label %done{n}")
        self.label(f"body{n}")
        yield
        self.line(f"br label %head{n}")
        self.label(f"done{n}")

    @contextmanager
    def when(self, condition: str) -> Generator[None]:
        """Writes a conditional block."""
        n = next(self._numbers)
        self.line(f"br i1 {condition}, label %then{n}, label %after{n}")
        self.label(f"then{n}")
        yield
        self.line(f"br label %after{n}")
        self.label(f"after{n}")

    def text(self) -> str:
        return "\n".join([*self._lines, "  ret void", "}", ""])

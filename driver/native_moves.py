"""Lists programs of the calibration that read every other element of a transposed array, so each of them alone."""

from __future__ import annotations

from collections.abc import Iterator

_SIZES = (("f32", 128, 128, 40), ("f32", 64, 1024, 20), ("f32", 256, 1024, 8), ("bf16", 1024, 64, 20),
          ("bf16", 64, 96, 80))  # fmt: skip
"""The type, rows and columns of the array, and how often it is read."""

_TEXT = """k{n} = {t}[] constant({n})
b{n} = {half} broadcast(k{n}), dimensions={{}}
y{n} = {half} add(s, b{n})
v{n} = {half} opt-barrier(y{n})
"""


def moves() -> Iterator[str]:
    """Yields the texts of the programs."""
    for t, rows, columns, count in _SIZES:
        half = f"{t}[{columns // 2},{rows // 2}]"
        lines = [f"x = {t}[{rows},{columns}] parameter(0)",
                 f"t = {t}[{columns},{rows}] transpose(x), dimensions={{1,0}}",
                 f"s = {half} slice(t), slice={{[0:{columns}:2], [0:{rows}:2]}}"]  # fmt: skip
        lines += [_TEXT.format(n=n, t=t, half=half) for n in range(count)]
        results = ", ".join(f"v{n}" for n in range(count))
        lines.append(f"ROOT r = ({', '.join([half] * count)}) tuple({results})")
        yield "HloModule calibrate\nENTRY e {\n" + "\n".join(lines) + "\n}"

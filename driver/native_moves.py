"""Lists programs of the calibration that move elements alone: that read every other one of a transposed array, or some
of each row, and that add rows at computed places, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator

_SIZES = (("f32", 128, 128, 40), ("f32", 64, 1024, 20), ("f32", 256, 1024, 8), ("bf16", 1024, 64, 20),
          ("bf16", 64, 96, 80))  # fmt: skip
"""The type, rows and columns of the array, and how often it is read."""

_TEXT = """k{n} = {t}[] constant({n})
b{n} = {half} broadcast(k{n}), dimensions={{}}
y{n} = {half} add(s, b{n})
"""
_KEPT = "v{n} = {half} opt-barrier({last}{n})\n"

_STRIDED = (("f32", 64, 64, 3, 40, False), ("f32", 32, 128, 5, 40, False), ("f32", 128, 96, 8, 20, False),
            ("bf16", 64, 64, 3, 40, False), ("f32", 256, 32, 6, 30, True), ("f32", 64, 128, 4, 40, True),
            ("bf16", 64, 96, 6, 40, True))  # fmt: skip
"""The type, rows and columns of what is read, the distance of its elements in a row, how often it is read, and whether
rows are read twice each time, for their sums. The cache lines of a row stay in the first cache until it is read.
"""

_SUM = """m{n} = {t}[{rows}] reduce(y{n}, zero), dimensions={{1}}, to_apply=add
d{n} = {half} broadcast(m{n}), dimensions={{0}}
w{n} = {half} subtract(y{n}, d{n})
"""

_PLACES = ((2048, 1, 20),)
"""The rows and columns of an array, and how often rows are added to it."""

_ADDER = """HloModule calibrate
add {{ a = {t}[] parameter(0)
 b = {t}[] parameter(1)
 ROOT r = {t}[] add(a, b) }}
"""
_ADDED = """ENTRY e {{ v0 = {s} parameter(0)
 u = {s} parameter(1)
 i = s32[{rows},1] iota(), iota_dimension=0
 j = s32[{rows},1] opt-barrier(i)
"""
_ADD = """a{n} = {s} scatter(v{n}, j, u), update_window_dims={{1}}, inserted_window_dims={{0}}, index_vector_dim=1, \
scatter_dims_to_operand_dims={{0}}, to_apply=add
v{m} = {s} opt-barrier(a{n})
"""


def moves() -> Iterator[str]:
    """Yields the texts of the programs."""
    for t, rows, columns, count in _SIZES:
        half = f"{t}[{columns // 2},{rows // 2}]"
        lines = [f"x = {t}[{rows},{columns}] parameter(0)",
                 f"t = {t}[{columns},{rows}] transpose(x), dimensions={{1,0}}",
                 f"s = {half} slice(t), slice={{[0:{columns}:2], [0:{rows}:2]}}"]  # fmt: skip
        yield _read(t, half, lines, count)
    for t, rows, columns, step, count, sums in _STRIDED:
        half = f"{t}[{rows},{columns}]"
        lines = [f"x = {t}[{rows},{(columns + 1) * step}] parameter(0)", f"zero = {t}[] constant(0)",
                 f"s = {half} slice(x), slice={{[0:{rows}], [0:{columns * step}:{step}]}}"]  # fmt: skip
        yield _read(t, half, lines, count, rows if sums else 0)
    for rows, columns, count in _PLACES:
        s = f"f32[{rows},{columns}]"
        lines = [_ADD.format(n=n, m=n + 1, s=s) for n in range(count)]
        text = _ADDER.format(t="f32") + _ADDED.format(s=s, rows=rows)
        yield text + "".join(lines) + f"ROOT r = {s} negate(v{count}) }}"


def _read(t: str, half: str, lines: list[str], count: int, sums: int = 0) -> str:
    """Returns a program that reads s so many times, with this number of sums of rows each time."""
    text, last = (_TEXT + _SUM + _KEPT, "w") if sums else (_TEXT + _KEPT, "y")
    lines = [*lines, *(text.format(n=n, t=t, half=half, rows=sums, last=last) for n in range(count))]
    results = ", ".join(f"v{n}" for n in range(count))
    lines.append(f"ROOT r = ({', '.join([half] * count)}) tuple({results})")
    return _ADDER.format(t=t) + "ENTRY e {\n" + "\n".join(lines) + "\n}"

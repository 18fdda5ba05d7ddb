"""Lists programs of the calibration that move elements alone: that read every other one of a transposed array, and that
add rows at computed places, one after the other.
"""

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

_PLACES = ((2048, 1, 20),)
"""The rows and columns of an array, and how often rows are added to it."""

_ADDED = """HloModule calibrate
add {{ a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] add(a, b) }}
ENTRY e {{ v0 = {s} parameter(0)
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
        lines += [_TEXT.format(n=n, t=t, half=half) for n in range(count)]
        results = ", ".join(f"v{n}" for n in range(count))
        lines.append(f"ROOT r = ({', '.join([half] * count)}) tuple({results})")
        yield "HloModule calibrate\nENTRY e {\n" + "\n".join(lines) + "\n}"
    for rows, columns, count in _PLACES:
        s = f"f32[{rows},{columns}]"
        lines = [_ADD.format(n=n, m=n + 1, s=s) for n in range(count)]
        yield _ADDED.format(s=s, rows=rows) + "".join(lines) + f"ROOT r = {s} negate(v{count}) }}"

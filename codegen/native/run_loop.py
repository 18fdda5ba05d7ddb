"""Machine code that runs tables of native steps, so that a step costs a few nanoseconds, and control flow over tables.

All functions take the address of a block of 64-bit words. A table is an array of pairs of such words: a function's
address, and that of its block.
"""

from __future__ import annotations

from functools import cache

from .compile_llvm import Loaded, kept_code
from .run_control import control_flow

RUN = """
define void @run(ptr %table) {
entry:
  %count = load i64, ptr %table
  %first = getelementptr i64, ptr %table, i64 1
  br label %head
head:
  %n = phi i64 [0, %entry], [%next, %body]
  %more = icmp ult i64 %n, %count
  br i1 %more, label %body, label %exit
body:
  %at = shl i64 %n, 1
  %pair = getelementptr i64, ptr %first, i64 %at
  %function = load ptr, ptr %pair
  %second = getelementptr i64, ptr %pair, i64 1
  %block = load ptr, ptr %second
  call void %function(ptr %block)
  %next = add i64 %n, 1
  br label %head
exit:
  ret void
}
"""


@cache
def code(name: str) -> Loaded:
    """Returns a function: `run`, which takes the address of a table, `sequence`, `loop`, `choose` or `place`. The first
    word of a table counts its pairs.
    """
    return Loaded(kept_code(_text()), name)


@cache
def _text() -> str:
    return "\n".join([RUN, *control_flow()])

"""Machine code that runs tables of native steps, so that a step costs a few nanoseconds, and control flow over tables,
with copies of arrays.

All functions take the address of a block of 64-bit words. A table is an array of pairs of such words: a function's
address, and that of its block.
"""

from __future__ import annotations

from functools import cache

from .compile_llvm import Loaded, kept_code
from .products.assembly import Assembly
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
def table_loop() -> Loaded:
    """Returns the function that runs a table. It takes the table's address; the first word counts the pairs."""
    return Loaded(kept_code(RUN), "run")


@cache
def code(name: str) -> Loaded:
    """Returns a function: `sequence`, `loop`, `choose` or `copy`."""
    return Loaded(kept_code(_text()), name)


@cache
def _text() -> str:
    return "\n".join(["declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)", RUN, *control_flow(), _copy()])


def _copy() -> str:
    """Words: source, target, bytes."""
    f = Assembly("define void @copy(ptr %block)")
    source, target = (f.value(f"load ptr, ptr {f.at('%block', 8 * n)}") for n in range(2))
    f.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {f.word('%block', 2)}, i1 false)")
    return f.text()

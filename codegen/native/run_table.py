"""The loop that runs a table of native steps: machine code too, so that a step costs a few nanoseconds.

A table is an array of pairs of 64-bit words: a function's address, and that of its block.
"""

from __future__ import annotations

from functools import cache

from .compile_llvm import Loaded, kept_code

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

"""Object code whose sections would lie more than 2 GiB apart in a process that has much memory."""

import subprocess
import sys

from support.command_line import environment

# A big mapping with holes that fit code only, so that its constants lie beyond the mapping.
FAR = r'''
import ctypes, mmap
import numpy as np
from hloom.codegen.native.compile_llvm import Loaded, object_code

SIZE, PAGE, CONSTANTS, HOLES = 8 << 30, 4096, 1 << 22, 200
c = ctypes.CDLL(None)
c.mmap.restype = ctypes.c_void_p
c.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
c.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
ONES = r"\01" * CONSTANTS
code = object_code(f"""
@table = internal constant [{CONSTANTS} x i8] c"{ONES}"
define void @kernel(ptr %p) {{
  %at = load i64, ptr %p
  %place = getelementptr [{CONSTANTS} x i8], ptr @table, i64 0, i64 %at
  %byte = load i8, ptr %place
  %word = zext i8 %byte to i64
  store i64 %word, ptr %p
  ret void
}}
""")
NORESERVE = 0x4000
start = c.mmap(None, SIZE, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE, -1, 0)
for hole in range(HOLES):
    c.munmap(start + SIZE - (1 << 22) + 2 * hole * PAGE, PAGE)
kept = []
for _ in range(3):
    kept.append(Loaded(code))
    x = np.array([CONSTANTS - 1])
    kept[-1].run(x.ctypes.data)
    assert x[0] == 1
print("right")
'''


def test_sections_lie_together_in_a_process_of_much_memory() -> None:
    done = subprocess.run([sys.executable, "-c", FAR], env=environment(), capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "right", done.stderr

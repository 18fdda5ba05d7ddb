"""Memory of freed arrays: glibc returns that of large ones to the system at once, and every new array is then filled
page by page. A training step of many small ops takes 1.4 times as long.
"""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt
_MOST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Makes this process keep freed memory for later arrays; returns False where the C library cannot. For programs
    that do nothing else, such as the command line: the setting is the whole process's.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _MOST)) and bool(mallopt(_TRIM_THRESHOLD, _MOST))

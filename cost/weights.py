"""What work costs relative to communication: the exchange rates for choosing how to partition one op.

The unit is one byte received over a link. The rates are those of current accelerators to an order of magnitude (a link
of 100 GB/s, memory of 1 TB/s, 100 TFLOP/s); choices that hang on more than that need a machine description.
"""

from __future__ import annotations

MEMORY_BYTE = 0.1  # reading or writing one byte of local memory
INDEX_POINT = 0.001  # one point of the op's index space (a multiply-add of a dot, say)
UNKNOWN_TRIPS = 2  # of a loop that does not say how often it runs: what is inside counts more than what is not

"""Lists programs of the calibration with loops in loops in machine code: the inner ones start without Python."""

from __future__ import annotations

from collections.abc import Iterator

_SIZES = ((64, 2000, 2), (128, 300, 12))
"""Elements of an array, trips of a loop, and trips of the loop in each of them."""

_TEXT = """HloModule calibrate
inside {{ p = {state} parameter(0)
 i = s32[] get-tuple-element(p), index=0
 one = s32[] constant(1)
 next = s32[] add(i, one)
 x = {array} get-tuple-element(p), index=1
 y = {array} negate(x)
 ROOT t = {state} tuple(next, y) }}
until {{ p = {state} parameter(0)
 i = s32[] get-tuple-element(p), index=0
 n = s32[] constant({inner})
 ROOT c = pred[] compare(i, n), direction=LT }}
body {{ p = {state} parameter(0)
 i = s32[] get-tuple-element(p), index=0
 one = s32[] constant(1)
 next = s32[] add(i, one)
 zero = s32[] constant(0)
 x = {array} get-tuple-element(p), index=1
 s = {state} tuple(zero, x)
 w = {state} while(s), condition=until, body=inside
 y = {array} get-tuple-element(w), index=1
 ROOT t = {state} tuple(next, y) }}
test {{ p = {state} parameter(0)
 i = s32[] get-tuple-element(p), index=0
 n = s32[] constant({trips})
 ROOT c = pred[] compare(i, n), direction=LT }}
ENTRY e {{ i = s32[] constant(0)
 x = {array} parameter(0)
 s = {state} tuple(i, x)
 ROOT w = {state} while(s), condition=test, body=body }}"""


def nests() -> Iterator[str]:
    """Yields the texts of the programs: an array is negated in each trip of the inner loops."""
    for width, trips, inner in _SIZES:
        array = f"f32[{width}]"
        yield _TEXT.format(state=f"(s32[], {array})", array=array, trips=trips, inner=inner)
